"""Walltimes of a study: exact, random factors of the runtimes, or a model of users' estimates.

Sources:
    D. Tsafrir, Y. Etsion, D. G. Feitelson, "Modeling user runtime estimates", JSSPP 2005, LNCS
    3834, and the parameters of the authors' program ``est_model``. A. W. Mu'alem, D. G. Feitelson,
    "Utilization, predictability, workloads, and user runtime estimates in scheduling the IBM SP2
    with backfilling", IEEE TPDS 12 (6), 2001 (estimates that are random factors of runtimes).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, UnknownNameError, WorkloadError
from hpctwin.model import MS_PER_S, Workload
from hpctwin.model.text import format_duration, parse_duration_s
from hpctwin.model.trusted import load_module, named_in

__all__ = ["WALLTIME_MODELS", "check_walltimes", "tsafrir_estimates", "with_walltimes"]

FloatArray = npt.NDArray[np.float64]
Drawing = Callable[[Workload, np.random.Generator], FloatArray]
"""Function that returns the walltime of each job, in milliseconds [jobs]."""


def with_walltimes(workload: Workload, model: str, seed: int | np.random.Generator = 0) -> Workload:
    """Return the same jobs with other walltimes.

    Args:
        workload: The jobs.
        model: One of `WALLTIME_MODELS` with its parameters, such as ``uniform:1:5``; or the user's
            function as ``FILE.py:NAME``. It is called with the workload and a random number
            generator, and returns the walltime of each job in seconds.
        seed: Seed of the model, or a random number generator.

    Raises:
        UnknownNameError: There is no such model or function.
        ConfigError: A parameter is not valid, or the function returns something else.
        PolicyError: The file cannot be loaded.
        WorkloadError: The model cannot give each job a walltime above its runtime.

    Example:
        >>> import hpctwin
        >>> jobs = hpctwin.generate("lublin", jobs=500, nodes=64)
        >>> exact = with_walltimes(jobs, "exact")
        >>> bool((exact.walltime_ms == exact.runtime_ms).all())
        True
    """
    draw = _drawing(model)
    if draw is None or not len(workload):
        return workload
    walltime_ms = np.ceil(draw(workload, np.random.default_rng(seed))).astype(np.int64)
    return workload.replace(walltime_ms=np.maximum(walltime_ms, 1))


def check_walltimes(model: str) -> str:
    """Check a model as for `with_walltimes`, and return its content as text.

    The content of a function's file is included as a hash.
    """
    _drawing(model)
    return f"{model} {_file_hash(model)}" if _is_file(model) else model


class _Model(NamedTuple):
    """A model of walltimes.

    Args:
        parameters: Names of its parameters.
        optional: Number of parameters that may be omitted.
        make: Function that makes the drawing from the parameters.
        help: Description.
    """

    parameters: tuple[str, ...]
    optional: int
    make: Callable[..., Drawing | None]
    help: str


def _times_runtime(jobs: Workload, factor: float | FloatArray) -> FloatArray:
    return np.multiply(jobs.runtime_ms, factor, dtype=np.float64)


def _recorded() -> None:
    return None


def _factor(factor: str) -> Drawing:
    value = _above_zero("factor", factor)
    return lambda jobs, rng: _times_runtime(jobs, value)


def _uniform(low: str, high: str) -> Drawing:
    ends = _above_zero("uniform", low), _above_zero("uniform", high)
    if not ends[0] <= ends[1]:
        raise ConfigError(f"walltimes uniform: low is {low} and high is {high}; low must be less")
    return lambda jobs, rng: _times_runtime(jobs, rng.uniform(*ends, len(jobs)))


def _lognormal(median: str, sigma: str) -> Drawing:
    log, width = math.log(_above_zero("lognormal", median)), _above_zero("lognormal", sigma)

    return lambda jobs, rng: _times_runtime(jobs, rng.lognormal(log, width, len(jobs)))


def _tsafrir(maximum: str = "") -> Drawing:
    given_s = parse_duration_s(maximum) if maximum else None
    if given_s is not None and given_s < _HOUR:
        raise ConfigError(f"walltimes tsafrir: the maximum is {maximum}; it must be 1 hour or more")

    def draw(jobs: Workload, rng: np.random.Generator) -> FloatArray:
        longest_ms = max(jobs.walltime_ms.max(initial=0), jobs.runtime_ms.max(initial=0))
        maximum_s = max(_HOUR, longest_ms / MS_PER_S) if given_s is None else given_s
        return _assigned(jobs, tsafrir_estimates(len(jobs), maximum_s, rng), rng) * MS_PER_S

    return draw


WALLTIME_MODELS: Mapping[str, _Model] = {
    "recorded": _Model((), 0, _recorded, "Walltimes of the workload."),
    "exact": _Model((), 0, lambda: _factor("1"), "Walltimes equal to the runtimes."),
    "factor": _Model(("F",), 0, _factor, "Runtimes times F."),
    "uniform": _Model(("LOW", "HIGH"), 0, _uniform, "Runtimes times a factor between two bounds."),
    "lognormal": _Model(
        ("MEDIAN", "SIGMA"), 0, _lognormal, "Runtimes times a lognormal factor; SIGMA of its log."
    ),
    "tsafrir": _Model(
        ("MAX",), 1, _tsafrir,
        "Estimates of users (Tsafrir, Etsion, Feitelson 2005); MAX is the longest walltime.",
    ),
}  # fmt: skip
"""Models of walltimes by name."""


def _above_zero(model: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ConfigError(f"walltimes {model}: {text!r} is not a number above 0")
    return value


def _is_file(model: str) -> bool:
    return model.partition(":")[0].endswith(".py")


def _file_hash(model: str) -> str:
    file = Path(model.partition(":")[0])
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def _drawing(model: str) -> Drawing | None:
    if _is_file(model):
        return _drawing_of_file(model, _file_hash(model))
    name, *parameters = model.split(":")
    if name not in WALLTIME_MODELS:
        raise UnknownNameError("model of walltimes", name, WALLTIME_MODELS)
    names, optional, make, _ = WALLTIME_MODELS[name]
    if not len(names) - optional <= len(parameters) <= len(names):
        form = ":".join([name, *names])
        raise ConfigError(f"walltimes {model!r}: the form is {form}")
    return make(*parameters)


@lru_cache(maxsize=16)
def _drawing_of_file(model: str, content: str) -> Drawing:
    """Return the function of a user; it is loaded again if the content of its file changes."""
    file, _, name = model.partition(":")
    if not name:
        raise ConfigError(f"walltimes {model!r}: name the function, as in {file}:NAME")
    function = named_in(load_module(file), name, file)

    def draw(jobs: Workload, rng: np.random.Generator) -> FloatArray:
        found: Any = np.asarray(function(jobs, rng))
        if found.shape != (len(jobs),) or found.dtype.kind not in "iuf":
            raise ConfigError(
                f"{model} returns {found.dtype} of shape {found.shape}; it must return a number of "
                f"seconds for each of the {len(jobs):,} jobs"
            )
        if not (np.isfinite(found) & (found > 0)).all():
            raise ConfigError(f"{model} returns {found.min():g}; walltimes must be above 0")
        milliseconds: FloatArray = np.round(found * MS_PER_S, 3)
        return milliseconds

    return draw


_MINUTE, _HOUR = 60, 3600
_HEAD = 20
"""Number of popular estimates, which most jobs have."""
_COMMON = tuple(
    minutes * _MINUTE
    for minutes in (5, 10, 15, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 720, 1080)
)
"""Popular estimates of all four machines of the source, in seconds."""
_ROUND = tuple(
    minutes * _MINUTE for minutes in (12000, 6000, 3000, 600, 300, 120, 60, 20, 10, 5, 1)
)
"""Their multiples are the other popular estimates. The source ends with 5 minutes."""
_JOBS, _ESTIMATES = (0, 20, 200, 1000, 10_000, 70_000, 250_000), (0, 10, 20, 35, 90, 340, 565)
"""Numbers of distinct estimates for numbers of jobs, linear between these points."""
_HEAD_SHARE = 0.89
_RANKS = (
    (3, 1, 1, 1), (1, 3, 4, 6), (4, 4, 10, 5), (17, 2, 14, 3), (13, 12, 20, 7),
    (7, 9, 2, 2), (8, 8, 3, 18), (18, 18, 7, 19), (2, 6, 12, 4), (6, 7, 6, 11),
    (16, 11, 19, 20), (10, 20, 5, 9), (5, 16, 18, 10), (15, 5, 16, 14), (14, 14, 9, 13),
    (19, 13, 17, 16), (11, 10, 15, 15), (12, 15, 13, 17), (9, 17, 8, 8), (20, 19, 11, 12),
)  # fmt: skip
"""Popularity ranks on the four machines: of the maximum, then of the others by length."""


def tsafrir_estimates(jobs: int, maximum_s: float, rng: np.random.Generator) -> FloatArray:
    """Draw the estimates of a number of jobs, the longest first (Tsafrir et al. 2005).

    Twenty popular estimates, among them the maximum, have 89 % of the jobs. The other estimates
    have few jobs each. With fewer than 200 jobs, all estimates are popular ones.

    Args:
        jobs: Number of jobs.
        maximum_s: Longest estimate, at least 1 hour, in seconds.
        rng: Random number generator.

    Returns:
        Seconds [jobs].
    """
    popular_s = _popular_estimates(maximum_s)
    ranks = np.arange(2, _HEAD + 1)
    by_rank = (14.0491 * np.exp(-0.177531 * ranks) + 0.462513) / 100
    by_rank = np.concatenate([[_HEAD_SHARE - by_rank.sum()], by_rank])
    times, shares = popular_s, by_rank[_popularity(rng)]
    distinct = round(float(np.interp(jobs, _JOBS, _ESTIMATES)))
    if distinct > _HEAD:
        other_s = _other_estimates(distinct, maximum_s, popular_s)
        by_rank = 795.6 * np.arange(_HEAD + 1, _HEAD + 1 + len(other_s)) ** -2.267
        other_shares = rng.permutation(by_rank * (1 - _HEAD_SHARE) / by_rank.sum())
        times, shares = np.append(times, other_s), np.append(shares, other_shares)
    reached = np.rint(np.cumsum(shares / shares.sum()) * jobs).astype(np.int64)
    estimates = np.repeat(times, np.diff(reached, prepend=0))
    return np.sort(estimates)[::-1]


def _popular_estimates(maximum_s: float) -> FloatArray:
    """Return the maximum, then the other popular estimates, the shortest first."""
    found = [time for time in _COMMON if time < maximum_s]
    for step in _ROUND:
        for time in range(int(maximum_s // step) * step, 0, -step):
            if len(found) < _HEAD - 1 and time < maximum_s and time not in found:
                found.append(time)
    return np.array([maximum_s, *sorted(found)], np.float64)


def _popularity(rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw the popularity of each popular estimate, from 0 [popular estimates].

    A rank comes no later than on the last of the four machines.
    """
    last = {rank: row for row, several in enumerate(_RANKS) for rank in several}
    chosen: list[int] = []
    pool: list[int] = []
    for row, several in enumerate(_RANKS):
        pool = [rank for rank in [*pool, *several] if rank not in chosen]
        due = [rank for rank in range(1, _HEAD + 1) if last[rank] <= row and rank not in chosen]
        if row == 0:
            chosen.append(1)
        else:
            chosen.append(due[0] if due else int(rng.choice(pool, 2).min()))
    return np.array(chosen) - 1


