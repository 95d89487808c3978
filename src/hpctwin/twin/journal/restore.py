"""Replay of the journal's inputs in a core, of its decisions, and the cluster's last state."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from hpctwin._version import __version__
from hpctwin.errors import HpctwinError, JournalError
from hpctwin.model.settings import first_fault
from hpctwin.rms.records.events import parse_event
from hpctwin.rms.records.records import Snapshot
from hpctwin.twin.core.core import Core
from hpctwin.twin.core.decision import Decision
from hpctwin.twin.forecast.forecaster import Forecast
from hpctwin.twin.forecast.learned_runtimes import read_quantiles
from hpctwin.twin.journal.journal import Input, Journal
from hpctwin.twin.settings.config import CoreSettings, TwinConfig
from hpctwin.twin.what_if.pool import WhatIfs

__all__ = [
    "OLDEST_S",
    "Again",
    "Standing",
    "apply_input",
    "decide_again",
    "full_id",
    "restored",
    "restored_core",
    "standing",
    "standing_of",
    "starts_by",
]


def restored(journal: Journal, settings: CoreSettings, what_ifs: WhatIfs | None) -> Core:
    """Return a core that continues from the journal's end; a new one if it is empty.

    Recorded decisions are repeated under the settings that they were made with. The resulting
    state is then transferred to a core with the present settings.

    Raises:
        HpctwinError: The journal cannot be read.
        Exception: Its content is not usable.
    """
    state, inputs = journal.read_inputs()
    last = journal.last_settings()
    core = Core(settings, what_ifs)
    if state is None or last is None:
        return core
    then = TwinConfig.of(last, f"{journal.path}, settings").core
    earlier = core if then == settings else Core(then, what_ifs)
    earlier.restore(state)
    for one in inputs:
        apply_input(earlier, one)
    if earlier is not core:
        core.restore(earlier.state())
    return core


def apply_input(core: Core, one: Input) -> Decision | None:
    """Give a recorded input to the core; return the decision that it asked for."""
    if one.kind == "event":
        core.take_event(parse_event(one.body))
        return None
    if one.kind == "snapshot":
        try:
            snapshot = Snapshot.model_validate_json(one.body)
        except ValidationError as error:
            raise JournalError(f"input {one.id} is not a snapshot: {first_fault(error)}") from error
        core.take_snapshot(snapshot)
        return None
    body = json.loads(one.body)
    match one.kind:
        case "decide":
            # A record without this field means that all what-ifs had answered.
            return core.decide(**{"unanswered": (), **body})
        case "asked":
            core.asked_to_start(**body)
        case "refused":
            core.refused(**body)
        case "gap":
            core.mirror.give_up_waiting()
    return None


_COMPARED = ("number", "time_s", "seq", "state", "seed", "policy", "reason", "before", "starts")
_TOLD = 6
"""Number of leading fields of a forecast that are compared.

They are the job, when the forecast was made, the start, the interval, and whether it is calibrated.
"""


@dataclass(frozen=True)
class Again:
    """A repeated decision, compared with the recorded one.

    Args:
        recorded: The decision in the journal.
        decision: The repeated decision.
        differences: Field, recorded and new value of everything that differs.
        versions: Versions of the software that made the recorded decision.
        notes: Other changes since then that may lead to another result.
    """

    recorded: dict[str, Any]
    decision: Decision
    differences: tuple[tuple[str, Any, Any], ...]
    versions: dict[str, str]
    notes: tuple[str, ...] = ()


def decide_again(journal: Journal, number: int | None = None) -> Again:
    """Repeat a decision from the journal's inputs, and compare the results.

    Args:
        journal: The journal.
        number: Id of the decision; the last one by default.

    Raises:
        HpctwinError: There is no such decision, or inputs that it needs have been deleted.
    """
    recorded = journal.read_decision(number)
    if recorded is None:
        raise JournalError(f"{journal.path}: no decision {number or ''}".rstrip())
    body, versions = journal.read_settings(recorded["settings"])
    settings = TwinConfig.of(body, f"{journal.path}, settings").core
    core = Core(settings)
    state, inputs = journal.read_inputs(before=recorded["input"])
    if not inputs or inputs[-1].id != recorded["input"]:
        raise HpctwinError(f"{journal.path}: inputs of decision {recorded['id']} have been deleted")
    _restore(core, state, journal)
    decision = None
    for one in inputs:
        decision = apply_input(core, one)
    if decision is None:
        raise HpctwinError(f"{journal.path}: decision {recorded['id']} cannot be reproduced")
    differences = [
        (name, recorded[name], getattr(decision, name))
        for name in _COMPARED
        if recorded[name] != getattr(decision, name)
    ]
    for before, after in zip(recorded["candidates"], decision.candidates, strict=True):
        if before != after:
            differences.append((f"candidate {after.policy}", before, after))
    said = {one.job_id: one for one, _ in journal.read_forecasts(decision=recorded["id"])}
    for again in decision.forecasts:
        before = said.get(again.job_id)
        if before is not None and before[:_TOLD] != again[:_TOLD]:
            differences.append((f"forecast of job {again.job_id}", before[2:_TOLD], again[2:_TOLD]))
    if versions["hpctwin"] != __version__ and differences:
        differences.append(("version", versions["hpctwin"], __version__))
    notes = _other_predictor(settings, state)
    return Again(recorded, decision, tuple(differences), versions, notes)


def _other_predictor(settings: CoreSettings, state: dict[str, Any] | None) -> tuple[str, ...]:
    """Return a note if the file of the trained predictor has changed since then."""
    learned = None if state is None else state["expectations"].get("learned")
    if settings.learned is None or learned is None:
        return ()
    now = read_quantiles(settings.learned).digest
    if learned["digest"] == now:
        return ()
    return (
        (
            f"{settings.learned} now holds another predictor ({now}) than at the time of the "
            f"decision ({learned['digest']}), so forecasts may differ; restore the former file"
        ),
    )


def restored_core(journal: Journal) -> Core:
    """Return the core at the end of the journal, without repeating its decisions.

    Raises:
        HpctwinError: The journal has no settings or no snapshot yet.
    """
    last = journal.last_settings()
    if last is None:
        raise HpctwinError(
            f"{journal.path}: nothing is recorded yet; start the twin with `hpctwin twin run`"
        )
    core = Core(TwinConfig.of(last, f"{journal.path}, settings").core)
    state, inputs = journal.read_inputs()
    _restore(core, state, journal)
    for one in inputs:
        if one.kind != "decide":
            apply_input(core, one)
    if not core.mirror.snapshots:
        raise HpctwinError(f"{journal.path}: no snapshot of the cluster is recorded yet")
    return core


def _restore(core: Core, state: dict[str, Any] | None, journal: Journal) -> None:
    """Restore a core from a recorded state; do nothing if there is none.

    Raises:
        JournalError: Another version recorded the state in a different form.
    """
    if state is None:
        return
    try:
        core.restore(state)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise JournalError(
            f"{journal.path}: state was recorded by another version than hpctwin "
            f"{__version__}; use the version that wrote it"
        ) from error


MOST_TASKS = 5
OLDEST_S = 120.0
"""Maximum age of a forecast that is still used, in seconds by the clock of the twin's host.

