"""A question of when a job will start, and its answer from a picture of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import ValidationError

from hpctwin.errors import HpctwinError
from hpctwin.rms.records.records import JobRecord, JobSpec
from hpctwin.twin.core.core import Core
from hpctwin.twin.forecast.records import Forecast
from hpctwin.twin.journal.status_reader import Standing, full_id
from hpctwin.twin.start_times.estimate import When, when

__all__ = [
    "Answer",
    "JobToCome",
    "Picture",
    "Question",
    "answer",
    "picture",
    "usual_priority",
    "when_job",
    "when_request",
]

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


@dataclass(frozen=True)
class JobToCome:
    """What a job that is not submitted yet would ask for.

    Args:
        nodes: how many whole nodes.
        walltime_s: requested limit, seconds.
        partition: where; the default one, or the only one, if empty.
        user, account: whose.
        cores, gpus, memory_gb: needs per node.
    """

    nodes: int
    walltime_s: float
    partition: str = ""
    user: str = ""
    account: str = ""
    cores: float = 0.0
    gpus: float = 0.0
    memory_gb: float = 0.0


Question = str | JobToCome
"""A job's id, or a job to come."""


@dataclass(frozen=True)
class Answer:
    """What is said to whoever asks.

    Args:
        job: its full id; None for a job to come.
        when: when it will start, and why not now.
        now_s: the present by the cluster's clock.
        source: where this is from, in plain words.
        not_read: what the picture leaves out.
    """

    job: str | None
    when: When
    now_s: float
    source: str
    not_read: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Answer:
        """From what `plain` gave, also by way of JSON."""
        about = dict(plain["when"])
        for name in ("lines", "quantiles_s"):
            about[name] = tuple(about[name])
        rest = {**plain, "when": When(**about), "not_read": tuple(plain["not_read"])}
        return cls(**rest)


def picture(stands: Standing, source: str) -> Picture:
    """How a cluster stands, for questions."""
    not_read = tuple(stands.status["not_read"])
    if stands.assumed:
        assumed = (
            "what the cluster itself schedules by (core.own_policy is not set): "
            f"{stands.policy} is taken for granted"
        )
        not_read = (assumed, *not_read)
    core, now_s = stands.core, stands.now_s
    return Picture(core, now_s, stands.policy, source, not_read, stands.forecasts)


def answer(known: Picture, question: Question) -> Answer:
    """Answer a question.

    Raises:
        HpctwinError: it names an array of several jobs, or a partition that is not there.
    """
    job = full_id(known.core, question) if isinstance(question, str) else None
    if isinstance(question, str):
        found = when_job(known, job or question)
    else:
        found = when_request(known, question)
    return Answer(job, found, known.now_s, known.source, known.not_read)


def when_job(known: Picture, job_id: str) -> When:
    """When a job will start that waits."""
    return when(known.core, job_id, known.now_s, known.policy, known.forecasts)


def when_request(known: Picture, asked: JobToCome) -> When:
    """When a job would start if it were submitted now.

    Raises:
        HpctwinError: no such partition, or it must be named; or no job can ask for that.
    """
    jobs = known.core.mirror.jobs
    about = {
        **asdict(asked),
        "id": REQUEST,
        "submit_s": known.now_s,
        "partition": _partition(known, asked.partition),
        "priority": usual_priority(list(jobs.values())),
    }
    try:
        spec = JobSpec.model_validate(about)
    except ValidationError as error:
        fault = error.errors()[0]
        raise HpctwinError(f"{fault['loc'][0]} {fault['input']!r}: {fault['msg']}") from error
    jobs[REQUEST] = JobRecord(spec=spec)
    try:
        found = when(known.core, REQUEST, known.now_s, known.policy)
    finally:
        # The picture may be that of a twin that goes on.
        del jobs[REQUEST]
    return When(**{**vars(found), "lines": found.lines[1:]})


def _partition(known: Picture, asked: str) -> str:
    partitions = known.core.mirror.machine.partitions
    names = [p.name for p in partitions]
    if asked and asked not in names:
        raise HpctwinError(f"--partition {asked}: there are {', '.join(names) or 'none'}")
    if asked or not names:
        return asked
    default = next((p.name for p in partitions if p.default), None)
    if default is None and len(names) > 1:
        raise HpctwinError(f"--partition: which? There are {', '.join(names)}")
    return default or names[0]


def usual_priority(jobs: Sequence[JobRecord]) -> float:
    """The priority of the job submitted last: what a job submitted now would get, as far as is known."""
    waiting = [job.spec for job in jobs if job.start_s is None and not job.spec.held]
    return max(waiting, key=lambda spec: spec.submit_s).priority if waiting else 0.0
