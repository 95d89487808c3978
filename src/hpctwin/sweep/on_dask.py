"""Points on the workers of Dask, where one machine is not enough."""

from __future__ import annotations

import json
import logging
import os
import secrets
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpctwin.errors import ConfigError, UnknownNameError, UnreachableError, need
from hpctwin.model.files.files import cause
from hpctwin.model.files.secrets import without_password
from hpctwin.sweep.bench import Bench, Row
from hpctwin.sweep.points import Inputs, Point

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["JOBQUEUES", "OnDask", "connected", "jobqueue"]

JOBQUEUES = {"slurm": "SLURMCluster", "pbs": "PBSCluster"}
"""Resource managers that start workers as their jobs, and the class of dask-jobqueue for each."""

_GONE = "Dask's scheduler went away; what was done is kept, and the same command goes on from there"

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))

AFTER_GARBAGE_S = 0.05
"""A signal that was lost comes again after so long."""
ALONE_S, AGAIN_S = 5.0, 300.0
"""That there is no worker is told after so long, and then so often."""

logger = logging.getLogger(__name__)

_benches: dict[str, Bench] = {}
"""In a worker: what sweeps have handed to it."""


class _HandOver:
    """A worker plugin: whoever joins, at whatever time, gets the inputs once."""

    idempotent = True

    def __init__(self, name: str, inputs: Inputs) -> None:
        self.name, self._inputs = name, inputs

    def setup(self, worker: Any) -> None:
        """Called in each worker."""
        _benches[self.name] = Bench(self._inputs)

    def teardown(self, worker: Any) -> None:
        """Called when the sweep is over."""
        _benches.pop(self.name, None)


def _run(name: str, chunk: Sequence[Point]) -> list[Row]:
    return _benches[name].run(chunk)


class OnDask:
    """A pool of Dask's workers; see `hpctwin.sweep.running.Pool`.

    A worker that is lost loses nothing: Dask runs its chunk elsewhere. One chunk that has taken three
    workers with it is told as failed.

    Args:
        inputs: what points are made of.
        client: connected to the scheduler.
    """

    breaks = False

    def __init__(self, inputs: Inputs, client: Client) -> None:
        from distributed import KilledWorker
        from distributed.diagnostics.plugin import WorkerPlugin

        self.lost: tuple[type[BaseException], ...] = (KilledWorker,)
        # Most of a client has no annotations.
        self._client: Any = client
        self._name = f"hpctwin-{secrets.token_hex(8)}"
        # The class of plugins is Dask's, and Dask is only imported where it is asked for.
        plugin = type("HandOver", (_HandOver, WorkerPlugin), {})(self._name, inputs)
        self._client.register_plugin(plugin)
        self._executor: Executor = self._client.get_executor(pure=False)
        self._look_at = time.monotonic() + ALONE_S

    @property
    def slots(self) -> int:
        """How many points run at once, of the workers that are there now."""
        try:
            threads: dict[str, int] = self._client.nthreads()
        except OSError as error:
            raise UnreachableError(_GONE) from error
        return max(1, sum(threads.values()))

    def submit(self, chunk: Sequence[Point]) -> Future[list[Row]]:
        """See `Pool`."""
        return self._executor.submit(_run, self._name, chunk)

    def check(self) -> None:
        """See `Pool`.

        Raises:
            UnreachableError: the scheduler is gone.
        """
        if self._client.status != "running":
            raise UnreachableError(_GONE)
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + AGAIN_S
            if not self._client.nthreads():
                logger.warning("Dask has no worker yet; points wait until there is one")

    def renew(self) -> None:
        """See `Pool`; Dask's nannies replace processes."""

    def close(self, *, now: bool) -> None:
        """See `Pool`."""
        if self._client.status == "running":
            self._executor.shutdown(wait=not now)
            # The client may not have noticed yet that the scheduler has gone.
            with suppress(OSError):
                self._client.unregister_worker_plugin(self._name)


@contextmanager
def connected(
    address: str | None = None, *, scheduler_file: Path | None = None, wait_s: float = 30
) -> Iterator[Client]:
    """A client of a scheduler that runs.

    Args:
        address: such as ``tcp://host:8786``.
        scheduler_file: that the scheduler wrote; either of the two.
        wait_s: how long to wait for it.

    Raises:
        ConfigError: Dask is not installed, or both or neither was given.
        UnreachableError: the scheduler does not answer.
    """
    need("distributed", "dask", "a sweep on Dask's workers")
    from distributed import Client

    if (address is None) == (scheduler_file is None):
        raise ConfigError("give the scheduler's address or its file, one of the two")
    if scheduler_file is not None:
        _check_scheduler_file(scheduler_file)
    shown = scheduler_file or without_password(str(address)) or address
    try:
        client = Client(
            address, scheduler_file=scheduler_file and str(scheduler_file), timeout=wait_s
        )
    except ValueError as error:
        raise ConfigError(
            f"Dask's scheduler at {shown}: that is no address, such as tcp://HOST:8786"
        ) from error
    except OSError as error:
        raise UnreachableError(
            f"Dask's scheduler at {shown} does not answer: {cause(error)}"
        ) from error
    try:
        yield client
    finally:
        client.close(timeout=5)


