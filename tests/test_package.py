"""What is given out: the sdist, the wheel that is built from it, and the program that runs from the wheel."""

from __future__ import annotations

import email
import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from email.message import Message
from pathlib import Path

import numpy as np
import pytest
import yaml

from hpctwin import Cluster, __version__
from hpctwin.cli.app import app
from hpctwin.cli.live.rms import forward
from hpctwin.cli.live.serve import mcp_command, serve_command
from hpctwin.cli.manual import manual_page
from hpctwin.energy.cooling.fmu import run_fmu
from hpctwin.energy.cooling.model import wet_bulb_c
from hpctwin.errors import ConfigError
from hpctwin.simulation.schedulers import BatsimScheduler

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
IMPORTED = {
    "fmpy": "fmpy", "gymnasium": "gymnasium", "mcp": "mcp", "psychrolib": "psychrolib", "pyzmq": "zmq",
    "redis": "redis", "scikit-learn": "sklearn", "skops": "skops", "fastapi": "fastapi", "uvicorn": "uvicorn",
    "prometheus-client": "prometheus_client", "distributed": "distributed",
    "dask-jobqueue": "dask_jobqueue", "optuna": "optuna",
    "torch": "torch", "stable-baselines3": "stable_baselines3",
    "sb3-contrib": "sb3_contrib", "backports.zstd": "backports",
    "pandas": "pandas", "pyarrow": "pyarrow", "authlib": "authlib", "httpx": "httpx",
}  # fmt: skip
"""What the packages of the extras for users are imported as."""


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both: the wheel is built from what is in the sdist alone."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
        text=True,
    )
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(built.glob("*.whl")))


@pytest.fixture(scope="module")
def unpacked(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    wheel.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def told(wheel: zipfile.ZipFile) -> Message:
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


def run(unpacked: Path, *command: str, cwd: Path) -> str:
    """What a command prints that runs from the wheel's files, the repository being out of sight."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(unpacked), "PYTHONDONTWRITEBYTECODE": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_the_package_and_its_data_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "src/hpctwin"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    wanted = {name.removeprefix("src/") for name in tracked.stdout.splitlines()}
    there = {name for name in wheel.namelist() if not re.match(r"[^/]*\.(dist-info|data)/", name)}
    assert there >= wanted
    # Beside them may lie what is written but not committed yet; never what a run left behind.
    assert not [name for name in there if not (ROOT / "src" / name).is_file()]
    assert not [name for name in there if re.search(r"__pycache__|\.nb[ci]$|(^|/)tests?/", name)]
    assert {"hpctwin/py.typed", "hpctwin/web/static/index.html"} <= there
    assert {"hpctwin/formats/systems/frontier.yaml", "hpctwin/rms/slurm/job_submit.lua"} <= there


def test_man_finds_the_page_that_an_installation_brings(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    (page,) = [name for name in wheel.namelist() if name.endswith("/data/share/man/man1/hpctwin.1")]
    assert wheel.read(page).decode() == manual_page(app)
    # pip puts what lies below data/ into the environment's folder, where man looks beside a program.
    wheel.extract(page, tmp_path)
    manuals = tmp_path / page.partition("share/man")[0] / "share/man"
    shown = subprocess.run(
        ["man", "-M", str(manuals), "hpctwin"], capture_output=True, text=True, check=True,
        env={**os.environ, "MANWIDTH": "80", "MAN_KEEP_FORMATTING": "", "LC_ALL": "C.UTF-8"},
    ).stdout  # fmt: skip
    assert "hpctwin simulate" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_the_manual_page_needs_only_the_dependencies_of_the_build(tmp_path: Path) -> None:
    hooks = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
    absent = {*PROJECT["dependencies"]} - {*hooks["custom"]["dependencies"]}
    code = HIDE + "from hpctwin.cli.app import app; from hpctwin.cli.manual import manual_page"
    hidden = [re.split(r"[<>=]", one)[0] for one in absent]
    run(ROOT / "src", "-c", f"{code}; manual_page(app)", *hidden, cwd=tmp_path)


def test_the_wheel_has_license_pythons_and_readme(wheel: zipfile.ZipFile, told: Message) -> None:
    assert told["License-Expression"] == PROJECT["license"]
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.namelist())
    assert told["Requires-Python"] == ">=3.11"
    assert told["Description-Content-Type"] == "text/markdown"
    assert set(told.get_all("Provides-Extra") or []) == set(PROJECT["optional-dependencies"])
    pythons = {text.rpartition(" ")[2] for text in told.get_all("Classifier") or [] if "3." in text}
    assert pythons == {"3.11", "3.12", "3.13", "3.14"}


def test_the_sdist_holds_tests_and_docs_and_no_data_of_others(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml"} <= names
    assert {"tests/conftest.py", "docs/index.md", "contrib/container/Containerfile"} <= names
    assert not [name for name in names if re.search(r"\.swf(\.gz)?$|\.venv/|__pycache__", name)]
    assert next(built.glob("*.tar.gz")).stat().st_size < 8_000_000


def test_the_program_runs_from_the_wheel(unpacked: Path, tmp_path: Path) -> None:
    # `make package` simulates and runs the demo from there; compiling the engine once more would take long.
    version = run(unpacked, "-m", "hpctwin", "--version", cwd=tmp_path)
    assert version.strip() == (unpacked / "hpctwin/_version.py").read_text().split('"')[-2]
    generated = "workload generate poisson jobs.swf jobs=20 nodes=8"
    run(unpacked, "-m", "hpctwin", *generated.split(), cwd=tmp_path)
    systems = run(unpacked, "-m", "hpctwin", "system", "list", cwd=tmp_path)
    assert "frontier" in systems


HIDE = """
import sys
hidden = set(sys.argv[1:])
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in hidden:
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)
sys.meta_path.insert(0, Absent())
"""

IMPORT_ALL = f"""
{HIDE}
import importlib, pkgutil
import hpctwin
from hpctwin.errors import ConfigError
for found in pkgutil.walk_packages(hpctwin.__path__, 'hpctwin.', onerror=lambda name: None):
    if found.name.endswith('__main__') or found.name == 'hpctwin.rms.pbs.hook':  # runs within PBS
        continue
    try:
        importlib.import_module(found.name)
    except ConfigError as error:
        print(found.name, 'says', error)
    except ModuleNotFoundError as error:
        print(found.name, 'lacks', error.name)
