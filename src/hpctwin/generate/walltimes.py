"""Walltimes of a study: exact, random factors of the runtimes, or a model of users' estimates.

Sources:
    A. W. Mu'alem, D. G. Feitelson, "Utilization, predictability, workloads, and user runtime
    estimates in scheduling the IBM SP2 with backfilling", IEEE TPDS 12 (6), 2001 (estimates that
    are random factors of runtimes); `hpctwin.generate.user_estimates` for the model of estimates.
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

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.generate.user_estimates import (
    SHORTEST_MAXIMUM_S,
    assign_estimates,
    user_estimates,
)
from hpctwin.model import MS_PER_S, Workload
from hpctwin.model.text import parse_duration_s
from hpctwin.model.trusted import load_module, named_in

__all__ = ["WALLTIME_MODELS", "check_walltimes", "with_walltimes"]

FloatArray = npt.NDArray[np.float64]
_LONGEST_MS = 1e15
"""Longest duration that hpctwin reads, too."""
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
    walltime_ms = np.ceil(draw(workload, np.random.default_rng(seed)))
    if walltime_ms.max() > _LONGEST_MS:
        raise ConfigError(f"walltimes {model}: a walltime is longer than {_LONGEST_MS:g} ms")
    return workload.replace(walltime_ms=np.maximum(walltime_ms.astype(np.int64), 1))


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
    if given_s is not None and given_s < SHORTEST_MAXIMUM_S:
        raise ConfigError(f"walltimes tsafrir: the maximum is {maximum}; it must be 1 hour or more")

    def draw(jobs: Workload, rng: np.random.Generator) -> FloatArray:
        longest_ms = max(jobs.walltime_ms.max(initial=0), jobs.runtime_ms.max(initial=0))
        maximum_s = max(SHORTEST_MAXIMUM_S, longest_ms / MS_PER_S) if given_s is None else given_s
        estimates = user_estimates(len(jobs), maximum_s, rng)
        return assign_estimates(jobs.runtime_ms / MS_PER_S, estimates, rng) * MS_PER_S

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
