"""Build the distributions and try each as a user would: `make package`.

Into ``dist/`` go an sdist and a wheel of each package, a wheel of hpctwin for this platform with the
compiled engine, a list of everything that an installation
contains (SBOM, CycloneDX), the conda-forge recipe with the hash of the sdist, and the release notes
from CHANGELOG.md. Each wheel is built from its sdist alone. A clean environment with hpctwin's wheel
runs a simulation and the live twin's demo, then the commands of the other packages. The wheel for the
platform does the same under each Python that is installed here, without Numba and a C compiler.
Further environments install each extra and import every module that needs it. The environment of this
script needs the dependency group ``release`` in pyproject.toml.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "hpctwin": ROOT,
    "hpctwin_sizing": ROOT / "packages/hpctwin-sizing",
    "hpctwin_papers": ROOT / "packages/hpctwin-papers",
}
TOOLS = Path(sys.executable).parent
UV = TOOLS / "uv"
NOT_FOR_USERS = ("dev", "docs", "all")
"""Extras that contain tools; no module of hpctwin needs them."""

USER_COMMANDS = (
    "hpctwin --version",
    "hpctwin doctor",
    "hpctwin workload generate poisson jobs.swf jobs=100 nodes=16",
    "hpctwin simulate jobs.swf --nodes 16 --plot queue.png",
    "hpctwin compare jobs.swf --nodes 16 -p fcfs+easy -p sjf+easy",
    "hpctwin demo",
)
PACKAGE_COMMANDS = (
    "hpctwin simulate jobs.csv --cluster selene --sizing carbonscaler:24h --carbon carbon.csv",
    "hpctwin experiment run spars-figure-1",
    "hpctwin simulate jobs.csv --cluster selene --accounts accounts.json",
    "hpctwin simulate jobs.csv --cluster selene --priorities-from fugaku-points:accounts.json",
)
FILES = {
    "jobs.csv": "submit_s,runtime_s,walltime_s,nodes,max_nodes\n0,7200,7200,4,8\n600,7200,7200,4,8\n",
    "carbon.csv": "time_s,g_per_kwh\n0,400\n3600,100\n7200,400\n",
}
"""Input of the commands."""

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

SIZES = """
from importlib.metadata import distributions
sizes = {
    one.name: sum(file.locate().stat().st_size for file in one.files or () if file.locate().is_file())
    for one in distributions()
}
print(f"{len(sizes)} distributions, {sum(sizes.values()) / 1e6:.0f} MB:")
for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:12]:
    print(f"  {name:20} {size / 1e6:6.1f} MB")
"""


def run(
    *command: str | Path, cwd: Path = ROOT, variables: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Print and run a command; return its output, or exit if it fails.

    Args:
        command: Program and arguments.
        cwd: Folder in which it runs.
        variables: Environment variables that are set for it.
    """
    print("$", *(str(part) for part in command if "\n" not in str(part)), flush=True)
    # The environment's modules count, not those of the source tree.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {**kept, **variables}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nfailed with exit code {done.returncode}")
    return done.stdout


def build(folder: Path) -> list[Path]:
    """Build and check all distributions; return the wheels, hpctwin's first."""
    shutil.rmtree(folder, ignore_errors=True)
    for project in PACKAGES.values():
        run(sys.executable, "-m", "build", "--outdir", folder, project)
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted(folder.iterdir()))
    wheels = [next(folder.glob(f"{name}-*.whl")) for name in PACKAGES]
    run(TOOLS / "check-wheel-contents", *wheels)
    for wheel in wheels:
        check_contents(wheel)
    return wheels


def check_contents(wheel: Path) -> None:
    """Check that a wheel has its package with types, license and metadata, and no other files."""
    name, version, *_ = wheel.name.split("-")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        metadata = file.read(f"{name}-{version}.dist-info/METADATA").decode()
    wanted = re.compile(rf"({name}|{re.escape(f'{name}-{version}')}\.(dist-info|data))/")
    stray = [
        one
        for one in names
        if not wanted.match(one) or {"tests", "__pycache__"} & {*one.split("/")}
    ]
    required = (f"{name}/py.typed", f"{name}-{version}.dist-info/licenses/LICENSE")
    missing = [one for one in required if one not in names]
    fields = ("Classifier", "Keywords", "Project-URL")
    missing += [one for one in fields if f"\n{one}: " not in metadata]
    relative = re.findall(r"\]\((?!https?:|#)([^)\s]+)\)", metadata)
    if relative:
        print(f"{wheel.name}: {len(relative)} relative links of the README lead nowhere on PyPI")
    if missing or stray:
        sys.exit(f"{wheel.name}: missing: {missing}; not expected: {stray}")


def build_for_platform(python: Path, sdist: Path, folder: Path) -> Path:
    """Build the wheel with the compiled engine.

    Args:
        python: Interpreter of an environment with the pure wheel, whose sources are compiled.
        sdist: Distribution of the sources.
        folder: Folder for the libraries and the unpacked sources.
    """
    libraries = folder / "libraries"
    print(run(python, ROOT / "contrib/libraries.py", libraries, cwd=folder))
    with tarfile.open(sdist) as file:
        file.extractall(folder, filter="data")
    sources = folder / sdist.name.removesuffix(".tar.gz")
    variables = {"HPCTWIN_LIBRARIES": str(libraries)}
    command = (sys.executable, "-m", "build", "--wheel", "--outdir", sdist.parent, sources)
    before = {*sdist.parent.glob("*.whl")}
    run(*command, variables=variables)
    (wheel,) = {*sdist.parent.glob("*.whl")} - before
    run(sys.executable, "-m", "twine", "check", "--strict", wheel)
    check_contents(wheel)
    return wheel