A twin decides at intervals of this clock, however fast that of an emulated cluster is.
"""


@dataclass(frozen=True)
class Standing:
    """State of a cluster, with the policy by which its jobs start.

    Args:
        core: The mirror, and what was learned from past forecasts.
        now_s: The present by the cluster's clock, in seconds.
        policy: Policy by which jobs start: the twin's if it acts, else the configured policy of
            the cluster.
        assumed: Whether the policy is an assumption, because none is configured.
        status: Last status of the twin.
        forecasts: Last forecast of each pending job under that policy, by job id.
    """

    core: Core
    now_s: float
    policy: str
    assumed: bool
    status: Mapping[str, Any]
    forecasts: Mapping[str, Forecast] = field(default_factory=dict)


def standing(journal: Journal) -> Standing:
    """Return the state of the cluster by a journal.

    Raises:
        HpctwinError: Nothing is recorded yet.
    """
    return standing_of(restored_core(journal), journal)


def standing_of(core: Core, journal: Journal) -> Standing:
    """Return the state of the cluster for a core that stands at the journal's end."""
    found = journal.read_latest("status")
    at_s, status = found or (0.0, {})
    now_s = max(core.mirror.time_s, status.get("time_s", 0.0))
    acts = bool(status.get("is_active") or status.get("orders"))
    policy, assumed = starts_by(core, status.get("policy") if acts else None)
    if assumed:
        # The restored core has not repeated the last decisions, which may have changed the policy.
        policy = status.get("policy", policy)
    said = journal.read_latest("forecasts")
    forecasts: dict[str, Forecast] = {}
    if said is not None and said[1]["policy"] == policy and at_s - said[0] <= OLDEST_S:
        forecasts = {one.job_id: one for one in (Forecast(*row) for row in said[1]["jobs"])}
    return Standing(core, now_s, policy, assumed, status, forecasts)


def starts_by(core: Core, acting: str | None) -> tuple[str, bool]:
    """Return the policy by which jobs start, and whether it is only assumed.

    Args:
        core: The core, whose settings may name the cluster's own policy.
        acting: The policy of the twin, if it acts.
    """
    if acting is not None:
        return acting, False
    if core.own is not None:
        return core.own.name, False
    return core.policy, True


def full_id(core: Core, job_id: str) -> str:
    """Return a job's full id; users of PBS omit the name of the server.

    Raises:
        HpctwinError: The id is that of an array of several jobs.
    """
    jobs = core.mirror.jobs
    if job_id in jobs:
        return job_id
    longer = [known for known in jobs if known.startswith(f"{job_id}.")]
    if len(longer) == 1:
        return longer[0]
    # Tasks of an array: Slurm's 5_1 and PBS's 5[1].server.
    tasks = [known for known in jobs if re.match(rf"{re.escape(job_id)}(_\d|\[\d)", known)]
    if len(tasks) == 1:
        return tasks[0]
    if tasks:
        some = ", ".join(tasks[:MOST_TASKS])
        more = f" and {len(tasks) - MOST_TASKS} more" if len(tasks) > MOST_TASKS else ""
        raise HpctwinError(f"{job_id} is a job array; give one of its jobs: {some}{more}")
    return job_id
