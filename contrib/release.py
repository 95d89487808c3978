"""Builds what is given out and tries it as a user would: `make package`.

Into ``dist/`` go the sdist, the wheel that is built from it, a list of what an installation holds (SBOM,
CycloneDX), the conda-forge recipe with the sdist's hash, and the release notes from CHANGELOG.md. The wheel
is installed into a clean environment, where a simulation and the live twin's demo run; then, in environments
of their own, with each extra, where every module that stands on it is imported. Needs in its own environment
what the dependency group ``release`` in pyproject.toml names.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOR_US = ("dev", "docs", "all")
"""Extras that bring tools, and no module of ours stands on."""

IMPORT = """
import importlib, pkgutil, hpctwin
for found in pkgutil.walk_packages(hpctwin.__path__, "hpctwin.", onerror=lambda name: None):
    # One runs as a program, the other within PBS's server.
    if not found.name.endswith(("__main__", ".pbs.hook")):
        try:
            importlib.import_module(found.name)
        except (ModuleNotFoundError, hpctwin.HpctwinError) as error:
            print(f"{found.name}: {error}")
"""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """What a command prints; it is shown, and ends everything if it fails."""
    print("$", *(str(part) for part in command if part is not IMPORT), flush=True)
    # What stands in the source tree does not count.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nfailed with exit code {done.returncode}")
    return done.stdout


def built(into: Path) -> Path:
    """Build hpctwin and its packages, check what was built, and return hpctwin's wheel."""
    shutil.rmtree(into, ignore_errors=True)
    for project in (ROOT, *sorted((ROOT / "packages").iterdir())):
        run(sys.executable, "-m", "build", "--outdir", into, project)
    files = sorted(into.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    wheel = next(into.glob("hpctwin-*.whl"))
    run(Path(sys.executable).with_name("check-wheel-contents"), wheel)
    return wheel


def installed(wheel: Path, folder: Path, extra: str = "") -> Path:
    """The interpreter of a new environment that holds the wheel, with an extra."""
    uv = Path(sys.executable).with_name("uv")
    run(uv, "venv", "--quiet", "--python", sys.executable, folder)
    python = folder / "bin/python"
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    run(uv, "pip", "install", "--quiet", "--python", python, wanted)
    return python


def tried(python: Path, folder: Path) -> None:
    """What the README promises of an installation."""
    program = python.with_name("hpctwin")
    for command in (
        "--version",
        "doctor",
        "workload generate poisson jobs.swf jobs=100 nodes=16",
        "simulate jobs.swf --nodes 16 --plot queue.png",
        "compare jobs.swf --nodes 16 -p fcfs+easy -p sjf+easy",
        "demo",
    ):
        print(run(program, *command.split(), cwd=folder))


def typed(python: Path, folder: Path) -> None:
    """What users write passes pyright with the wheel's types; `make lint` has mypy over the same file."""
    script = shutil.copy(ROOT / "tests/typed_user.py", folder)
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "basic"}')
    pyright = Path(sys.executable).with_name("pyright")
    print(run(pyright, "--pythonpath", python, script, cwd=folder))


def recipe(sdist: Path, version: str) -> str:
    """conda-forge's recipe, of this version and with the sdist's hash."""
    text = (ROOT / "contrib/conda/recipe.yaml").read_text()
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    for name, value in (("version", version), ("sha256", digest)):
        text, found = re.subn(rf'(?m)^(  {name}: )".*"$', rf'\g<1>"{value}"', text)
        if found != 1:
            sys.exit(f"contrib/conda/recipe.yaml: no line with {name} under context")
    return text


def notes(version: str) -> str:
    """What CHANGELOG.md tells of a version; of what is not released yet while it has no part of its own.

    Raises:
        SystemExit: there is nothing.
    """
    parts = re.split(r"(?m)^## ", (ROOT / "CHANGELOG.md").read_text())[1:]
    told = {part.split(maxsplit=1)[0]: part.partition("\n")[2].strip() for part in parts}
    found = told.get(version) or told.get("Unreleased")
    if not found:
        sys.exit(f"CHANGELOG.md has nothing under '## {version}' and nothing under '## Unreleased'")
    return found + "\n"


def main() -> None:
    """See the module."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--out", type=Path, default=ROOT / "dist")
    options.add_argument("--extra", action="append", help="only these; else each of them")
    given = options.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = given.extra or [one for one in project["optional-dependencies"] if one not in FOR_US]
    wheel = built(given.out.resolve())
    version = wheel.name.split("-")[1]
    sdist = next(wheel.parent.glob("hpctwin-*.tar.gz"))
    (wheel.parent / "recipe.yaml").write_text(recipe(sdist, version))
    (wheel.parent / "release-notes.md").write_text(notes(version))
    with tempfile.TemporaryDirectory(prefix="hpctwin-package-") as made:
        folder = Path(made)
        python = installed(wheel, folder / "plain")
        tried(python, folder)
        typed(python, folder)
        without = set(run(python, "-c", IMPORT, cwd=folder).splitlines())
        bom = Path(sys.executable).with_name("cyclonedx-py")
        described = wheel.parent / f"{wheel.name.removesuffix('.whl')}.cdx.json"
        run(bom, "environment", "--output-reproducible", "-o", described, python)
        needed = set(without)
        for extra in extras:
            python = installed(wheel, folder / extra, extra)
            still = set(run(python, "-c", IMPORT, cwd=folder).splitlines())
            print(
                f"{extra}: {len(without - still)} more modules can be imported, {len(still)} cannot"
            )
            needed.intersection_update(still)
        if not given.extra and needed:
            sys.exit("\n".join(("cannot be imported with any extra:", *sorted(needed))))
    print(f"fine: {', '.join(sorted(file.name for file in wheel.parent.iterdir()))}")


if __name__ == "__main__":
    main()
