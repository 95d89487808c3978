"""The twin's configuration: one YAML file, validated."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from hpctwin.errors import ConfigError, HpctwinError
from hpctwin.model import read_yaml
from hpctwin.model.files.trusted import check_trusted
from hpctwin.model.input.settings import Duration, Settings
from hpctwin.policies import parse_policy
from hpctwin.rms.manager import Way
from hpctwin.rms.managers import AnyManager, kind_of
from hpctwin.rms.settings import RedisUrl
from hpctwin.twin.forecast.workload_model import Predictor
from hpctwin.twin.meters import AnyMeter
from hpctwin.twin.settings.named_code import check_named_code, named_beside, texts_of
from hpctwin.twin.settings.refusals import check_acting, check_live
from hpctwin.twin.what_if.objective import PAPER_WEIGHTS, Normalise, Objective

__all__ = [
    "ActSettings",
    "BusSettings",
    "CoreSettings",
    "JournalSettings",
    "Mode",
    "ObjectiveSettings",
    "TwinConfig",
    "WhatIfSettings",
    "config_schema",
    "paths_beside",
    "read_trusted_yaml",
]

M = TypeVar("M", bound=Settings)

Mode = Literal["observe", "advise", "approve", "act"]

PAPER_POOL = ("wfp+easy", "fcfs+easy", "sjf+easy")
"""SchedTwin's pool in its tie order (§4.1, §4.2)."""


class ObjectiveSettings(Settings):
    """What the best policy is.

    Args:
        weights: by metric; see `hpctwin.twin.what_if.objective.METRICS`.
        normalise: what a metric is divided by over the candidates; see `Objective`.
        function: ``module:function`` or ``FILE.py:function`` instead of weights.
        past: jobs that started no longer ago than this count too, besides those that wait. With 0
            (as in the paper) only the queue counts; with the whole run, the score is a forecast of
            the objective over the whole run.
        ties: policies by preference where scores are equal; those not named follow as in the pool.
        hysteresis: the policy in force stays unless another is better by this share of the best
            score.
    """

    weights: dict[str, float] = Field(default_factory=lambda: dict(PAPER_WEIGHTS))
    normalise: Normalise = "mean"
    function: str | None = None
    past: Duration = Field(default=0.0, ge=0)
    ties: tuple[str, ...] = PAPER_POOL
    hysteresis: float = Field(default=0.0, ge=0, le=10)

    @field_validator("ties")
    @classmethod
    def _readable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return _policies(value)


