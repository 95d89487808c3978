"""Accounts against sums made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, errors, simulate
from hpctwin.metrics import Accounts, read_accounts
from hpctwin.model import Category, NodeGroup, Workload
from hpctwin.model.cluster.node_group import Mode
from hpctwin.model.cluster.power import Component
from tests import strategies
from tests.examples import examples

CORES = 8


def machine(nodes: int = 4) -> Cluster:
    """Nodes of 8 cores and 2 GPUs that draw 100 W idle and 300 W busy."""
    group = NodeGroup(
        name="node",
        count=nodes,
        cores=CORES,
        gpus=2,
        modes={"on": Mode(power_w=300, idle_w=100)},
    )
    return Cluster(name="small", nodes=[group])


def ten_jobs() -> Workload:
    """Ten jobs of three accounts on four nodes, first come, first served; starts are worked out by hand.

    ====  =======  =====  ===  =====  =====  =====
    job   submit   nodes  run  start  wait   who
    ====  =======  =====  ===  =====  =====  =====
    1     0        4      100  0      0      a
    2     10       2      50   100    90     b
    3     10       2      100  100    90     a
    4     20       4      10   200    180    c
    5     300      1      100  300    0      b
    6     300      1      100  300    0      b
    7     300      2      200  300    0      c
    8     310      2      20   400    90     a
    9     310      1      10   420    110    (nobody)
    10    600      3      60   600    0      c
    ====  =======  =====  ===  =====  =====  =====
    """
    return Workload.build(
        submit_s=[0, 10, 10, 20, 300, 300, 300, 310, 310, 600],
        runtime_s=[100, 50, 100, 10, 100, 100, 200, 20, 10, 60],
        nodes=[4, 2, 2, 4, 1, 1, 2, 2, 1, 3],
        account=Category.of(["a", "b", "a", "c", "b", "b", "c", "a", None, "c"]),
    )


@pytest.fixture(scope="module")
def accounts() -> Accounts:
    """Of the ten jobs."""
    return simulate(ten_jobs(), machine(), order="fcfs", backfill="none").accounts()


def test_ten_jobs_give_the_accounts_made_by_hand(accounts: Accounts) -> None:
    rows = {row["name"]: row for row in accounts.table.iter_rows(named=True)}
    assert list(rows) == ["a", "c", "b", "unknown"]
    a = rows["a"]
    assert (a["jobs"], a["ended"]) == (3, 3)
    node_s = 4 * 100 + 2 * 100 + 2 * 20
    assert a["node_hours"] * 3600 == pytest.approx(node_s)
    assert a["core_hours"] * 3600 == pytest.approx(node_s * 8)
    assert a["gpu_hours"] * 3600 == pytest.approx(node_s * 2)
    assert a["energy_j"] == pytest.approx(node_s * 300)
    assert a["mean_node_w"] == pytest.approx(300)
    assert a["edp_js"] == pytest.approx(300 * (400 * 100 + 200 * 100 + 40 * 20))
    assert a["ed2p_js2"] == pytest.approx(300 * (400 * 100**2 + 200 * 100**2 + 40 * 20**2))
    assert a["mean_wait_s"] == pytest.approx((0 + 90 + 90) / 3)
    assert a["mean_turnaround_s"] == pytest.approx((100 + 190 + 110) / 3)
    assert a["utilization"] == pytest.approx(node_s / (4 * 660))
    assert a["area_weighted_response_time_s"] == pytest.approx(
        (400 * 100 + 200 * 190 + 40 * 110) / 640
    )
    cubes = 4 * 100**3 + 2 * (190**3 - 90**3) + 2 * (110**3 - 90**3)
    fourths = 4 * 100**4 + 2 * (190**4 - 90**4) + 2 * (110**4 - 90**4)
    assert a["priority_weighted_specific_response_time_s"] == pytest.approx(
        3 * fourths / (4 * cubes)
    )
    used = {name: row["node_hours"] * 3600 for name, row in rows.items()}
    assert used == pytest.approx({"a": 640, "c": 620, "b": 300, "unknown": 10})
    mean = sum(used.values()) / 4
    for name, row in rows.items():  # (mean E - E) / mean P; all nodes draw the same
        assert row["fugaku_points"] == pytest.approx(mean - used[name])


def test_sums_over_accounts_equal_the_systems(accounts: Accounts) -> None:
    result = simulate(ten_jobs(), machine(), order="fcfs", backfill="none")
    assert result.energy is not None
    figures = result.summary()
    total = accounts.total
    assert total["energy_j"] == pytest.approx(figures["compute_energy_j"])
    assert total["utilization"] == pytest.approx(figures["utilization"])
    assert total["mean_wait_s"] == pytest.approx(figures["mean_wait_s"])
    assert total["area_weighted_response_time_s"] == pytest.approx(
        figures["area_weighted_response_time_s"]
    )
    for name in ("jobs", "ended", "node_hours", "core_hours", "gpu_hours", "energy_j", "edp_js"):
        assert total[name] == pytest.approx(accounts.table[name].sum())


def test_on_shared_nodes_accounts_are_of_the_shares_that_jobs_held() -> None:
    # Two nodes of 8 cores; the job of 8 cores waits for 50 s until one of them is empty.
    parts = {"cpu": Component(idle_w=100, max_w=400)}
    cluster = Cluster(name="s", nodes=[NodeGroup(name="n", count=2, cores=8, components=parts)])
    jobs = Workload.build(
        submit_s=[0, 0, 0, 10], runtime_s=[100, 100, 50, 20], nodes=[1] * 4,
        account=Category.of(["a", "b", "a", "b"]),
        chunks={"tasks": [1, 1, 2, 1], "cores_per_task": [4, 4, 2, 8]},
    )  # fmt: skip
    result = simulate(jobs, cluster)
    figures, accounts = result.summary(), result.accounts()
    a, b = (accounts.table.filter(pl.col("name") == name).row(0, named=True) for name in "ab")
    assert a["node_hours"] * 3600 == pytest.approx(0.5 * 100 + 0.5 * 50)
    assert b["node_hours"] * 3600 == pytest.approx(0.5 * 100 + 1.0 * 20)
    assert a["area_weighted_response_time_s"] == pytest.approx((50 * 100 + 25 * 50) / 75)
    assert b["mean_node_w"] == pytest.approx(b["energy_j"] / 70)
    for name in ("utilization", "area_weighted_response_time_s", "mean_wait_s"):
        assert accounts.total[name] == pytest.approx(figures[name])
    assert accounts.total["energy_j"] == pytest.approx(figures["compute_energy_j"])


SLEEPY = Cluster.model_validate(
    {
        "nodes": [
            {
                "name": "n",
                "count": 6,
                "modes": {"base": {"power_w": 300, "idle_w": 100}},
                "sleep": [{"power_w": 4, "switch_off": {"time": "2s", "power_w": 95},
                          "switch_on": {"time": "7s", "power_w": 180}}],
            }
        ],
        "failures": {"outages": [{"node": 1, "start": 20, "duration": 9}], "on_failure": "requeue"},
    }
)  # fmt: skip


def test_a_job_truncated_as_it_starts_and_started_again_at_once_counts_once() -> None:
    # Node 1 fails at the instant at which it is on for the last job, which starts on another then.
    jobs = Workload.build(submit_s=[0, 0, 10, 13], runtime_s=[0, 0, 0, 10], nodes=[3, 3, 1, 1])
    result = simulate(jobs, SLEEPY, "fcfs+easy~psus:5s")
    assert result.lost.rows() == [(4, 20.0, 20.0, 1)]
    assert result.energy is not None
    assert result.energy.jobs["energy_j"].to_list() == [0, 0, 0, 3000]
    assert result.summary()["compute_energy_j"] == 3000


def test_use_of_a_job_that_was_interrupted_and_cancelled_before_its_restart_counts() -> None:
    # A node fails at 20 s, and the job is cancelled then.
    jobs = Workload.build(submit_s=[0, 0], runtime_s=[21, 30], nodes=[3, 1])
    jobs = jobs.replace(cancel_ms=np.array([20_000, -1]), account=Category.of(["a", "b"]))
    result = simulate(jobs, SLEEPY, "fcfs+easy~psus:5s")
    accounts = result.accounts().table
    assert accounts["ended"].to_list() == [0, 1]
    assert accounts["node_hours"].to_list() == pytest.approx([60 / 3600, 30 / 3600])
    assert accounts["energy_j"].to_list() == [18_000, 9_000]


@settings(max_examples=examples(30))
@given(st.data())
def test_accounts_of_any_run_add_up_to_the_systems_totals(data: st.DataObject) -> None:
    shared = data.draw(st.booleans())
    if shared:
        cluster = data.draw(strategies.shared_clusters())
        jobs = data.draw(strategies.shared_workloads(cluster, max_jobs=12))
    else:
        cluster = SLEEPY
        jobs = data.draw(strategies.workloads(cluster, max_jobs=12))
    jobs = jobs.replace(
        account=Category.of([None if n % 4 == 3 else f"{n % 3}" for n in range(len(jobs))])
    )
    result = simulate(jobs, cluster, "fcfs+easy" if shared else "fcfs+easy~psus:5s")
    figures, accounts = result.summary(), result.accounts()
    total = accounts.total
    assert total["jobs"] == len(jobs)
    for name in ("utilization", "mean_wait_s", "area_weighted_response_time_s"):
        assert (total[name] or 0.0) == pytest.approx(figures[name] or 0.0), name
    if result.energy is not None and not accounts.sums["energy_j"].null_count():
        assert total["energy_j"] == pytest.approx(figures["compute_energy_j"])
    names = ("jobs", "node_hours", "core_hours", "gpu_hours", "energy_j", "edp_js", "ed2p_js2")
    for name in names:
        known = accounts.table[name]
        summed = None if known.null_count() else known.sum()
        assert total[name] == (None if summed is None else pytest.approx(summed))


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_accounts_read_back_as_they_were_written(
    accounts: Accounts, tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"accounts.{ending}"
    accounts.write(path)
    again = read_accounts(path)
    assert again.sums.equals(accounts.sums)
    assert (again.by, again.there_node_s) == (accounts.by, accounts.there_node_s)


def test_accounts_of_two_runs_add_up(accounts: Accounts) -> None:
    twice = accounts.merged(accounts)
    one, two = (a.table.sort("name") for a in (accounts, twice))
    for name in ("jobs", "ended", "node_hours", "energy_j", "edp_js"):
        assert two[name].to_list() == pytest.approx([2 * x for x in one[name].to_list()])
    for name in ("mean_wait_s", "mean_node_w", "utilization", "area_weighted_response_time_s"):
        assert two[name].to_list() == pytest.approx(one[name].to_list())


def test_accounts_of_users_and_of_accounts_do_not_add_up(accounts: Accounts) -> None:
    users = simulate(ten_jobs(), machine()).accounts("user")
    with pytest.raises(errors.ConfigError, match="by account and by user"):
        accounts.merged(users)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.json", None, "no such file; create it with hpctwin simulate --accounts"),
        ("a.json", "[1, 2", "is not an accounts file"),
        ("a.json", "[]", "is not an accounts file"),
        ("a.json", '{"by": "account", "accounts": []}', "is not an accounts file"),
        (
            "a.json",
            '{"format": 99, "by": "account", "there_node_s": 0, "accounts": [{}]}',
            "a.json: format 99; this is hpctwin",
        ),
        ("a.parquet", "PAR1", "is not an accounts file"),
        ("a.parquet", "", "is not an accounts file"),
    ],
)
def test_a_file_that_holds_no_accounts_is_rejected_by_name(
    tmp_path: Path, name: str, text: str | None, told: str
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(errors.ConfigError, match=told) as refused:
        read_accounts(path)
    assert name in str(refused.value)


def test_hours_of_cores_that_are_not_known_are_null() -> None:
    dark = simulate(ten_jobs(), Cluster.uniform(4)).accounts()
    assert dark.table["core_hours"].null_count() == len(dark.table)
