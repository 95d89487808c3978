"""Run times as a trained predictor foretells them: quantiles at each job's arrival, and how they came true.

What is drawn of a job lies at some place of its foretold distribution, 0 to 1; places are drawn from those at
which earlier jobs of like size came to lie. Were the quantiles right these would be uniform; where they are
not, what is drawn makes up for it.

Source:
    Vovk et al. 2020, *Conformal calibrators*; Kuleshov, Fenner, Ermon 2018, *Accurate Uncertainties for Deep
    Learning Using Calibrated Regression*, §3.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections import deque
from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError
from hpctwin.rms.records.records import JobRecord, JobSpec
from hpctwin.twin.forecast.submissions import FEATURES, Submissions
from hpctwin.twin.forecast.trees import QuantileTrees

__all__ = ["LearnedRuntimes", "Quantiles", "read_quantiles"]

FloatArray = npt.NDArray[np.float64]

_ABOUT, _TREES, _HISTORY = "quantiles.json", "quantiles.npz", "history.json"
PLACES, ENOUGH = 500, 20
"""So many places are remembered of each class of sizes; with fewer than that, those of all sizes count."""
_ALL = -1


@dataclass(frozen=True, eq=False)
class Quantiles:
    """What a predictor's file tells a twin.

    Args:
        trees: foretell quantiles of run times' logarithms by `FEATURES`.
        history: of the jobs that it was trained on, of `Submissions.state`.
        trained_on: name of the workload.
        until_s: when the last job ended that it knows of, by the workload's clock.
        digest: tells it from others.
    """

    trees: QuantileTrees
    history: dict[str, Any]
    trained_on: str
    until_s: float
    digest: str = ""

    def write(self, archive: zipfile.ZipFile) -> None:
        """Put it into a predictor's file."""
        about = {
            "features": list(FEATURES), "trained_on": self.trained_on, "until_s": self.until_s,
        }  # fmt: skip
        packed = io.BytesIO()
        np.savez(packed, **{name: getattr(self.trees, name) for name in QuantileTrees.names()})
        archive.writestr(_ABOUT, json.dumps(about, indent=1))
        archive.writestr(_TREES, packed.getvalue())
        archive.writestr(_HISTORY, json.dumps(self.history), zipfile.ZIP_DEFLATED)


def read_quantiles(path: Path) -> Quantiles:
    """Read them from what ``hpctwin predictor train`` wrote; neither scikit-learn nor skops is needed.

    Raises:
        ConfigError: there is no such file, it holds something else, or none of a twin's features.
    """
    try:
        about = path.stat()
    except OSError as error:
        raise ConfigError(
            f"{path}: there is no such file; hpctwin predictor train TRACE {path} makes it"
        ) from error
    return _read(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=4)
def _read(path: Path, _changed_ns: int, _size: int) -> Quantiles:
    try:
        with zipfile.ZipFile(path) as archive:
            if "about.json" in archive.namelist() and _ABOUT not in archive.namelist():
                raise ConfigError(
                    f"{path} holds no quantiles of run times; train it again, by this version, on a "
                    "trace that tells them: hpctwin predictor train TRACE"
                )
            about = json.loads(archive.read(_ABOUT))
            packed, history = archive.read(_TREES), json.loads(archive.read(_HISTORY))
        if about["features"] != list(FEATURES):
            raise ConfigError(
                f"{path} was trained by jobs' {_differing(about['features'])}, which this version's "
                "twin knows otherwise; train it again: hpctwin predictor train TRACE"
            )
        trees = _trees(io.BytesIO(packed))
        Submissions().restore(history)
        return Quantiles(
            trees, history, str(about["trained_on"]), float(about["until_s"]),
            hashlib.sha256(packed).hexdigest()[:16],
        )  # fmt: skip
    except ConfigError:
        raise
    except (OSError, ValueError, LookupError, TypeError, zipfile.BadZipFile) as error:
        raise ConfigError(
            f"{path} is no predictor, or not whole: hpctwin predictor train writes them"
        ) from error


def _trees(packed: IO[bytes]) -> QuantileTrees:
    with np.load(packed, allow_pickle=False) as arrays:
        trees = QuantileTrees(**{name: arrays[name] for name in QuantileTrees.names()})
    # Whatever is in the file is looked at once, so that walking it goes wrong for no job.
    size = len(trees.value)
    for nodes in (trees.roots, trees.left, trees.right):
        if nodes.min() < 0 or nodes.max() >= size:
            raise ValueError("a node that is not there")
    beyond = np.arange(size)
    if not (
        ((trees.left == beyond) & (trees.right == beyond))
        | (np.minimum(trees.left, trees.right) > beyond)
    ).all():
        raise ValueError("nodes that come round again")
    if trees.feature.min() < 0 or trees.feature.max() >= len(FEATURES):
        raise ValueError("a feature that is not there")
    if len(trees.roots) != len(trees.levels) or (np.diff([0, *trees.levels, 1]) <= 0).any():
        raise ValueError("levels that do not rise from 0 to 1")
    return trees


def _differing(features: Sequence[str]) -> str:
    other = sorted(set(features) ^ set(FEATURES))
    return ", ".join(other[:3]) if other else "features in another order"


