"""How a cluster stands by the journal of its twin: whoever asks, by whatever command, is told the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpctwin.errors import HpctwinError
from hpctwin.twin.core.core import Core
from hpctwin.twin.forecast.records import Forecast
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.journal.repeat import restored_core

__all__ = ["OLDEST_S", "Standing", "full_id", "standing", "standing_of", "starts_by"]

MOST_TASKS = 5
OLDEST_S = 120.0
"""Forecasts made longer ago than this are made again."""


@dataclass(frozen=True)
class Standing:
    """A mirror, and what jobs start by now.

    Args:
        core: mirror and what was learnt of forecasts.
        now_s: the present by the cluster's clock.
        policy: what jobs start by: the twin's if it acts, else the cluster's own as configured.
        assumed: whether the policy is only taken for granted.
        status: what the twin said of itself last.
        forecasts: what it forecast last of each waiting job under that policy, by id.
    """

    core: Core
    now_s: float
    policy: str
    assumed: bool
    status: Mapping[str, Any]
    forecasts: Mapping[str, Forecast] = field(default_factory=dict)


def standing(journal: Journal) -> Standing:
    """How things stand by a journal.

    Raises:
        HpctwinError: nothing is recorded yet.
    """
    return standing_of(restored_core(journal), journal)


def standing_of(core: Core, journal: Journal) -> Standing:
    """How things stand, where the core has been brought up to the journal's end already."""
    found = journal.read_latest("status")
    status: dict[str, Any] = {} if found is None else found[1]
    now_s = max(core.mirror.time_s, status.get("time_s", 0.0))
    acts = bool(status.get("in_charge") or status.get("orders"))
    policy, assumed = starts_by(core, status.get("policy") if acts else None)
    if assumed:
        # The policy in force changes with each decision; the core has not made the last ones again.
        policy = status.get("policy", policy)
    said = journal.read_latest("forecasts")
    forecasts: dict[str, Forecast] = {}
    if said is not None and said[1]["policy"] == policy and now_s - said[1]["time_s"] <= OLDEST_S:
        forecasts = {one.job_id: one for one in (Forecast(*row) for row in said[1]["jobs"])}
    return Standing(core, now_s, policy, assumed, status, forecasts)


def starts_by(core: Core, acting: str | None) -> tuple[str, bool]:
    """The policy that jobs start by, and whether it is only taken for granted.

    Args:
        core: knows the cluster's own policy, where that is configured.
        acting: the policy of the twin, if it acts.
    """
    if acting is not None:
        return acting, False
    if core.own is not None:
        return core.own.name, False
    return core.policy, True


def full_id(core: Core, job_id: str) -> str:
    """A job's id as the cluster writes it; PBS's users leave the server's name out.

    Raises:
        HpctwinError: it is an array of several jobs.
    """
    jobs = core.mirror.jobs
    if job_id in jobs:
        return job_id
    longer = [known for known in jobs if known.startswith(f"{job_id}.")]
    if len(longer) == 1:
        return longer[0]
    # Slurm's 5_1 and PBS's 5[1].server.
    tasks = [known for known in jobs if re.match(rf"{re.escape(job_id)}(_\d|\[\d)", known)]
    if len(tasks) == 1:
        return tasks[0]
    if tasks:
        some = ", ".join(tasks[:MOST_TASKS])
        more = f" and {len(tasks) - MOST_TASKS} more" if len(tasks) > MOST_TASKS else ""
        raise HpctwinError(f"{job_id} is an array of jobs: ask for one of {some}{more}")
    return job_id
