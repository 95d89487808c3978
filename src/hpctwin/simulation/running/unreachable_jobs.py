"""Jobs that can never start because a job they wait for will not complete."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from hpctwin.model.workload.dependencies import chain_text, doomed_by
from hpctwin.simulation.state.base import SimulationBase

__all__ = ["why_doomed"]


def why_doomed(simulation: SimulationBase, most: int = 10) -> Iterator[str]:
    """Yield a sentence for each of the first jobs that can be shown never to start.

    A job cannot complete if the cluster can never run it, if it fails, or if its walltime ends it.
    Node failures and cancellations are not predicted.

    Args:
        simulation: Simulation, which may have begun.
        most: Largest number of sentences; one more counts the remaining jobs.
    """
    workload = simulation.workload
    rejected = simulation.rejects()
    found = doomed_by(workload.dependencies, _cannot_complete(simulation))
    then = {"cancel": "it is cancelled", "hold": "it is held for ever"}
    for row in sorted(found)[:most]:
        chain = _chain(found, row)
        last = chain[-1]
        if rejected[last]:
            reason = f"can never run on cluster {simulation.cluster.name!r}"
        elif workload.fails is not None and workload.fails[last]:
            reason = "fails"
        else:
            reason = "runs past its walltime"
        names = chain_text([str(workload.job_id[one]) for one in chain])
        yield (
            f"job {workload.job_id[row]} can never start, "
            f"{then[simulation.on_dependency_failure]}: job {workload.job_id[last]} {reason} "
            f"(chain {names}; each waits for the next)"
        )
    if len(found) > most:
        yield f"… and {len(found) - most:,} more jobs that can never start"


def _cannot_complete(simulation: SimulationBase) -> npt.NDArray[np.bool_]:
    workload = simulation.workload
    bad = simulation.rejects()
    if workload.fails is not None:
        bad = bad | workload.fails
    if simulation.overrun == "terminate":
        # On the fastest nodes; more jobs may exceed their walltime on slower ones.
        shortest = np.ceil(workload.runtime_ms / simulation.state["pool"]["speed"].max())
        bad = bad | (shortest > workload.walltime_ms)
    return bad


def _chain(found: dict[int, int], row: int) -> tuple[int, ...]:
    chain = [row]
    while chain[-1] in found:
        chain.append(found[chain[-1]])
    return tuple(chain)
