"""Executors of what-ifs in this process, and their deadlines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from hpctwin.model import Cluster
from hpctwin.policies import Policy
from hpctwin.rms.records.records import JobRecord, JobSpec, NodeRecord, NodeReservation
from hpctwin.twin.what_if.conversion import Reused
from hpctwin.twin.what_if.run import Past, WhatIf, run_ahead

if TYPE_CHECKING:
    from hpctwin.simulation import Simulation
    from hpctwin.twin.what_if.present import Present

__all__ = ["Answers", "LocalPool", "Request", "Scene", "StoppableRuns", "WhatIfs", "waited_for"]

WORTH_THREADS = 250
"""With fewer jobs, handing what-ifs to threads takes longer than running them."""

Answers = list[list[WhatIf | None]]
"""What-ifs by future and policy; None for one that missed the deadline."""


@dataclass(frozen=True)
class Scene:
    """Inputs of a simulation that starts now.

    They are the arguments of `hpctwin.twin.what_if.present.present`.
    """

    machine: Cluster
    jobs: Sequence[JobRecord]
    nodes: Sequence[NodeRecord]
    reservations: Sequence[NodeReservation]
    now_s: float
    runtime_s: Mapping[str, float]
    arrivals: Sequence[JobSpec] = ()
    track_nodes: bool = False

    def present(self, policy: Policy, reused: Reused | None = None) -> Present:
        """Return the simulation of the present."""
        # Imported late, so that a query of the status does not load the simulator.
        from hpctwin.twin.what_if.present import present

        return present(
            self.machine,
            self.jobs,
            self.nodes,
            self.reservations,
            self.now_s,
            policy,
            runtime_s=self.runtime_s,
            arrivals=self.arrivals,
            reused=reused,
            track_nodes=self.track_nodes,
        )


@dataclass(frozen=True)
class Request:
    """The what-ifs that a decision needs.

    Args:
        futures: Functions that make the scene of each future; the first one is the expected future.
        pool: The policies.
        first: Index of the policy whose what-if of the first future is always awaited.
        past: Jobs that count in addition to pending ones.
        horizon_s: Length of a what-if, in seconds; None to run until its queue is empty.
        reused: Data kept from earlier presents.
        unanswered: Future and policy of what-ifs that are not run, when a decision is repeated;
            None for a new decision.
    """

    futures: Sequence[Callable[[], Scene]]
    pool: Sequence[Policy]
    first: int
    past: Past
    horizon_s: float | None
    reused: Reused
    unanswered: Collection[tuple[int, str]] | None = None

    def none(self) -> Answers:
        """Return a table without answers."""
        return [[None] * len(self.pool) for _ in self.futures]

    def wanted(self, future: int) -> list[int]:
        """Return the indices of the policies to run in a future, the awaited one first."""
        omitted = self.unanswered or ()
        numbers = [i for i, p in enumerate(self.pool) if (future, p.name) not in omitted]
        return sorted(numbers, key=lambda i: i != self.first)


class WhatIfs(Protocol):
    """Executor of what-ifs."""

    fault: str | None
    """Why what-ifs do not run where they should; None if they do."""

    def run(self, asked: Request) -> Answers:
        """Run what-ifs, and return the answers; the awaited one is always there."""
        ...

    def close(self) -> None:
        """Stop the executor."""
        ...


class LocalPool:
    """Runs what-ifs in threads of this process.

    They run in parallel, because the engine releases Python's global lock. The awaited what-if
    runs in the caller's thread. A late one is stopped after its current scheduling pass. Until it
    has stopped, it does not block others, and its policy is not run again. In the next call, the
    policies of late what-ifs are started after the others.

    Args:
        threads: Number of threads, in addition to the caller's thread.
        deadline_s: Time after which a missing answer is ignored, in seconds; None to wait for all.
    """

    def __init__(self, threads: int = 1, deadline_s: float | None = None) -> None:
        self.deadline_s = deadline_s
        self.fault: str | None = None
        self._size = threads
        alone = threads == 1 and deadline_s is None
        self._threads = None if alone else self._new_threads()
        self._late: list[tuple[str, Future[WhatIf]]] = []
        self._slow: set[str] = set()

    def run(self, asked: Request) -> Answers:
        """See `WhatIfs`."""
        deadline_s = self.deadline_s if asked.unanswered is None else None
        until = None if deadline_s is None else time.monotonic() + deadline_s
        self._late = [(policy, future) for policy, future in self._late if not future.done()]
        late = {policy for policy, _ in self._late}
        answers = asked.none()
        begun: dict[tuple[int, int], Future[WhatIf]] = {}
        running = StoppableRuns(sliced=until is not None)
        awaited: Callable[[], WhatIf] | None = None
        for number, scene_of in enumerate(asked.futures):
            if number and until is not None and time.monotonic() >= until:
                break
            scene = scene_of()
            now = scene.present(asked.pool[asked.first], asked.reused)
            few = until is None and len(scene.jobs) + len(scene.arrivals) < WORTH_THREADS
            for i in sorted(asked.wanted(number), key=lambda i: asked.pool[i].name in self._slow):
                policy = asked.pool[i]
                about = (now, policy, asked.past, asked.horizon_s)
                if self._threads is None or few:
                    answers[number][i] = run_ahead(*about)
                elif (number, i) == (0, asked.first):
                    awaited = partial(run_ahead, *about)
                elif until is None or policy.name not in late:
                    begun[number, i] = self._threads.submit(run_ahead, *about, running.begin)
        if awaited is not None:
            answers[0][asked.first] = awaited()
        for (number, i), future in waited_for(begun, until):
            answers[number][i] = future.result()
        self._let_go(
            running, [(asked.pool[i].name, f) for (_, i), f in begun.items() if not f.done()]
        )
        return answers

    def close(self) -> None:
        """See `WhatIfs`."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        wait([future for _, future in self._late])

    def _let_go(self, running: StoppableRuns, late: list[tuple[str, Future[WhatIf]]]) -> None:
        """Stop late what-ifs in their threads, and replace the threads by new ones.

        No caller waits for the old threads.
        """
        self._slow = {policy for policy, _ in (*late, *self._late)}
        if late and self._threads is not None:
            running.stop()
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = self._new_threads()
            self._late += late

    def _new_threads(self) -> ThreadPoolExecutor:
        # Imported late, so that a query of the status does not load the simulator.
        from hpctwin.simulation.running.advance import THREAD_NAME

        return ThreadPoolExecutor(self._size, thread_name_prefix=THREAD_NAME)


