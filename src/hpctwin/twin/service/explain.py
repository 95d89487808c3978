"""Explanations as text: the choice of a policy, and the start time of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hpctwin.errors import JournalError
from hpctwin.model import format_duration
from hpctwin.model.text import count_text
from hpctwin.twin.core.decision import Candidate
from hpctwin.twin.journal.journal import Action, Journal
from hpctwin.twin.journal.restore import full_id, standing
from hpctwin.twin.settings.config import TwinConfig
from hpctwin.twin.start_times.estimate import when
from hpctwin.twin.what_if.objective import METRICS, Objective
from hpctwin.twin.words import FEW, clock_text, jobs_named

APPROVALS = {
    "pending": "It awaits approval: run `hpctwin twin approve {}`.",
    "approved": "A person approved it; the twin carries it out.",
    "done": "A person approved it, and the twin carried it out.",
    "rejected": "A person rejected it.",
    "lapsed": "It was withdrawn: no person approved it in time.",
    "superseded": "It was withdrawn: a later decision replaced it, or its jobs are no longer pending.",
}
"""What became of a decision that asked for approval."""

__all__ = ["explain_decision", "explain_job", "job_records", "status_lines", "why_policy"]


def explain_decision(
    journal: Journal, number: int | None = None, *, own_words: bool = True
) -> list[str]:
    """Return as lines why a recorded decision was made, and what followed from it.

    Args:
        journal: The journal.
        number: Id of the decision; the last one by default.
        own_words: Whether to include the resource manager's own words.

    Raises:
        HpctwinError: There is no such decision.
    """
    decision = journal.read_decision(number)
    if decision is None:
        raise JournalError(f"{journal.path}: no decision {number or 'yet'}")
    body, _ = journal.read_settings(decision["settings"])
    config = TwinConfig.of(body)
    settings = config.core.objective
    objective = Objective(
        settings.weights, normalize=settings.normalize, function=settings.function
    )
    actions = _told(journal.read_actions(decision=decision["id"]), own_words)
    status = journal.read_latest("status")
    lines = why_policy(
        decision,
        objective,
        actions,
        journal.unanswered(decision),
        unix_time=status is None or bool(status[1]["unix_time"]),
        acts=config.act.mode == "act" or decision["approval"] == "done",
    )
    if decision["approval"] is not None:
        lines.append(APPROVALS[decision["approval"]].format(decision["id"]))
    return lines


def explain_job(journal: Journal, job_id: str, *, own_words: bool = True) -> list[str]:
    """Return as lines why a job is pending, when it will start, and its history.

    Args:
        journal: The journal.
        job_id: Id of the job.
        own_words: Whether to include the resource manager's own words.

    Raises:
        HpctwinError: The journal has no state of the cluster yet, or the id is that of an array of
            several jobs.
    """
    stands = standing(journal)
    job_id = full_id(stands.core, job_id)
    found = when(stands.core, job_id, stands.now_s, stands.policy, stands.forecasts)
    unix_time = stands.core.mirror.unix_time
    records = job_records(journal, job_id, unix_time=unix_time, own_words=own_words)
    return [*found.why, *records]


def job_records(
    journal: Journal, job_id: str, *, unix_time: bool = True, own_words: bool = True
) -> list[str]:
    """Return as lines what a journal has about a job: its first forecast, and actions.

    Args:
        journal: The journal.
        job_id: Id of the job.
        unix_time: Whether times are seconds since 1970.
        own_words: Whether to include the resource manager's own words.
    """
    lines = []
    said = journal.read_forecasts(job_id)
    if said:
        first, came_true_s = said[0]
        lines.append(
            (
                f"The first forecast, made at {clock_text(first.made_s, unix_time=unix_time)}, was "
                f"{clock_text(first.start_s, unix_time=unix_time)}"
            )
            + (
                "."
                if came_true_s is None
                else f"; it started at {clock_text(came_true_s, unix_time=unix_time)}."
            )
        )
    for action in _told(journal.read_actions(job=job_id)[-FEW:], own_words):
        became = {"done": "was done", None: "is in progress"}.get(
            action.result, f"failed: {action.result}, {action.reason}"
        )
        what = "its start" if action.kind == "start" else "a higher priority for it"
        lines.append(f"Decision {action.decision} requested {what}; that {became}.")
    return lines


def _told(actions: Sequence[Action], own_words: bool) -> list[Action]:
    """Return actions, without the resource manager's own words if they are not shown."""
    if own_words:
        return list(actions)
    return [replace(one, reason=one.reason and "its reason is hidden") for one in actions]


