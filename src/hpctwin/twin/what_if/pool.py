"""Where what-ifs are run, and until when they are waited for."""

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
from hpctwin.twin.what_if.reuse import Reused
from hpctwin.twin.what_if.run import Past, WhatIf, run_ahead

if TYPE_CHECKING:
    from hpctwin.simulation import Simulation
    from hpctwin.twin.what_if.present import Present

__all__ = ["Answers", "LocalPool", "Request", "Scene", "WhatIfs", "waited_for"]

WORTH_THREADS = 250
"""With fewer jobs, handing what-ifs to threads takes longer than running them."""

Answers = list[list[WhatIf | None]]
"""What-ifs by future and policy; None for one that did not answer in time."""


@dataclass(frozen=True)
class Scene:
    """What a simulation that begins now is made of: arguments of `hpctwin.twin.what_if.present.present`."""

    machine: Cluster
    jobs: Sequence[JobRecord]
    nodes: Sequence[NodeRecord]
    reservations: Sequence[NodeReservation]
    now_s: float
    runtime_s: Mapping[str, float]
    arrivals: Sequence[JobSpec] = ()
    track_nodes: bool = False

    def present(self, policy: Policy, reused: Reused | None = None) -> Present:
        """The simulation."""
        # Who only asks how things stand does not wait for the simulator to be loaded.
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
    """What-ifs of a decision.

    Args:
        futures: what makes the scene of each; the first is what is expected.
        pool: the policies.
        first: the number of the policy whose what-if of the first future is waited for in any case.
        past: jobs that count besides those that wait.
        horizon_s: a what-if ends so long after now; None for when its queue is empty.
        reused: From the presents before.
        unanswered: future and policy of those that are not run; None if it is not known yet which are.
    """

    futures: Sequence[Callable[[], Scene]]
    pool: Sequence[Policy]
    first: int
    past: Past
    horizon_s: float | None
    reused: Reused
    unanswered: Collection[tuple[int, str]] | None = None

    def none(self) -> Answers:
        """No answer yet."""
        return [[None] * len(self.pool) for _ in self.futures]

    def wanted(self, future: int) -> list[int]:
        """Numbers of the policies to be run in a future, that which is waited for first."""
        left_out = self.unanswered or ()
        numbers = [i for i, p in enumerate(self.pool) if (future, p.name) not in left_out]
        return sorted(numbers, key=lambda i: i != self.first)


class WhatIfs(Protocol):
    """Something that runs what-ifs."""

    fault: str | None
    """Why they do not run where they should; None while they do."""

    def run(self, asked: Request) -> Answers:
        """Run them; the first that is waited for always has an answer."""
        ...

    def close(self) -> None:
        """Nothing more will be asked."""
        ...


class LocalPool:
    """Runs what-ifs in this process; the engine lets go of the interpreter while it runs.

    The one that is waited for in any case is run in the caller's thread. One that is late is stopped after
    the pass it is in. Until then it keeps nobody else from running, and its policy is not begun again; from
    then on its policy is begun after the others.

    Args:
        threads: so many at once, besides the one that is waited for in any case.
        deadline_s: what has not answered so long after it was asked is left out; None to wait for all.
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
        running = _Running(sliced=until is not None)
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

    def _let_go(self, running: _Running, late: list[tuple[str, Future[WhatIf]]]) -> None:
        """Have what is late end, in threads that nobody waits for."""
        self._slow = {policy for policy, _ in (*late, *self._late)}
        if late and self._threads is not None:
            running.stop()
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = self._new_threads()
            self._late += late

    def _new_threads(self) -> ThreadPoolExecutor:
        # Who only asks how things stand does not wait for the simulator to be loaded.
        from hpctwin.simulation.running.interruptible import THREAD_NAME

        return ThreadPoolExecutor(self._size, thread_name_prefix=THREAD_NAME)


def waited_for(
    begun: Mapping[tuple[int, int], Future[WhatIf]], until: float | None
) -> list[tuple[tuple[int, int], Future[WhatIf]]]:
    """Those that are done by a time; the others are called off.

    Args:
        begun: what-ifs by future and policy.
        until: by the monotonic clock; None to wait for all.
    """
    if not begun:
        return []
    left = None if until is None else max(0.0, until - time.monotonic())
    done, late = wait(begun.values(), left)
    for future in late:
        future.cancel()
    return [(place, future) for place, future in begun.items() if future in done]


class _Running:
    """Simulations in threads, to be stopped together.

    Args:
        sliced: whether they are to hear of it at each instant at first, later less often.
    """

    def __init__(self, *, sliced: bool) -> None:
        self._sliced = sliced
        self._lock = threading.Lock()
        self._simulations: list[Simulation] = []
        self._over = False

    def begin(self, simulation: Simulation) -> None:
        """One more."""
        if self._sliced:
            simulation.slice = 1
        with self._lock:
            self._simulations.append(simulation)
            if self._over:
                simulation.stop()

    def stop(self) -> None:
        """Have all come to an end soon, and those that will begin."""
        with self._lock:
            self._over = True
            for simulation in self._simulations:
                simulation.stop()
