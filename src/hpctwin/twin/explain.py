"""In plain words: why this policy now, and why a job has not started and when it will."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from hpctwin.errors import HpctwinError
from hpctwin.model import MS_PER_S, format_duration
from hpctwin.rms.records import JobRecord
from hpctwin.twin.choice import Candidate
from hpctwin.twin.config import TwinConfig
from hpctwin.twin.core import Core
from hpctwin.twin.forecast import Forecast
from hpctwin.twin.journal import Action, Journal
from hpctwin.twin.objective import METRICS, Objective
from hpctwin.twin.standing import full_id, standing

__all__ = [
    "When",
    "clock_text",
    "explain_decision",
    "explain_job",
    "status_lines",
    "when",
    "why_policy",
]

EPOCH_S = 1e8
"""Cluster times above this are taken for dates, below for seconds of an emulated clock."""
FEW = 3


def clock_text(time_s: float | None) -> str:
    """A time of the cluster's clock for people: a date, or a duration since its beginning."""
    if time_s is None:
        return "never"
    if time_s < EPOCH_S:
        return format_duration(round(time_s))
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def explain_decision(journal: Journal, number: int | None = None) -> list[str]:
    """Why a decision of the journal was made, and what became of it.

    Args:
        journal: the journal.
        number: which decision; the last one if left out.

    Raises:
        HpctwinError: there is no such decision.
    """
    decision = journal.read_decision(number)
    if decision is None:
        raise HpctwinError(f"{journal.path}: no decision {number or 'yet'}")
    body, _ = journal.read_settings(decision["settings"])
    settings = TwinConfig.of(body).core.objective
    objective = Objective(
        settings.weights, normalise=settings.normalise, function=settings.function
    )
    return why_policy(decision, objective, journal.read_actions(decision=decision["id"]))


def explain_job(journal: Journal, job_id: str) -> list[str]:
    """Why a job has or has not started, when it will, and what was forecast and done.

    Args:
        journal: the journal.
        job_id: which job.

    Raises:
        HpctwinError: the journal has no state of the cluster yet, or the job is an array of several.
    """
    stands = standing(journal)
    job_id = full_id(stands.core, job_id)
    found = when(stands.core, job_id, stands.now_s, stands.policy, stands.forecasts)
    lines = list(found.lines)
    said = journal.read_forecasts(job_id)
    if said:
        first, came_true_s = said[0]
        lines.append(
            f"The first forecast, at {clock_text(first.made_s)}, was {clock_text(first.start_s)}"
            + (f"; it started at {clock_text(came_true_s)}." if came_true_s is not None else ".")
        )
    for action in journal.read_actions(job=job_id)[-FEW:]:
        became = {"done": "was done", None: "is on its way"}.get(
            action.result, f"came to nothing: {action.result}, {action.reason}"
        )
        what = "its start" if action.kind == "start" else "a higher priority for it"
        lines.append(f"Decision {action.decision} asked for {what}; that {became}.")
    return lines


def status_lines(status: dict[str, Any]) -> list[str]:
    """How a twin stands, in plain words, from what `Twin.status` gave."""
    age = format_duration(round(status["age_s"]))
    lines = [
        f"The twin of {status['cluster'] or 'a cluster not seen yet'} "
        + ("runs" if status["running_now"] else f"does not run; its last word is {age} old")
        + f"; mode {status['mode']}, "
        + (
            "in charge of scheduling."
            if status["in_charge"]
            else "it puts the queue in order."
            if status["orders"]
            else "not in charge of scheduling."
        ),
        f"Policy {status['policy']}; {_count(status['running'], 'job')} running, "
        f"{status['waiting']} waiting, {status['free_nodes']} of {status['nodes']} nodes free.",
        f"Cluster time {clock_text(status['time_s'])}, events up to {status['seq']}, "
        f"{status['lag']} on the bus; state {status['state']}.",
    ]
    if status["waits_for_snapshot"]:
        lines.append(f"The mirror waits for a snapshot: {status['waits_for_snapshot']}.")
    elif status["drift"]:
        lines.append("The mirror differed from the last snapshot compared, and took it over:")
        lines += [f"  {sentence}" for sentence in status["drift"]]
    else:
        lines.append("The mirror was equal to the last snapshot compared.")
    for key, text in (
        ("fault", "Fault"),
        ("kept_out", "It does not act"),
        ("stopped", "Stopped by itself"),
        ("missing_event", "Waiting for event"),
    ):
        if status[key]:
            lines.append(f"{text}: {status[key]}.")
    if status["killed"]:
        lines.append("The kill switch is thrown.")
    counts = status["counts"]
    lines.append(
        f"Since it began: {counts['events']} events ({counts['bad_events']} unreadable), "
        f"{counts['snapshots']} snapshots ({counts['drifts']} of them different), "
        f"{counts['decisions']} decisions, {counts['starts']} "
        f"{'changes of priority' if status['orders'] else 'starts'}, {counts['refused']} refused."
    )
    if status["calls_per_minute"]:
        calls = _count(status["calls_per_minute"], "command")
        lines.append(f"In the last minute it ran {calls} of the resource manager.")
    if status["not_read"]:
        lines.append(f"Not in the mirror: {status['not_read'][0]}.")
        if len(status["not_read"]) > 1:
            lines.append(f"  and {len(status['not_read']) - 1} more (--json lists them).")
    return lines