def _check_scheduler_file(path: Path) -> None:
    """Whether a scheduler wrote it, and where it is to be found.

    Raises:
        ConfigError: none did.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no scheduler wrote this file") from error
    except OSError as error:
        raise ConfigError(f"{path}: {cause(error)}") from error
    except ValueError:
        content = None
    if not isinstance(content, dict) or not isinstance(content.get("address"), str):
        raise ConfigError(
            f"{path}: it is not what `dask scheduler --scheduler-file FILE` writes: no JSON with an address"
        )


@contextmanager
def jobqueue(kind: str, jobs: int, options: Mapping[str, Any]) -> Iterator[Client]:
    """A client of a scheduler here, whose workers are jobs of a resource manager.

    They are cancelled at the end, also where a signal asks this process to end; which could not be is told.

    Args:
        kind: one of `JOBQUEUES`.
        jobs: how many jobs of workers are submitted.
        options: of dask-jobqueue's class, such as ``queue``, ``cores``, ``memory``, ``walltime``.

    Raises:
        ConfigError: dask-jobqueue is not installed, or an option is not right.
        UnknownNameError: there is no such resource manager, or no such option.
        UnreachableError: jobs cannot be submitted.
    """
    if kind not in JOBQUEUES:
        raise UnknownNameError("job queue", kind, JOBQUEUES)
    need("dask_jobqueue", "dask", "a sweep whose workers are jobs")
    import dask_jobqueue
    from dask_jobqueue.core import JobQueueCluster
    from distributed import Client

    made = getattr(dask_jobqueue, JOBQUEUES[kind])
    given = {"cores": 1, "processes": 1, "memory": "2 GB", **options}
    of_cluster = signature(JobQueueCluster).parameters
    _check_options(kind, given, {*of_cluster, *_options_of(made.job_cls)})
    try:
        # A cluster that was refused half made warns later, wherever Python comes to drop it.
        made.job_cls(
            "tcp://127.0.0.1:1", "tried", **{k: v for k, v in given.items() if k not in of_cluster}
        )
        refused: list[str] = []
        cluster = made(job_cls=_noting(made.job_cls, refused), **given)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"--jobqueue {kind}: {error}") from error
    except (
        RuntimeError
    ) as error:  # of the scheduler here, such as for an interface that is not there
        raise ConfigError(f"--jobqueue {kind}: {error.__cause__ or error}") from error
    with _ended_by_signals(), cluster:
        cluster.scale(jobs=jobs)
        # Until all are submitted, or refused.
        cluster.sync(cluster._correct_state)
        if refused:
            raise UnreachableError(f"workers cannot be submitted to {kind}: {refused[0]}")
        client = Client(cluster)
        try:
            yield client
        finally:
            client.close(timeout=5)


def _options_of(job: type) -> set[str]:
    """What may be said of a job, by its class and those that it is made of."""
    return {
        name
        for one in job.__mro__
        if one is not object
        for name, parameter in signature(one).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    } - {"scheduler"}


def _check_options(kind: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Whether there are such options, and workers can be counted.

    Raises:
        UnknownNameError: there is no such option.
        ConfigError: it is no number of workers.
    """
    for name, value in given.items():
        if name not in known:
            raise UnknownNameError(f"option of a worker's job for {kind}", name, known)
        if name in ("cores", "processes") and not (isinstance(value, int) and value >= 1):
            raise ConfigError(
                f"--jobqueue {kind}: {name} is {value!r}, it must be a whole number of at least 1"
            )


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let signals that end a process end it as an exception does, so that what was submitted is cancelled."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told = sys.unraisablehook

    def end(number: int, _: Any) -> None:
        raise _Ended(128 + number)

    def tell(dropped: sys.UnraisableHookArgs) -> None:
        # Python drops what is raised while it collects garbage, where Dask has a callback: it comes again.
        if isinstance(dropped.exc_value, _Ended):
            again = os.getpid(), int(dropped.exc_value.code) - 128
            threading.Timer(AFTER_GARBAGE_S, os.kill, again).start()
        else:
            told(dropped)

    before = {number: signal.signal(number, end) for number in _ENDING}
    sys.unraisablehook = tell
    try:
        yield
    finally:
        sys.unraisablehook = told
        for number, handler in before.items():
            signal.signal(number, handler)


class _Ended(SystemExit):
    """A signal ends the process."""

    code: int


def _noting(job: type, refused: list[str]) -> type:
    """A job that notes why it could not be submitted, and tells why it could not be cancelled.

    Else Dask logs a traceback, and waits for it; and says nothing.
    """
    base: Any = job

    class Noting(base):  # type: ignore[misc]
        async def start(self) -> None:
            from distributed.core import Status

            try:
                await super().start()
            except (RuntimeError, ValueError) as error:
                refused.append(_said(str(error)))
            except OSError as error:
                refused.append(f"{self.submit_command}: {cause(error)}")
            self.status = Status.running

        @classmethod
        async def _close_job(cls, job_id: str | None, cancel_command: str) -> None:
            if not job_id:
                return
            try:
                await cls._call([*shlex.split(cancel_command), job_id])
            except (RuntimeError, OSError) as error:
                logger.warning(
                    "the worker's job %s could not be cancelled, and may be left: %s",
                    job_id,
                    _said(str(error)),
                )

    return Noting


def _said(error: str) -> str:
    """What a command said, of what dask-jobqueue makes of it, in one line."""
    _, _, said = error.partition("stderr:")
    return " ".join((said.strip() or error).split())
