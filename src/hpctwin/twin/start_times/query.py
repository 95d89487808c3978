"""Questions about a job's start time, and answers from a cluster's present state."""

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
"""Id given to a job that is not submitted yet."""


@dataclass(frozen=True)
class Picture:
    """Present state of a cluster.

    Args:
        core: The mirror, and what was learned from past forecasts.
        now_s: The present by the cluster's clock, in seconds.
        policy: Policy by which jobs start: the twin's if it is in charge, else the configured
            policy of the cluster.
        source: Source of the state, as text.
        not_read: Parts of the cluster that could not be read or are not modeled, as texts.
        forecasts: Forecasts that the running twin has made, by job id.
    """

    core: Core
    now_s: float
    policy: str
    source: str
    not_read: tuple[str, ...]
    forecasts: Mapping[str, Forecast] = field(default_factory=dict)


@dataclass(frozen=True)
class JobToCome:
    """Request of a job that is not submitted yet.

    Args:
        nodes: Number of whole nodes.
        walltime_s: Requested walltime, in seconds.
        partition: Partition; if empty, the default one, or the only one.
        user, account: Name of its user and account.
        cores, gpus, memory_gb: Requests per node.
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
"""The id of a job, or a job that is not submitted yet."""


@dataclass(frozen=True)
class Answer:
    """Answer to a question about a job's start.

    Args:
        job: Full id of the job; None if it is not submitted yet.
        when: Start of the job, and why it does not start now.
        now_s: The present by the cluster's clock, in seconds.
        source: Source of the answer, as text.
        not_read: Parts of the cluster that were not considered, as texts.
    """

    job: str | None
    when: When
    now_s: float
    source: str
    not_read: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """Return the answer as plain values."""
        return asdict(self)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Answer:
        """Make an answer from the result of `plain`, even after a round trip through JSON."""
        about = dict(plain["when"])
        for name in ("lines", "quantiles_s"):
            about[name] = tuple(about[name])
        rest = {**plain, "when": When(**about), "not_read": tuple(plain["not_read"])}
        return cls(**rest)


def picture(stands: Standing, source: str) -> Picture:
    """Return the present state of a cluster in the form that questions need.

    Args:
        stands: State of the cluster.
        source: Source of the state, as text.
    """
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
        HpctwinError: The question names an array of several jobs, or an unknown partition.
    """
    job = full_id(known.core, question) if isinstance(question, str) else None
    if isinstance(question, str):
        found = when_job(known, job or question)
    else:
        found = when_request(known, question)
    return Answer(job, found, known.now_s, known.source, known.not_read)


def when_job(known: Picture, job_id: str) -> When:
    """Return when a pending job will start."""
    return when(known.core, job_id, known.now_s, known.policy, known.forecasts)


def when_request(known: Picture, asked: JobToCome) -> When:
    """Return when a job would start if it were submitted now.

    Raises:
        HpctwinError: The partition is unknown or must be named, or the request is not valid.
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
        # The core may be that of a running twin, so the added job must not stay in its mirror.
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
    """Return the priority of the pending job submitted last; 0 if there is none.

    It is the best estimate of the priority that a job submitted now would get.
    """
    waiting = [job.spec for job in jobs if job.start_s is None and not job.spec.held]
    return max(waiting, key=lambda spec: spec.submit_s).priority if waiting else 0.0
