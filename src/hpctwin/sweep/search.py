"""Search for policies: parameters are chosen by results, and tested on other jobs."""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
import polars as pl
from pydantic import BeforeValidator, Field, model_validator

from hpctwin.errors import ConfigError, HpctwinError, UnknownNameError, need
from hpctwin.model import Cluster, Workload, write_atomically
from hpctwin.model.settings import read_yaml
from hpctwin.policies import parse_policy
from hpctwin.simulation import simulate
from hpctwin.sweep.bench import workload_of
from hpctwin.sweep.outcome import SweepResult
from hpctwin.sweep.points import plan_of
from hpctwin.sweep.running import sweep
from hpctwin.sweep.settings import (
    Scalars,
    Span,
    SweepSettings,
    Values,
    Worlds,
    beside,
    fill,
    names_in,
)

if TYPE_CHECKING:
    import optuna

__all__ = ["Found", "SearchSettings", "Sought", "look_for", "read_search", "search"]

_HIGH = ("utilization", "throughput", "jain_fairness", "jobs_completed")
_FEWEST = 5
"""Minimum number of other trials to judge a trial hopeless."""


def _objectives(given: Any) -> Any:
    if isinstance(given, str):
        given = [given]
    if isinstance(given, list | tuple) and all(isinstance(name, str) for name in given):
        return {name: "high" if name.startswith(_HIGH) else "low" for name in given}
    return given


class Sought(Worlds):
    """Settings of a search for policies, without the held-out parts.

    Args:
        policies: Texts with placeholders, such as ``-(wait/walltime)**{a}*nodes**{b}+easy:{k}``; if
            there are several, the search chooses among them.
        parameters: Values by name, or bounds.
        objectives: Metrics, and whether each should be low or high. With several, a policy wins if
            no other one is better in all of them.
        train: Parts in time on which policies are chosen; several are replicates.
        seeds: Number of seeds from 0, or a list of seeds, as in a sweep.
        baseline: Policy that the winners are compared with.
        trials: Number of policies to try.
        prefixes: Shares of the jobs of each part on which a policy is tried first. A policy that
            more than half of the others were better than is not tried further.
        sample_seed: Seed of the choices.
    """

    policies: tuple[str, ...] = Field(min_length=1)
    parameters: Mapping[str, Scalars | Values] = Field(min_length=1)
    objectives: Annotated[
        Mapping[str, Literal["low", "high"]], BeforeValidator(_objectives), Field(min_length=1)
    ]
    train: tuple[Span, ...] = Field(min_length=1)
    seeds: int = Field(default=1, ge=1)
    baseline: str = "fcfs+easy"
    trials: int = Field(default=100, ge=1)
    prefixes: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = (0.1, 0.3)
    sample_seed: int = 0

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if list(self.prefixes) != sorted(set(self.prefixes)):
            raise ValueError("prefixes must increase, such as [0.1, 0.3]")
        # Each placeholder needs a parameter, each parameter a placeholder, and each text must be a
        # policy: a sweep of them checks this.
        try:
            self.as_sweep(
                self.policies, self.train, parameters=self.parameters, samples=self._samples()
            )
        except ConfigError as error:
            raise ValueError(str(error).removeprefix("SweepSettings: ")) from error
        least = {
            name: one.low if isinstance(one, Values) else one[0]
            for name, one in self.parameters.items()
        }
        for text in self.policies:
            parse_policy(str(fill(text, self._typed(least))))
        return self

    def _samples(self) -> int | None:
        return 1 if any(isinstance(one, Values) for one in self.parameters.values()) else None

    def _typed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        whole = {n for n, one in self.parameters.items() if isinstance(one, Values) and one.whole}
        return {name: int(value) if name in whole else value for name, value in values.items()}

    def as_sweep(
        self, policies: Sequence[str], parts: Sequence[Span], **more: Any
    ) -> SweepSettings:
        """Return a sweep of given policies over given parts."""
        return SweepSettings(
            workloads=self.workloads, clusters=self.clusters, policies=tuple(policies), windows=tuple(parts),
            seeds=self.seeds, run=self.run, metrics=tuple(self.objectives), **more,
        )  # fmt: skip


