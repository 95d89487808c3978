"""The sets of nodes that the engine keeps."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Simulation, Workload, simulate
from hpctwin.engine.operations.creation import index_nodes
from hpctwin.engine.state import layout
from tests.energy.powered import uniform


@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 200), st.integers(1, 5)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(["psus:20s", "psas-auto:20s", "psas-ipm:20s", "psas-ipm:20s,keep=2", "none"]),
    st.integers(0, 25),
    st.sampled_from((1, 1_300)),
)
def test_the_sets_of_nodes_are_what_the_nodes_say(
    jobs: list[tuple[int, int, int]], power: str, instants: int, times: int
) -> None:
    submit, runtime, nodes = zip(*sorted(jobs), strict=True)
    wide = [times * n for n in nodes]
    workload = Workload.build(submit_s=submit, runtime_s=runtime, nodes=wide)
    simulation = Simulation(workload, uniform(7 * times), f"fcfs+easy~{power}")
    simulation.advance(instants=instants)
    kept = tuple(simulation.state[name].copy() for name in ("index", "tally", "summary"))
    index_nodes(simulation.state)
    # What is over is found out only when it matters.
    for chosen in (layout.FREE_NODES, layout.AWAKE_NODES, layout.IDLE_NODES, layout.ASLEEP_NODES):
        assert (kept[0][chosen] == simulation.state["index"][chosen]).all()
        assert (kept[1][:, chosen] == simulation.state["tally"][:, chosen]).all()
        assert (kept[2][chosen] == simulation.state["summary"][chosen]).all()
    of_states = slice(len(kept[0]), None)
    assert (kept[1][:, of_states] == simulation.state["tally"][:, of_states]).all()


@given(st.integers(0, 2**32), st.sampled_from((3, 200, 6_000)))
def test_the_free_nodes_with_the_lowest_numbers_are_found_among_many(
    seed: int, widest: int
) -> None:
    nodes, jobs = 13_000, 60
    draw = np.random.default_rng(seed)
    workload = Workload.build(
        submit_s=np.sort(draw.integers(0, 100, jobs)),
        runtime_s=draw.integers(1, 60, jobs),
        nodes=np.where(draw.random(jobs) < 0.3, 4_090, 1) + draw.integers(0, widest, jobs),
    )
    runs = simulate(workload, uniform(nodes), "fcfs+first-fit~none").node_map
    assert runs is not None
    has: dict[tuple[float, int], list[int]] = {}
    end_s: dict[int, float] = {}
    for run in runs.sort("start_s", "job_id").iter_rows(named=True):
        begin, count = run["first_node"], run["count"]
        has.setdefault((run["start_s"], run["job_id"]), []).extend(range(begin, begin + count))
        end_s[run["job_id"]] = run["end_s"]
    assert len(has) == jobs
    free = np.ones(nodes, bool)
    running: list[int] = []
    of: dict[int, list[int]] = {}
    for (start_s, job), own in has.items():
        for other in [other for other in running if end_s[other] <= start_s]:
            running.remove(other)
            free[of[other]] = True
        assert sorted(own) == free.nonzero()[0][: len(own)].tolist()
        free[own] = False
        of[job] = own
        running.append(job)
