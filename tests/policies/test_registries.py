"""One registry for each of the four parts of a policy, and one text form that reads back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, make_policy, parse_policy, simulate
from hpctwin.errors import ConfigError, PolicyError, UnknownNameError
from hpctwin.policies import (
    BACKFILLS,
    ORDERINGS,
    PLACEMENTS,
    POWERS,
    REGISTRIES,
    find_power,
)
from hpctwin.policies.registry import Entry, Parameter, Registry, is_file
from tests.cli.test_cli import run

JOBS = Workload.build(
    submit_s=[0, 1, 2, 3], runtime_s=[10, 10, 3, 2], walltime_s=[10, 10, 3, 2], nodes=[3, 4, 1, 1]
)


def own_names(registry: Registry[object]) -> list[str]:
    """The names of those that are not in files, which other tests registered and took away."""
    return [name for name in sorted(registry) if not is_file(name)]


def settings(registry: Registry[object], name: str) -> st.SearchStrategy[str]:
    """Text of an entry with some of its settings."""
    entry = registry.find(name)
    some = st.lists(st.sampled_from(entry.parameters), unique=True, max_size=4)
    if not entry.parameters:
        some = st.just([])
    return some.flatmap(lambda chosen: st.tuples(*map(given_value, chosen))).map(
        lambda told: name + (":" + ",".join(told) if told else "")
    )


def given_value(one: Parameter) -> st.SearchStrategy[str]:
    values = {
        "duration": st.integers(1, 10**10).map(lambda ms: f"{ms}ms"),
        "timeout": st.one_of(st.just("never"), st.integers(0, 10**10).map(lambda ms: f"{ms}ms")),
        "durations": st.lists(st.integers(0, 10**9), min_size=1, max_size=3).map(
            lambda s: "/".join(f"{ms}ms" for ms in s)
        ),
        "whole": st.integers(int(one.least), 1000).map(str),
        "limit": st.one_of(st.just("any"), st.integers(1, 1000).map(str)),
        "number": st.floats(0, 1, allow_subnormal=False).map(repr),
        "flag": st.sampled_from(("yes", "no")),
        "word": st.sampled_from(one.known or ("",)),
        "text": st.just("3d"),
    }
    return values[one.kind].map(lambda value: f"{one.name}={value}")


ORDERS = sorted(set(ORDERINGS) - {"multifactor"})


@given(data=st.data())
def test_every_policy_reads_back_as_it_was(data: st.DataObject) -> None:
    backfill = data.draw(
        st.sampled_from(own_names(BACKFILLS)).flatmap(lambda n: settings(BACKFILLS, n))
    )
    order = data.draw(st.sampled_from(ORDERS).flatmap(lambda n: settings(ORDERINGS, n)))
    placement = data.draw(st.sampled_from(own_names(PLACEMENTS)))
    power = data.draw(st.sampled_from(own_names(POWERS)).flatmap(lambda n: settings(POWERS, n)))
    text = f"{order}+{backfill}@{placement}~{power}"
    try:
        policy = parse_policy(text)
    except ConfigError:  # what is forgotten or does not go together
        return
    again = parse_policy(policy.name)
    assert again.name == policy.name
    assert (again.settings, again.placement, again.power) == (
        policy.settings,
        policy.placement,
        policy.power,
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("easy~psus:20m", "fcfs+easy~psus:20m"),
        ("~psas-ipm:1200", "fcfs+easy~psas-ipm:20m"),
        ("none", "fcfs+none"),
        ("@spread", "fcfs+easy@spread"),
        ("easy:2/sjf", "fcfs+easy:2/sjf"),
        ("wait+nodes~psus:1500ms,keep=2,deeper=1h/90m", "wait+nodes+easy~psus:1500ms,deeper=1h/90m,keep=2"),
        ("wfp+pack:patience=12h,depth=1000", "wfp+pack:patience=12h"),
        ("sjf~psus:never", "sjf+easy~psus:never"),
    ],
)  # fmt: skip
def test_omitted_parts_are_fcfs_easy_first_fit_and_none(text: str, name: str) -> None:
    assert parse_policy(text).name == name


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("fcfs+pack:depht=3", UnknownNameError, "unknown setting of pack 'depht'. Did you mean 'depth'"),
        ("fcfs+pack:depth=0", ConfigError, "pack: depth is '0'; it must be a whole number, at least 1"),
        ("fcfs+pack:depth=3,depth=4", ConfigError, "pack: depth is given twice"),
        ("fcfs+pushdown:interval=0s", ConfigError, "interval is '0s'; it must be at least 1 ms"),
        ("fcfs+conservative:2", ConfigError, "'conservative' has no settings"),
        ("fcfs~psus:soon", ConfigError, "'soon' is not a duration"),
        ("fcfs~psus:-5", ConfigError, "timeout is '-5'; it must be at least 0 s"),
        ("fcfs~psas-ipn:5m", UnknownNameError, "Did you mean 'psas-ipm'"),
    ],
)  # fmt: skip
def test_wrong_settings_are_reported(text: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as told:
        parse_policy(text)
    assert says in str(told.value)


def test_policies_are_listed_with_all_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("policy", "list", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    for kind, registry in (
        ("order", ORDERINGS), ("backfill", BACKFILLS), ("placement", PLACEMENTS), ("power", POWERS)
    ):  # fmt: skip
        assert set(told[kind]) == set(registry)
        assert all(one["help"] for one in told[kind].values())
    assert told["backfill"]["pack"]["settings"]["patience"]["default"] == "1d"
    assert told["power"]["psus"]["settings"]["timeout"]["help"]


def test_the_page_s_tables_are_those_of_the_registries() -> None:
    # In a process of its own: other tests register more.
    line = [sys.executable, "-m", "hpctwin", "policy", "list", "--markdown"]
    told = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    page = (Path(__file__).parents[2] / "docs/reference/policies.md").read_text()
    tables = told.strip().split("\n\n")
    assert len(tables) == len(REGISTRIES)
    for table in tables:
        assert table in page, "hpctwin policy list --markdown"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("simulate t --order wf", ("wfp", "sjf", "multifactor")),
        (
            "simulate t --backfill pack:depth=3,pa",
            ("pack:depth=3,patience=", "pack:depth=3,depth="),
        ),
        ("simulate t --placement x", ("first-fit", "spread")),
        ("simulate t --power psus:20m,k", ("psus:20m,keep=", "psus:20m,deeper=")),
        ("compare t -p w", ("wfp",)),
        ("compare t -p wfp+easy~", ("wfp+easy~psus", "wfp+easy~spars-ipm")),
        ("policy check fcfs@", ("fcfs@best-fit",)),
    ],
)
def test_a_shell_completes_what_the_registries_have(
    typed: str, offered: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("__complete", *typed.split()) == 0
    names = {line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()}
    assert names >= set(offered)


def test_to_name_and_list_policies_nothing_is_compiled_and_numba_is_not_loaded() -> None:
    code = (
        "import sys; from hpctwin.policies import BACKFILLS, parse_policy;"
        "parse_policy('wfp+pack:depth=5@spread~psus:20m'); BACKFILLS.entries();"
        "sys.exit('numba' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_new_entry_is_found_listed_and_near() -> None:
    registry: Registry[int] = Registry("thing")
    more = Parameter("more", "whole", 0)
    registry.register(Entry("seven", "the seventh", lambda more=0: 7 + more, (more,), "more"))
    entry = registry.find("seven")
    assert entry.make(**entry.read("3")) == 10
    assert entry.text(entry.read("3")) == "seven:3"
    with pytest.raises(UnknownNameError, match=r"unknown thing 'sevn'. Did you mean 'seven'"):
        registry.find("sevn")


def test_a_pass_in_a_file_stands_in_place_of_a_backfill_and_reads_back(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from hpctwin.engine.passes.none import pass_none\n"
        "from hpctwin.engine.compile.jit import jit\n\n\n"
        "def in_order(sim):\n    pass_none(sim)\n\n\nx = 3\n"
    )
    text = f"sjf+{mine}:in_order"
    assert parse_policy(text).name == text
    cluster = Cluster.uniform(4)
    assert simulate(JOBS, cluster, text).jobs.equals(simulate(JOBS, cluster, "sjf+none").jobs)
    simulation = Simulation(JOBS, cluster, text)
    simulation.save(tmp_path / "saved.npz")
    assert Simulation.load(tmp_path / "saved.npz").policy.name == text
    with pytest.raises(UnknownNameError, match=r"Did you mean 'in_order'"):
        parse_policy(f"sjf+{mine}:in_ordr")
    with pytest.raises(PolicyError, match="is int, not a function or a Pass"):
        parse_policy(f"sjf+{mine}:x")


def test_a_control_function_in_a_file_stands_in_place_of_a_power_policy(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("def control(view):\n    return None\n")
    power = find_power(f"{mine}:control:20m,keep=2")
    assert (power.kind, power.timeout_s, power.keep) == ("orders", 1200, 2)
    text = f"fcfs+easy~{mine}:control:20m,keep=2"
    assert parse_policy(text).name == text
    assert make_policy("wfp", power=f"{mine}").name == f"wfp+easy~{mine}:control"
