"""Points on Dask workers, for sweeps on several hosts."""

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
from hpctwin.model.files import cause
from hpctwin.model.web import without_password
from hpctwin.sweep.bench import Bench, Row
from hpctwin.sweep.points import Inputs, Point

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["JOBQUEUES", "OnDask", "connected", "jobqueue"]

JOBQUEUES = {"slurm": "SLURMCluster", "pbs": "PBSCluster"}
"""Resource managers whose jobs can be workers, with the class of dask-jobqueue."""

_GONE = (
    "connection to Dask's scheduler was lost; finished points are kept, and the same command "
    "continues"
)

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))

AFTER_GARBAGE_S = 0.05
"""Time after which a lost signal is sent again, in seconds."""
ALONE_S, AGAIN_S = 5.0, 300.0
"""Time until the first warning that there is no worker, and between warnings.

Both are in seconds.
"""

logger = logging.getLogger(__name__)

_benches: dict[str, Bench] = {}
"""Benches of a worker process, by the name of their sweep."""


class _HandOver:
    """A worker plugin: each worker gets the inputs once, whenever it joins."""

    idempotent = True

    def __init__(self, name: str, inputs: Inputs) -> None:
        self.name, self._inputs = name, inputs

    def setup(self, worker: Any) -> None:
        """Prepare a worker."""
        _benches[self.name] = Bench(self._inputs)

    def teardown(self, worker: Any) -> None:
        """Release the inputs when the sweep ends."""
        _benches.pop(self.name, None)


def _run(name: str, chunk: Sequence[Point]) -> list[Row]:
    return _benches[name].run(chunk)


class OnDask:
    """A pool of Dask workers; see `hpctwin.sweep.running.Pool`.

    If a worker is lost, Dask runs its chunk elsewhere. A chunk that was lost with three workers is
    reported as failed.
    """

    breaks = False

    def __init__(self, inputs: Inputs, client: Client) -> None:
        from distributed import KilledWorker
        from distributed.diagnostics.plugin import WorkerPlugin

        self.lost: tuple[type[BaseException], ...] = (KilledWorker,)
        # Most of a client has no annotations.
        self._client: Any = client
        self._name = f"hpctwin-{secrets.token_hex(8)}"
        # The base class is Dask's, which is only imported if a sweep uses it.
        plugin = type("HandOver", (_HandOver, WorkerPlugin), {})(self._name, inputs)
        self._client.register_plugin(plugin)
        self._executor: Executor = self._client.get_executor(pure=False)
        self._look_at = time.monotonic() + ALONE_S

    @property
    def slots(self) -> int:
        """Number of points that run at once on the present workers."""
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
            UnreachableError: The scheduler is gone.
        """
        if self._client.status != "running":
            raise UnreachableError(_GONE)
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + AGAIN_S
            if not self._client.nthreads():
                logger.warning("Dask has no worker yet; points wait for one")

    def renew(self) -> None:
        """See `Pool`; Dask's nannies replace processes."""

    def close(self, *, now: bool) -> None:
        """See `Pool`."""
        if self._client.status == "running":
            self._executor.shutdown(wait=not now)
            # The client may not know yet that the scheduler is gone.
            with suppress(OSError):
                self._client.unregister_worker_plugin(self._name)