def status_lines(status: dict[str, Any]) -> list[str]:
    """Return the status of a twin as lines of text, from `Twin.status`."""
    age = format_duration(round(status["age_s"]))
    lines = [
        f"The twin of {status['cluster'] or 'a cluster not seen yet'} "
        + ("runs" if status["running_now"] else f"does not run; its last status is {age} old")
        + f"; mode {status['mode']}, "
        + (
            "in control of scheduling."
            if status["is_active"]
            else "it orders the queue."
            if status["orders"]
            else "not in control of scheduling."
        ),
        (
            f"Policy {status['policy']}; {count_text(status['running'], 'job')} running, "
            f"{status['waiting']} pending, {status['free_nodes']} of {status['nodes']} nodes "
            "free."
        ),
        f"Cluster time {clock_text(status['time_s'], unix_time=status['unix_time'])}, events up to "
        f"{status['seq']}, {status['lag']} on the bus; state {status['state']}.",
    ]
    if status["waits_for_snapshot"]:
        lines.append(f"The mirror waits for a snapshot: {status['waits_for_snapshot']}.")
    elif status["drift"]:
        lines.append("The mirror differed from the last snapshot and was replaced by it:")
        lines += [f"  {sentence}" for sentence in status["drift"]]
    else:
        lines.append("The mirror was equal to the last snapshot.")
    for key, text in (
        ("fault", "Fault"),
        ("kept_out", "It does not act"),
        ("stopped", "Stopped by itself"),
        ("missing_event", "Waiting for event"),
        ("inactive", "In control without effect"),
    ):
        if status.get(key):
            lines.append(f"{text}: {status[key]}.")
    if status["killed"]:
        lines.append("The kill switch is activated.")
    for row, starts in (status.get("awaits_approval") or {}).items():
        lines.append(
            f"Decision {row} would start {jobs_named(starts)} and awaits approval: "
            f"run `hpctwin twin approve {row}`."
        )
    counts = status["counts"]
    changes = (
        count_text(counts["starts"], "change of priority", "changes of priority")
        if status["orders"]
        else count_text(counts["starts"], "start")
    )
    lines.append(
        f"Since it began: {count_text(counts['events'], 'event')} ({counts['bad_events']} unreadable), "
        f"{count_text(counts['snapshots'], 'snapshot')} ({counts['drifts']} of them different), "
        f"{count_text(counts['decisions'], 'decision')}, "
        f"{changes}, {counts['refused']} refused."
    )
    lines += _what_if_lines(status.get("what_ifs") or {})
    if status.get("meter"):
        lines += _meter_lines(status["meter"])
    if status["calls_per_minute"]:
        calls = count_text(status["calls_per_minute"], "command")
        lines.append(f"In the last minute it ran {calls} of the resource manager.")
    if status["not_read"]:
        lines.append(f"Not in the mirror: {status['not_read'][0]}.")
        if len(status["not_read"]) > 1:
            lines.append(f"  and {len(status['not_read']) - 1} more (--json lists them).")
    return lines


def _what_if_lines(said: dict[str, Any]) -> list[str]:
    """Return lines about unanswered what-ifs, from `StatusWriter.status`."""
    lines = []
    if said.get("unanswered"):
        late = count_text(said["unanswered"], "what-if")
        lines.append(f"At its last decision, {late} had not answered by the deadline.")
    if said.get("fault"):
        lines.append(f"What-ifs run only for the current policy: {said['fault']}.")
    return lines


def _meter_lines(meter: dict[str, Any]) -> list[str]:
    """Return lines about a meter, from `Metering.status`."""
    ahead, errors = format_duration(round(meter["horizon_s"])), meter["error_pct"]
    said = []
    if meter["power_w"] is not None:
        said.append(f"Measured power {meter['power_w'] / 1000:,.1f} kW")
    if meter["expected_w"] is not None:
        said.append(f"{meter['expected_w'] / 1000:,.1f} kW expected in {ahead}")
    lines = ["; ".join(said) + "."] if said else []
    if errors:
        by_model = ", ".join(f"{name} {error:.2f} %" for name, error in errors.items())
        lines.append(f"Power forecast errors {ahead} ahead, over the last day: {by_model}.")
    if meter["omitted"]:
        left = ", ".join(f"{number} ({why})" for why, number in meter["omitted"].items())
        lines.append(f"Readings ignored: {left}.")
    return [*lines, f"The meter: {meter['fault']}."] if meter["fault"] else lines


