"""A fork that takes the memory of a simulation of no use any more is one that has memory of its own."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, generate, parse_policy
from hpctwin.engine.state import layout
from tests import strategies
from tests.engine.examples import examples
from tests.engine.test_guarantees import same
from tests.examples import each

POLICIES = (
    "fcfs+easy", "sjf+easy", "wfp+easy", "fcfs+conservative", "largest+easy:2", "fairshare+easy",
    "fcfs+first-fit", "sjf+none", "adaptive+pack",
)  # fmt: skip


@st.composite
def begun(draw: st.DrawFn, *, shared: bool) -> Simulation:
    """A simulation of jobs on a machine, up to some time."""
    clusters = strategies.shared_clusters if shared else strategies.clusters
    workloads = partial(strategies.shared_workloads, owners=True)
    cluster = draw(clusters(cleanup=True))
    workload = draw((workloads if shared else strategies.workloads)(cluster, max_jobs=15))
    policy = parse_policy(draw(st.sampled_from(POLICIES)))
    simulation = Simulation(workload, cluster, policy, track_nodes=draw(st.booleans()))
    simulation.advance(draw(st.integers(0, 60)))
    return simulation


@settings(max_examples=examples(200))
@given(data=st.data())
@each("shared", (False, True))
def test_forks_into_used_memory_continue_like_forks_into_new_memory(
    shared: bool, data: st.DataObject
) -> None:
    spare: Simulation | None = None
    whence = data.draw(st.lists(begun(shared=shared), min_size=1, max_size=3))
    for _ in range(data.draw(st.integers(2, 6))):
        simulation = data.draw(st.sampled_from(whence))
        policy = parse_policy(data.draw(st.sampled_from(POLICIES)))
        until_s = data.draw(st.none() | st.integers(0, 100))
        before = simulation.fork()
        new = simulation.fork(policy)
        again = spare = simulation.fork(policy, into=spare)
        for one in (new, again):
            one.advance(until_s)
        assert same(new, again)
        assert again.result().jobs.equals(new.result().jobs)
        assert same(simulation, before)


def test_a_fork_shares_nothing_with_its_parent_that_is_written_whatever_memory_it_takes() -> None:
    cluster = Cluster.uniform(nodes=8)
    first, other = (
        Simulation(generate("poisson", jobs=jobs, nodes=8, seed=jobs), cluster, "fcfs+easy")
        for jobs in (30, 50)
    )
    first.state.own("job")
    spare = other.fork()
    spare.advance()
    for into in (None, spare):
        fork = first.fork(into=into)
        for name in (*layout.STATE, "job"):
            assert not np.shares_memory(first.state[name], fork.state[name])


def test_memory_that_is_taken_again_and_again_does_not_move_while_as_many_jobs_wait() -> None:
    simulation = Simulation(generate("poisson", jobs=50, nodes=8, seed=1), 8, "fcfs+easy")
    spare = simulation.fork()
    where: Any = spare.state.address
    for _ in range(3):
        spare.advance()
        assert simulation.fork(into=spare) is spare
        assert spare.state.address == where


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("before", ["fcfs+conservative", "sjf+easy"])
def test_what_was_found_out_of_one_future_is_not_taken_for_known_in_the_next(
    policy: str, before: str
) -> None:
    simulation = Simulation(
        generate("poisson", jobs=80, nodes=8, load=1.3, seed=1), 8, parse_policy(policy)
    )
    simulation.advance(0.5 * simulation.workload.span_s)
    new = simulation.fork()
    new.advance()
    spare = simulation.fork(before)
    spare.advance()
    for _ in range(2):
        spare = simulation.fork(into=spare)
        spare.advance()
        assert same(new, spare)
