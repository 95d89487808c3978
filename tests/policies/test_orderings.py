"""Orderings: by name, as formulas, as functions."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from hpctwin.engine.compile.policy_modules import JobView
from hpctwin.errors import ConfigError, PolicyError, UnknownNameError
from hpctwin.policies import (
    BUILT_IN,
    Ordering,
    find_ordering,
    formula,
    make_policy,
    multifactor,
    ordering,
    parse_policy,
)
from hpctwin.policies.check import check_ordering


def job(**fields: float) -> JobView:
    codes = dict.fromkeys(("user", "account", "partition", "qos"), 0)
    usual = dict.fromkeys(JobView._fields, 0.0) | codes | {
        "submit": 100.0, "eligible": 110.0, "wait": 900.0, "walltime": 3600.0, "expected": 1800.0,
        "nodes": 16.0, "fairshare": 0.25, "machine_nodes": 64.0, "priority": 5.0,
        "predicted_runtime": 1200.0, "partition_priority": 0.5, "qos_priority": 1.0,
    }  # fmt: skip
    return JobView(**(usual | fields))


NOW = 1000.0
BY_HAND = {
    "fcfs": 100.0,
    "lcfs": -100.0,
    "sjf": 1800.0,
    "spf": 1200.0,
    "ljf": -1800.0,
    "smallest": 16.0,
    "largest": -16.0,
    "smallest-area": 28_800.0,
    "largest-area": -28_800.0,
    "expansion": -1.25,
    "wfp": -0.25,
    "unicef": -0.0625,
    "f1": math.log10(1800) * 16 + 870 * 2,
    "f2": math.sqrt(1800) * 16 + 25_600 * 2,
    "f3": 28_800.0 + 6_860_000 * 2,
    "f4": 1800.0 * 4 + 530_000 * 2,
    "priority": -5.0,
    "fairshare": -0.25,
}


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_each_built_in_ordering_scores_as_its_definition_says(name: str) -> None:
    assert BUILT_IN[name](NOW, job()) == pytest.approx(BY_HAND[name])
    assert BUILT_IN[name].compiled(NOW, job()) == pytest.approx(BY_HAND[name])


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_each_built_in_ordering_gives_a_number_for_jobs_at_the_edges(name: str) -> None:
    assert "fine" in check_ordering(BUILT_IN[name])


def test_only_orderings_of_time_or_use_are_scored_in_each_pass() -> None:
    changing = {name for name, made in BUILT_IN.items() if made.changes}
    assert changing == {"expansion", "wfp", "unicef", "fairshare"}
    assert [name for name, made in BUILT_IN.items() if made.fairshare] == ["fairshare"]


def test_a_formula_scores_as_python_would() -> None:
    made = formula("-(wait/walltime)**3*nodes if nodes > 4 else max(now, 2) - sqrt(expected)")
    assert made.compiled(NOW, job()) == pytest.approx(-0.25)
    assert made.compiled(NOW, job(nodes=1.0)) == pytest.approx(1000 - math.sqrt(1800))
    assert made.changes


def test_pbs_formulas_put_the_largest_first_and_know_pbs_names() -> None:
    made = formula("pbs:eligible_time/walltime + ncpus*0.01 + job_priority + queue_priority")
    assert made(NOW, job(cores=2)) == pytest.approx(-(890 / 3600 + 0.32 + 5 + 0.5))
    assert made.changes


def test_a_formula_of_what_does_not_change_keeps_the_queue_sorted() -> None:
    assert not formula("nodes * walltime").changes
    assert formula("fairshare * 2").fairshare


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("wait+nodez", "unknown field 'nodez'. Did you mean 'nodes'?"),
        ("runtime*nodes", "unknown field 'runtime'. Did you mean 'expected'?"),
        ("wait +", "cannot be read"),
        ("__import__('os')+1", "not a supported function"),
        ("nodes.real+1", "is not allowed"),
        ("[1][0]+nodes", "is not allowed"),
        ("'a'*3+nodes", "is not a number"),
        ("max(nodes, key=1)+2", "not a supported function"),
    ],
)
def test_a_wrong_formula_is_rejected_with_what_is_wrong(text: str, told: str) -> None:
    with pytest.raises(PolicyError, match=told.replace("(", r"\(")):
        formula(text)


def test_multifactor_is_the_weighted_sum_of_its_factors() -> None:
    made = multifactor(age=1000, size=100, fairshare=10, partition=4, qos=2, trace=1, max_age=1780)
    assert made(NOW, job()) == pytest.approx(-(500 + 25 + 2.5 + 2 + 2 + 5))
    small = multifactor(age=0, fairshare=0, size=100, favor_small=True)
    assert small(NOW, job()) == pytest.approx(-75)
    assert (
        find_ordering("multifactor:size=500,max_age=2d").name == "multifactor:size=500.0,max_age=2d"
    )


def test_multifactor_counts_size_and_age_as_slurm_s_flags_say_and_tres_by_the_unit() -> None:
    """By hand, of 10 of 40 nodes with 2 of 4 cores and a GPU each, for half an hour."""
    one = job()._replace(
        nodes=10.0, machine_nodes=40.0, cores=2.0, cpu=20.0, gpus=1.0, memory_gb=3.0, walltime=1800.0,
        submit=NOW - 100, eligible=NOW - 50,
    )  # fmt: skip

    def of(**options: float) -> float:
        return -multifactor(**{"age": 0, "fairshare": 0, "max_age": 1000, **options})(NOW, one)

    assert of(size=100) == pytest.approx(25)
    assert of(size=100, machine_cores=160) == pytest.approx(100 * (10 / 40 + 20 / 160) / 2)
    assert of(size=100, relative_to_time=True) == pytest.approx(100 * 0.25 / 30)
    relative = of(size=100, relative_to_time=True, machine_cores=40, favor_small=True)
    assert relative == pytest.approx(100 * (1 - (20 / 40) / 30))
    assert of(age=100) == pytest.approx(5)
    assert of(age=100, accrue_always=True) == pytest.approx(10)
    assert of(per_node=1, per_core=2, per_gpu=3, per_gb=4) == pytest.approx(10 + 40 + 30 + 120)


def test_wrong_options_of_multifactor_are_rejected() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'size'"):
        find_ordering("multifactor:sise=3")
    with pytest.raises(ConfigError, match="not a number"):
        find_ordering("multifactor:size=big")
    with pytest.raises(ConfigError, match="0 or more"):
        multifactor(age=-1)


def test_an_unknown_name_is_answered_with_the_nearest_and_the_list() -> None:
    with pytest.raises(UnknownNameError, match=r"Did you mean 'wfp'.*Known: .*unicef"):
        find_ordering("wfpp")
    with pytest.raises(UnknownNameError, match="Did you mean 'easy'"):
        make_policy("fcfs", "eazy")
    with pytest.raises(UnknownNameError, match="Did you mean 'contiguous'"):
        make_policy("fcfs", placement="contigous")


def test_a_function_becomes_an_ordering_that_knows_what_it_reads() -> None:
    @ordering
    def by_width(now: float, job: JobView) -> float:
        """Widest first."""
        return -job.nodes

    @ordering(name="aged")
    def other(now: float, job: JobView) -> float:
        age = now - job.eligible
        return -age

    def handed_on(now: float, job: JobView) -> float:
        return max(job)

    assert isinstance(by_width, Ordering)
    assert (by_width.name, by_width.changes, by_width.summary) == (
        "by-width",
        False,
        "Widest first.",
    )
    assert (other.name, other.changes, other.fairshare) == ("aged", True, False)
    assert find_ordering(handed_on).changes
    assert find_ordering(handed_on).fairshare


def test_functions_that_cannot_be_orderings_are_rejected() -> None:
    with pytest.raises(PolicyError, match="exactly two arguments"):
        ordering(lambda job: job.nodes)
    with pytest.raises(PolicyError, match="no field 'size'"):
        ordering(lambda now, job: job.size)
    made = ordering(lambda now, job: str(job.nodes), name="text")
    with pytest.raises(PolicyError, match="cannot be compiled"):
        _ = made.compiled
    nan = formula("0/(wait*0)+nodes")
    with pytest.raises(PolicyError, match="returns NaN"):
        check_ordering(nan)


def test_an_ordering_is_found_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from hpctwin import ordering\n"
        "def plain(now, job):\n    return job.nodes\n"
        "@ordering\ndef made(now, job):\n    return -job.nodes\n"
    )
    assert find_ordering(f"{path}:plain")(NOW, job()) == 16
    assert find_ordering(str(path))(NOW, job()) == -16
    with pytest.raises(UnknownNameError, match="Did you mean 'plain'"):
        find_ordering(f"{path}:plane")
    with pytest.raises(PolicyError, match="no such file"):
        find_ordering(str(tmp_path / "none.py"))
    (tmp_path / "bad.py").write_text("1/0\n")
    with pytest.raises(PolicyError, match="ZeroDivisionError"):
        find_ordering(str(tmp_path / "bad.py"))


@pytest.mark.parametrize(
    "text",
    [
        "wfp+easy", "fcfs+none", "fcfs+easy:4/sjf", "sjf+conservative@contiguous",
        "-(wait/walltime)**3*nodes+easy", "wait+nodes+first-fit",
    ],
)  # fmt: skip
def test_a_policys_name_reads_back_as_the_policy(text: str) -> None:
    policy = parse_policy(text)
    assert policy.name == text
    assert parse_policy(policy.name).name == text


def test_a_policy_without_backfill_is_easy_even_if_its_formula_has_plus_signs() -> None:
    assert parse_policy("wfp").backfill == "easy"
    assert parse_policy("wait+nodes").name == "wait+nodes+easy"
    with pytest.raises(UnknownNameError, match="Did you mean 'easy'"):
        parse_policy("wfp+eazy")
    with pytest.raises(ConfigError, match="not a number of reservations"):
        parse_policy("fcfs+easy:many")
    with pytest.raises(ConfigError, match="need backfill 'easy'"):
        make_policy("fcfs", "none", reservations=2)
    with pytest.raises(ConfigError, match="at least 1"):
        make_policy("fcfs", reservations=0)


def test_an_installed_plug_in_offers_orderings_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    point = metadata.EntryPoint(
        "from-elsewhere", "hpctwin.policies.orderings:ljf", "hpctwin.orderings"
    )
    monkeypatch.setattr(metadata, "entry_points", lambda group: metadata.EntryPoints([point]))
    found = find_ordering("from-elsewhere")
    assert found.name == "from-elsewhere"
    assert found(NOW, job()) == -1800.0


def test_a_policy_that_was_compiled_leaves_nothing_to_compile_to_its_first_simulation() -> None:
    from hpctwin.engine.operations.kernel import kernels_of
    from hpctwin.policies import parse_policy

    policy = parse_policy("fcfs+pushdown~psas-auto:20m")
    policy.compile()
    needed = kernels_of(policy.scheduling, policy.power.power_pass)
    assert policy.power.power_pass.after in needed
    assert all(kernel._address for kernel in needed)
