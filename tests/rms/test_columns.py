"""Columns kept between two looks are those of the jobs as they are."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.model import Cluster
from hpctwin.policies import parse_policy
from hpctwin.rms.columns import SpecRows
from hpctwin.rms.records import JobDependency, JobRecord, JobSpec, NodeRecord
from hpctwin.twin.present import present

NODES = tuple(NodeRecord(name=f"n{i}") for i in range(4))
FCFS = parse_policy("fcfs+easy")


@st.composite
def specs(draw: st.DrawFn) -> JobSpec:
    job_id = draw(st.sampled_from(["1", "2", "10", "3.pbs", "x"]))
    about: dict[str, Any] = {
        "submit_s": draw(st.integers(0, 50)),
        "nodes": draw(st.integers(1, 4)),
        "walltime_s": draw(st.integers(1, 100)),
        "user": draw(st.sampled_from(["", "ann", "bob"])),
        "priority": draw(st.integers(0, 3)),
        "not_before_s": draw(st.none() | st.integers(0, 200)),
        "cores": draw(st.sampled_from([0, 2])),
        "resources": draw(st.sampled_from([{}, {"io": 1}])),
        "held": draw(st.booleans()),
    }
    if job_id != "1" and draw(st.booleans()):
        about["dependencies"] = (JobDependency(on="1"),)
    return JobSpec(id=job_id, **about)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return bool(one == other)


@given(st.lists(st.lists(specs(), max_size=5, unique_by=lambda s: s.id), min_size=1, max_size=4))
def test_what_is_kept_from_earlier_looks_changes_nothing(looks: list[list[JobSpec]]) -> None:
    machine = Cluster(nodes=({"name": "node", "count": 4, "cores": 8},), resources={"io": 4})
    kept = SpecRows()
    for jobs in looks:
        records = [JobRecord(spec=spec) for spec in jobs]
        for _ in range(2):
            plain = present(machine, records, NODES, (), 100.0, FCFS)
            again = present(machine, records, NODES, (), 100.0, FCFS, known=kept)
            assert plain.ids == again.ids
            assert same(plain.base.workload, again.base.workload)
            assert np.array_equal(plain.waiting, again.waiting)