class LearnedRuntimes:
    """Of each job that is there the quantiles foretold at its arrival, and places of those that ended.

    Args:
        quantiles: what foretells them.
    """

    def __init__(self, quantiles: Quantiles) -> None:
        self._quantiles = quantiles
        self._levels = np.concatenate([[0.0], quantiles.trees.levels, [1.0]])
        self._known = Submissions()
        self._known.restore(quantiles.history)
        self._arrived: dict[str, tuple[list[float], float]] = {}
        self._foretold: dict[str, FloatArray] = {}
        self._places: dict[int, deque[float]] = {}

    def __contains__(self, job_id: object) -> bool:
        """Whether a job has arrived."""
        return job_id in self._foretold or job_id in self._arrived

    def saw_submission(self, spec: JobSpec) -> None:
        """A job was submitted: what is known of it now foretells it."""
        if spec.id not in self:
            self._arrived[spec.id] = self._known.submitted(spec), max(spec.walltime_s, 1.0)

    def saw_end(self, spec: JobSpec, runtime_s: float, end_s: float) -> None:
        """A job has run to its own end, or to its walltime."""
        if spec.id in self:
            self._foretell()
            table = self._foretold.pop(spec.id)[None]
            place = float(self._place(table, np.array([max(runtime_s, 1.0)]))[0])
            for group in (_size(spec), _ALL):
                self._places.setdefault(group, deque(maxlen=PLACES)).append(place)
        self._known.ended(spec.user, spec.nodes, spec.walltime_s, runtime_s, end_s)

    def keep(self, jobs: Container[str]) -> None:
        """Forget all jobs but these."""
        self._arrived = {i: one for i, one in self._arrived.items() if i in jobs}
        self._foretold = {i: one for i, one in self._foretold.items() if i in jobs}

    def runtimes(
        self, jobs: Sequence[JobRecord], so_far: FloatArray, draw: FloatArray
    ) -> FloatArray:
        """Run times at places that are drawn, beyond what has run already, seconds [samples, jobs].

        Args:
            jobs: some that have arrived.
            so_far: how long each has run [jobs].
            draw: from 0 to below 1 [samples, jobs].
        """
        self._foretell()
        table = np.array([self._foretold[job.spec.id] for job in jobs])
        reached = np.where(so_far > 1.0, self._place(table, np.maximum(so_far, 1.0)), 0.0)
        size = np.array([_size(job.spec) for job in jobs])
        place = np.empty(draw.shape)
        for one in np.unique(size).tolist():
            here = size == one
            place[:, here] = self._drawn(one, reached[here], draw[:, here])
        return self._runtime_s(table, place)

    def state(self) -> dict[str, Any]:
        """All that was learnt, as plain values."""
        return {
            "digest": self._quantiles.digest,
            "known": self._known.state(),
            "arrived": {i: list(one) for i, one in self._arrived.items()},
            "foretold": {i: one.tolist() for i, one in self._foretold.items()},
            "places": [[size, list(places)] for size, places in sorted(self._places.items())],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave; with another predictor places are learnt anew."""
        self._known.restore(state["known"])
        if state["digest"] != self._quantiles.digest:
            return
        self._arrived = {i: (features, limit) for i, (features, limit) in state["arrived"].items()}
        self._foretold = {i: np.array(one) for i, one in state["foretold"].items()}
        self._places = {size: deque(places, maxlen=PLACES) for size, places in state["places"]}

    def _foretell(self) -> None:
        """The quantiles of all that have arrived since, at once."""
        if not self._arrived:
            return
        features = np.array([features for features, _ in self._arrived.values()])
        limit = np.log2([limit for _, limit in self._arrived.values()])
        inner = np.clip(self._quantiles.trees.predict(features), 0.0, limit[:, None])
        table = np.column_stack([np.zeros(len(limit)), inner, limit])
        self._foretold.update(zip(self._arrived, table, strict=True))
        self._arrived = {}

    def _drawn(self, size: int, reached: FloatArray, draw: FloatArray) -> FloatArray:
        """Places beyond those that were reached, as often as jobs of that size came to lie there."""
        places = self._places.get(size, ())
        if len(places) < ENOUGH:
            places = self._places.get(_ALL, ())
        if len(places) < ENOUGH:
            return reached + draw * (1.0 - reached)
        seen = np.sort(np.array([*places, 1.0]))
        first = np.minimum(np.searchsorted(seen, reached, "right"), len(seen) - 1)
        drawn: FloatArray = seen[(first + draw * (len(seen) - first)).astype(np.int64)]
        return drawn

    def _place(self, table: FloatArray, runtime_s: FloatArray) -> FloatArray:
        """At which place of its distribution a run time lies; 1 at the walltime [jobs]."""
        value = np.log2(runtime_s)
        left = np.clip((table <= value[:, None]).sum(axis=1) - 1, 0, table.shape[1] - 2)
        rows = np.arange(len(table))
        low, high = table[rows, left], table[rows, left + 1]
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(high > low, np.clip((value - low) / (high - low), 0.0, 1.0), 1.0)
        levels = self._levels
        place = levels[left] + share * (levels[left + 1] - levels[left])
        return np.where(value >= table[:, -1], 1.0, place)

    def _runtime_s(self, table: FloatArray, place: FloatArray) -> FloatArray:
        """The run time at each place, seconds [samples, jobs]."""
        levels = self._levels
        left = np.clip(np.searchsorted(levels, place, "right") - 1, 0, len(levels) - 2)
        share = (place - levels[left]) / (levels[left + 1] - levels[left])
        jobs = np.arange(len(table))[None]
        low, high = table[jobs, left], table[jobs, left + 1]
        runtime_s: FloatArray = np.exp2(low + share * (high - low))
        return runtime_s


def _size(spec: JobSpec) -> int:
    return (spec.nodes - 1).bit_length()