def why_policy(
    decision: dict[str, Any], objective: Objective, actions: Sequence[Action] = ()
) -> list[str]:
    """Why a decision chose its policy, and what became of it.

    Args:
        decision: from `Journal.read_decision`.
        objective: what it was judged by.
        actions: what was sent for it.
    """
    candidates: list[Candidate] = decision["candidates"]
    chosen = next(c for c in candidates if c.policy == decision["policy"])
    lines = [
        f"Decision {decision['id']} at {clock_text(decision['time_s'])}, with all events up to "
        f"{decision['seq']}: {_count(decision['waiting'], 'job')} waiting, "
        f"{_count(decision['free_nodes'], 'node')} free.",
        _why_chosen(decision["reason"], decision["before"], chosen, candidates),
    ]
    others = [c for c in candidates if c.policy != chosen.policy and c.never == 0]
    if others:
        lines += _main_reasons(chosen, min(others, key=lambda c: c.score), objective)
    for loser in (c for c in candidates if c.never):
        lines.append(
            f"{loser.policy} was set aside: {_count(loser.never, 'job')} would never start under it."
        )
    if chosen.starts:
        lines.append(f"It starts {_names(chosen.starts)} now.")
    else:
        lines.append("It starts no job now.")
    for action in actions:
        if action.result == "done":
            continue
        result = action.result or "on its way"
        what = "start" if action.kind == "start" else "priority"
        lines.append(
            f"The {what} of job {action.job}: {result} ({action.reason or 'no answer yet'})."
        )
    return lines


def _why_chosen(
    reason: str, before: str, chosen: Candidate, candidates: Sequence[Candidate]
) -> str:
    same = "stays" if before == chosen.policy else f"replaces {before}"
    if len(candidates) == 1:
        return (
            f"{chosen.policy} {same}: no waiting job fits the free nodes, or the policy must stay "
            "for its least time, so there was nothing to choose."
            if reason == "kept"
            else f"{chosen.policy} {same}: it is the only one in the pool."
        )
    scores = ", ".join(
        f"{c.policy} {c.score:.4g}" for c in sorted(candidates, key=lambda c: c.score)
    )
    why = {
        "lowest score": "its score is the lowest",
        "tie": "its score is equal to the lowest, and it comes first in the order for ties",
        "kept": "no other is better by as much as a change asks for",
    }.get(reason, reason)
    return f"{chosen.policy} {same}: {why} (lower is better: {scores})."


def _main_reasons(chosen: Candidate, rival: Candidate, objective: Objective) -> list[str]:
    """The metrics in which the winner differs most from the best of the others."""
    if objective.function is not None:
        return []
    gains = []
    for name, weight in objective.weights.items():
        mine, theirs = chosen.metrics[name], rival.metrics[name]
        scale = max(abs(mine), abs(theirs))
        if scale > 0 and weight > 0 and mine != theirs:
            better = (mine > theirs) == METRICS[name].larger_is_better
            gains.append((weight * abs(mine - theirs) / scale, better, name, mine, theirs))
    if not gains:
        return [f"In all that counts it is equal to {rival.policy}."]
    texts = []
    for _, better, name, mine, theirs in sorted(gains, reverse=True):
        one, other = _two_values(name, mine, theirs)
        texts.append(
            f"{_metric(name)} of {one} against {other} ({'better' if better else 'worse'})"
        )
    return [f"Against {rival.policy}: {'; '.join(texts)}."]


