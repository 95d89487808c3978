"""Whose jobs may be on a node beside which others, in what is kept of live clusters."""

from __future__ import annotations

import pytest

from hpctwin.model import Cluster
from hpctwin.rms.node_capacity import Room
from hpctwin.rms.records.records import JobRecord, JobSpec

MACHINE = Cluster.model_validate({"nodes": [{"name": "a", "count": 2, "cores": 8}]})
NAMES = {"n0": 0, "n1": 1}


def job(number: int, user: str, shared_with: int = 0, account: str = "", **more: object) -> JobSpec:
    about = {"nodes": 1, "tasks": 1, "cores_per_task": 2, "submit_s": 0, "walltime_s": 60, **more}
    return JobSpec(id=str(number), user=user, account=account, shared_with=shared_with, **about)


def runs(spec: JobSpec, node: str) -> JobRecord:
    return JobRecord(spec=spec, start_s=1, node_names=(node,))


@pytest.mark.parametrize(
    ("there", "comes", "node"),
    [
        (job(1, "ada", 1), job(2, "ada"), 0),
        (job(1, "ada", 1), job(2, "ben"), 1),
        (job(1, "ada"), job(2, "ben", 1), 1),
        (job(1, "ada"), job(2, "ada", 1), 0),
        (job(1, "ada", 2, "x"), job(2, "ben", 0, "x"), 0),
        (job(1, "ada", 2, "x"), job(2, "ada", 0, "y"), 1),
        (job(1, "ada", 2, "x"), job(2, "ben", 1, "x"), 1),
        (job(1, "ada", 1), job(2, "ben", exclusive=True), 1),
    ],
)
def test_jobs_that_keep_others_away_and_others_are_on_nodes_apart(there, comes, node) -> None:
    room = Room.of(MACHINE, ["up", "up"], [runs(there, "n0"), JobRecord(spec=comes)], NAMES)
    assert room.place(comes) == [(node, (1,))]
    assert room.has(comes, [(1, (1,))])
    assert room.has(comes, [(0, (1,))]) is (node == 0)


def test_a_node_is_everybodys_again_when_the_last_job_of_its_user_has_gone() -> None:
    room = Room(MACHINE, owned=True)
    first, second, other = job(1, "ada", 1), job(2, "ada"), job(3, "ben", nodes=2, tasks=2)
    for spec in (first, second):
        room.hold([0], room.held_by(runs(spec, "n0")), of=spec)
    assert not room.fits(other)
    room.hold([0], room.held_by(runs(first, "n0")), -1, of=first)
    assert room.fits(other)
    assert not room.fits(job(4, "ben", 1, nodes=2, tasks=2))
    room.hold([0], room.held_by(runs(second, "n0")), -1, of=second)
    assert room.fits(job(4, "ben", 1, nodes=2, tasks=2))
