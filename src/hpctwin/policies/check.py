"""Checks of orderings and placements before their use."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from typing import Any

from hpctwin.engine.compile.policy_modules import JobView, NodeView
from hpctwin.errors import PolicyError
from hpctwin.policies.placements import NodeScore
from hpctwin.policies.score import Ordering, Score

__all__ = ["check_ordering", "check_placement"]


def check_ordering(order: Ordering) -> str:
    """Compile an ordering and test it on jobs with extreme values.

    Returns:
        A short report.

    Raises:
        PolicyError: It cannot be compiled, fails, returns NaN or another value for the same job;
            the message shows the job.
    """
    took = _tried(order, [(now, job) for job, now in _edge_cases()])
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


def _tried(score: Score, cases: Sequence[tuple[Any, ...]]) -> float:
    """Compile a score and test it; return the time of compilation, in seconds."""
    score.check(complete=True)
    begin = time.perf_counter()
    compiled = score.compiled
    took = time.perf_counter() - begin
    for now, *seen in cases:
        where = f"at {now:g} s for {' and '.join(map(str, seen))}"
        try:
            found, again = compiled(now, *seen), compiled(now, *seen)
        except Exception as error:
            raise PolicyError(f"{score.label} fails {where}: {error!r}") from error
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
            nodes=nodes, cores=0.0, gpus=0.0, memory_gb=0.0, user=-1.0, account=-1.0, partition=0.0,
            qos=-1.0, partition_priority=0.0, qos_priority=0.0, priority=0.0, fairshare=share,
            usage=0.0, machine_nodes=160_000.0, requeues=0.0, dominant=nodes / 160_000.0,
            load=nodes / 160_000.0, cpu=0.0, memory_mb=0.0, chain=walltime, risk=0.0,
            predicted_runtime=walltime, predicted_power=0.0,
        )  # fmt: skip
        cases.append((job, submit + wait))
    return cases
