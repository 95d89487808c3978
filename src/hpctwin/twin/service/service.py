"""Construction of a twin from its configuration."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from hpctwin.errors import ConfigError, HpctwinError, JournalError
from hpctwin.model.files import FileLock
from hpctwin.model.text import count_text
from hpctwin.rms.gate import why_no_beat
from hpctwin.rms.manager import Hooked, ResourceManager, Tells
from hpctwin.rms.polling.poller import Poller, polled
from hpctwin.rms.polling.redis_stream import RedisLines
from hpctwin.rms.polling.spool import Lines, Spool
from hpctwin.rms.records.records import Snapshot
from hpctwin.rms.settings import HookEventSettings, ManagerSettings, PolledSettings
from hpctwin.twin.core.core import Core
from hpctwin.twin.following.bus import Bus, LocalBus, Recorder
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.meters import AnyMeter
from hpctwin.twin.service.query_socket import QuerySocket
from hpctwin.twin.service.runner import Twin
from hpctwin.twin.settings.config import TwinConfig, WhatIfSettings

__all__ = [
    "Opened",
    "check_connections",
    "open_bus",
    "open_lines",
    "open_manager",
    "open_twin",
    "opened",
]

logger = logging.getLogger(__name__)

LOOKS = 3
"""An acting twin takes this many snapshots per `ActSettings.max_staleness`."""


def open_manager(settings: ManagerSettings, *, longest_lease_s: float = 600.0) -> ResourceManager:
    """Open the resource manager that the settings name.

    Args:
        settings: Kind and address of the resource manager.
        longest_lease_s: Longest lease, in seconds; see `ActSettings.max_lease`.

    Raises:
        UnreachableError: The resource manager does not answer.
    """
    hint = settings.ignored_environment()
    if hint is not None:
        logger.warning(hint)
    return settings.open(longest_lease_s=longest_lease_s)


def open_lines(settings: HookEventSettings, journal: Path) -> Lines:
    """Open the feed of events that hooks push.

    Args:
        settings: Settings of a file or of a Redis server.
        journal: Path of the journal. The read position of a file is stored next to it, because
            the twin may write there.

    Raises:
        ConfigError: The feed is not usable.
    """
    if settings.spool is not None:
        return Spool(settings.spool, journal.with_name(journal.name + ".news"))
    assert settings.url is not None
    return RedisLines(settings.url, settings.stream, password_env=settings.password_env)


class Opened(NamedTuple):
    """The connections by which a cluster is followed.

    Args:
        manager: Resource manager of the cluster.
        numbered: The same, with snapshots numbered like the events of the bus.
        bus: Source of the events.
        journal: Journal, locked for this process.
    """

    manager: ResourceManager
    numbered: ResourceManager
    bus: Bus
    journal: Journal


def opened(config: TwinConfig, stack: ExitStack, *, record: Path | None = None) -> Opened:
    """Open journal, resource manager and bus.

    Raises:
        HpctwinError: One of them is not usable.
    """
    path, act = config.journal.path, config.act
    lock = FileLock(path.with_name(path.name + ".lock"))
    why_not = lock.take()
    if why_not is not None:
        raise JournalError(
            f"{path}: another twin uses this journal: {why_not}; end it, or set another journal.path"
        )
    stack.callback(lock.release)
    journal = Journal(path)
    stack.callback(journal.close)
    manager = open_manager(config.manager, longest_lease_s=act.max_lease)
    stack.callback(manager.close)
    acts = act.by != "priority" and act.mode in ("act", "approve")
    every_s = act.max_staleness / LOOKS if acts else None
    bus, numbered = open_bus(config, manager, stack, every_s)
    if record is not None:
        bus = Recorder(bus, record)
    stack.callback(bus.close)
    return Opened(manager, numbered, bus, journal)


@contextmanager
def open_twin(
    config: TwinConfig,
    *,
    record: Path | None = None,
    warm_up: bool = True,
    hung: Callable[[str], None] = lambda fault: None,
) -> Iterator[Twin]:
    """Open a twin with its connections, which close with the context.

    Args:
        config: Configuration of the twin.
        record: File in which the connection is recorded; None for no record.
        warm_up: Whether all that decisions may need is compiled first.
        hung: Function called with the error if a decision does not return.

    Raises:
        HpctwinError: The resource manager, the bus or the journal is not usable.
    """
    with ExitStack() as stack:
        _, manager, bus, journal = opened(config, stack, record=record)
        queries = _open_queries(journal.path, stack)
        yield Twin(config, manager, bus, journal, queries=queries, warm_up=warm_up, hung=hung)


def _open_queries(journal: Path, stack: ExitStack) -> QuerySocket | None:
    """Open the query socket; None if it fails, so that clients read the journal."""
    try:
        queries = QuerySocket(journal)
    except OSError as error:
        logger.warning("cannot answer questions at a socket next to %s: %s", journal, error)
        return None
    stack.callback(queries.close)
    return queries


def check_connections(config: TwinConfig) -> list[tuple[str, bool, str]]:
    """Return the result of each connection check: its name, success, and a message."""
    findings: list[tuple[str, bool, str]] = []
    try:
        manager = open_manager(config.manager)
        snapshot = manager.snapshot()
        running = sum(job.start_s is not None for job in snapshot.jobs)
        findings.append(
            (
                "resource manager",
                True,
                (
                    f"{snapshot.cluster}: {count_text(len(snapshot.nodes), 'node')}, "
                    f"{count_text(running, 'job')} running, {len(snapshot.jobs) - running} pending"
                ),
            )
        )
        manager.close()
        findings += _check_policies(config, snapshot)
    except HpctwinError as error:
        findings.append(("resource manager", False, str(error)))
    beat_file = config.manager.sign_of_life
    if beat_file is not None:
        fault = why_no_beat(beat_file)
        findings.append(("heartbeat", fault is None, fault or str(beat_file)))
    hint = config.manager.ignored_environment()
    if hint is not None:
        findings.append(("environment", False, hint))
    if config.bus.kind == "redis":
        findings.append(_check_redis(config))
    if config.what_ifs.on_dask:
        findings.append(_check_dask(config.what_ifs))
    findings.append(_check_journal(config.journal.path))
    if config.meter is not None:
        findings.append(_check_meter(config.meter))
    switch = config.act.kill_switch
    if switch is not None:
        says = (
            "activated: the twin will not act" if switch.exists() else f"not activated ({switch})"
        )
        findings.append(("kill switch", True, says))
    return findings


def open_bus(
    config: TwinConfig,
    manager: ResourceManager,
    stack: ExitStack,
    every_s: float | None = None,
) -> tuple[Bus, ResourceManager]:
    """Open the bus, and number the resource manager's snapshots like its events.

    Args:
        config: Configuration of the twin.
        manager: Resource manager of the cluster.
        stack: Exit stack that closes the connections.
        every_s: Upper bound of the polling interval, in seconds; by default only the settings
            count.

    Returns:
        The bus, and the resource manager with numbered snapshots.

    Raises:
        ConfigError: The bus that the settings name is not usable.
    """
    settings, source = config.bus, config.manager
    if settings.kind == "redis":
        from hpctwin.twin.following.redis_bus import RedisBus

        bus = RedisBus(
            settings.url,
            settings.stream,
            group=settings.group,
            password_env=settings.password_env,
            claim_after_s=settings.claim_after,
        )
        return bus, manager
    local = LocalBus()
    if isinstance(manager, Tells):
        manager.subscribe(local.put)
        return local, manager
    if not isinstance(source, PolledSettings):
        raise ConfigError(
            f"manager: kind {source.kind} has neither events nor a polling interval; "
            "derive its settings from PolledSettings, or add `subscribe`"
        )
    hooked = manager if isinstance(manager, Hooked) else None
    if source.events is not None and hooked is None:
        raise ConfigError(f"manager.events: kind {source.kind} has no hooks that write events")
    poller = Poller(
        manager,
        local.publish,
        every_s=source.poll_interval if every_s is None else min(every_s, source.poll_interval),
        floor_s=source.min_poll_interval,
        lines=None if source.events is None else open_lines(source.events, config.journal.path),
        translate=None if hooked is None else hooked.translator(),
        drifting=source.drifting,
        clock=time.time if hooked is None else hooked.now_s,
    )
    stack.callback(poller.close)
    poller.start()
    return local, polled(poller)


def _check_policies(config: TwinConfig, snapshot: Snapshot) -> list[tuple[str, bool, str]]:
    core = Core(config.core)
    core.take_snapshot(snapshot)
    try:
        core.check_told()
    except HpctwinError as error:
        return [("policies", False, str(error))]
    return []


def _check_dask(asked: WhatIfSettings) -> tuple[str, bool, str]:
    """Return the check of whether what-ifs can run on Dask's workers."""
    from hpctwin.sweep.on_dask import connected

    try:
        with connected(asked.dask, scheduler_file=asked.scheduler_file, wait_s=5.0) as client:
            workers: dict[str, int] = client.nthreads()  # type: ignore[no-untyped-call]
    except HpctwinError as error:
        return "Dask", False, str(error)
    if not workers:
        return "Dask", False, "the scheduler has no workers; start some with `dask worker`"
    said = f"{count_text(len(workers), 'worker')}, {count_text(sum(workers.values()), 'thread')}"
    return "Dask", True, said


