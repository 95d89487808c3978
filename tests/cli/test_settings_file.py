"""Commands that start from a trace or a cluster, and the files that ``--init`` writes for them."""

from __future__ import annotations

import importlib
import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from hpctwin import generate, write_workload
from hpctwin.cli.app import STARTING_POINTS, app
from hpctwin.facility import Facility
from hpctwin.model.settings import Settings
from hpctwin.sweep import read_search, read_sweep
from hpctwin.twin.settings.config import TwinConfig
from tests.cli.test_cli import run

CLUSTER = "name: big\nnodes: [{name: n, count: 16}]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_workload(generate("poisson", jobs=60, nodes=8, seed=1), tmp_path / "t.swf")
    (tmp_path / "big.yaml").write_text(CLUSTER)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/cluster.yaml").write_text(CLUSTER)
    (tmp_path / "site/policy.yaml").write_text("policy: lcfs+easy\n")
    write_workload(generate("poisson", jobs=30, nodes=8), tmp_path / "site/workload.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HPCTWIN_CONFIG", raising=False)
    return tmp_path


def facility(path: Path) -> Facility:
    return Facility.from_yaml(path)


def twin(path: Path) -> TwinConfig:
    return TwinConfig.from_yaml(path)


SWEEP = ("simulating.sweep", "sweep.yaml", read_sweep)
SEARCH = ("learning.policy", "search.yaml", read_search)
TWIN = ("live.twin", "hpctwin.yaml", twin)
FACILITY = ("simulating.facility", "facility.yaml", facility)
Kind = tuple[str, str, Callable[[Path], Settings]]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("sweep t.swf", SWEEP),
        (
            "sweep ./t.swf -n 8 -n 16 -M big.yaml -p fcfs -p sjf+easy:k=2 --load 0.7 --load .9",
            SWEEP,
        ),
        ("sweep t.swf -n 8 --seeds 3 --resample 7d --metric mean_wait_s", SWEEP),
        ("sweep t.swf -M frontier --resample 2d", SWEEP),
        ("sweep t.swf -n 8 --seeds 3 -p fcfs+easy@random", SWEEP),
        ("sweep site", SWEEP),
        ("policy search t.swf", SEARCH),
        ("policy search t.swf -n 8 --trials 9 --baseline sjf+easy", SEARCH),
        ("policy search site --objective mean_wait_s --objective utilization", SEARCH),
        ("twin run --manager slurm", TWIN),
        ("twin run --manager pbs --mode act", TWIN),
        ("twin run --manager emulated:a/cluster.sock", TWIN),
        ("facility compare t.swf -n 8", FACILITY),
        ("facility compare t.swf -n 8 -n 8 -M big.yaml -M frontier", FACILITY),
    ],
)
def test_the_written_file_is_read_back_equal(
    folder: Path,
    line: str,
    kind: Kind,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module, name, read = kind
    command = importlib.import_module(f"hpctwin.cli.{module}")
    meant: list[Settings] = []

    def recorded(path: Path, settings: Settings, *more: Any) -> int:
        meant.append(settings)
        return write(path, settings, *more)

    write = command.write_settings
    monkeypatch.setattr(command, "write_settings", recorded)
    before = {*folder.iterdir()}
    assert run(*line.split(), "--init") == 0
    assert {*folder.iterdir()} - before == {folder / name}
    assert [read(Path(name))] == meant

    said = capsys.readouterr().out
    assert said.startswith(f"{name} is written; edit it, then run: hpctwin ")
    app.parse_args(
        shlex.split(said.partition(": hpctwin ")[2]), exit_on_error=False, print_error=False
    )
    text = (folder / name).read_text()
    assert all(len(row) <= 100 for row in text.splitlines())
    keys = {row.lstrip("# ").partition(":")[0] for row in text.splitlines()}
    assert set(type(meant[0]).model_fields) <= keys

    assert run(*line.split(), "--init") == 2
    assert f"--init: {name} exists; rename or delete it first" in capsys.readouterr().err
    assert (folder / name).read_text() == text


@pytest.mark.parametrize(
    ("line", "again"),
    [
        ("sweep t.swf -n 8 -n 16 --load 0.7 -p fcfs+easy -p sjf+easy", "sweep sweep.yaml"),
        ("facility compare t.swf -n 8 -M big.yaml", "facility compare t.swf facility.yaml"),
    ],
)
def test_the_file_repeats_the_results_of_the_options(
    folder: Path, line: str, again: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(name: str) -> bool:
        return name.startswith("decision_ms") or name == "engine_s"

    assert run(*line.split(), "--init") == 0
    capsys.readouterr()
    found = []
    for command in (line, again):
        assert run(*command.split(), "--json") == 0
        told = json.loads(capsys.readouterr().out)
        rows = told if isinstance(told, list) else told["compared"]
        found.append([{k: v for k, v in row.items() if not measured(k)} for row in rows])
    assert found[0] == found[1] != []


def test_a_trace_is_searched_on_two_thirds_and_tested_on_the_rest(folder: Path) -> None:
    pytest.importorskip("optuna")
    assert run("policy", "search", "t.swf", "-n", 8, "--trials", 3, "--init") == 0
    content = yaml.safe_load((folder / "search.yaml").read_text())
    (train,), (test,) = content["train"], content["held_out"]
    assert train["begin"] == "0s"
    assert train["end"] == test["begin"]
    assert run("policy", "search", "t.swf", "-n", 8, "--trials", 3) == 0
    assert (folder / "out/t/policy.yaml").is_file()


def test_a_folder_of_an_import_brings_its_cluster_and_policy(folder: Path) -> None:
    assert run("sweep", "site", "--init") == 0
    settings = read_sweep("sweep.yaml")
    assert settings.clusters == ("site/cluster.yaml",)
    assert settings.policies[0] == "lcfs+easy"


def test_a_twin_without_a_file_observes_with_its_journal_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[TwinConfig] = []

    @contextmanager
    def open_twin(config: TwinConfig, **_: object) -> Iterator[SimpleNamespace]:
        opened.append(config)
        yield SimpleNamespace(run=lambda stop: None)

    monkeypatch.setattr("hpctwin.twin.service.service.open_twin", open_twin)
    assert run("twin", "run", "--manager", "slurm") == 0
    assert run("twin", "run", "--manager", "slurm", "--init") == 0
    assert "--init writes it" in capsys.readouterr().err
    assert run("twin", "run") == 0
    without, with_file = opened
    assert without == with_file
    assert without.act.mode == "observe"
    assert without.journal.path == Path("hpctwin-journal.sqlite")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("sweep t.swf -n 8 --load 0", "options, loads.0: it must be more than 0, not 0"),
        ("sweep t.swf -n 0", "options, clusters.0: it must be 1 node or more"),
        ("sweep t.swf -n 8 --seeds 3", "--seeds: all seeds have the same jobs; add --resample 7d"),
        ("sweep t.swf -n 8 --resample long", "workloads.0.resample: it must be users, or a length above 0"),
        ("sweep t.swf -n 8 -p sjf -p sjf", "policies: 'sjf' is listed twice; list it once"),
        ("sweep s.yaml --load 0.7", "s.yaml: a file takes no --load; change the file"),
        ("sweep s.yaml --init", "s.yaml: a file takes no --init; change the file"),
        ("policy search t.swf -n 8 --trials 0", "--trials is '0'; it must be 1 or more"),
        ("policy search s.yaml -n 8", "s.yaml: a file takes no --nodes"),
        ("twin run --manager slrum", "kind 'slrum' is unknown. Did you mean 'slurm'?"),
        ("twin run --manager emulated", "it must be slurm, pbs or emulated:SOCKET"),
        ("twin run --manager slurm:a", "it must be slurm, pbs or emulated:SOCKET"),
        ("twin run --manager slurm -c s.yaml", "--manager does not work with a configuration file"),
        ("twin run --manager slurm --mode atc", "'atc' is unknown. Did you mean 'act'?"),
        ("twin run --init", "write one with `hpctwin twin run --manager slurm --init`"),
        ("twin run --init -c twin.yaml", "--init: no options to write to the file are given"),
        ("twin run", "write one with `hpctwin twin run --manager slurm --init`"),
        ("facility compare t.swf", "facility: give its file after the trace, or its clusters"),
        ("facility compare t.swf s.yaml -n 8", "facility: give its file after the trace, or its"),
        ("facility compare t.swf f.yaml --init", "--init: no options to write to the file"),
        ("facility compare t.swf -n 0", "clusters.0.nodes: it must be 1 or more, not 0"),
        ("facility compare t.swf -M none.yaml", "none.yaml: No such file or directory"),
    ],
)  # fmt: skip
def test_wrong_options_exit_2_with_a_line_that_says_what_to_do(
    folder: Path, line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("f.yaml").write_text("clusters: [{name: a, nodes: 8}]\n")
    Path("twin.yaml").write_text("manager: {kind: slurm}\n")
    Path("s.yaml").write_text("workloads: [t.swf]\nclusters: [8]\npolicies: [fcfs]\n")
    assert run(*line.split()) == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert len(shown.splitlines()) == 1


def test_hpctwin_alone_prints_four_starting_points(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert capsys.readouterr().out == STARTING_POINTS
    table = [row.partition("hpctwin ")[2] for row in STARTING_POINTS.splitlines()[2:6]]
    for command in table[:3]:
        words = command.replace("N", "64").split()
        app.parse_args(words, exit_on_error=False, print_error=False)
    assert "--help" in table[3]
