"""Which nodes can run jobs, and which are held: as the records say, however often it is asked."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.rms.records.columns import JobRows, NodeRows
from hpctwin.rms.records.records import JobRecord, JobSpec, NodePower, NodeRecord

NAMES = ("a", "b", "c", "d", "e")

nodes = st.builds(
    NodeRecord,
    name=st.just("node"),
    state=st.sampled_from(["up", "down", "drained"]),
    power=st.none() | st.builds(NodePower, state=st.sampled_from(["on", "asleep"])),
)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[NodeRecord], list[JobRecord]]:
    """Some of the nodes in any order, and jobs on any of them, known or not."""
    names = draw(st.permutations(NAMES))[: draw(st.integers(1, len(NAMES)))]
    records = [draw(nodes).model_copy(update={"name": name}) for name in names]
    jobs = []
    for number in range(draw(st.integers(0, 3))):
        spec = JobSpec(id=str(number), submit_s=0, nodes=1, walltime_s=1)
        held = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
        jobs.append(JobRecord(spec=spec, start_s=0.0, node_names=tuple(held)))
    return records, jobs


@given(st.lists(clusters(), min_size=1, max_size=4))
def test_stored_nodes_equal_the_listed_ones(
    looks: list[tuple[list[NodeRecord], list[JobRecord]]],
) -> None:
    kept, rows = NodeRows(), JobRows()
    for records, jobs in looks:
        for _ in range(2):
            kept.see(list(records))
            up = [node.state == "up" for node in records]
            on = [
                u and not (n.power and n.power.state != "on")
                for u, n in zip(up, records, strict=True)
            ]
            np.testing.assert_array_equal(kept.up, up)
            assert kept.gone.tolist() == [i for i, u in enumerate(up) if not u]
            np.testing.assert_array_equal(kept.on, on)
            place = {node.name: i for i, node in enumerate(records)}
            there = rows.jobs(jobs, records)
            told = dict(zip(there.told("id"), there.told("held"), strict=True))
            for job in jobs:
                held = told[job.spec.id].tolist()
                assert held == [place[name] for name in job.node_names if name in place]
            assert sorted(there.held) == sorted(row for held in told.values() for row in held)