"""


def test_without_extras_only_the_web_and_learning_cannot_be_imported(
    unpacked: Path, tmp_path: Path
) -> None:
    said = run(unpacked, "-c", IMPORT_ALL, *IMPORTED.values(), "starlette", cwd=tmp_path)
    lines = [line.split(" ", 2) for line in said.splitlines()]
    assert {name.split(".")[1] for name, verb, _ in lines if verb == "lacks"} <= {"web", "learn"}
    # What stands on them says what to install.
    assert all("pip install 'hpctwin[" in rest for _, verb, rest in lines if verb == "says")
    assert [rest for name, verb, rest in lines if name == "hpctwin.learn"] == [
        "hpctwin.learn needs gymnasium, which is not installed: pip install 'hpctwin[learn]'"
    ]


def batsim() -> None:
    with BatsimScheduler("tcp://127.0.0.1:1", Cluster.uniform(nodes=4)):
        pass


@pytest.mark.parametrize(
    ("hidden", "doing", "extra"),
    [
        ("fastapi", lambda: serve_command(), "web"),
        ("uvicorn", lambda: serve_command(), "web"),
        ("prometheus_client", lambda: serve_command(), "web"),
        ("mcp", lambda: mcp_command(), "mcp"),
        ("redis", lambda: forward(Path("news.jsonl"), url="redis://localhost:6379/0"), "live"),
        ("fmpy", lambda: run_fmu(*[np.ones(1)] * 5), "cooling"),
        ("psychrolib", lambda: wet_bulb_c(np.ones(1), np.ones(1)), "energy"),
        ("zmq", batsim, "batsim"),
    ],
)
def test_without_its_package_one_line_says_what_to_install(
    hidden: str,
    doing: Callable[[], object],
    extra: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, hidden, None)
    with pytest.raises(ConfigError) as told:
        doing()
    assert re.fullmatch(
        rf"[^\n]+ needs {hidden}, which is not installed: pip install 'hpctwin\[{extra}\]'",
        str(told.value),
    )


def extras() -> Iterator[tuple[str, str]]:
    for extra, wanted in PROJECT["optional-dependencies"].items():
        if extra not in ("all", "dev", "docs"):
            for one in wanted:
                yield extra, re.split(r"[<>=]", one)[0]


def test_no_extra_is_there_that_no_code_uses_and_none_is_missing() -> None:
    imports = re.compile(
        r"^ *(?:from (\w+)[\w.]* import .*|import (\w+)[\w.]*(?: as \w+)?(?:  #.*)?)$", re.M
    )
    used = {
        name
        for file in (ROOT / "src").rglob("*.py")
        for found in imports.findall(file.read_text())
        for name in filter(None, found)
    }
    # Imported by importlib, as its name depends on the version of Python.
    assert '"backports.zstd"' in (ROOT / "src/hpctwin/formats/files.py").read_text()
    used.add("backports")
    # Polars imports it.
    assert '"pyarrow"' in (ROOT / "src/hpctwin/model/columns.py").read_text()
    used.add("pyarrow")
    assert {IMPORTED[package] for _, package in extras()} <= used
    core = {re.split(r"[<>=]", one)[0] for one in PROJECT["dependencies"]}
    # By fastapi, numba, scikit-learn, authlib; by a PBS server for its hooks.
    brought = {"starlette", "llvmlite", "threadpoolctl", "joserfc", "pbs"}
    known = {{"pyyaml": "yaml"}.get(name, name) for name in core} | set(IMPORTED.values()) | brought
    assert used - known - set(sys.stdlib_module_names) == {"hpctwin"}


def test_version_license_and_dependencies_agree_in_all_files() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    zenodo = json.loads((ROOT / ".zenodo.json").read_text())
    conda = yaml.safe_load((ROOT / "contrib/conda/recipe.yaml").read_text())
    versions = {citation["version"], zenodo["version"], conda["context"]["version"]}
    assert versions == {__version__}
    requires = {
        "hpctwin-sizing": ["hpctwin"],
        "hpctwin-papers": ["hpctwin[learn]", "hpctwin-sizing"],
    }
    for name, others in requires.items():
        folder = ROOT / "packages" / name
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        assert project["name"] == name
        assert project["version"] == __version__
        assert project["dependencies"] == [f"{one}=={__version__}" for one in others]
        for field in ("license", "license-files", "requires-python", "urls"):
            assert project[field] == PROJECT[field]
        assert set(project["classifiers"]) <= set(PROJECT["classifiers"])
        assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert {citation["license"], zenodo["license"], conda["about"]["license"]} == {
        PROJECT["license"]
    }
    assert conda["about"]["homepage"] == PROJECT["urls"]["Homepage"]
    assert set(citation["keywords"]) == set(zenodo["keywords"]) <= set(PROJECT["keywords"])
    # conda-forge's matplotlib brings Qt besides.
    wanted = {
        one.replace(">", " >", 1).replace("matplotlib", "matplotlib-base")
        for one in PROJECT["dependencies"]
    }
    python, *others = conda["requirements"]["run"]
    assert set(others) == wanted
    assert PROJECT["requires-python"] == f">={conda['context']['python_min']}"
    assert python == "python >=${{ python_min }}"
    hooks = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
    built_by = [*PYPROJECT["build-system"]["requires"], *hooks["custom"]["dependencies"]]
    assert set(conda["requirements"]["host"][2:]) == {one.replace(">", " >", 1) for one in built_by}
    assert set(hooks["custom"]["dependencies"]) <= set(PROJECT["dependencies"])
    (entry,) = conda["build"]["python"]["entry_points"]
    assert dict([entry.split(" = ")]) == PROJECT["scripts"]


def test_a_release_has_the_hash_of_its_sdist_in_its_recipe_and_notes_from_the_changelog(
    built: Path,
) -> None:
    release = runpy.run_path(str(ROOT / "contrib/release.py"))
    sdist = next(built.glob("*.tar.gz"))
    made = yaml.safe_load(release["recipe"](sdist, "9.8.7"))
    assert made["context"]["sha256"] == hashlib.sha256(sdist.read_bytes()).hexdigest()
    assert made["context"]["version"] == "9.8.7"
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert release["notes"]("9.8.7").strip() in changes
    assert release["notes"]("9.8.7").startswith("### Added")


def with_programs(folder: Path, **programs: str) -> dict[str, str]:
    """An environment whose path has the system's own programs and these."""
    folder.mkdir()
    for name in ("sh", "dirname", "mktemp", "rm"):
        (folder / name).symlink_to(shutil.which(name) or "")
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return {"PATH": str(folder)}


def test_images_are_built_and_tried_by_what_is_there(tmp_path: Path) -> None:
    script, log = ROOT / "contrib/container/build", tmp_path / "log"
    docker = with_programs(
        tmp_path / "bin", podman="exit 1", docker=f'echo "$@" >> {log}', apptainer=f'echo "$@" >> {log}'
    )  # fmt: skip
    done = subprocess.run([script], env=docker, capture_output=True, text=True, check=True)
    assert "podman does not run here" in done.stderr
    assert done.stdout.endswith("built and tried: docker apptainer\n")
    calls = log.read_text().splitlines()
    (build,) = [call for call in calls if call.startswith("build --build-arg")]
    assert build.endswith("-t hpctwin -f contrib/container/Containerfile .")
    assert [call for call in calls if call.startswith(("run ", "exec "))]


def test_the_reason_is_reported_if_no_image_can_be_built(tmp_path: Path) -> None:
    nothing = with_programs(tmp_path / "bin", docker="exit 1")
    done = subprocess.run(
        [ROOT / "contrib/container/build"], env=nothing, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "docker does not run here" in done.stderr
    assert "no image was built" in done.stderr
