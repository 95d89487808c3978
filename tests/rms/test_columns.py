"""What is reused from one look at a cluster to the next is what a first look would find."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.engine.state.layout import KNOWN, STATE
from hpctwin.model import Cluster
from hpctwin.policies import parse_policy
from hpctwin.rms.records.columns import JobRows
from hpctwin.rms.records.records import JobDependency, JobRecord, JobSpec, NodeRecord
from hpctwin.twin.what_if.conversion import Reused
from hpctwin.twin.what_if.present import Present, present
from hpctwin.twin.what_if.run import Past, run_ahead
from tests.examples import each

NAMES = tuple(f"n{i}" for i in range(4))
MACHINE = Cluster(
    nodes=({"name": "node", "count": 4, "cores": 8, "memory_gb": 16},),
    resources={"io": 4},
    partitions=({"name": "all", "default": True}, {"name": "long"}),
)
FCFS = parse_policy("fcfs+easy")
POOL = [
    FCFS,
    *map(
        parse_policy,
        ("wfp+easy", "sjf+easy", "sjf+first-fit", "fcfs+conservative", "fairshare+easy"),
    ),
]
IDS = ("1", "2", "01", "10", "3.pbs", "x")


@st.composite
def specs(draw: st.DrawFn, job_id: str, *, shared: bool) -> JobSpec:
    about: dict[str, Any] = {
        "submit_s": draw(st.integers(0, 50)),
        "nodes": draw(st.integers(1, 4)),
        "walltime_s": draw(st.integers(1, 100)),
        "user": draw(st.sampled_from(["", "ann", "bob"])),
        "account": draw(st.sampled_from(["", "physics"])),
        "partition": draw(st.sampled_from(["", "long"])),
        "priority": draw(st.integers(0, 3)),
        "not_before_s": draw(st.none() | st.integers(0, 200)),
        "resources": draw(st.sampled_from([{}, {"io": 1}])),
        "held": draw(st.sampled_from([False, False, True])),
        "reason": draw(st.sampled_from(["", "", "policy: no"])),
    }
    if shared and draw(st.booleans()):
        about |= {"tasks": draw(st.integers(4, 8)), "cores_per_task": draw(st.integers(1, 2))}
    else:
        about["cores"] = draw(st.sampled_from([0, 2]))
    if job_id != "1" and draw(st.booleans()):
        about["dependencies"] = (JobDependency(on="1"),)
    return JobSpec(id=job_id, **about)


@st.composite
def changed(draw: st.DrawFn, jobs: dict[str, JobRecord], *, shared: bool) -> dict[str, JobRecord]:
    """After one thing has happened to a job: it came, started, ended, went back, or asks for other things."""
    jobs = dict(jobs)
    job_id = draw(st.sampled_from(IDS))
    job = jobs.get(job_id)
    if job is None:
        jobs[job_id] = JobRecord(spec=draw(specs(job_id, shared=shared)))
        return jobs
    what = draw(st.sampled_from(["ends", "asks", "starts", "back"]))
    if what == "ends":
        del jobs[job_id]
    elif what == "asks":
        jobs[job_id] = job.model_copy(update={"spec": draw(specs(job_id, shared=shared))})
    elif what == "starts" and job.start_s is None:
        held = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
        start_s = draw(st.sampled_from([60.0, 99.0, 101.0]))
        plain = job.spec.model_copy(update={"dependencies": (), "held": False})
        jobs[job_id] = JobRecord(spec=plain, start_s=start_s, node_names=tuple(held))
    elif what == "back" and job.start_s is not None:
        jobs[job_id] = JobRecord(spec=job.spec)
    return jobs


@st.composite
def looks(
    draw: st.DrawFn, *, shared: bool
) -> list[tuple[list[JobRecord], tuple[NodeRecord, ...], float]]:
    """What is seen at some times: the jobs in any order, the nodes, which change now and then."""
    jobs: dict[str, JobRecord] = {}
    nodes = tuple(NodeRecord(name=name) for name in NAMES)
    found = []
    for _ in range(draw(st.integers(1, 5))):
        for _ in range(draw(st.integers(0, 6))):
            jobs = draw(changed(jobs, shared=shared))
        if draw(st.integers(0, 3)) == 0:
            states = [draw(st.sampled_from(["up", "down"])) for _ in NAMES]
            order = draw(st.permutations(range(len(NAMES))))
            nodes = tuple(NodeRecord(name=NAMES[i], state=states[i]) for i in order)
        seen = list(jobs.values())
        if draw(st.booleans()):
            seen = draw(st.permutations(seen))
        found.append((list(seen), nodes, draw(st.sampled_from([100.0, 100.0, 150.0]))))
    return found


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and np.array_equal(one, other))
    if is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one == other or (np.isnan(one) and np.isnan(other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return bool(one == other)


def differences(one: Present, other: Present) -> list[str]:
    """The names of what is otherwise in two presents, of all that there is in each."""
    arrays = one.base.state, other.base.state
    of = {
        name: (getattr(one, name), getattr(other, name)) for name in ("ids", "submit_s", "running")
    }
    of |= {name: (getattr(one, name), getattr(other, name)) for name in ("waiting", "now_ms")}
    of["workload"] = one.base.workload, other.base.workload
    return [name for name, (a, b) in of.items() if not same(a, b)] + [
        name
        for name in (*KNOWN, *STATE)
        if arrays[0][name].shape != arrays[1][name].shape
        or arrays[0][name].tobytes() != arrays[1][name].tobytes()
    ]


@given(data=st.data())
@each("shared", (False, True))
def test_a_carried_state_equals_that_of_a_first_query_field_by_field(
    shared: bool, data: st.DataObject
) -> None:
    reused = Reused()
    for jobs, nodes, now_s in data.draw(looks(shared=shared)):
        first = present(MACHINE, jobs, nodes, (), now_s, FCFS)
        for _ in range(2):
            again = present(MACHINE, jobs, nodes, (), now_s, FCFS, reused=reused)
            assert differences(first, again) == []


@given(data=st.data())
@each("shared", (False, True))
def test_what_ifs_in_used_memory_equal_those_of_a_first_query(
    shared: bool, data: st.DataObject
) -> None:
    # Policies change from look to look, jobs come, go and ask for other things, nodes fail.
    reused = Reused()
    for jobs, nodes, now_s in data.draw(looks(shared=shared)):
        again = present(MACHINE, jobs, nodes, (), now_s, FCFS, reused=reused)
        asked = data.draw(st.lists(st.sampled_from(POOL), min_size=1, max_size=4))
        horizon_s = data.draw(st.none() | st.sampled_from([30.0, 200.0]))
        for policy in asked:
            first = present(MACHINE, jobs, nodes, (), now_s, FCFS)
            found, expected = (
                run_ahead(one, policy, Past.none(), horizon_s) for one in (again, first)
            )
            assert same(found, expected)
        runs = data.draw(st.sampled_from([0.1, 0.5, 1.0]))
        runtime_s = {job.spec.id: np.full(2, runs * job.spec.walltime_s) for job in jobs}
        first = present(MACHINE, jobs, nodes, (), now_s, FCFS)
        drawn, alone = (one.futures(runtime_s, [(), ()]) for one in (again, first))
        assert same(drawn, alone)


def test_jobs_that_are_seen_again_are_not_read_again() -> None:
    nodes = tuple(NodeRecord(name=name) for name in NAMES)
    specs = [JobSpec(id=i, submit_s=0, nodes=1, walltime_s=1) for i in IDS]
    jobs = [JobRecord(spec=spec, start_s=0.0, node_names=NAMES[:1]) for spec in specs]
    rows = JobRows()
    whole = rows.jobs(jobs, nodes)
    held = whole.told("held")
    assert rows.jobs(tuple(jobs), nodes) is whole
    back = rows.jobs(jobs[::-1], nodes)
    assert back.told("id") == list(IDS[::-1])
    assert [a is b for a, b in zip(back.told("held"), held[::-1], strict=True)] == [True] * 6
    left = rows.jobs(jobs[1:], nodes)
    assert [a is b for a, b in zip(left.told("held"), held[1:], strict=True)] == [True] * 5
