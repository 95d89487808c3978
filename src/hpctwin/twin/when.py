"""When a job will start: one that waits, or one that is not submitted yet."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpctwin.errors import HpctwinError
from hpctwin.rms.manager import ResourceManager
from hpctwin.rms.records import JobRecord, JobSpec
from hpctwin.twin.config import TwinConfig
from hpctwin.twin.core import Core
from hpctwin.twin.explain import When, when
from hpctwin.twin.forecast import Forecast
from hpctwin.twin.journal import Journal
from hpctwin.twin.standing import Standing, standing, starts_by

__all__ = ["Picture", "picture_of", "when_job", "when_request"]

STALE_S = 10.0
"""A twin whose status is older than this does not run."""
REQUEST = "new"
"""Id of a job that is not submitted yet."""


@dataclass(frozen=True)
class Picture:
    """What is known of a cluster now.

    Args:
        core: mirror and what was learnt of forecasts.
        now_s: the present by the cluster's clock.
        policy: what jobs start by: the twin's if it is in charge, else the cluster's own as configured.
        source: where this is from, in plain words.
        not_read: what could not be read or is not modelled.
        forecasts: those that the running twin has made, by job.
    """

    core: Core
    now_s: float
    policy: str
    source: str
    not_read: tuple[str, ...]
    forecasts: Mapping[str, Forecast] = field(default_factory=dict)


def picture_of(config: TwinConfig, *, look: bool = False) -> Picture:
    """What is known now: by a twin that runs, which costs the controller nothing; else by one look.

    Args:
        config: the twin's.
        look: ask the resource manager even if a twin runs.

    Raises:
        HpctwinError: no twin runs and the resource manager does not answer.
    """
    if not look and config.journal.path.exists():
        journal = Journal(config.journal.path, read_only=True)
        try:
            found = journal.read_latest("status")
            if found is not None and not found[1]["ended"] and time.time() - found[0] < STALE_S:
                return _picture(standing(journal), "the running twin")
        finally:
            journal.close()
    # The running twin is asked without any of this.
    from hpctwin.twin.service import open_manager

    manager = open_manager(config.manager)
    try:
        return looked_up(config, manager)
    finally:
        manager.close()


def looked_up(config: TwinConfig, manager: ResourceManager) -> Picture:
    """What one look at the resource manager tells.

    Raises:
        UnreachableError: it does not answer.
    """
    snapshot = manager.snapshot()
    core = Core(config.core)
    core.take_snapshot(snapshot)
    policy, assumed = starts_by(core, None)
    status = {"not_read": manager.report().notes}
    stands = Standing(core, snapshot.time_s, policy, assumed, status)
    return _picture(stands, "one look at the resource manager")


def when_job(picture: Picture, job_id: str) -> When:
    """When a job will start that waits."""
    return when(picture.core, job_id, picture.now_s, picture.policy, picture.forecasts)


def when_request(
    picture: Picture,
    nodes: int,
    walltime_s: float,
    *,
    partition: str = "",
    user: str = "",
    account: str = "",
    cores: float = 0.0,
    gpus: float = 0.0,
    memory_gb: float = 0.0,
) -> When:
    """When a job would start if it were submitted now. The picture's mirror is left with it in the queue.

    Args:
        picture: what is known.
        nodes: how many whole nodes.
        walltime_s: requested limit, seconds.
        partition: where; the default one, or the only one, if empty.
        user: whose.
        account: whose.
        cores: needs per node.
        gpus: needs per node.
        memory_gb: needs per node.

    Raises:
        HpctwinError: no such partition, or it must be named.
    """
    machine = picture.core.mirror.machine
    names = [p.name for p in machine.partitions]
    if not partition and names:
        default = next((p.name for p in machine.partitions if p.default), None)
        if default is None and len(names) > 1:
            raise HpctwinError(f"--partition: which? There are {', '.join(names)}")
        partition = default or names[0]
    elif partition and partition not in names:
        raise HpctwinError(f"--partition {partition}: there are {', '.join(names) or 'none'}")
    spec = JobSpec(
        id=REQUEST,
        submit_s=picture.now_s,
        nodes=nodes,
        walltime_s=walltime_s,
        user=user,
        account=account,
        partition=partition,
        cores=cores,
        gpus=gpus,
        memory_gb=memory_gb,
        priority=_usual_priority(list(picture.core.mirror.jobs.values())),
    )
    picture.core.mirror.jobs[REQUEST] = JobRecord(spec=spec)
    found = when(picture.core, REQUEST, picture.now_s, picture.policy)
    return When(**{**vars(found), "lines": found.lines[1:]})


def _usual_priority(jobs: Sequence[JobRecord]) -> float:
    """The priority of the job submitted last: what a job submitted now would get, as far as is known."""
    waiting = [job.spec for job in jobs if job.start_s is None and not job.spec.held]
    return max(waiting, key=lambda spec: spec.submit_s).priority if waiting else 0.0


def _picture(stands: Standing, source: str) -> Picture:
    not_read = tuple(stands.status["not_read"])
    if stands.assumed:
        assumed = (
            "what the cluster itself schedules by (core.own_policy is not set): "
            f"{stands.policy} is taken for granted"
        )
        not_read = (assumed, *not_read)
    core, now_s = stands.core, stands.now_s
    return Picture(core, now_s, stands.policy, source, not_read, stands.forecasts)
