"""Strategies of a facility from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpctwin import Workload, generate
from hpctwin.cli import main
from hpctwin.errors import ConfigError, HpctwinError, PolicyError, UnknownNameError
from hpctwin.facility import Facility, FacilityResult, parse_strategy, simulate_facility
from hpctwin.twin.facility.placer import check_strategy

FILE = """
from dataclasses import dataclass
from hpctwin.facility import Strategy


def same_as_shortest_queue(row, options, view):
    return min(options, key=lambda c: (view.queued(c), view.load(c, row)))


def to_the_last(row, options, view):
    return options[-1]


@dataclass(frozen=True)
class Last(Strategy):
    every: int = 1

    @property
    def name(self):
        return "last"

    def pick(self, row, options, state):
        return options[-1]


@dataclass(frozen=True)
class Needs(Strategy):
    cluster: str

    @property
    def name(self):
        return "needs"


last = Last()
number = 3


def two(row, options):
    return options[0]


def name_of_cluster(row, options, view):
    return view.facility.names[0]


def another(row, options, view):
    return 99


def nothing(row, options, view):
    pass


def yes(row, options, view):
    return True


def fails(row, options, view):
    return options[0] / 0


def drops(row, options, view):
    options.clear()
    return 0
"""


WHERE = ("job_id", "cluster", "start_s", "end_s")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my.py"
    path.write_text(FILE)
    return path


@pytest.fixture(scope="module")
def facility() -> Facility:
    clusters = [{"name": name, "nodes": nodes} for name, nodes in (("small", 16), ("large", 48))]
    return Facility.model_validate({"clusters": clusters})


@pytest.fixture(scope="module")
def workload() -> Workload:
    return generate("poisson", jobs=120, nodes=16, seed=3).scale(load=2.0)


def ran(facility: Facility, workload: Workload, strategy: Any) -> FacilityResult:
    return simulate_facility(facility, workload, strategy)


def test_a_function_decides_as_the_built_in_strategy_of_the_same_rule(
    file: Path, facility: Facility, workload: Workload
) -> None:
    text = f"{file}:same_as_shortest_queue"
    strategy = parse_strategy(text)
    assert strategy.name == text
    mine = ran(facility, workload, strategy)
    theirs = ran(facility, workload, "shortest-queue")
    assert mine.jobs.select(WHERE).equals(theirs.jobs.select(WHERE))
    assert theirs.jobs["cluster"].n_unique() == 2


def test_functions_classes_and_instances_are_strategies(
    file: Path, facility: Facility, workload: Workload
) -> None:
    names = ("to_the_last", "Last", "last")
    found = [ran(facility, workload, f"{file}:{name}").jobs.select(WHERE) for name in names]
    assert set(found[0]["cluster"]) == {"large"}
    assert found[0].equals(found[1])
    assert found[1].equals(found[2])
    assert parse_strategy(str(file)).name == "last"  # the only instance


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        (
            "two",
            PolicyError,
            r"my.py, line \d+: strategy .* must take three arguments, \(row, options",
        ),
        ("number", PolicyError, "is int, not a function or a Strategy"),
        ("Needs", PolicyError, "cannot be made without arguments"),
        ("to_the_lost", UnknownNameError, "to_the_last"),
    ],
)
def test_what_is_no_strategy_is_refused_when_it_is_read(
    file: Path, name: str, error: type[HpctwinError], message: str
) -> None:
    with pytest.raises(error, match=message):
        parse_strategy(f"{file}:{name}")


def test_files_that_are_missing_or_broken_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no such file"):
        parse_strategy(f"{tmp_path / 'none.py'}:f")
    (tmp_path / "bad.py").write_text("def f(:\n")
    with pytest.raises(PolicyError, match=r"bad.py, line 1: not valid Python"):
        parse_strategy(f"{tmp_path / 'bad.py'}:f")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "name_of_cluster",
            "returns 'small' for job 1; it must return one of its options, here 0, 1",
        ),
        ("another", "returns 99 for job"),
        ("nothing", "returns None for job"),
        ("yes", "returns True for job"),
        ("fails", "fails for job 1: ZeroDivisionError"),
    ],
)
def test_wrong_choices_are_refused_with_the_job(
    file: Path, facility: Facility, workload: Workload, name: str, message: str
) -> None:
    with pytest.raises(PolicyError, match=message):
        ran(facility, workload, f"{file}:{name}")


def test_a_function_may_change_its_list_of_options(
    file: Path, facility: Facility, workload: Workload
) -> None:
    assert set(ran(facility, workload, f"{file}:drops").jobs["cluster"]) == {"small"}


def test_live_placement_takes_no_functions(file: Path) -> None:
    with pytest.raises(ConfigError, match="does not support live jobs"):
        check_strategy(parse_strategy(f"{file}:to_the_last"))


def test_commands_take_files(
    file: Path, tmp_path: Path, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    from hpctwin.formats import write_workload

    trace, config = tmp_path / "trace.swf", tmp_path / "facility.yaml"
    write_workload(workload, trace)
    config.write_text("clusters: [{name: small, nodes: 16}, {name: large, nodes: 48}]\n")
    ask = ["facility", "compare", trace, config, "-s", f"{file}:to_the_last", "-s", "random"]
    assert run(ask) == 0
    assert "to_the_last" in capsys.readouterr().out.replace("\n", "")
    assert run(["facility", "simulate", trace, config, "-s", f"{file}:another"]) == 2
    assert "it must return one of its options" in capsys.readouterr().err


def run(words: list[Any]) -> int:
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return int(str(end.value.code))
