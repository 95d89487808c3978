"""What is told to start together finds room wherever the manager lays it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin.model import Cluster
from hpctwin.model.requests.resources import GPU_TYPE
from hpctwin.rms.guaranteed_fit import fit_together
from hpctwin.rms.node_capacity import Room
from hpctwin.rms.records.records import JobSpec
from tests.conftest import examples

GPU_NODES = {"name": "g", "count": 3, "cores": 8, "memory_gb": 16, "gpus": {"a": 2, "b": 1}}
MACHINE = Cluster.model_validate(
    {
        "nodes": [GPU_NODES, {"name": "c", "count": 2, "cores": 8, "memory_gb": 16}],
        "partitions": [
            {"name": "all", "default": True},
            {"name": "small", "groups": ["c"]},
            {"name": "gpu", "groups": ["g"]},
        ],
    }
)
WHOLE = Cluster.model_validate(
    {
        "nodes": [{"name": "x", "count": 3}, {"name": "y", "count": 2}],
        "partitions": [
            {"name": "all", "default": True},
            {"name": "x", "groups": ["x"]},
            {"name": "y", "groups": ["y"]},
        ],
    }
)


def asks(number: int, **more: Any) -> JobSpec:
    return JobSpec(id=str(number), **{"submit_s": 0, "walltime_s": 60, "nodes": 1, **more})


def told(room: Room, *asked: dict[str, Any], under_way: int = 0) -> list[str]:
    specs = [asks(n, **more) for n, more in enumerate(asked)]
    return [spec.id for spec in fit_together(room, specs[:under_way], specs[under_way:])]


CORES = {"tasks": 1, "cores_per_task": 1}


def of_gpus(number: int, of_type: str = "") -> dict[str, Any]:
    types = {"consumables": {f"gpu/{of_type}": number}} if of_type else {}
    return {**CORES, "gpus_per_task": number, **types}


def test_a_job_for_a_gpu_type_waits_until_the_gpus_of_an_untyped_job_are_known() -> None:
    room = Room(MACHINE)
    room.up[1:3] = False
    assert told(room, of_gpus(1), of_gpus(1, "b")) == ["0"]
    assert told(room, of_gpus(1), of_gpus(1, "b"), under_way=1) == []
    assert told(room, of_gpus(1), of_gpus(1, "a")) == ["0", "1"]
    assert told(room, of_gpus(1, "a"), of_gpus(1, "b"), of_gpus(1, "a")) == ["0", "1", "2"]
    assert told(room, of_gpus(1), of_gpus(1, "b"), of_gpus(1, "b"), of_gpus(1)) == ["0", "3"]


def test_jobs_that_fit_on_one_node_together_are_chosen_together() -> None:
    room = Room(MACHINE)
    big, small = {**CORES, "cores_per_task": 6}, {**CORES, "cores_per_task": 2}
    room.up[:4] = False
    assert told(room, big, small) == ["0", "1"]
    room.up[3] = True
    assert told(room, big, big) == ["0", "1"]
    # The small ones may lie on two nodes, where none for the whole is left.
    assert told(room, small, small, {**CORES, "cores_per_task": 8}) == ["0", "1"]
    assert told(room, {**CORES, "cores_per_task": 8}, small, small) == ["0", "1"]


def test_a_job_for_two_nodes_waits_although_it_fits_on_one() -> None:
    room = Room(MACHINE)
    room.up[:2] = False
    whole, two = {**CORES, "cores_per_task": 8}, {**CORES, "tasks": 2, "partition": "small"}
    assert told(room, whole, two) == ["0", "1"]
    assert told(room, whole, {**two, "nodes": 2}) == ["0"]


def test_a_job_of_two_nodes_may_have_three_cores_of_one_and_one_of_the_other() -> None:
    room = Room(MACHINE)
    room.up[[0, 4]] = False
    two = {**CORES, "tasks": 2, "nodes": 2, "cores_per_task": 2, "tasks_per_node": 1}
    last = {**CORES, "partition": "small"}
    room.free[1:4, 0] = [3, 2, 1]
    assert told(room, two, last) == ["0"]
    room.free[1:4, 0] = [3, 2, 4]
    assert told(room, two, last) == ["0", "1"]


def test_the_scarcest_of_what_others_take_counts() -> None:
    room = Room(MACHINE)
    room.up[:4] = False
    much_memory = {**CORES, "tasks": 2, "memory_gb_per_task": 8}
    assert told(room, {**CORES, "cores_per_task": 7}, much_memory) == ["0"]
    assert told(room, {**CORES, "cores_per_task": 6}, much_memory) == ["0", "1"]
    assert told(room, {**CORES, "memory_gb_per_task": 1}, much_memory) == ["0"]


def test_a_job_for_some_nodes_waits_until_it_is_seen_which_one_for_any_has_got() -> None:
    room = Room(WHOLE)
    assert told(room, {"nodes": 3}, {"nodes": 2, "partition": "y"}) == ["0"]
    assert told(room, {"nodes": 2, "partition": "y"}, {"nodes": 3, "partition": "x"}) == ["0", "1"]
    assert told(room, {"nodes": 1}, {"nodes": 1, "partition": "y"}, {"nodes": 2}) == ["0", "1"]
    assert told(room, {"nodes": 2}, {"nodes": 1}, {"nodes": 2}) == ["0", "1", "2"]


def test_a_job_that_does_not_fit_holds_back_no_job_that_cannot_delay_it() -> None:
    room = Room(WHOLE)
    room.up[3:] = False
    assert told(room, {"nodes": 2, "partition": "y"}, {"nodes": 3, "partition": "x"}) == ["0", "1"]
    assert told(room, {"nodes": 9}, {"nodes": 3, "partition": "x"}, under_way=1) == ["1"]


AMOUNTS = st.fixed_dictionaries(
    {
        "tasks": st.integers(1, 4),
        "cores_per_task": st.integers(1, 8),
        "memory_gb_per_task": st.sampled_from([0, 1, 5, 9]),
        "gpus": st.sampled_from([0, 0, 0, 1, 2]),
        "type": st.sampled_from(["", "", "a", "b"]),
        "tasks_per_node": st.sampled_from([0, 0, 1, 2]),
        "exclusive": st.booleans(),
        "shared_with": st.sampled_from([0, 0, 0, 1]),
        "user": st.sampled_from(["ada", "ben"]),
        "partition": st.sampled_from(["all", "all", "small", "gpu"]),
        "alone": st.integers(0, 5),
    }
)


def drawn(number: int, asked: dict[str, Any]) -> JobSpec:
    asked = dict(asked)
    gpus, of_type, alone = asked.pop("gpus"), asked.pop("type"), asked.pop("alone")
    asked["exclusive"] &= alone == 0
    spread = alone == 1
    types = {"consumables": {f"{GPU_TYPE}{of_type}": gpus}} if gpus and of_type else {}
    nodes = {"nodes": asked["tasks"] if spread else 1}
    return asks(number, **asked, **nodes, gpus_per_task=gpus, **types)


def lies_somewhere(room: Room, spec: JobSpec, rng: random.Random) -> bool:
    """Lay a job in one of the ways in which it may lie; whether there is any."""
    if room.place(spec) is None:
        return False
    if spec.shares and spec.tasks == spec.nodes > 1 and spec.cores_per_task > 1:
        lay_unequally(room, spec, rng)
        return True
    while True:
        on: dict[int, list[dict[str, float]]] = {}
        free = {n: room.free_for(spec)[n].copy() for n in np.flatnonzero(room.open(spec)).tolist()}
        for _ in range(spec.tasks):
            there = [n for n in free if len(on.get(n, ())) < (spec.tasks_per_node or spec.tasks)]
            rng.shuffle(there)
            for node in there:
                if (had := _task(room, spec, free[node], rng)) is not None:
                    on.setdefault(node, []).append(had)
                    break
        if sum(map(len, on.values())) == spec.tasks and len(on) >= spec.nodes:
            break
    for node, tasks in on.items():
        held = np.array([[sum(task[name] for task in tasks) for name in room.names]])
        room.hold([node], held if spec.shares else None, of=spec)
    return True


def lay_unequally(room: Room, spec: JobSpec, rng: random.Random) -> None:
    """Lay a job of just some nodes with as many cores of each as comes, a core at least."""
    of_core = rng.random() < 0.5
    while True:
        free = room.free.copy()
        there = np.flatnonzero(room.open(spec) & (free[:, 0] >= 1)).tolist()
        on = rng.sample(there, spec.nodes)
        cores = sorted(
            rng.choices(range(int(spec.nodes * spec.cores_per_task) + 1), k=spec.nodes - 1)
        )
        parts = np.diff([0, *cores, int(spec.nodes * spec.cores_per_task)]).tolist()
        by_core = spec.memory_gb_per_task / spec.cores_per_task
        memory = [by_core * n if of_core else spec.memory_gb_per_task for n in parts]
        each = [
            spec.model_copy(update={"cores_per_task": float(n), "memory_gb_per_task": gb})
            for n, gb in zip(parts, memory, strict=True)
        ]
        if min(parts) < 1 or any(free[n, 0] < part for n, part in zip(on, parts, strict=True)):
            continue
        had = [_task(room, one, free[n], rng) for n, one in zip(on, each, strict=True)]
        if None not in had:
            break
    for node, amounts in zip(on, had, strict=True):
        assert amounts is not None
        room.hold([node], np.array([[amounts[name] for name in room.names]]), of=spec)


def _task(
    room: Room, spec: JobSpec, free: np.ndarray, rng: random.Random
) -> dict[str, float] | None:
    """What a task has of a node, its GPUs of any type as they come; None if it has no room there."""
    (kind,) = spec.kinds
    asked = {name: kind.asks(name) for name in room.names}
    types = [name for name in room.names if name.startswith(GPU_TYPE)]
    left = {name: free[room.names.index(name)] - asked[name] for name in room.names}
    if min(left.values()) < 0:
        return None
    for _ in range(int(kind.gpus - sum(asked[name] for name in types))):
        name = rng.choice([name for name in types if left[name] >= 1])
        left[name] -= 1
        asked[name] += 1
    for column, name in enumerate(room.names):
        free[column] = left[name]
    return asked


@settings(max_examples=examples(400))
@given(
    asked=st.lists(AMOUNTS, min_size=2, max_size=9),
    up=st.lists(st.booleans(), min_size=5, max_size=5),
    of=st.randoms(use_true_random=False),
)
def test_jobs_chosen_together_fit_in_any_order_and_on_any_nodes(
    asked: list[dict[str, Any]], up: list[bool], of: random.Random
) -> None:
    room = Room(MACHINE, owned=True)
    room.up[:] = up
    specs = [drawn(n, one) for n, one in enumerate(asked)]
    runs = [spec for spec in specs[: len(specs) // 3] if lies_somewhere(room, spec, of)]
    room._fits.clear()
    starts = [spec for spec in specs if spec not in runs and room.fits(spec)]
    found = fit_together(room, [], starts)
    assert found[:1] == starts[:1]
    of.shuffle(found)
    for spec in found:
        assert lies_somewhere(room, spec, of), (spec, found, room.free)


@settings(max_examples=examples(400))
@given(
    asked=st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 4), st.sampled_from(["all", "small", "gpu"])),
        min_size=2,
        max_size=5,
    ),
    free=st.lists(st.integers(0, 6), min_size=5, max_size=5),
    of=st.randoms(use_true_random=False),
)
def test_all_jobs_fit_whatever_share_of_each_node_jobs_on_several_nodes_have(
    asked: list[tuple[int, int, str]], free: list[int], of: random.Random
) -> None:
    room = Room(MACHINE)
    room.free[:, 0] = free
    specs = [
        asks(number, tasks=n, nodes=n, cores_per_task=cores, tasks_per_node=1, partition=name)
        for number, (n, cores, name) in enumerate(asked)
    ]
    found = fit_together(room, [], [spec for spec in specs if room.fits(spec)])
    of.shuffle(found)
    for spec in found:
        assert lies_somewhere(room, spec, of), (spec, found, room.free)


@given(
    asked=st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["all", "x", "y"])), max_size=6),
    of=st.randoms(use_true_random=False),
)
def test_jobs_with_whole_nodes_chosen_together_fit_whichever_nodes_others_get(
    asked: list[tuple[int, str]], of: random.Random
) -> None:
    room = Room(WHOLE)
    specs = [asks(n, nodes=nodes, partition=name) for n, (nodes, name) in enumerate(asked)]
    found = fit_together(room, [], [spec for spec in specs if room.fits(spec)])
    of.shuffle(found)
    for spec in found:
        free = np.flatnonzero(room.open(spec)).tolist()
        assert len(free) >= spec.nodes
        room.hold(of.sample(free, spec.nodes), None, of=spec)


@pytest.mark.parametrize("nodes", [1, 2])
def test_on_one_kind_of_nodes_all_fitting_jobs_are_chosen(nodes: int) -> None:
    room = Room(Cluster.model_validate({"nodes": [{"name": "n", "count": 40 * nodes}]}))
    assert len(told(room, *[{"nodes": nodes}] * 40)) == 40
