"""How well power of SURF's week can be forecast an hour ahead, by what one knows: the floor, with hindsight.

Lines from what is known an hour before to the power are fitted to the very week that they forecast, by least
absolute percentage errors: whoever knows only the past cannot choose a better one. Knowledge: of what was
measured, ran and was submitted up to then; besides of what of it will end within the hour, or of what will
come within it and still run, or of both. Beside them an honest forecast, fitted to the past only, that is
told when each job will begin and end, as a replay is, but not how much it will use.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt

from hpctwin.energy.power import calibration
from hpctwin_papers.surf.experiment import (
    AHEAD,
    DAY,
    EVERY,
    FIRST,
    RESIDUAL,
    WINDOW,
    Week,
    read_week,
)

FloatArray = npt.NDArray[np.float64]
ROUNDS = 30


def known_then(week: Week) -> dict[str, FloatArray]:
    """Columns by what they tell, at the time that forecasts are made [samples]."""
    size, begun = len(week.power_w), week.start[week.task]
    age, power = week.sample - begun, week.power_w
    ends = np.zeros(len(week.start), np.int64)
    np.maximum.at(ends, week.task, week.sample + 1)

    def nodes(which: npt.NDArray[np.bool_], used: bool = False) -> FloatArray:
        weights = week.used[which] if used else None
        return np.bincount(week.sample[which], weights, size).astype(np.float64)

    def later(column: FloatArray) -> FloatArray:
        return np.append(column[AHEAD:], np.zeros(AHEAD))

    def mean(column: FloatArray, samples: int) -> FloatArray:
        total = np.append(0.0, np.cumsum(column))
        at = np.arange(1, size + 1)
        low = np.maximum(at - samples, 0)
        return (total[at] - total[low]) / (at - low)

    day = 2 * np.pi * (np.arange(size) % DAY) / DAY
    every, young, stays = age >= 0, age < AHEAD, ends[week.task] > week.sample + AHEAD
    submitted = np.bincount(week.start, minlength=size)[:size].astype(np.float64)
    columns = {
        "own": [
            *(power - mean(power, n) for n in (20, 60, 720, DAY)),
            power - np.roll(power, AHEAD),
            *(nodes(age < n) for n in (20, AHEAD, 2 * AHEAD)),
            nodes(age > 6 * AHEAD), nodes(every), nodes(every, True), mean(submitted, AHEAD),
            *(100 * f(n * day) for n in (1, 2) for f in (np.cos, np.sin)),
        ],
        "ends": [nodes(every) - nodes(stays), nodes(every, True) - nodes(stays, True)],
        "arrivals": [later(nodes(young)), later(nodes(young, True))],
    }  # fmt: skip
    return {name: np.column_stack(found) for name, found in columns.items()}


def hindsight_pct(week: Week, columns: FloatArray) -> float:
    """The least mean absolute percentage error of a line to the power an hour later, minus that of then."""
    at = np.arange(AHEAD, len(week.power_w) - AHEAD, 3)
    rows = np.column_stack([np.ones(len(at)), columns[at]])
    rows[:, 1:] /= rows[:, 1:].std(axis=0) + 1e-9
    change = week.power_w[at + AHEAD] - week.power_w[at]
    each = 1 / week.power_w[at + AHEAD]
    weight, line = each, np.zeros(rows.shape[1])
    for _ in range(ROUNDS):  # of iteratively reweighted least squares
        weighted = rows.T * weight
        line = np.linalg.lstsq(weighted @ rows, weighted @ change, rcond=None)[0]
        weight = each / np.maximum(np.abs(change - rows @ line) * each, 5e-4)
    return float(100 * np.mean(np.abs(change - rows @ line) * each))


def told_when_pct(week: Week) -> float:
    """The error of a line through levels of use that knows who will run, from the past only.

    Who ran an hour before is taken to use as much as then; who began since, as such jobs did in the past.
    """
    size, levels = week.levels.shape
    order = np.lexsort((week.sample, week.task))
    task, sample, level = week.task[order], week.sample[order], week.level[order]
    then = np.arange(len(task)) - AHEAD
    ran = then >= np.searchsorted(task, task)
    use, young = np.zeros((size, levels)), np.zeros((size, levels))
    np.add.at(use, (sample[ran], level[then[ran]]), 1.0)
    np.add.at(young, (sample[~ran], level[~ran]), 1.0)
    total = np.vstack([np.zeros(levels), np.cumsum(young, axis=0)])
    known = np.maximum(np.arange(size) - AHEAD + 1, 0)
    past = total[known] - total[np.maximum(known - WINDOW, 0)] + 1e-3
    use += young.sum(axis=1, keepdims=True) * past / past.sum(axis=1, keepdims=True)
    fit = calibration.fit_line(week.levels, week.power_w, window=WINDOW, every=EVERY)
    found = fit.forecast(AHEAD, use) + fit.residual(AHEAD, RESIDUAL)
    return calibration.mape_pct(found, week.power_w, FIRST)


def main() -> None:
    week = read_week(sys.argv[1] if len(sys.argv) > 1 else None)
    known = known_then(week)
    for more in ((), ("ends",), ("arrivals",), ("ends", "arrivals")):
        columns = np.column_stack([known["own"], *(known[name] for name in more)])
        print(f"{' and '.join(more) or 'neither':>18}: {hindsight_pct(week, columns):.2f} %")
    print(f"past only, told who will run: {told_when_pct(week):.2f} %")


if __name__ == "__main__":
    main()
