"""Power policy that follows the price of energy or its carbon intensity."""

from __future__ import annotations

import numpy as np

from hpctwin.energy.power.control import Control, Orders, PowerView
from hpctwin.energy.prices.series import Series
from hpctwin.errors import ConfigError

__all__ = ["price_control"]


def price_control(
    series: Series, *, timeout_s: float, dear_timeout_s: float = 0.0, dear: float = 0.5
) -> Control:
    """Return a power policy that switches idle nodes off, sooner at high prices.

    Nodes that no job waits for are switched off, sooner while energy is expensive. Sleeping nodes
    are woken, as many as the pending jobs ask for.

    Args:
        series: Price or carbon intensity, with the simulation's time zero (`Series.aligned`).
        timeout_s: Idle time before switch-off at normal prices, in seconds.
        dear_timeout_s: Idle time before switch-off while energy is expensive, in seconds.
        dear: Fraction of the time during which energy counts as expensive, 0 to 1.

    Raises:
        ConfigError: A number is out of range.
    """
    for name, seconds in (("timeout_s", timeout_s), ("dear_timeout_s", dear_timeout_s)):
        if not seconds >= 0:
            raise ConfigError(f"price_control: {name} is {seconds!r}, it must be 0 or more")
    if not 0 <= dear <= 1:
        raise ConfigError(f"price_control: dear is {dear!r}, it must be between 0 and 1")
    limit = _exceeded_for(series, dear)

    def control(view: PowerView) -> Orders:
        idle = view.nodes("idle")
        wanted = sum(nodes for nodes, _, _ in view.waiting)
        if wanted:
            missing = wanted - len(idle) - len(view.nodes("switching_on"))
            return Orders(on=view.nodes("sleeping")[: max(0, missing)])
        is_dear = float(series.at(view.now_s)) > limit
        left_s = (dear_timeout_s if is_dear else timeout_s) - view.since_s[idle]
        due = left_s <= 0
        if due.all():
            return Orders(off=idle)
        change_s = _next_change(series, view.now_s)
        return Orders(off=idle[due], again_s=min(view.now_s + left_s[~due].min(), change_s))

    return control


def _exceeded_for(series: Series, share: float) -> float:
    """Return the value that the series exceeds for at most a fraction of its time."""
    lengths = np.diff(np.append(series.times_s, series.period_s))
    order = np.argsort(series.values)[::-1]
    above = np.cumsum(lengths[order]) > share * series.period_s * (1 + 1e-12)
    return float(series.values[order][np.argmax(above)]) if above.any() else -np.inf


def _next_change(series: Series, now_s: float) -> float:
    rounds, rest = divmod(now_s, series.period_s)
    later = series.times_s[series.times_s > rest]
    return float(rounds * series.period_s + (later[0] if len(later) else series.period_s))