def _check_redis(config: TwinConfig) -> tuple[str, bool, str]:
    from hpctwin.rms.polling.redis_stream import connect_redis

    try:
        client = connect_redis(config.bus.url, password_env=config.bus.password_env, timeout_s=2.0)
        client.ping()
        length = client.xlen(config.bus.stream)
        client.close()
    except HpctwinError as error:
        return "Redis", False, str(error)
    except Exception as error:  # redis-py's errors are not known unless it is installed
        return "Redis", False, f"no answer: {type(error).__name__}"
    return "Redis", True, f"stream {config.bus.stream} has {count_text(length, 'entry', 'entries')}"


def _check_meter(meter: AnyMeter) -> tuple[str, bool, str]:
    try:
        readings = meter.open().read()
    except HpctwinError as error:
        return "meter", False, str(error)
    if not readings:
        return "meter", True, "readable, without new readings"
    value = readings[-1].value
    return "meter", math.isfinite(value), f"it reports {value:,.0f} {'J' if meter.rising else 'W'}"


def _check_journal(path: Path) -> tuple[str, bool, str]:
    if path.exists():
        try:
            journal = Journal(path, read_only=True)
            counts = journal.counts()
            journal.close()
        except HpctwinError as error:
            return "journal", False, str(error)
        return "journal", True, f"{path}: {count_text(counts['decisions'], 'decision')}"
    fine = path.parent.is_dir()
    says = "will be made" if fine else f"folder {path.parent} does not exist"
    return "journal", fine, f"{path}: {says}"