def _other_estimates(distinct: int, maximum_s: float, popular_s: FloatArray) -> FloatArray:
    """Return the estimates that few jobs have, in whole minutes if these are free."""
    curve = 1 + 12.1039 * distinct**-0.6026
    taken = set(popular_s.tolist())
    found: list[float] = []
    for place in np.arange(1, distinct - _HEAD + 1) / (distinct - _HEAD):
        minute_s = round((curve - 1) * place / (curve - place) * maximum_s / _MINUTE) * _MINUTE
        near = (minute_s + offset for offset in (0, 30, -30, 20, -20, 10, -10))
        free = [time for time in near if 0 < time < maximum_s and time not in taken]
        found += free[:1]
        taken.update(free[:1])
    return np.array(found, np.float64)


def _assigned(jobs: Workload, estimates: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Give each job a random one of the estimates, in seconds, that are not below its runtime.

    Jobs choose in the order of their runtimes, the longest first. If too few estimates are that
    long, the maximum replaces the shortest ones, as the source advises.
    """
    order = np.argsort(-jobs.runtime_ms, kind="stable")
    runtime_s = jobs.runtime_ms[order] / MS_PER_S
    too_long = int((runtime_s > estimates[0]).sum())
    if too_long:
        raise WorkloadError(
            f"walltimes tsafrir: {too_long:,} jobs run longer than the maximum of "
            f"{format_duration(estimates[0])}; give one of "
            f"{format_duration(runtime_s[0])} or more"
        )
    enough = np.searchsorted(-estimates, -runtime_s, side="right")
    lacking = max(0, int((np.arange(1, len(order) + 1) - enough).max(initial=0)))
    estimates = np.append(np.full(lacking, estimates[0]), estimates[: len(order) - lacking])
    # The estimates up to this place are not below the runtime.
    last = np.searchsorted(-estimates, -runtime_s, side="right") - 1
    places = np.arange(len(order))
    drawn = places + (rng.random(len(order)) * (last - places + 1)).astype(np.int64)
    left = estimates.tolist()
    for place, at in enumerate(drawn.tolist()):
        left[place], left[at] = left[at], left[place]
    found = np.empty(len(order))
    found[order] = left
    return found
