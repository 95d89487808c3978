"""Incentives: priorities of jobs by their account's behavior in an earlier run.

Source of the keys: ExaDigiT's RAPS, experimental policies (Maiterth et al., SC25-W, §4.3). A key
consists of an account's energy E (J), its node-seconds T and mean power P = E / T. Fugaku points
follow Solórzano et al., SC24.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.metrics import Accounts, read_accounts
from hpctwin.model import Workload

FloatArray = npt.NDArray[np.float64]
Figures = Mapping[str, float | None]


@dataclass(frozen=True)
class Incentive:
    """A rule for the order of accounts.

    Args:
        name: Name of the rule.
        help: Description in one line.
        key: Function of an account's metrics and budget in node-hours; the smallest key comes
            first.
        needs: Metric that must be known.
        spares: Whether it only rewards: accounts with a key above 0 come after all others, in the
            order of their jobs' own priority.
        budgeted: Whether it needs a budget.
    """

    name: str
    help: str
    key: Callable[[Figures, float], float]
    needs: str = "energy_j"
    spares: bool = False
    budgeted: bool = False


def _of(figures: Figures, name: str) -> float:
    return float(figures[name] or 0.0)


def _e(figures: Figures) -> float:
    return _of(figures, "energy_j")


def _t(figures: Figures) -> float:
    return _of(figures, "node_hours") * 3600


INCENTIVES = {
    one.name: one
    for one in (
        Incentive("low-power", "Least mean power of a node first: P.", lambda a, _: _of(a, "mean_node_w")),
        Incentive("high-power", "Most mean power of a node first: -P.", lambda a, _: -_of(a, "mean_node_w")),
        Incentive("energy", "Least energy first: E.", lambda a, _: _e(a)),
        Incentive("edp", "Least energy times node-seconds first: E T.", lambda a, _: _e(a) * _t(a)),
        Incentive("ed2p", "Least energy times node-seconds² first: E T².", lambda a, _: _e(a) * _t(a) ** 2),
        Incentive(
            "fugaku-points",
            "Most points first: (mean account's E - E) / mean P; accounts without points follow by priority.",
            lambda a, _: -_of(a, "fugaku_points"),
            spares=True,
        ),
        Incentive(
            "budget", "Most of the budget left first: node-hours given, less those used.",
            lambda a, budget: _of(a, "node_hours") - budget, needs="node_hours", budgeted=True,
        ),
    )
}  # fmt: skip
"""Incentives by name."""


def rewarded(
    workload: Workload,
    accounts: Accounts,
    incentive: str,
    budgets: Mapping[str, float] | float | None = None,
) -> Workload:
    """Return the jobs with the priorities that their accounts have earned.

    The ordering ``priority`` uses them. Jobs of one account are equal; of equal jobs the first
    submitted comes first. An account that did not exist, or had no ended job, is treated like the
    mean account: it has earned nothing and is not punished.

    Args:
        incentive: Name of the incentive, see `INCENTIVES`.
        budgets: For ``budget``: node-hours by account, or for each account.

    Raises:
        UnknownNameError: There is no such incentive.
        ConfigError: The accounts lack a metric that it needs, or budgets are missing or not needed.
    """
    if incentive not in INCENTIVES:
        raise UnknownNameError("incentive", incentive, list(INCENTIVES))
    rule = INCENTIVES[incentive]
    if rule.budgeted != (budgets is not None):
        told = (
            "a budget in node-hours is missing"
            if rule.budgeted
            else "it takes no budget; remove it"
        )
        raise ConfigError(f"incentive {incentive!r}: {told}")
    if accounts.mean.get(rule.needs) is None:
        raise ConfigError(
            f"incentive {incentive!r} needs {rule.needs}, which these accounts do not have; collect them on "
            "a cluster with a power model"
        )
    labels = workload.account if accounts.by == "account" else workload.user
    rows = {row["name"]: row for row in accounts.table.iter_rows(named=True)}

    def key(name: str) -> float:
        figures = rows.get(name, accounts.mean)
        figures = figures if figures["ended"] else accounts.mean
        own = budgets.get(name, 0.0) if isinstance(budgets, Mapping) else budgets or 0.0
        return rule.key(figures, own)

    keys = np.array([*(key(label) for label in labels.labels), key("unknown")])[labels.codes]
    return workload.replace(priority=_ranks(keys, workload.priority if rule.spares else None))


def reward_option(workload: Workload, text: str) -> Workload:
    """Return the jobs as ``--priorities-from`` says; an entry point calls it.

    Args:
        text: Value of the option, of the form ``INCENTIVE[=BUDGET]:FILE``.

    Raises:
        ConfigError, UnknownNameError: The text has another form, or does not match the accounts.
    """
    what, colon, file = text.partition(":")
    name, equals, budget = what.partition("=")
    if not colon or not file:
        raise ConfigError(
            f"--priorities-from is {text!r}; give an incentive and a file of accounts, such as "
            "fugaku-points:accounts.json"
        )
    try:
        given = float(budget) if equals else None
    except ValueError as error:
        raise ConfigError(
            f"--priorities-from: budget is {budget!r}; give a number of node-hours"
        ) from error
    return rewarded(workload, read_accounts(file), name, given)


def _ranks(keys: FloatArray, own: FloatArray | None) -> FloatArray:
    """Return priorities, the largest for the smallest key.

    If ``own`` is given, keys above 0 are ordered by it.
    """
    late = np.zeros(len(keys)) if own is None else (keys > 0).astype(np.float64)
    within = keys if own is None else np.where(late > 0, -own, keys)
    _, rank = np.unique(np.column_stack([late, within]), axis=0, return_inverse=True)
    ranks: FloatArray = (rank.max(initial=0) - rank.reshape(-1)).astype(np.float64)
    return ranks