def waited_for(
    begun: Mapping[tuple[int, int], Future[WhatIf]], until: float | None
) -> list[tuple[tuple[int, int], Future[WhatIf]]]:
    """Return the what-ifs that finish by a time, and cancel the others.

    Args:
        begun: What-ifs by future and policy.
        until: Time by the monotonic clock, in seconds; None to wait for all.
    """
    if not begun:
        return []
    left = None if until is None else max(0.0, until - time.monotonic())
    done, late = wait(begun.values(), left)
    for future in late:
        future.cancel()
    return [(place, future) for place, future in begun.items() if future in done]


class StoppableRuns:
    """Simulations in threads that can be stopped together.

    Args:
        sliced: Whether a simulation checks for the stop at each event time at first, and less
            often later.
    """

    def __init__(self, *, sliced: bool) -> None:
        self._sliced = sliced
        self._lock = threading.Lock()
        self._simulations: list[Simulation] = []
        self.stopped = False

    def begin(self, simulation: Simulation) -> None:
        """Add a simulation that begins; stop it if all have been stopped."""
        if self._sliced:
            simulation.slice = 1
        with self._lock:
            self._simulations.append(simulation)
            if self.stopped:
                simulation.stop()

    def stop(self) -> None:
        """Stop all simulations, including any that begin later."""
        with self._lock:
            self.stopped = True
            for simulation in self._simulations:
                simulation.stop()