@contextmanager
def connected(
    address: str | None = None, *, scheduler_file: Path | None = None, wait_s: float = 30
) -> Iterator[Client]:
    """Yield a client of a running scheduler.

    Args:
        address: Address such as ``tcp://host:8786``.
        scheduler_file: File that the scheduler wrote; an alternative to the address.
        wait_s: Timeout of the connection, in seconds.

    Raises:
        ConfigError: Dask is not installed, or both or neither was given.
        UnreachableError: The scheduler does not answer.
    """
    need("distributed", "dask", "a sweep on Dask's workers")
    from distributed import Client

    if (address is None) == (scheduler_file is None):
        raise ConfigError("give the scheduler's address or its file, not both")
    if scheduler_file is not None:
        _check_scheduler_file(scheduler_file)
    shown = scheduler_file or without_password(str(address)) or address
    try:
        client = Client(
            address, scheduler_file=scheduler_file and str(scheduler_file), timeout=wait_s
        )
    except ValueError as error:
        raise ConfigError(
            f"Dask's scheduler at {shown}: address is invalid; give one such as tcp://HOST:8786"
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
    """Check that a scheduler wrote the file, and that it has an address.

    Raises:
        ConfigError: It did not.
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
            f"{path}: not a file of `dask scheduler --scheduler-file FILE`: it contains no "
            "JSON with an address"
        )


@contextmanager
def jobqueue(kind: str, jobs: int, options: Mapping[str, Any]) -> Iterator[Client]:
    """Yield a client of a local scheduler with jobs of a resource manager as workers.

    The jobs are canceled at the end, also after a signal that ends this process. A warning names
    the jobs that could not be canceled.

    Args:
        kind: One of `JOBQUEUES`.
        jobs: Number of worker jobs to submit.
        options: Options of dask-jobqueue's class, such as ``queue``, ``cores``, ``memory``,
            ``walltime``.

    Raises:
        ConfigError: dask-jobqueue is not installed, or an option is not valid.
        UnknownNameError: There is no such resource manager, or no such option.
        UnreachableError: Jobs cannot be submitted.
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
        # A cluster that fails while it is made warns later, when Python deletes it.
        made.job_cls(
            "tcp://127.0.0.1:1", "tried", **{k: v for k, v in given.items() if k not in of_cluster}
        )
        refused: list[str] = []
        cluster = made(job_cls=_noting(made.job_cls, refused), **given)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"--jobqueue {kind}: {error}") from error
    except (
        RuntimeError
    ) as error:  # of the local scheduler, such as for an interface that does not exist
        raise ConfigError(f"--jobqueue {kind}: {error.__cause__ or error}") from error
    with _ended_by_signals(), cluster:
        cluster.scale(jobs=jobs)
        # Until all jobs are submitted, or refused.
        cluster.sync(cluster._correct_state)
        if refused:
            raise UnreachableError(f"workers cannot be submitted to {kind}: {refused[0]}")
        client = Client(cluster)
        try:
            yield client
        finally:
            client.close(timeout=5)


def _options_of(job: type) -> set[str]:
    """Return the options of a job's class and its base classes."""
    return {
        name
        for one in job.__mro__
        if one is not object
        for name, parameter in signature(one).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    } - {"scheduler"}


def _check_options(kind: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Check that the options exist, and that workers can be counted.

    Raises:
        UnknownNameError: There is no such option.
        ConfigError: A number of workers is not valid.
    """
    for name, value in given.items():
        if name not in known:
            raise UnknownNameError(f"option of a worker's job for {kind}", name, known)
        if name in ("cores", "processes") and not (isinstance(value, int) and value >= 1):
            raise ConfigError(
                f"--jobqueue {kind}: {name} is {value!r}; it must be a whole number of at least 1"
            )


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Turn signals that end a process into exceptions, so that jobs are canceled."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told = sys.unraisablehook

    def end(number: int, _: Any) -> None:
        raise _Ended(128 + number)

    def tell(dropped: sys.UnraisableHookArgs) -> None:
        # Python drops exceptions raised in a callback of Dask during garbage collection: send it
        # again.
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
    """Return a job class that records failed submissions and reports failed cancels.

    Without it, Dask logs a traceback of failed submissions and waits, and does not report failed
    cancellations.
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
                    "job %s of a worker could not be canceled and may remain: %s",
                    job_id,
                    _said(str(error)),
                )

    return Noting


def _said(error: str) -> str:
    """Return the message of a command, in one line, from an error of dask-jobqueue."""
    _, _, said = error.partition("stderr:")
    return " ".join((said.strip() or error).split())
