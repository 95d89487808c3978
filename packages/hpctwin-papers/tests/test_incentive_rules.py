"""What accounts earn."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.metrics.test_accounts import ten_jobs

from hpctwin import Cluster, errors, simulate
from hpctwin.metrics import Accounts
from hpctwin.metrics.accounts import MEANS
from hpctwin.model import Category, Workload
from hpctwin_papers.s_raps.incentive_rules import INCENTIVES, rewarded


def test_the_power_of_nodes_must_be_known_for_an_incentive_by_power() -> None:
    dark = simulate(ten_jobs(), Cluster.uniform(4)).accounts()
    with pytest.raises(
        errors.ConfigError, match="needs energy_j, which these accounts do not have"
    ):
        rewarded(ten_jobs(), dark, "low-power")
    with pytest.raises(errors.UnknownNameError, match="fugaku-points"):
        rewarded(ten_jobs(), dark, "fugaku-point")
    with pytest.raises(errors.ConfigError, match="a budget in node-hours is missing"):
        rewarded(ten_jobs(), dark, "budget")
    assert len(rewarded(ten_jobs(), dark, "budget", 10.0)) == 10


def made(rows: dict[str, tuple[float, float]]) -> Accounts:
    """Accounts of which energy (J) and node-seconds are known."""
    names = list(rows)
    sums = pl.DataFrame(
        {
            "name": names,
            "jobs": [1] * len(names),
            "ended": [1] * len(names),
            "node_s": [rows[name][1] for name in names],
            "core_s": pl.Series([None] * len(names), dtype=pl.Float64),
            "gpu_s": pl.Series([None] * len(names), dtype=pl.Float64),
            "energy_j": [rows[name][0] for name in names],
            **{
                name: [0.0] * len(names)
                for name in (
                    "energy_run_js", "energy_run2_js2", "response3", "response4",
                    *(f"{name}_{part}" for name in MEANS for part in ("sum", "weight")),
                )
            },
        }
    )  # fmt: skip
    return Accounts("account", 1e6, sums)


EARLIER = st.dictionaries(
    st.sampled_from("abcdef"),
    st.tuples(st.integers(1, 50).map(float), st.integers(1, 50).map(float)),
    min_size=1,
)


@given(
    earlier=EARLIER,
    labels=st.lists(st.sampled_from([*"abcdefgh", None]), min_size=1, max_size=12),
    incentive=st.sampled_from(sorted(INCENTIVES)),
)
def test_redeeming_starts_jobs_in_the_order_that_the_definition_says(
    earlier: dict[str, tuple[float, float]], labels: list[str | None], incentive: str
) -> None:
    # One node, and all jobs there from the beginning: the order of starts is the order of the queue.
    workload = Workload.build(
        submit_s=np.zeros(len(labels)), runtime_s=np.ones(len(labels)), nodes=np.ones(len(labels)),
        account=Category.of(labels),
    )  # fmt: skip
    mean = tuple(sum(row[k] for row in earlier.values()) / len(earlier) for k in (0, 1))
    all_w = sum(e for e, _ in earlier.values()) / sum(t for _, t in earlier.values())

    def key(label: str | None) -> tuple[bool, float]:
        energy, node_s = earlier.get(label or "", mean)
        points = (mean[0] - energy) / all_w
        if incentive == "fugaku-points":
            return (points < -1e-9, 0.0 if points < -1e-9 else -points)
        value = {
            "low-power": energy / node_s, "high-power": -energy / node_s, "energy": energy,
            "edp": energy * node_s, "ed2p": energy * node_s**2, "budget": node_s,
        }[incentive]  # fmt: skip
        return (False, value)

    budget = 7.0 if incentive == "budget" else None
    run = simulate(
        rewarded(workload, made(earlier), incentive, budget), 1, order="priority", backfill="none"
    )
    order = run.jobs.sort("start_s")["job_id"].to_list()
    keys = [key(labels[job - 1]) for job in order]
    for first, second in pairwise(keys):
        assert first[0] < second[0] or (
            first[0] == second[0] and first[1] <= second[1] + 1e-9 * abs(second[1])
        )
    alike = [[job for job in order if labels[job - 1] == label] for label in set(labels)]
    assert all(jobs == sorted(jobs) for jobs in alike)
