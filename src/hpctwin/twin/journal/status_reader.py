"""State of a cluster by the journal of its twin, the same for all commands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpctwin.errors import HpctwinError
from hpctwin.twin.core.core import Core
from hpctwin.twin.forecast.records import Forecast
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.journal.restore import restored_core

__all__ = ["OLDEST_S", "Standing", "full_id", "standing", "standing_of", "starts_by"]

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
