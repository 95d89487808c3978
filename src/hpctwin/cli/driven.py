"""``hpctwin simulate`` with a scheduler from outside, and with what accounts have earned."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from hpctwin.model import Workload
    from hpctwin.simulation import Result, Simulation

__all__ = ["backfill_of", "driven", "planned_s", "rewarded_jobs"]


def backfill_of(
    scheduler: str | None, policy: str | None, order: str | None, backfill: str | None
) -> str | None:
    """The backfill: ``outside`` with a scheduler from outside, and only then.

    Args:
        scheduler: what --scheduler says.
        policy: what --policy says.
        order: what --order says.
        backfill: what --backfill says.

    Raises:
        ConfigError: both say who decides, or neither.
    """
    from hpctwin.errors import ConfigError
    from hpctwin.policies.backfills import OUTSIDE

    if scheduler is None:
        if backfill == OUTSIDE:
            raise ConfigError(
                f"--backfill {OUTSIDE}: nobody starts unless somebody outside says so; give --scheduler"
            )
        return backfill
    if (policy, order, backfill) != (None, None, None):
        raise ConfigError(
            "--scheduler decides itself who starts; leave --policy, --order and --backfill out"
        )
    return OUTSIDE


def driven(simulation: Simulation, scheduler: str, every: str | None) -> Result:
    """The run under somebody else's scheduler.

    Args:
        simulation: a new one.
        scheduler: what --scheduler says.
        every: what --scheduler-every says.
    """
    from hpctwin.model import parse_duration_s
    from hpctwin.simulation.schedulers import BatsimScheduler, JsonLinesScheduler, drive

    every_s = None if every is None else parse_duration_s(every)
    found: BatsimScheduler | JsonLinesScheduler
    if scheduler.startswith("batsim:"):
        found = BatsimScheduler(scheduler.removeprefix("batsim:"), simulation.cluster)
    else:
        found = JsonLinesScheduler(scheduler, simulation.cluster)
    with found:
        return drive(simulation, found, every_s=every_s)


def planned_s(workload: Workload, by: str) -> npt.NDArray[np.float64] | None:
    """What jobs are planned to take, seconds [jobs]; None for their walltimes.

    Args:
        workload: the jobs.
        by: what --plan-by says.

    Raises:
        ConfigError: no runtime is predicted.
    """
    from hpctwin.errors import ConfigError

    if by == "walltime":
        return None
    if "runtime_s" not in workload.predicted:
        raise ConfigError(
            f"--plan-by prediction: {workload.name} has no predicted_runtime_s; "
            "hpctwin predictor apply writes it"
        )
    return workload.predicted_runtime_s


def rewarded_jobs(workload: Workload, reward: str) -> Workload:
    """The jobs with what their accounts have earned.

    Args:
        workload: the jobs.
        reward: ``INCENTIVE[=BUDGET]:FILE``.

    Raises:
        ConfigError, UnknownNameError: it is not of that form, or does not go with the accounts.
    """
    from hpctwin.errors import ConfigError
    from hpctwin.metrics import read_accounts, rewarded

    what, colon, file = reward.partition(":")
    name, equals, budget = what.partition("=")
    if not colon or not file:
        raise ConfigError(
            f"--reward is {reward!r}; expected an incentive and a file of accounts, such as "
            "fugaku-points:accounts.json"
        )
    try:
        given = float(budget) if equals else None
    except ValueError as error:
        raise ConfigError(f"--reward: budget is {budget!r}, expected node-hours") from error
    return rewarded(workload, read_accounts(file), name, given)
