"""Whether curves tell more than the lines of surf_floor.py: boosted trees on SURF's week, an hour ahead.

Trees get the columns of surf_floor.py and besides power at other times, nodes by level and by age of jobs,
and what share of the jobs that began together has ended. They are fitted to the other days, also to those
that come later, which nobody can who knows only the past; and to the past only. (Fitted to the moments that
they forecast, trees come to any error one likes.)
"""

from __future__ import annotations

import itertools
import sys

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import HistGradientBoostingRegressor

from hpctwin_papers.surf.experiment import AHEAD, DAY, Week, read_week
from surf_floor import known_then

FloatArray = npt.NDArray[np.float64]
EVERY = 10
LAGS = (10, 20, 40, 60, 120, 240, 480, DAY - AHEAD, DAY)
AGES = (0, 10, 40, 120, 240, 480, 960, 1920, 2880, 5760, 10**6)
HOURS = (1, 2, 4, 8, 12, 24, 48, 72, 120)
TOGETHER = 5


def more_columns(week: Week) -> FloatArray:
    """What trees get besides [samples, columns]."""
    size, begun = len(week.power_w), week.start[week.task]
    power, age = week.power_w, week.sample - begun
    ends = np.zeros(len(week.start), np.int64)
    np.maximum.at(ends, week.task, week.sample + 1)
    gone = np.zeros(len(week.task))
    for first in np.unique(week.start):
        own = begun == first
        last = np.sort(ends[week.start == first])
        gone[own] = np.searchsorted(last, week.sample[own], side="right") / len(last)
    many = np.bincount(week.start)[begun] >= TOGETHER

    def nodes(which: npt.NDArray[np.bool_], weights: FloatArray | None = None) -> FloatArray:
        own = None if weights is None else weights[which]
        return np.bincount(week.sample[which], own, size).astype(np.float64)

    def before(samples: int) -> FloatArray:
        return power - np.concatenate([np.full(samples, power[0]), power[:-samples]])

    columns = [power, *(before(lag) for lag in LAGS)]
    columns += [nodes(many), nodes(many, gone), nodes(many & (age < AHEAD))]
    columns += [nodes(many & (gone > share)) for share in (0.3, 0.7)]
    columns += [nodes((age >= low) & (age < high)) for low, high in itertools.pairwise(AGES)]
    columns += [nodes((age < h * AHEAD) & (age >= (h - 1) * AHEAD)) for h in HOURS]
    columns.append(np.arange(size) % DAY / DAY * 24)
    return np.column_stack([*columns, week.levels])


def errors_pct(week: Week, columns: FloatArray) -> dict[str, float]:
    """Errors exactly an hour ahead, of power as it was and of trees by what they are fitted to."""
    at = np.arange(AHEAD, len(week.power_w) - AHEAD, EVERY)
    rows, change = columns[at], np.log(week.power_w[at + AHEAD] / week.power_w[at])
    day, gap = (at + AHEAD) // DAY, AHEAD // EVERY

    def error(found: FloatArray) -> float:
        return float(100 * np.mean(np.abs(np.exp(found - change) - 1)))

    def foretold(
        leaves: int, trees: int, fit: npt.NDArray[np.bool_], own: npt.NDArray[np.bool_]
    ) -> FloatArray:
        model = HistGradientBoostingRegressor(
            loss="absolute_error", max_leaf_nodes=leaves, max_iter=trees, learning_rate=0.04,
            min_samples_leaf=40, l2_regularization=1.0, random_state=0,
        )  # fmt: skip
        return model.fit(rows[fit], change[fit]).predict(rows[own])

    number = np.arange(len(at))
    told = {"as it was": error(np.zeros(len(at)))}
    for leaves, trees in ((4, 60), (8, 150), (31, 400)):
        found = np.zeros(len(at))
        for one in np.unique(day):
            own = day == one
            first, last = number[own][[0, -1]]
            fit = (number < first - gap) | (number > last + gap)
            found[own] = foretold(leaves, trees, fit, own)
        told[f"{trees} trees of {leaves} leaves, other days"] = error(found)
    found = np.zeros(len(at))
    for begin in range(DAY // EVERY, len(at), DAY // EVERY // 4):
        own = (number >= begin) & (number < begin + DAY // EVERY // 4)
        found[own] = foretold(8, 150, number < begin - gap, own)
    told["150 trees of 8 leaves, the past"] = error(found)
    return told


def main() -> None:
    week = read_week(sys.argv[1] if len(sys.argv) > 1 else None)
    known = known_then(week)
    own = np.column_stack([known["own"], more_columns(week)])
    for more in ((), ("ends", "arrivals")):
        columns = np.column_stack([own, *(known[name] for name in more)])
        for what, error in errors_pct(week, columns).items():
            print(f"{' and '.join(more) or 'neither':>18}, {what}: {error:.2f} %", flush=True)


if __name__ == "__main__":
    main()