def why_policy(
    decision: dict[str, Any],
    objective: Objective,
    actions: Sequence[Action] = (),
    unanswered: Sequence[tuple[int, str]] = (),
    *,
    unix_time: bool = True,
    acts: bool = True,
) -> list[str]:
    """Return as lines why a decision chose its policy, and what followed from it.

    Args:
        decision: The decision, from `Journal.read_decision`.
        objective: Objective that the candidates were judged by.
        actions: Actions sent for the decision.
        unanswered: Future and policy of each what-if that missed the deadline.
        unix_time: Whether the cluster's clock counts from 1970.
        acts: Whether the twin carries its decision out; if not, it only would start jobs.
    """
    candidates: list[Candidate] = decision["candidates"]
    chosen = next(c for c in candidates if c.policy == decision["policy"])
    lines = [
        f"Decision {decision['id']} at {clock_text(decision['time_s'], unix_time=unix_time)}, with all "
        f"events up to {decision['seq']}: {count_text(decision['waiting'], 'job')} pending, "
        f"{count_text(decision['free_nodes'], 'node')} free.",
        _why_chosen(decision, chosen, candidates, late=bool(unanswered)),
        *_left_out(unanswered),
    ]
    others = [c for c in candidates if c.policy != chosen.policy and c.never == 0]
    if others:
        lines += _main_reasons(chosen, min(others, key=lambda c: c.score), objective)
    for loser in (c for c in candidates if c.never):
        lines.append(
            f"{loser.policy} was excluded: {count_text(loser.never, 'job')} would never start under it."
        )
    starts = "starts" if acts else "would start"
    jobs = jobs_named(chosen.starts) if chosen.starts else "no job"
    lines.append(f"It {starts} {jobs} now.")
    for action in actions:
        if action.result == "done":
            continue
        result = action.result or "on its way"
        what = "start" if action.kind == "start" else "priority"
        lines.append(
            f"The {what} of job {action.job}: {result} ({action.reason or 'no answer yet'})."
        )
    return lines


def _left_out(unanswered: Sequence[tuple[int, str]]) -> list[str]:
    """Return lines about policies and futures without an answer at the deadline."""
    late = [policy for number, policy in unanswered if number == 0]
    futures = {number for number, policy in unanswered if number and policy not in late}
    lines = []
    if late:
        lines.append(f"Excluded without an answer by the deadline: {', '.join(late)}.")
    if futures:
        were = "was" if len(futures) == 1 else "were"
        lines.append(
            f"{count_text(len(futures), 'sampled future')} {were} excluded, because some "
            "policies had not answered by the deadline."
        )
    return lines


def _why_chosen(
    decision: dict[str, Any], chosen: Candidate, candidates: Sequence[Candidate], *, late: bool
) -> str:
    reason, before = decision["reason"], decision["before"]
    same = "stays" if before == chosen.policy else f"replaces {before}"
    if len(candidates) == 1:
        if reason == "kept":
            return (
                f"{chosen.policy} {same}: no pending job fits the free nodes, or the "
                "policy must stay for its minimum time, so there was no choice."
            )
        only = "none but it has answered" if late else "it is the only one in the pool"
        return f"{chosen.policy} {same}: {only}."
    scores = ", ".join(
        f"{c.policy} {c.score:.4g}" for c in sorted(candidates, key=lambda c: c.score)
    )
    why = {
        "lowest score": "its score is the lowest",
        "tie": "its score equals the lowest, and it comes first in the order for ties",
        "kept": "no other policy is better by the margin that a change requires",
    }.get(reason, reason)
    return f"{chosen.policy} {same}: {why} (lower is better: {scores})."


def _main_reasons(chosen: Candidate, rival: Candidate, objective: Objective) -> list[str]:
    """Return the metrics in which the winner differs from a rival, the largest first."""
    if objective.function is not None:
        return []
    gains = []
    for name, weight in objective.weights.items():
        mine, theirs = chosen.metrics[name], rival.metrics[name]
        scale = max(abs(mine), abs(theirs))
        if scale > 0 and weight > 0 and mine != theirs:
            better = (mine > theirs) == (METRICS[name].better == "high")
            gains.append((weight * abs(mine - theirs) / scale, better, name, mine, theirs))
    if not gains:
        return [f"All weighted metrics are equal to those of {rival.policy}."]
    texts = []
    for _, better, name, mine, theirs in sorted(gains, reverse=True):
        one, other = _two_values(name, mine, theirs)
        texts.append(
            f"{_metric(name)} of {one} instead of {other} ({'better' if better else 'worse'})"
        )
    return [f"Compared with {rival.policy}: {'; '.join(texts)}."]


def _metric(name: str) -> str:
    return name.removesuffix("_s").removesuffix("_j").replace("_", " ")


def _two_values(name: str, mine: float, theirs: float) -> tuple[str, str]:
    """Return two values as texts, with just enough digits to show that they differ."""
    unit = METRICS[name].unit
    ending = f" {unit}" if unit else ""
    texts = [
        format_duration(round(v)) if unit == "s" else f"{v:.3g}{ending}" for v in (mine, theirs)
    ]
    digits = 3
    while texts[0] == texts[1] and digits < 17:
        digits += 1
        texts = [f"{v:.{digits}g}{ending}" for v in (mine, theirs)]
    return texts[0], texts[1]