@dataclass(frozen=True)
class When:
    """When a job will start, and why not now.

    Args:
        state: ``gone``, ``runs``, ``starts now``, ``waits``; ``stuck``: something must happen first of
            which nobody knows when; ``never``: not as things are.
        lines: in plain words.
        start_s: the forecast, or when it started; None where there is none.
        low_s, high_s: between these with the probability that `forecast.COVERAGE` names.
        calibrated: whether the interval comes from enough starts seen before.
        policy: under which that was forecast.
    """

    state: Literal["gone", "runs", "starts now", "waits", "stuck", "never"]
    lines: tuple[str, ...]
    start_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    calibrated: bool = False
    policy: str = ""


def when(
    core: Core,
    job_id: str,
    now_s: float,
    policy: str | None = None,
    forecasts: Mapping[str, Forecast] | None = None,
) -> When:
    """When a job will start and why not now, as the mirror stands.

    Args:
        core: the twin's core.
        job_id: which job.
        now_s: the present by the cluster's clock.
        policy: under which to look ahead; the one in force if left out.
        forecasts: those made already under that policy, by job; where this job is not among them, it is
            looked ahead.
    """
    job = core.mirror.jobs.get(job_id)
    if job is None:
        said = f"Job {job_id} is not among the jobs that wait or run: it has ended, or never was."
        return When("gone", (said,))
    spec = job.spec
    asks = f"{_count(spec.nodes, 'node')} for up to {format_duration(round(spec.walltime_s))}"
    if job.start_s is not None:
        since = format_duration(round(now_s - job.start_s))
        waited = format_duration(round(job.start_s - spec.submit_s))
        runs = (
            f"Job {job_id} ({asks}) runs since {clock_text(job.start_s)}, for {since} now.",
            f"It waited {waited}.",
        )
        return When("runs", runs, job.start_s, job.start_s, job.start_s, True)
    waited = format_duration(round(max(0.0, now_s - spec.submit_s)))
    lines = (f"Job {job_id} ({asks}) waits since {clock_text(spec.submit_s)}, for {waited} now.",)
    stuck, conditions = _conditions(core, job, now_s)
    if stuck:
        return When("stuck", (*lines, *conditions))
    policy = policy or core.policy
    made = (forecasts or {}).get(job_id)
    if forecasts and made is not None:
        starts = {i: one.start_s for i, one in forecasts.items() if one.start_s is not None}
    else:
        starts = _look_ahead(core, now_s, policy)
    start_s = starts.get(job_id)
    if start_s is None:
        return When("never", (*lines, *conditions, _why_never(core, job)), policy=policy)
    if made is not None and made.low_s is not None and made.high_s is not None:
        span = (made.low_s, made.high_s, made.calibrated)
    else:
        span = core.forecaster.interval(start_s, now_s)
    state: Literal["starts now", "waits"] = "starts now" if start_s <= now_s else "waits"
    times = _when(core, job, now_s, start_s, starts, policy, span)
    return When(state, (*lines, *conditions, *times), start_s, *span, policy)


def _look_ahead(core: Core, now_s: float, policy: str) -> dict[str, float]:
    """When jobs would start under a policy if no other came, by id."""
    present = core.present(now_s, policy)
    simulation = present.fork()
    simulation.advance()
    return {
        present.ids[row]: int(ms) / MS_PER_S
        for row, ms in enumerate(simulation.column("start").tolist())
        if ms >= 0
    }


def _conditions(core: Core, job: JobRecord, now_s: float) -> tuple[bool, list[str]]:
    """What must happen first; and whether nobody knows when that will be."""
    spec = job.spec
    if spec.held:
        return True, ["It is held; it can start once it is released."]
    lines = [
        f"It waits for job {edge.on} "
        + {"after": "to start", "afterany": "to end", "afterok": "to end well"}[edge.kind]
        + ("." if edge.on in core.mirror.jobs else ", which is not there: it may wait for ever.")
        for edge in spec.dependencies
    ]
    stuck = any(edge.on not in core.mirror.jobs for edge in spec.dependencies)
    if spec.not_before_s is not None and spec.not_before_s > now_s:
        lines.append(f"It asked not to start before {clock_text(spec.not_before_s)}.")
    until_s = core.put_off(spec.id)
    if until_s is not None and until_s > now_s:
        lines.append(f"The cluster refused its start; it is tried again at {clock_text(until_s)}.")
    return stuck, lines


