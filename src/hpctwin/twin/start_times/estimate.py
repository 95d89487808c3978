"""Start time of a job: questions, estimates, and why it does not start now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal

from pydantic import ValidationError

from hpctwin.errors import HpctwinError
from hpctwin.model import format_duration
from hpctwin.model.text import count_text
from hpctwin.rms.node_capacity import Room
from hpctwin.rms.records.records import JobRecord, JobSpec
from hpctwin.twin.core.core import Core
from hpctwin.twin.forecast.forecaster import Forecast
from hpctwin.twin.journal.restore import Standing, full_id
from hpctwin.twin.words import FEW, asked_text, clock_text, jobs_named

__all__ = [
    "Answer",
    "JobToCome",
    "Picture",
    "Question",
    "When",
    "answer",
    "picture",
    "usual_priority",
    "when",
    "when_job",
    "when_request",
]


@dataclass(frozen=True)
class When:
    """Estimate of a job's start, and why it does not start now.

    Args:
        state: ``gone``, ``running``, ``starting`` (now) or ``waiting``. It is ``stuck`` if the job first
            needs an event at an unknown time, and ``never`` if it would not start as things are.
        why: Explanation, as sentences.
        start_s: Forecast or actual start, in seconds; None without one.
        low_s, high_s: Interval that includes the start with probability `forecaster.COVERAGE`, in
            seconds.
        calibrated: Whether the interval comes from enough observed starts.
        policy: Policy of the forecast.
        quantiles_s: Times by which it has started with the probabilities `forecaster.LEVELS`, in
            seconds; empty if too few starts were observed.
    """

    state: Literal["gone", "running", "starting", "waiting", "stuck", "never"]
    why: tuple[str, ...]
    start_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    calibrated: bool = False
    policy: str = ""
    quantiles_s: tuple[float, ...] = ()


def when(
    core: Core,
    job_id: str,
    now_s: float,
    policy: str | None = None,
    forecasts: Mapping[str, Forecast] | None = None,
) -> When:
    """Return when a job will start and why it does not start now.

    Args:
        core: The core of the twin.
        job_id: Id of the job.
        now_s: The present by the cluster's clock, in seconds.
        policy: Policy of the forecast; by default the one in force.
        forecasts: Forecasts already made under that policy, by job id. Without one for this job, a
            new forecast is made.
    """
    job = core.mirror.jobs.get(job_id)
    if job is None:
        said = f"Job {job_id} is neither pending nor running: it has ended or never existed."
        return When("gone", (said,))
    spec, clock = job.spec, _clock(core)
    asks = f"{asked_text(spec)} for up to {format_duration(round(spec.walltime_s))}"
    if job.start_s is not None:
        since = format_duration(round(now_s - job.start_s))
        waited = format_duration(round(job.start_s - spec.submit_s))
        runs = (
            (f"Job {job_id} ({asks}) has been running since {clock(job.start_s)}, for {since}."),
            f"It waited {waited}.",
        )
        return When("running", runs, job.start_s, job.start_s, job.start_s, True)
    waited = format_duration(round(max(0.0, now_s - spec.submit_s)))
    lines = (
        (f"Job {job_id} ({asks}) has been pending since {clock(spec.submit_s)}, for {waited}."),
    )
    stuck, conditions = _conditions(core, job, now_s)
    if stuck:
        return When("stuck", (*lines, *conditions))
    policy = policy or core.policy
    known = forecasts or {}
    if job_id not in known:
        known = {one.job_id: one for one in core.forecasts(now_s, policy)}
    starts = {i: one.start_s for i, one in known.items() if one.start_s is not None}
    made = known.get(job_id)
    if made is None or made.start_s is None or made.low_s is None or made.high_s is None:
        if spec.reason:
            # The rest of the reason may name other users.
            kind = spec.reason.partition(":")[0]
            why = f"The resource manager keeps it pending, for a reason of the kind '{kind}'."
            return When("stuck", (*lines, *conditions, why), policy=policy)
        return When("never", (*lines, *conditions, _why_never(core, job)), policy=policy)
    start_s, span = made.start_s, (made.low_s, made.high_s, made.calibrated)
    state: Literal["starting", "waiting"] = "starting" if start_s <= now_s else "waiting"
    times = _when(core, job, now_s, start_s, starts, policy, span)
    quantiles_s = core.forecaster.quantiles(made)
    return When(state, (*lines, *conditions, *times), start_s, *span, policy, quantiles_s)


def _clock(core: Core) -> Callable[[float | None], str]:
    return partial(clock_text, unix_time=core.mirror.unix_time)


def _conditions(core: Core, job: JobRecord, now_s: float) -> tuple[bool, list[str]]:
    """Return whether the time of a condition is unknown, and all conditions as text."""
    spec, clock = job.spec, _clock(core)
    if spec.held:
        return True, ["It is held; it can start once it is released."]
    if why := core.mirror.not_modeled.get(spec.id):
        return True, [f"Its start cannot be predicted: {why}."]
    lines = [
        f"It waits for job {edge.on} "
        + {"after": "to start", "afterany": "to end", "afterok": "to end well"}[edge.kind]
        + (
            "."
            if edge.on in core.mirror.jobs
            else ", which does not exist: it may wait indefinitely."
        )
        for edge in spec.dependencies
    ]
    stuck = any(edge.on not in core.mirror.jobs for edge in spec.dependencies)
    if spec.not_before_s is not None and spec.not_before_s > now_s:
        lines.append(f"It was submitted to start no earlier than {clock(spec.not_before_s)}.")
    until_s = core.put_off(spec.id)
    if until_s is not None and until_s > now_s:
        lines.append(f"The cluster rejected its start; the twin tries again at {clock(until_s)}.")
    return stuck, lines


def _why_never(core: Core, job: JobRecord) -> str:
    """Return why a job would not start even on an empty cluster, as text."""
    spec, machine = job.spec, core.mirror.machine
    nodes = core.mirror.nodes
    partition = next((p for p in machine.partitions if p.name == spec.partition), None)
    if spec.partition and partition is None:
        known = ", ".join(p.name for p in machine.partitions)
        return f"It can never start: partition {spec.partition!r} does not exist; known: {known}."
    if partition is not None:
        if partition.max_nodes is not None and spec.nodes > partition.max_nodes:
            return (
                f"It can never start: partition {partition.name} accepts jobs of at most "
                f"{count_text(partition.max_nodes, 'node')}."
            )
        if partition.max_walltime is not None and spec.walltime_s > partition.max_walltime:
            longest = format_duration(round(partition.max_walltime))
            return (
                f"It can never start: partition {partition.name} accepts walltimes up to {longest}."
            )
    usable = [
        group
        for group in machine.nodes
        if (partition is None or partition.groups is None or group.name in partition.groups)
        and all(
            has is None or asks <= has
            for asks, has in (
                (spec.cores, group.cores),
                (spec.gpus, group.gpus),
                (spec.memory_gb, group.memory_gb),
            )
        )
    ]
    if spec.tasks and not Room(machine).place(spec, empty=True):
        return f"It can never start: even the empty cluster has no capacity for {asked_text(spec)}."
    most = sum(group.count for group in usable)
    if not spec.tasks and spec.nodes > most:
        return (
            f"It can never start: {count_text(most, 'node')} of {len(nodes)} "
            f"{'has' if most == 1 else 'have'} what it requests, and it needs {spec.nodes}."
        )
    up = sum(node.state == "up" for node in nodes.values())
    return (
        f"In the current state it would never start: {up} of {len(nodes)} nodes are up, "
        "and a node that is down or a limit blocks it."
    )


def _when(
    core: Core,
    job: JobRecord,
    now_s: float,
    start_s: float,
    starts: dict[str, float],
    policy: str,
    span: tuple[float, float, bool],
) -> list[str]:
    spec, clock = job.spec, _clock(core)
    fits, jobs = core.fits_now(), core.mirror.jobs
    shares = any(job.spec.tasks for job in jobs.values())
    free = core.free_nodes()
    there = f"{count_text(free, 'node')} {'is' if free == 1 else 'are'} free"
    if shares:
        there = "There is capacity for it now" if fits(spec) else "There is no capacity for it now"
    waits = {i: s for i, s in starts.items() if i in jobs and jobs[i].start_s is None}
    before = sorted((s, i) for i, s in waits.items() if s < start_s and i != spec.id)
    lines = []
    if start_s <= now_s:
        return [f"It fits, and {policy} starts it now."]
    if not fits(spec):
        lines.append(f"{there}.")
    elif not shares and (ready := core.free_nodes(on=True)) < spec.nodes:
        lines.append(
            f"{there}, {ready or 'none'} of them switched on: it starts when enough are on."
        )
    elif spec.not_before_s is None or spec.not_before_s < start_s:
        later = sorted((s, i) for i, s in waits.items() if s >= start_s and i != spec.id)
        kept_for = [i for _, i in before + later if not fits(jobs[i].spec)][:1]
        whom = f" for job {kept_for[0]} ({asked_text(jobs[kept_for[0]].spec)})" if kept_for else ""
        lines.append(
            f"{there}, but {policy} reserves {'it' if shares else 'them'}{whom}: with its "
            f"walltime this job would still run when {'it is' if shares else 'they are'} "
            "needed."
        )
    ends = sorted(
        (
            (run.start_s + run.spec.walltime_s, i)
            for i, run in jobs.items()
            if run.start_s is not None and run.start_s + run.spec.walltime_s <= start_s
        ),
        reverse=True,
    )
    if ends:
        last = ", ".join(f"{i} ({asked_text(jobs[i].spec)})" for _, i in ends[:FEW])
        lines.append(f"It waits for running jobs to end, the last of them {last}.")
    if before:
        lines.append(
            f"{count_text(len(before), 'pending job')} {'is' if len(before) == 1 else 'are'} expected "
            f"to start before it, first {jobs_named([i for _, i in before])}."
        )
    low_s, high_s, calibrated = span
    lines.append(
        f"Under {policy} it starts at {clock(start_s)}, in "
        f"{format_duration(round(start_s - now_s))}"
        f"; probably between {clock(low_s)} and {clock(high_s)}"
        + ("." if calibrated else " (too few starts observed yet for a reliable interval).")
    )
    return lines


REQUEST = "new"
"""Id given to a job that is not submitted yet."""


@dataclass(frozen=True)
class Picture:
    """Present state of a cluster.

    Args:
        core: The mirror, and what was learned from past forecasts.
        now_s: The present by the cluster's clock, in seconds.
        policy: Policy by which jobs start: the twin's if it is in control, else the configured
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
        unix_time: Whether its times count from 1970.
    """

    job: str | None
    when: When
    now_s: float
    source: str
    not_read: tuple[str, ...]
    unix_time: bool = True

    def plain(self) -> dict[str, Any]:
        """Return the answer as plain values."""
        return asdict(self)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Answer:
        """Make an answer from the result of `plain`, even after a round trip through JSON."""
        about = dict(plain["when"])
        for name in ("why", "quantiles_s"):
            about[name] = tuple(about[name])
        rest = {**plain, "when": When(**about), "not_read": tuple(plain["not_read"])}
        return cls(**rest)


def picture(stands: Standing, source: str) -> Picture:
    """Return the present state of a cluster in the form that questions need."""
    not_read = tuple(stands.status["not_read"])
    if stands.assumed:
        assumed = (
            "the cluster's own policy is unknown (core.site_policy is not set); "
            f"{stands.policy} is assumed"
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
    unix_time = known.core.mirror.unix_time
    return Answer(job, found, known.now_s, known.source, known.not_read, unix_time)


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
    return When(**{**vars(found), "why": found.why[1:]})


def _partition(known: Picture, asked: str) -> str:
    partitions = known.core.mirror.machine.partitions
    names = [p.name for p in partitions]
    if asked and asked not in names:
        raise HpctwinError(
            f"--partition {asked} does not exist; known: {', '.join(names) or 'none'}"
        )
    if asked or not names:
        return asked
    default = next((p.name for p in partitions if p.default), None)
    if default is None and len(names) > 1:
        raise HpctwinError(f"--partition is missing; give one of {', '.join(names)}")
    return default or names[0]


def usual_priority(jobs: Sequence[JobRecord]) -> float:
    """Return the priority of the pending job submitted last; 0 if there is none.

    It is the best estimate of the priority that a job submitted now would get.
    """
    waiting = [job.spec for job in jobs if job.start_s is None and not job.spec.held]
    return max(waiting, key=lambda spec: spec.submit_s).priority if waiting else 0.0
