"""CQSim+'s rule gives its published tables to the digit, and what it shares with CQSim job by job."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from hpctwin import Cluster, Workload, simulate
from hpctwin.errors import UnknownNameError
from hpctwin.facility import Facility
from hpctwin_papers.cqsim_plus.cases import CASES, PUBLISHED_WAYS, SIZE_EDGES
from hpctwin_papers.cqsim_plus.published_rule import RuleCluster, RuleJob, simulate_rule
from hpctwin_papers.cqsim_plus.tables import bins, run_by_their_rule, ways


@pytest.fixture
def data(traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCTWIN_TRACES", str(traces))


@pytest.mark.traces
@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_all_twelve_waits_of_tables_3_and_4_come_out_exactly() -> None:
    case = CASES["heterogeneous"]
    workload, _ = case.workload()
    row, _ = run_by_their_rule("heterogeneous", workload, "sgs-t")
    published = case.published["sgs-t"]
    assert row.jobs == 21_722
    assert round(row.mean_wait_min, 1) == published.overall == 681.7
    told = {}
    for by, figures in (("size", published.size), ("walltime", published.walltime)):
        beside = [one for one in row.bins[by] if one["published_wait_min"] is not None]
        assert [one["published_wait_min"] for one in beside] == list(figures.values())
        assert [round(one["mean_wait_min"], 1) for one in beside] == list(figures.values())
        told[by] = [one["jobs"] for one in beside]
    assert sum(len(counts) for counts in told.values()) == 12
    assert told == {
        "size": [12_133, 4_841, 1_881, 2_438, 429],
        "walltime": [1_263, 5_012, 2_512, 8_272, 2_925, 1_137, 365],
    }


@pytest.mark.traces
@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_waits_of_table_5_come_out_with_its_first_two_rows_exchanged() -> None:
    case = CASES["theta-polaris"]
    workload, _ = case.workload()
    siloed = simulate_rule(case.facility, workload, "siloed")
    found = ways(simulate_rule(case.facility, workload, "sgs-t"), siloed)
    waits = {(w.origin, w.cluster): (60 * (w.siloed_min or 0), 60 * w.mean_wait_min) for w in found}
    printed = {(origin, cluster): (a, b) for origin, cluster, _, a, b in PUBLISHED_WAYS}
    assert tuple(map(round, waits["theta", "polaris"])) == printed["polaris", "polaris"]
    assert round(waits["polaris", "polaris"][1]) == pytest.approx(
        printed["theta", "polaris"][1], abs=1
    )
    for way in (("polaris", "theta"), ("theta", "theta")):
        assert round(waits[way][1]) == pytest.approx(printed[way][1], abs=1)


@pytest.mark.traces
def test_one_cluster_alone_is_cqsim_job_by_job(traces: Path, golden: Path) -> None:
    workload, _ = CASES["homogeneous"].workload()
    facility = Facility.model_validate(
        {"name": "theta", "clusters": [{"name": "theta", "nodes": 4360}]}
    )
    found = simulate_rule(facility, workload, "sgs-t").sort("job_id")
    table = pl.read_csv(golden / "cqsim_theta_2022_fcfs_easy.csv.gz").sort("job_id")
    theirs = (table["start"] - table["submit"].min()).to_numpy()
    np.testing.assert_array_equal(found["start_s"].to_numpy(), theirs)


def test_with_exact_walltimes_and_no_two_events_at_once_the_rule_is_fcfs_and_easy() -> None:
    rng = np.random.default_rng(3)
    size = 400
    # Odd run times from even submissions, no two equal: no two events share an instant.
    submit = np.cumsum(rng.integers(1, 60, size)) * 2.0
    runtime = rng.permutation(size) * 2.0 + 1 + rng.integers(1, 999, size) / 1000
    workload = Workload.build(
        submit_s=submit, runtime_s=runtime, nodes=rng.integers(1, 17, size), walltime_s=runtime
    )
    facility = Facility.model_validate({"name": "f", "clusters": [{"name": "c", "nodes": 16}]})
    theirs = simulate_rule(facility, workload, "siloed")["start_s"].to_numpy()
    ours = simulate(workload, Cluster.uniform(nodes=16)).jobs["start_s"].to_numpy()
    assert (ours > submit).mean() > 0.5
    np.testing.assert_array_equal(theirs, ours)


def test_a_job_may_pass_the_head_by_its_true_run_time_and_between_two_ends() -> None:
    site = RuleCluster(4)
    site.submit(RuleJob(0, 3, 100_000, 200_000), 0)
    site.submit(RuleJob(1, 4, 50_000, 50_000), 1000)
    # Its walltime of 900 s would be in the head's way, its run time is not.
    site.submit(RuleJob(2, 1, 20_000, 900_000), 2000)
    assert site.started[2] == 2000
    twins = RuleCluster(2)
    for number in (0, 1):
        twins.submit(RuleJob(number, 1, 100_000, 200_000), 0)
    twins.submit(RuleJob(2, 2, 10_000, 10_000), 1000)
    twins.submit(RuleJob(3, 1, 50_000, 50_000), 2000)
    twins.advance(float("inf"))
    assert (twins.started[3], twins.started[2]) == (100_000, 150_000)


def test_a_forecast_is_what_happens_and_changes_nothing() -> None:
    site = RuleCluster(4)
    for number in range(6):
        site.submit(RuleJob(number, 1 + number % 4, 1000 * (number + 3), 20_000), 0)
    job = RuleJob(6, 2, 5000, 6000)
    before = (site.free, list(site.waiting), list(site.running), list(site.ends))
    end = site.forecast(job, 0)
    assert (site.free, list(site.waiting), list(site.running), list(site.ends)) == before
    assert site.forecast(job, 0, best=end - 1) == float("inf")
    assert site.forecast(job, 0, best=end) == end
    site.submit(job, 0)
    site.advance(float("inf"))
    assert site.started[6] + 5000 == end


def test_an_empty_bin_does_not_shift_what_is_published_of_the_others() -> None:
    jobs = pl.DataFrame({"nodes": [1, 600], "wait_s": [60.0, 120.0]})
    published = dict(zip(SIZE_EDGES, (1.0, 2.0, 3.0, 4.0, 5.0), strict=True))
    found = {one["bin"]: one for one in bins(jobs, "nodes", SIZE_EDGES, published)}
    assert {label: one["published_wait_min"] for label, one in found.items()} == {
        "≤ 128": 1.0,
        "(128, 256]": 2.0,
        "(256, 512]": 3.0,
        "(512, 1024]": 4.0,
        "(1024, 2180]": 5.0,
    }
    assert {label: one["mean_wait_min"] for label, one in found.items() if one["jobs"]} == {
        "≤ 128": 1.0,
        "(512, 1024]": 2.0,
    }


def test_a_strategy_that_the_rule_does_not_have_is_reported() -> None:
    workload = Workload.build(submit_s=[0], runtime_s=[1], nodes=[1])
    facility = Facility.model_validate({"name": "f", "clusters": [{"name": "c", "nodes": 1}]})
    with pytest.raises(UnknownNameError, match="Did you mean 'siloed'"):
        simulate_rule(facility, workload, "silod")
