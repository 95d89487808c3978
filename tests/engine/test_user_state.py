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
        assert kept[code + 1].tolist() == pytest.approx(
            [user.nodes, user.used, user.at, user.waited]
        )


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize("by", ["user", "account"])
@settings(max_examples=examples(60))
@given(data=st.data())
def test_equals_plain_objects(by: str, backfill: str, data: st.DataObject) -> None:
    cluster = data.draw(strategies.clusters(cleanup=True))
    workload = data.draw(strategies.workloads(cluster))
    overrun = data.draw(st.sampled_from(("terminate", "continue")))
    compared(workload, cluster, by, backfill, overrun=overrun)


@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
@settings(max_examples=examples(60))
@given(data=st.data())
def test_equals_plain_objects_on_shared_nodes(backfill: str, data: st.DataObject) -> None:
    cluster = data.draw(strategies.shared_clusters())
    workload = data.draw(strategies.shared_workloads(cluster, dependencies=False, max_jobs=20))
    compared(workload, cluster, "user", backfill)


def busy(jobs: int = 300) -> Workload:
    return generate("poisson", jobs=jobs, nodes=16, seed=4).scale(load=1.2)


def starts(simulation: Simulation) -> list[int]:
    simulation.advance()
    return simulation.column("start").tolist()


@pytest.mark.parametrize("order", [ORDERS["user"], ORDERS["account"], "fairshare", "usage"])
def test_forks_and_files_continue_with_it(tmp_path: Any, order: Any) -> None:
    workload = busy()
    simulation = Simulation(workload, 16, order)
    simulation.advance(float(workload.submit_ms[150]) / 1000)
    state = simulation.state["user_state"].copy()
    assert state.any() == isinstance(order, Ordering)
    fork = simulation.fork()
    same = simulation.fork(simulation.policy)
    simulation.save(tmp_path / "half.npz")
    loaded = Simulation.load(tmp_path / "half.npz", policy=simulation.policy)
    for other in (fork, same, loaded):
        np.testing.assert_array_equal(other.state["user_state"], state)
    expected = starts(fork)
    assert expected == starts(loaded)
    assert expected == starts(simulation)
    assert not isinstance(order, Ordering) or (simulation.state["user_state"] != state).any()


def test_under_another_policy_it_begins_with_the_running_jobs() -> None:
    workload = busy()
    simulation = Simulation(workload, 16, "fcfs")
    simulation.advance(float(workload.submit_ms[150]) / 1000)
    running = simulation.state.running["job"]
    assert len(running)
    fork = simulation.fork(make_policy(ORDERS["user"], "easy"))
    counted = np.zeros(len(workload.user.labels))
    np.add.at(counted, workload.user.codes[running], workload.nodes[running])
    np.testing.assert_array_equal(fork.state["user_state"][1:, 0], counted)
    fork.advance()
    np.testing.assert_array_equal(fork.state["user_state"][:, 0], 0.0)


def test_a_stream_gives_the_same_starts(tmp_path: Any) -> None:
    workload = busy()
    policy = make_policy(ORDERS["user"], "easy")
    whole = simulate(workload, 16, policy).jobs["start_s"].to_list()
    parts = (workload[at : at + 50] for at in range(0, len(workload), 50))
    streamed = simulate_stream(parts, 16, policy, out=tmp_path / "s", batch=50)
    assert streamed.jobs.collect().sort("job_id")["start_s"].to_list() == whole


def test_fcfs_by_its_own_state_is_round_robin_by_hand() -> None:
    """One node, three jobs of user a before one of b: b is second, for a has run a job by then."""
    workload = Workload.build(
        submit_s=[0, 0, 0, 0], runtime_s=[10] * 4, nodes=[1] * 4, user=["a", "a", "a", "b"]
    )

    class Count:
        jobs: float = 0

    def add(now: float, job: Any, user: Any) -> None:
        user.jobs += 1

    def fewest(now: float, job: Any, user: Any) -> float:
        return user.jobs

    order = ordering(fewest, state=Count, started=add)
    assert simulate(workload, 1, order).jobs["start_s"].to_list() == [0, 20, 30, 10]


def none(now: float, job: Any, user: Any) -> None:
    user.nodes += 1


def reads_share(now: float, job: Any, user: Any) -> None:
    user.nodes += job.fairshare


def unknown(now: float, job: Any, user: Any) -> None:
    user.runing += 1


def sets_job(now: float, job: Any, user: Any) -> None:
    job.nodes = 3


def two(now: float, job: Any) -> None:
    return None


def returns(now: float, job: Any, user: Any) -> float:
    return 3.0


def writes(now: float, job: Any, user: Any) -> float:
    user.nodes = 1.0
    return user.nodes


class Text:
    nodes: str = "one"


class Empty:
    pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"started": none}, "need state="),
        ({"state": User}, "never changes"),
        (
            {"state": User, "by": "group", "started": none},
            "by is 'group'; it must be user or account",
        ),
        ({"state": Empty, "started": none}, "a class with fields such as"),
        ({"state": Text, "started": none}, "nodes of its state begins as 'one'"),
        ({"state": User, "started": reads_share}, "reads fairshare, which only ordering"),
        ({"state": User, "started": unknown}, "a user has no field 'runing'; it has nodes, used"),
        ({"state": User, "started": two}, "must have exactly three arguments"),
    ],
)
def test_wrong_declarations_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        ordering(least_used, **options)


@pytest.mark.parametrize(
    ("function", "started_by", "message"),
    [
        (least_used, sets_job, "nodes"),
        (least_used, returns, "must return nothing"),
    ],
)
def test_what_cannot_be_compiled_is_refused(function: Any, started_by: Any, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        check_ordering(ordering(function, state=User, started=started_by))


def test_a_score_may_not_change_the_state() -> None:
    with pytest.raises(PolicyError, match="sets the attribute 'nodes'"):
        ordering(writes, state=User, started=none)


def test_check_tries_all_functions() -> None:
    assert "scored in every scheduling pass" in check_ordering(ORDERS["user"])


def test_only_the_ordering_of_all_jobs_has_state() -> None:
    with pytest.raises(ConfigError, match="candidates: ordering 'least-used' has state"):
        make_policy("fcfs", "easy", candidates=ORDERS["user"])
    other = make_policy(ORDERS["user"], "easy", candidates="sjf")
    assert Simulation(busy(40), 16, other).run().jobs["start_s"].null_count() == 0
