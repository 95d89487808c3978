"""The sets of nodes that the engine keeps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Simulation, Workload
from hpctwin.engine import layout
from hpctwin.engine.state import index_nodes
from tests.energy.powered import uniform


@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 200), st.integers(1, 5)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(["psus:20s", "psas-auto:20s", "psas-ipm:20s", "psas-ipm:20s,keep=2", "none"]),
    st.integers(0, 25),
)
def test_the_sets_of_nodes_are_what_the_nodes_say(
    jobs: list[tuple[int, int, int]], power: str, instants: int
) -> None:
    submit, runtime, nodes = zip(*sorted(jobs), strict=True)
    workload = Workload.build(submit_s=submit, runtime_s=runtime, nodes=nodes)
    simulation = Simulation(workload, uniform(7), f"fcfs+easy~{power}")
    simulation.advance(instants=instants)
    kept = simulation.state["index"].copy(), simulation.state["tally"].copy()
    index_nodes(simulation.state)
    # What is over is found out only when it matters.
    for chosen in (layout.FREE_NODES, layout.AWAKE_NODES, layout.IDLE_NODES, layout.ASLEEP_NODES):
        assert (kept[0][chosen] == simulation.state["index"][chosen]).all()
        assert (kept[1][:, chosen] == simulation.state["tally"][:, chosen]).all()
    of_states = slice(len(kept[0]), None)
    assert (kept[1][:, of_states] == simulation.state["tally"][:, of_states]).all()