class CoreSettings(Settings):
    """What the twin compares, and what it expects.

    Args:
        pool: policies, written as for ``hpctwin simulate``.
        objective: what the best is.
        own_policy: what the cluster schedules by when the twin is not in charge, for forecasts.
        predictor: ``walltime``, or ``recent``: the mean of the user's last two jobs (Tsafrir).
        learned: what ``hpctwin predictor train`` wrote: sampled runtimes are drawn from the quantiles in it
            too; left out, from what users' last jobs ran alone.
        samples: futures with sampled runtimes and arrivals by whose mean a policy is judged; 0 for
            one future in which all is as expected and nothing comes.
        arrivals: for how long jobs come in sampled futures.
        futures: so many of them are drawn for forecasts of starts; 0 for none.
        horizon: a what-if ends so long after now; left out, when its queue is empty.
        seed: of the sampled futures.
        retry: a job whose start was refused is left alone for so long.
        start_patience: a job that was told to start and has not is looked into after so long.
    """

    pool: tuple[str, ...] = Field(default=PAPER_POOL, min_length=1)
    objective: ObjectiveSettings = ObjectiveSettings()
    own_policy: str | None = None
    predictor: Predictor = "walltime"
    learned: Path | None = None
    samples: int = Field(default=0, ge=0, le=1000)
    arrivals: Duration = Field(default=3600.0, ge=0)
    futures: int = Field(default=16, ge=0, le=1000)
    horizon: Duration | None = Field(default=None, gt=0)
    seed: int = Field(default=0, ge=0)
    retry: Duration = Field(default=60.0, gt=0)
    start_patience: Duration = Field(default=30.0, gt=0)

    @field_validator("own_policy")
    @classmethod
    def _readable(cls, value: str | None) -> str | None:
        return None if value is None else _policies((value,))[0]

    @field_validator("pool")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = [parse_policy(text).name for text in _policies(value)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice:
            raise ValueError(f"policy {twice} is in the pool twice")
        return value


class ActSettings(Settings):
    """What the twin may do.

    Args:
        mode: ``observe``: forecast only; ``advise``: decisions are shown, never applied; ``approve``:
            each waits for a person; ``act``.
        by: ``lease``: the cluster goes on scheduling; the twin has waiting jobs begin a little later, again
            and again, and those that it chooses now. ``start``: the twin starts jobs itself, by force.
            ``priority``: the twin only puts the waiting jobs in order. Left out: ``lease`` for Slurm and
            PBS, ``start`` for an emulated cluster.
        lease: how long a lease is; those of jobs that cannot start soon are longer.
        longest_lease: the longest of those.
        look_within: the twin acts only if it has looked at the whole cluster within so long.
        allow: kinds of action that may be sent; left out, what ``by`` needs.
        starts_per_minute: at most so many starts, or changes of priority, in any minute of wall-clock
            time.
        dwell: a policy stays in force at least so long.
        forecast_error: acting stops by itself when the median error of recent forecasts, as a share
            of the wait forecast, passes this; left out for no bound.
        kill_switch: while a file of this name exists, nothing is done.
        approve_within: a decision not confirmed in this time lapses.
        inactive_after: warn if the twin has started no job for this long while jobs that it leaves to the
            resource manager started.
        idle_starts: With leases of Slurm, let a job start without a decision where no job is pending and
            it fits, as it would without a twin. If false, each job waits for a decision.
    """

    mode: Mode = "observe"
    by: Way = "start"
    lease: Duration = Field(default=30.0, ge=5, le=3600)
    longest_lease: Duration = Field(default=600.0, ge=5, le=86_400)
    look_within: Duration = Field(default=30.0, ge=1)
    allow: tuple[Literal["start", "set_priority"], ...] | None = None
    starts_per_minute: int = Field(default=600, ge=1)
    dwell: Duration = Field(default=0.0, ge=0)
    forecast_error: float | None = Field(default=None, gt=0)
    kill_switch: Path | None = None
    approve_within: Duration = Field(default=300.0, gt=0)
    inactive_after: Duration = Field(default=600.0, gt=0)
    idle_starts: bool = True

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of action that may be sent."""
        needed = "set_priority" if self.by == "priority" else "start"
        return (needed,) if self.allow is None else self.allow

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.by == "priority" and self.mode == "approve":
            says = "mode approve goes with by: lease or start; order is not confirmed job by job"
            raise ValueError(says)
        if self.longest_lease < self.lease:
            raise ValueError("longest_lease is shorter than lease")
        return self


class BusSettings(Settings):
    """Where events come from.

    Args:
        kind: ``manager``: from the resource manager's own connection; ``redis``: Redis Streams.
        url: of Redis, such as ``redis://localhost:6379/0``; a password comes from ``password_env``.
        stream: name of the stream.
        group: consumer group.
        password_env: environment variable that holds the password.
        max_length: the stream is trimmed to about so many entries.
        claim_after: entries that a dead consumer took are claimed after so long.
    """

    kind: Literal["manager", "redis"] = "manager"
    url: RedisUrl = Field(default="redis://localhost:6379/0", repr=False)
    stream: str = "hpctwin:events"
    group: str = "hpctwin"
    password_env: str | None = None
    max_length: int = Field(default=1_000_000, ge=1000)
    claim_after: Duration = Field(default=10.0, gt=0)


class JournalSettings(Settings):
    """Where the record of everything is kept.

    Args:
        path: of the SQLite file.
        checkpoint_every: the whole state is stored after so many decisions.
        keep: records older than this are deleted; left out, nothing is.
    """

    path: Path = Path("hpctwin-journal.sqlite")
    checkpoint_every: int = Field(default=200, ge=1)
    keep: Duration | None = Field(default=None, gt=0)


class WhatIfSettings(Settings):
    """Where what-ifs are run, and how long they are waited for.

    Args:
        deadline: what has not answered so long after a decision was begun is left out, and the decision says
            so; the policy in force is waited for in any case. Left out, all are waited for.
        dask: address of a Dask scheduler, such as ``tcp://host:8786``, on whose workers what-ifs are run; it
            needs a deadline. Left out, they are run here, in threads.
        scheduler_file: that the scheduler wrote, in place of its address.
    """

    deadline: Duration | None = Field(default=None, gt=0)
    dask: str | None = Field(default=None, min_length=1)
    scheduler_file: Path | None = None

    @property
    def on_dask(self) -> bool:
        """Whether they are run on Dask's workers."""
        return self.dask is not None or self.scheduler_file is not None

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.dask is not None and self.scheduler_file is not None:
            raise ValueError("give dask or scheduler_file, one of the two")
        if self.on_dask and self.deadline is None:
            raise ValueError("on Dask's workers what-ifs need a deadline, such as deadline: 500ms")
        return self


class TwinConfig(Settings):
    """All of it.

    Args:
        manager: the resource manager.
        bus: where events come from.
        core: pool, objective, expectations.
        act: what the twin may do.
        journal: where the record is kept.
        gap_patience: a missing event is waited for so long before a snapshot is asked for.
        resync_every: a snapshot is compared with the mirror so often, and adopted.
        cycle_every: decisions are made at least so often while jobs wait, for what changes by time.
        heartbeat_every: how often the resource manager is told that the twin lives.
        threads: for what-ifs at once, besides that of the policy in force, where they are run here.
        what_ifs: where they are run, and how long they are waited for.
        meter: measured power, on which the twin calibrates what it expects to be drawn.
        lock: a file that twins on several hosts share, so that one of them acts; on one host, twins of
            one cluster find each other without it.
    """

    manager: AnyManager
    bus: BusSettings = BusSettings()
    core: CoreSettings = CoreSettings()
    act: ActSettings = ActSettings()
    journal: JournalSettings = JournalSettings()
    gap_patience: Duration = Field(default=1.0, gt=0)
    resync_every: Duration = Field(default=60.0, gt=0)
    cycle_every: Duration = Field(default=30.0, gt=0)
    heartbeat_every: Duration = Field(default=1.0, gt=0)
    threads: int = Field(default=2, ge=1, le=256)
    what_ifs: WhatIfSettings = WhatIfSettings()
    meter: AnyMeter | None = None
    lock: Path | None = None

    @model_validator(mode="before")
    @classmethod
    def _by_default(cls, content: Any) -> Any:
        """Act in the way that comes first for this kind of manager."""
        if not isinstance(content, dict) or not isinstance(content.get("act", {}), dict):
            return content
        kind = kind_of(content.get("manager"))
        if kind is not None:
            content = {**content, "act": {"by": kind.ways[0], **(content.get("act") or {})}}
        return content

    @model_validator(mode="after")
    def _together(self) -> Self:
        ways = self.manager.ways
        if self.act.by not in ways:
            says = f"a manager of kind {self.manager.kind} does not go with it; use {' or '.join(ways)}"
            raise ValueError(f"act.by: {self.act.by}: {says}")
        if self.act.mode in ("act", "approve"):
            try:
                check_acting([parse_policy(text) for text in self.core.pool])
            except HpctwinError as error:
                raise ValueError(f"core.pool: {error}") from error
        return self

    @classmethod
    def from_yaml(cls, path: str | Path) -> TwinConfig:
        """Read a YAML file; paths in it, and Python files that it names, are relative to it.

        Raises:
            ConfigError: it cannot be read or is not valid; the message names the field. Or somebody
                else may write it, or the Python that it names: see `hpctwin.model.files.trusted`.
        """
        content = read_trusted_yaml(path, "manager")
        base = Path(path).parent
        for where, key in texts_of(content):
            where[key] = named_beside(where[key], base)
        return paths_beside(cls.of(content, str(path)), base)

    @classmethod
    def of(cls, content: dict[str, Any], where: str = "configuration") -> TwinConfig:
        """Validate plain values.

        Raises:
            ConfigError: they are not valid; the message names the field. Or somebody else may write the
                Python that they name.
        """
        for named_in, key in texts_of(content):
            check_named_code(named_in[key])
        config = cls.checked(content, where)
        objective = config.core.objective
        try:
            Objective(objective.weights, normalise=objective.normalise, function=objective.function)
        except HpctwinError as error:
            raise ConfigError(f"{where}, core.objective: {error}") from error
        return config


def read_trusted_yaml(path: str | Path, example: str) -> dict[str, Any]:
    """The fields of a YAML file of settings; see `hpctwin.model.read_yaml`.

    Raises:
        ConfigError: it cannot be read, has no fields, or somebody else may write it.
    """
    content = read_yaml(path, example)
    check_trusted(path)
    return content


def paths_beside(settings: M, folder: Path) -> M:
    """Settings with all their relative paths taken from a folder on."""
    changed: dict[str, Any] = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, Settings):
            changed[name] = paths_beside(value, folder)
        elif isinstance(value, Path):
            changed[name] = folder / value
    return settings.model_copy(update=changed)


def config_schema() -> dict[str, Any]:
    """The JSON Schema of the configuration."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TwinConfig.model_json_schema(),
    }


def _policies(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        try:
            check_live(parse_policy(text))
        except HpctwinError as error:
            raise ValueError(str(error)) from error
    return texts
