"""Checking an ordering before it is used."""

from __future__ import annotations

import itertools
import math
import time

from hpctwin.engine.abi import JobView
from hpctwin.errors import PolicyError
from hpctwin.policies.ordering import Ordering

__all__ = ["check_ordering"]


def check_ordering(order: Ordering) -> str:
    """Compile an ordering and try it on jobs at the edges of what there can be.

    Returns:
        What was found, in a few lines.

    Raises:
        PolicyError: it cannot be compiled, fails, gives NaN or not the same again; the message shows for
            which job.
    """
    order.check(complete=True)
    begin = time.perf_counter()
    compiled = order.compiled
    took = time.perf_counter() - begin
    for job, now in _edge_cases():
        try:
            score, again = compiled(now, job), compiled(now, job)
        except Exception as error:
            raise PolicyError(
                f"ordering {order.name!r} fails at {now:g} s for {job}: {error!r}"
            ) from error
        if math.isnan(score):
            raise PolicyError(f"ordering {order.name!r} gives NaN at {now:g} s for {job}")
        if again != score:
            raise PolicyError(
                f"ordering {order.name!r} gives {score!r} and then {again!r} for the same job, at {now:g} s "
                f"for {job}"
            )
        _all_set(order, now, job)
    kept = (
        "scored in every pass"
        if order.changes
        else "does not change with time: the queue stays sorted"
    )
    return f"{order.name}: fine; {kept}; compiled in {took:.2f} s"


def _all_set(order: Ordering, now: float, job: JobView) -> None:
    """Where Python misses a variable, Numba takes what is in memory."""
    try:
        order(now, job)
    except NameError as error:
        raise PolicyError(
            f"ordering {order.name!r} at {now:g} s for {job}: {error}; set it on every way through"
        ) from error
    except (ArithmeticError, ValueError):
        pass  # by NumPy's rules, which hold here, these are infinite or NaN


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
        )  # fmt: skip
        cases.append((job, submit + wait))
    return cases