def _why_never(core: Core, job: JobRecord) -> str:
    """Why a job would not start even on an empty machine."""
    spec, machine = job.spec, core.mirror.machine
    nodes = core.mirror.nodes
    partition = next((p for p in machine.partitions if p.name == spec.partition), None)
    if spec.partition and partition is None:
        known = ", ".join(p.name for p in machine.partitions)
        return f"It can never start: there is no partition {spec.partition!r}; there are {known}."
    if partition is not None:
        if partition.max_nodes is not None and spec.nodes > partition.max_nodes:
            return (
                f"It can never start: partition {partition.name} takes jobs of at most "
                f"{_count(partition.max_nodes, 'node')}."
            )
        if partition.max_walltime is not None and spec.walltime_s > partition.max_walltime:
            longest = format_duration(round(partition.max_walltime))
            return f"It can never start: partition {partition.name} takes at most {longest}."
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
    most = sum(group.count for group in usable)
    if spec.nodes > most:
        return (
            f"It can never start: {_count(most, 'node')} of {len(nodes)} "
            f"{'has' if most == 1 else 'have'} what it asks for, and it needs {spec.nodes}."
        )
    up = sum(node.state == "up" for node in nodes.values())
    return (
        f"As things are it would never start: {up} of {len(nodes)} nodes are up, "
        "and a node that is down or a limit keeps it out."
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
    spec = job.spec
    free = core.free_nodes()
    jobs = core.mirror.jobs
    waits = {i: s for i, s in starts.items() if i in jobs and jobs[i].start_s is None}
    before = sorted((s, i) for i, s in waits.items() if s < start_s and i != spec.id)
    lines = []
    if start_s <= now_s:
        return [f"It fits, and {policy} starts it now."]
    if spec.nodes > free:
        lines.append(f"{_count(free, 'node')} {'is' if free == 1 else 'are'} free.")
    elif spec.not_before_s is None or spec.not_before_s < start_s:
        later = sorted((s, i) for i, s in waits.items() if s >= start_s and i != spec.id)
        kept_for = [i for _, i in before + later if jobs[i].spec.nodes > free][:1]
        whom = (
            f" for job {kept_for[0]} ({_count(jobs[kept_for[0]].spec.nodes, 'node')})"
            if kept_for
            else ""
        )
        lines.append(
            f"{_count(free, 'node')} {'is' if free == 1 else 'are'} free and it would fit, but under "
            f"{policy} they are kept{whom}: with its walltime it would still run "
            "when they are needed."
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
        names = ", ".join(f"{i} ({_count(jobs[i].spec.nodes, 'node')})" for _, i in ends[:FEW])
        lines.append(f"It waits for running jobs to end, the last of them {names}.")
    if before:
        lines.append(
            f"{_count(len(before), 'waiting job')} {'is' if len(before) == 1 else 'are'} expected "
            f"to start before it, first {_names([i for _, i in before])}."
        )
    low_s, high_s, calibrated = span
    lines.append(
        f"Under {policy} it starts at {clock_text(start_s)}, in "
        f"{format_duration(round(start_s - now_s))}"
        f"; probably between {clock_text(low_s)} and {clock_text(high_s)}"
        + ("." if calibrated else " (too few starts seen yet to say this well).")
    )
    return lines


def _names(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:FEW])
    more = f" and {len(ids) - FEW} more" if len(ids) > FEW else ""
    return f"job{'s' if len(ids) > 1 else ''} {shown}{more}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _metric(name: str) -> str:
    return name.removesuffix("_s").replace("_", " ")


def _two_values(name: str, mine: float, theirs: float) -> tuple[str, str]:
    """Two values that differ, as short as shows that they do."""
    seconds = METRICS[name].unit == "s"
    texts = [format_duration(round(v)) if seconds else f"{v:.3g}" for v in (mine, theirs)]
    digits = 3
    while texts[0] == texts[1] and digits < 17:
        digits += 1
        texts = [f"{v:.{digits}g}{' s' if seconds else ''}" for v in (mine, theirs)]
    return texts[0], texts[1]
