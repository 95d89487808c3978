"""State of each user or account in an ordering: the engine against plain objects, job by job."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, generate, make_policy, ordering, simulate
from hpctwin.errors import ConfigError, PolicyError
from hpctwin.policies import Ordering
from hpctwin.policies.check import check_ordering
from hpctwin.simulation import simulate_stream
from tests import strategies
from tests.engine.adapter import run_engine
from tests.engine.examples import examples
from tests.reference import simulate_reference
from tests.reference.user_state import UserState

BACKFILLS = ("none", "first-fit", "easy", "conservative", "pack", "slurm", "pbs")
HALF_LIFE_S = 30.0


class User:
    """Nodes in use, their decayed use, and how long jobs have waited."""

    nodes: float = 0.0
    used: float = 0.0
    at: float = 0.0
    waited: float = 0.0


def started(now: float, job: Any, user: Any) -> None:
    level = user.nodes * HALF_LIFE_S
    user.used = (user.used - level) * math.exp((user.at - now) / HALF_LIFE_S) + level
    user.at = now
    user.nodes += job.nodes
    user.waited = max(user.waited, job.wait)


def ended(now: float, job: Any, user: Any) -> None:
    level = user.nodes * HALF_LIFE_S
    user.used = (user.used - level) * math.exp((user.at - now) / HALF_LIFE_S) + level
    user.at = now
    user.nodes -= job.nodes


def least_used(now: float, job: Any, user: Any) -> float:
    level = user.nodes * HALF_LIFE_S
    used = (user.used - level) * math.exp((user.at - now) / HALF_LIFE_S) + level
    # Rounding must not decide between users with equal use.
    return math.floor(used * 1e6) - user.waited + job.nodes


ORDERS: dict[str, Ordering] = {
    by: ordering(least_used, state=User, by=by, started=started, ended=ended)
    for by in ("user", "account")
}


def compared(workload: Workload, cluster: Cluster, by: str, backfill: str, **options: Any) -> None:
    state = UserState(User, started, ended, by)
    chosen = make_policy(ORDERS[by], backfill)
    reference = simulate_reference(
        workload,
        cluster,
        order=lambda now, view: least_used(now, view, state.of_job(view)),
        backfill=backfill,
        depth=chosen.setting("depth") or 0,
        patience_ms=round((chosen.setting("patience") or 0) * 1000),
        settings=chosen.numbers(),
        state=state,
        **options,
    )
    simulation = Simulation(workload, cluster, policy=chosen, **options)
    simulation.advance()
    start = simulation.column("start").tolist()
    assert start == [job.start_ms for job in reference]
    assert simulation.column("requeues").tolist() == [job.requeues for job in reference]
    kept = simulation.state["user_state"]
    for code, user in state.of.items():
        assert kept[code + 1].tolist() == pytest.approx([user.nodes, user.used, user.at, user.waited])


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize("by", ("user", "account"))
@settings(max_examples=examples(60))
@given(data=st.data())
def test_equals_plain_objects(by: str, backfill: str, data: st.DataObject) -> None:
    cluster = data.draw(strategies.clusters(cleanup=True))
    workload = data.draw(strategies.workloads(cluster))
    overrun = data.draw(st.sampled_from(("terminate", "continue")))
    compared(workload, cluster, by, backfill, overrun=overrun)


@pytest.mark.parametrize("backfill", ("none", "easy", "conservative"))
@settings(max_examples=examples(60))
@given(data=st.data())
def test_equals_plain_objects_on_shared_nodes(backfill: str, data: st.DataObject) -> None:
    cluster = data.draw(strategies.shared_clusters())
    workload = data.draw(strategies.shared_workloads(cluster, dependencies=False, max_jobs=20))
    compared(workload, cluster, "user", backfill)