class SearchSettings(Sought):
    """Settings of a search for policies, and of the test of the winners.

    Args:
        held_out: Parts in time on which the winners are tested.
    """

    held_out: tuple[Span, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _apart(self) -> Self:
        parts = set(self.train) & set(self.held_out)
        if parts:
            raise ValueError(
                f"{parts.pop().label} is in both train and held_out; remove it from one"
            )
        return self


def read_search(path: str | os.PathLike[str]) -> SearchSettings:
    """Read ``search.yaml``; its paths are relative to its folder.

    Raises:
        ConfigError: The file cannot be read or is not valid; one line per error.
    """
    settings = SearchSettings.checked(read_yaml(Path(path), "workloads"), str(path))
    return beside(settings, Path(path).parent)


@dataclass(frozen=True, eq=False)
class Found:
    """Result of a search.

    Args:
        trials: A row for each trial: ``policy``, ``state`` (complete, pruned or failed), ``prefix``
            (share of the jobs it was tried on), and the objectives there.
        winners: Policies without a better one in all objectives; with one objective, the best.
        held_out: Winners and baseline on the held-out parts.
    """

    trials: pl.DataFrame
    winners: tuple[str, ...]
    held_out: SweepResult

    def write(self, folder: Path) -> list[Path]:
        """Write each winner as a policy file with its held-out metrics; return the paths.

        Raises:
            OutputError: A file cannot be written.
        """
        told = self.held_out.compare()
        several = len(self.winners) > 1
        paths = []
        for number, policy in enumerate(self.winners, 1):
            path = folder / (f"policy-{number}.yaml" if several else "policy.yaml")
            lines = [f"policy: {_quoted(policy)}"]
            for row in told.filter(pl.col("policy") == policy).iter_rows(named=True):
                before = (
                    "" if row["difference"] is None else f"{row['mean'] - row['difference']:.6g}"
                )
                lines.append(
                    f"# held out, {row['runs']} runs: {row['metric']} {row['mean']:.6g}"
                    + (f", {row['against']} {before}" if before else "")
                )
            with write_atomically(path) as file:
                file.write(("\n".join(lines) + "\n").encode())
            paths.append(path)
        return paths


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def search(
    settings: SearchSettings | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    given: Mapping[str, Workload | Cluster] | None = None,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Found:
    """Search for policies like `look_for`, and test the winners on the held-out parts.

    Args:
        settings: Settings of the search, or the path of a file with them.
        out: Folder of the search.
        given: Workloads and clusters that the settings name and that are not in files.
        workers: Number of trials at once, in threads; with 1, the same settings have the same
            result.
        progress: Function called with the number of finished trials, and of all.

    Raises:
        ConfigError, UnknownNameError: As `look_for`; or no simulation of a held-out part finished.
        WorkloadError: A part has no jobs.
    """
    if not isinstance(settings, SearchSettings):
        settings = read_search(settings)
    need("optuna", "search", "a search of policies")
    trying = _Trying(settings, given)
    # An error of a held-out part is reported before the search.
    _worlds(settings, settings.held_out, given)
    trials, winners = _found(trying, Path(out), workers, progress)
    policies = list(dict.fromkeys([settings.baseline, *winners]))
    held_out = sweep(settings.as_sweep(policies, settings.held_out), given=given, workers=workers)
    if len(held_out.failed) == len(held_out.table):
        said = held_out.failed["error"][0]
        raise ConfigError(f"no run on the held-out parts finished: {said}")
    return Found(trials, winners, held_out)


def look_for(
    settings: Sought,
    *,
    out: str | os.PathLike[str],
    given: Mapping[str, Workload | Cluster] | None = None,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Search for policies with Optuna (tree-structured Parzen estimators).

    Optuna chooses values for the placeholders. All trials are in the folder's ``study.journal``.
    The same call continues the search. Callers with the same folder at the same time share the
    work, also on other hosts that see the folder.

    Returns:
        The trials and the winners; see `Found`.

    Raises:
        ConfigError: Optuna is not installed (extra ``search``), the settings are not valid, or no
            trial finished.
        UnknownNameError: An objective is not a metric.
    """
    need("optuna", "search", "a search of policies")
    return _found(_Trying(settings, given), Path(out), workers, progress)


def _found(
    trying: _Trying, folder: Path, workers: int, progress: Callable[[int, int], None] | None
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    folder.mkdir(parents=True, exist_ok=True)
    study = trying.run(folder, workers, progress)
    trials = trying.told(study)
    whole = [one for one in study.best_trials if one.user_attrs.get("policy")]
    if not whole:
        said = next((one for one in trials["error"].drop_nulls()), "all were pruned")
        raise ConfigError(f"none of {len(trials):,} trials finished: {said}")
    winners = tuple(dict.fromkeys(one.user_attrs["policy"] for one in whole))
    if len(trying.settings.objectives) == 1:
        winners = winners[:1]
    return trials, winners


def _worlds(
    settings: Sought, parts: Sequence[Span], given: Mapping[str, Workload | Cluster] | None
) -> list[tuple[Workload, Cluster, int]]:
    """Return jobs, cluster and seed of each world of given parts.

    Raises:
        ConfigError, UnknownNameError, WorkloadError: One cannot be made.
    """
    plan = plan_of(settings.as_sweep([settings.baseline], parts), given)
    return [(*workload_of(point.world, plan.inputs), point.world.seed) for point in plan]


def _callers_before(study: optuna.Study) -> int:
    """Register this caller in a study, and return the number of earlier callers."""
    caller = f"caller {uuid.uuid4()}"
    study.set_user_attr(caller, True)
    return [name for name in study.user_attrs if name.startswith("caller ")].index(caller)


class _Trying:
    """Runner of trials on the training parts."""

    def __init__(self, settings: Sought, given: Mapping[str, Workload | Cluster] | None) -> None:
        self.settings = settings
        self._worlds = _worlds(settings, settings.train, given)
        figures = self._figures(settings.baseline, min((*settings.prefixes, 1.0)))
        for name in settings.objectives:
            if name not in figures:
                raise UnknownNameError("metric", name, figures)

    def _figures(self, policy: str, share: float) -> dict[str, float]:
        """Return means of the metrics over the worlds, for a share of their first jobs."""
        summaries = []
        for jobs, cluster, seed in self._worlds:
            part = jobs[: max(1, round(share * len(jobs)))]
            options = self.settings.run.options()
            summaries.append(simulate(part, cluster, policy, seed=seed, **options).summary())
        return {
            name: float(np.mean([one[name] for one in summaries]))
            for name, value in summaries[0].items()
            if isinstance(value, int | float)
            and all(one.get(name) is not None for one in summaries)
        }

    def run(
        self, folder: Path, workers: int, progress: Callable[[int, int], None] | None
    ) -> optuna.Study:
        """Run trials until there are enough."""
        import optuna
        from optuna.storages.journal import JournalFileBackend
        from optuna.study import MaxTrialsCallback, StudyDirection
        from optuna.trial import TrialState

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        over = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
        storage = optuna.storages.JournalStorage(JournalFileBackend(str(folder / "study.journal")))
        directions = {"low": StudyDirection.MINIMIZE, "high": StudyDirection.MAXIMIZE}
        wanted = self.settings.model_dump_json(exclude={"trials"})
        study = optuna.create_study(
            storage=storage, study_name="search", load_if_exists=True,
            directions=[directions[one] for one in self.settings.objectives.values()],
        )  # fmt: skip
        if study.user_attrs.setdefault("settings", wanted) != wanted:
            raise ConfigError(
                f"{folder} contains the trials of another search; give another folder with --out"
            )
        study.set_user_attr("settings", wanted)
        # A caller that continues or shares a search draws other numbers than earlier callers.
        seed = self.settings.sample_seed + _callers_before(study)
        with warnings.catch_warnings():
            # Optuna before 5 warns that `constant_liar` may change.
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)

        def told(_: optuna.Study, __: Any) -> None:
            if progress is not None:
                progress(len(study.get_trials(deepcopy=False, states=over)), self.settings.trials)

        if len(study.get_trials(deepcopy=False, states=over)) < self.settings.trials:
            study.optimize(
                self._try, n_jobs=workers, catch=(HpctwinError,),
                callbacks=[told, MaxTrialsCallback(self.settings.trials, states=over)],
            )  # fmt: skip
        return study

    def _try(self, trial: optuna.Trial) -> Sequence[float]:
        """Run one trial; raise `optuna.TrialPruned` if it is hopeless for some jobs."""
        import optuna

        policy = self._suggested(trial)
        trial.set_user_attr("policy", policy)
        try:
            for share in self.settings.prefixes:
                values = self._values(policy, share)
                trial.set_user_attr(f"at {share:g}", values)
                if self._hopeless(trial, f"at {share:g}", values):
                    raise optuna.TrialPruned
            values = self._values(policy, 1.0)
        except HpctwinError as error:
            trial.set_user_attr("error", str(error))
            raise
        trial.set_user_attr("at 1", values)
        return values

    def _suggested(self, trial: optuna.Trial) -> str:
        texts = self.settings.policies
        text = texts[0] if len(texts) == 1 else trial.suggest_categorical("policy", texts)
        values = {}
        for name in dict.fromkeys(names_in(text)):
            one = self.settings.parameters[name]
            if not isinstance(one, Values):
                values[name] = trial.suggest_categorical(name, one)
            elif one.whole:
                values[name] = trial.suggest_int(name, int(one.low), int(one.high), log=one.log)
            else:
                values[name] = trial.suggest_float(name, one.low, one.high, log=one.log)
        return str(fill(text, values))

    def _values(self, policy: str, share: float) -> list[float]:
        figures = self._figures(policy, share)
        lacking = [name for name in self.settings.objectives if name not in figures]
        if lacking:
            raise ConfigError(f"{policy} has no {lacking[0]} on some parts")
        return [figures[name] for name in self.settings.objectives]

    def _hopeless(self, trial: optuna.Trial, at: str, values: Sequence[float]) -> bool:
        """Return whether more than half of the others were better in all objectives.

        The others are compared after as many jobs.
        """
        others = [
            one.user_attrs[at]
            for one in trial.study.get_trials(deepcopy=False)
            if at in one.user_attrs and one.number != trial.number
        ]
        if len(others) < _FEWEST:
            return False
        signs = np.array([1 if one == "low" else -1 for one in self.settings.objectives.values()])
        better = (np.array(others) * signs < np.array(values) * signs).all(axis=1)
        return bool(better.mean() > 0.5)

    def told(self, study: optuna.Study) -> pl.DataFrame:
        """Return a row for each trial."""
        rows = []
        for trial in study.get_trials(deepcopy=False):
            reached = [
                share
                for share in (*self.settings.prefixes, 1.0)
                if f"at {share:g}" in trial.user_attrs
            ]
            prefix = reached[-1] if reached else None
            values = trial.user_attrs.get(f"at {prefix:g}") if prefix else None
            rows.append(
                {
                    "trial": trial.number,
                    "policy": trial.user_attrs.get("policy"),
                    "state": {"fail": "failed"}.get(
                        trial.state.name.lower(), trial.state.name.lower()
                    ),
                    "prefix": prefix,
                    **dict(zip(self.settings.objectives, values or [None] * 9, strict=False)),
                    "error": trial.user_attrs.get("error"),
                }
            )
        schema = {"policy": pl.String, "prefix": pl.Float64, "error": pl.String}
        return pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None)