def pythons(project: dict[str, Any]) -> list[str]:
    """Return the versions of Python for which hpctwin is made and that are installed here."""
    wanted = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    known = [one for one in wanted if is_installed(one)]
    print(f"Python {', '.join(known)} of {', '.join(wanted)}")
    return known


def is_installed(version: str) -> bool:
    """Return whether a version of Python is found without downloading it."""
    command = (UV, "python", "find", "--no-python-downloads", version)
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def check_without_compilers(wheel: Path, version: str, folder: Path) -> None:
    """Run the user's commands in an environment that has neither Numba nor a C compiler."""
    python = install(folder / f"python-{version}", wheel, version=version)
    run(UV, "pip", "uninstall", "--quiet", "--python", python, "numba", "llvmlite")
    nothing = {"PATH": str(python.parent), "XDG_CACHE_HOME": str(folder / "no-cache")}
    results = folder / f"results-{version}"
    results.mkdir()
    run_commands(python, USER_COMMANDS, results, nothing)


def install(folder: Path, *wanted: str | Path, version: str = sys.executable) -> Path:
    """Create an environment with these distributions; return its interpreter."""
    run(UV, "venv", "--quiet", "--no-python-downloads", "--python", version, folder)
    run(UV, "pip", "install", "--quiet", "--python", folder / "bin/python", *wanted)
    return folder / "bin/python"


def run_commands(
    python: Path,
    commands: tuple[str, ...],
    folder: Path,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Run commands of an environment in a folder."""
    for command in commands:
        program, *arguments = command.split()
        print(run(python.with_name(program), *arguments, cwd=folder, variables=variables))


def check_types(python: Path, folder: Path) -> None:
    """Check a user's script with pyright and the wheel's types; `make lint` has mypy for the same file."""
    script = shutil.copy(ROOT / "tests/typed_user.py", folder)
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "basic"}')
    print(run(TOOLS / "pyright", "--pythonpath", python, script, cwd=folder))


def recipe(sdist: Path, version: str) -> str:
    """Return conda-forge's recipe for this version, with the hash of the sdist."""
    text = (ROOT / "contrib/conda/recipe.yaml").read_text()
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    for name, value in (("version", version), ("sha256", digest)):
        text, found = re.subn(rf'(?m)^(  {name}: )".*"$', rf'\g<1>"{value}"', text)
        if found != 1:
            sys.exit(f"contrib/conda/recipe.yaml: no line with {name} under context")
    return text


def notes(version: str) -> str:
    """Return the part of CHANGELOG.md for a version; without one, the part "Unreleased".

    Raises:
        SystemExit: CHANGELOG.md has neither.
    """
    parts = re.split(r"(?m)^## ", (ROOT / "CHANGELOG.md").read_text())[1:]
    changes = {part.split(maxsplit=1)[0]: part.partition("\n")[2].strip() for part in parts}
    found = changes.get(version) or changes.get("Unreleased")
    if not found:
        sys.exit(f"CHANGELOG.md has nothing under '## {version}' and nothing under '## Unreleased'")
    if version not in changes:
        print(f"CHANGELOG.md has no '## {version}': the release notes are those of 'Unreleased'")
    return found + "\n"


def check_extras(wheel: Path, extras: list[str], failing: set[str], folder: Path) -> set[str]:
    """Install each extra in its own environment; return the modules that no extra can import."""
    for extra in extras:
        python = install(folder / extra, f"{wheel}[{extra}]")
        still = set(run(python, "-c", IMPORT, cwd=folder).splitlines())
        print(f"{extra}: {len(failing - still)} more modules can be imported, {len(still)} cannot")
        failing = failing & still
    return failing


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--extra", action="append", help="only this extra; default: all")
    options = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = [one for one in project["optional-dependencies"] if one not in NOT_FOR_USERS]
    wheel, *others = build(options.out.resolve())
    out, version = wheel.parent, wheel.name.split("-")[1]
    (out / "recipe.yaml").write_text(recipe(out / f"hpctwin-{version}.tar.gz", version))
    (out / "release-notes.md").write_text(notes(version))
    with tempfile.TemporaryDirectory(prefix="hpctwin-package-") as made:
        folder = Path(made)
        for name, text in FILES.items():
            (folder / name).write_text(text)
        python = install(folder / "plain", wheel)
        print(run(python, "-c", SIZES, cwd=folder))
        run_commands(python, USER_COMMANDS, folder)
        compiled = build_for_platform(python, out / f"hpctwin-{version}.tar.gz", folder)
        for one in pythons(project):
            check_without_compilers(compiled, one, folder)
        check_types(python, folder)
        failing = set(run(python, "-c", IMPORT, cwd=folder).splitlines())
        bom = out / f"{wheel.name.removesuffix('.whl')}.cdx.json"
        run(TOOLS / "cyclonedx-py", "environment", "--output-reproducible", "-o", bom, python)
        run(UV, "pip", "install", "--quiet", "--python", python, *others)
        run_commands(python, PACKAGE_COMMANDS, folder)
        failing = check_extras(wheel, options.extra or every, failing, folder)
        if not options.extra and failing:
            sys.exit("\n".join(("cannot be imported with any extra:", *sorted(failing))))
    print(f"complete: {', '.join(sorted(file.name for file in out.iterdir()))}")


if __name__ == "__main__":
    main()
