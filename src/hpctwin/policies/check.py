"""Checks of the parts of a policy before their use."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from hpctwin.engine.capacity_models import PREEMPTING_WHOLE, SHARED_NODES
from hpctwin.engine.compile.policy_modules import JobView, NodeView
from hpctwin.engine.passes import PASSES
from hpctwin.errors import PolicyError
from hpctwin.policies.backfills import BACKFILLS
from hpctwin.policies.placements import NodeScore
from hpctwin.policies.policy import Policy
from hpctwin.policies.powers import PowerPolicy
from hpctwin.policies.score import Ordering, Score, State

__all__ = ["check_ordering", "check_placement", "check_policy"]


def check_policy(policy: Policy) -> list[str]:
    """Compile all parts of a policy, and test the functions that score.

    Returns:
        A short report on each part.

    Raises:
        PolicyError: A part cannot be compiled or fails; the message names it.
    """
    said = [check_ordering(one) for one in (policy.order, policy.candidates) if one is not None]
    begin = time.perf_counter()
    policy.compile()
    took = time.perf_counter() - begin
    placement = policy.placement
    chooses = f"{placement.name}: fine; exclusive and shared nodes"
    if placement.score is not None:
        chooses = check_placement(placement.score)
    return [
        *(f"ordering {text}" for text in said[:1]),
        *(f"candidates {text}" for text in said[1:]),
        f"backfill {_backfill(policy)}; compiled in {took:.2f} s",
        f"placement {chooses}",
        f"power {_power(policy.power)}",
    ]


def _backfill(policy: Policy) -> str:
    """Describe where a backfill works."""
    found = PASSES.find(policy.backfill)
    nodes = "exclusive and shared nodes" if found.works_on(SHARED_NODES) else "exclusive nodes only"
    preempts = "preemption" if found.works_on(PREEMPTING_WHOLE) else "no preemption"
    text = BACKFILLS.find(policy.backfill).text(dict(policy.settings))
    return f"{text}: fine; {nodes}, {preempts}"


def _power(power: PowerPolicy) -> str:
    """Describe what a power policy needs."""
    if not power.switches:
        return f"{power.name}: fine; nodes stay on"
    return f"{power.name}: fine; needs a cluster with power states"


def check_ordering(order: Ordering) -> str:
    """Compile an ordering and test it on jobs with extreme values.

    Returns:
        A short report.

    Raises:
        PolicyError: It cannot be compiled, fails, returns NaN or another value for the same job;
            the message shows the job.
    """
    cases = [(now, job) for job, now in _edge_cases()]
    for update in order.updates:
        _tried(update, cases, order.state)
    took = _tried(order, cases, order.state)
    kept = (
        "scored in every scheduling pass"
        if order.changes
        else "does not change with time: the queue stays sorted"
    )
    return f"{order.name}: fine; {kept}; compiled in {took:.2f} s"


def check_placement(place: NodeScore) -> str:
    """Compile a placement and test it on jobs and nodes with extreme values."""
    cases = [(now, job, node) for job, now in _edge_cases() for node in _edge_nodes()]
    took = _tried(place, cases)
    return f"{place.name}: fine; scored for every free node when a job starts; compiled in {took:.2f} s"


def _tried(score: Score, cases: Sequence[tuple[Any, ...]], state: State | None = None) -> float:
    """Compile a score and test it; return the time of compilation, in seconds."""
    score.check(complete=True)
    begin = time.perf_counter()
    compiled = score.compiled
    took = time.perf_counter() - begin
    for now, *seen in cases:
        where = f"at {now:g} s for {' and '.join(map(str, seen))}"
        row = np.array([] if state is None else [value for _, value in state.first])
        given = seen if state is None else [*seen, row.ctypes.data]
        try:
            found, again = compiled(now, *given), compiled(now, *given)
        except Exception as error:
            raise PolicyError(f"{score.label} fails {where}: {error!r}") from error
        if state is not None:
            seen = [*seen, SimpleNamespace(**dict(state.first))]
        if score.sets:
            if np.isnan(row).any():
                raise PolicyError(f"{score.label} sets NaN {where}")
            _all_set(score, where, now, *seen)
            continue
        if math.isnan(found):
            raise PolicyError(f"{score.label} returns NaN {where}")
        if again != found:
            raise PolicyError(
                f"{score.label} returns {found!r} and then {again!r} for the same job, {where}"
            )
        _all_set(score, where, now, *seen)
    return took


def _all_set(score: Score, where: str, *given: Any) -> None:
    """Check that all variables are set: Numba would use what is in memory."""
    try:
        score(*given)
    except NameError as error:
        raise PolicyError(
            f"{score.label} {where}: {error}; set it on every path through the code"
        ) from error
    except (ArithmeticError, ValueError):
        pass  # by NumPy's rules, which apply here, these are infinite or NaN


def _edge_nodes() -> list[NodeView]:
    least = NodeView(
        number=0.0, group=0.0, cores=0.0, gpus=0.0, memory_gb=0.0, speed=1e-3, idle_w=0.0,
        active_w=0.0, wakes=0.0, free=1.0,
    )  # fmt: skip
    most = NodeView(
        number=159_999.0, group=99.0, cores=512.0, gpus=16.0, memory_gb=1e5, speed=100.0,
        idle_w=1e4, active_w=1e5, wakes=1e5, free=160_000.0,
    )  # fmt: skip
    return [least, most]


def _edge_cases() -> list[tuple[JobView, float]]:
    cases = []
    for wait, walltime, nodes, share, submit in itertools.product(
        (0.0, 1.0, 1e7), (0.001, 3600.0, 1e6), (1.0, 160_000.0), (1e-9, 1.0), (0.0, 1e9)
    ):
        job = JobView(
            submit=submit, eligible=submit, wait=wait, walltime=walltime, expected=walltime,
            nodes=nodes, cores=0.0, gpus=0.0, memory_gb=0.0, user=-1, account=-1, partition=0,
            qos=-1, partition_priority=0.0, qos_priority=0.0, priority=0.0, fairshare=share,
            usage=0.0, machine_nodes=160_000.0, requeues=0.0, dominant=nodes / 160_000.0,
            load=nodes / 160_000.0, cpu=0.0, memory_mb=0.0, chain=walltime, risk=0.0,
            predicted_runtime=walltime, predicted_power=0.0, communication=0.0,
        )  # fmt: skip
        cases.append((job, submit + wait))
    return cases
