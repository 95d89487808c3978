"""Configuration of the twin: one YAML file, validated.

It may name Python code. Paths of Python files are relative to the configuration. Code that other
users may write is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, StringConstraints, field_validator, model_validator

from hpctwin.engine.state.layout import ONLY_ACTIVE
from hpctwin.errors import ConfigError, HpctwinError
from hpctwin.metrics.registry import TAU_S
from hpctwin.model import read_yaml
from hpctwin.model.settings import Duration, Settings
from hpctwin.model.trusted import check_module, check_trusted
from hpctwin.policies import Policy, parse_policy
from hpctwin.rms.manager import Way
from hpctwin.rms.managers import AnyManager, kind_of
from hpctwin.rms.records.records import NodeRecord
from hpctwin.rms.settings import RedisUrl
from hpctwin.twin.forecast.workload_model import Predictor
from hpctwin.twin.meters import AnyMeter
from hpctwin.twin.what_if.objective import PAPER_WEIGHTS, Normalize, Objective

__all__ = [
    "ActSettings",
    "BusSettings",
    "CoreSettings",
    "JournalSettings",
    "Mode",
    "ObjectiveSettings",
    "TwinConfig",
    "WhatIfSettings",
    "check_acting",
    "check_live",
    "check_named_code",
    "check_told",
    "config_schema",
    "kinds_of",
    "named_beside",
    "paths_beside",
    "read_trusted_yaml",
    "texts_of",
]


def check_live(policy: Policy) -> None:
    """Check that a live cluster can be simulated under a policy.

    Raises:
        ConfigError: The policy chooses nodes, which is up to the cluster, or its power policy has
            a control function.
    """
    if policy.placement.needs_nodes and policy.on_whole_nodes is policy.scheduling:
        raise ConfigError(
            f"policy {policy.name}: placement {policy.placement.name!r} is not supported, "
            "because the cluster chooses the nodes; use first-fit or best-fit"
        )
    if policy.power.control is not None or policy.power.kind == "orders":
        raise ConfigError(
            f"policy {policy.name}: power control functions are not supported, because the "
            "twin switches no nodes; use the one of psus, psas-auto or psas-ipm that is "
            "nearest to the cluster"
        )


def check_acting(pool: Sequence[Policy]) -> None:
    """Check that an acting twin can choose among policies.

    Raises:
        ConfigError: A policy wakes nodes for pending jobs, or the policies differ in how nodes are
            switched.
    """
    for policy in pool:
        if policy.power.switches and policy.power.power_pass.shown == ONLY_ACTIVE:
            raise ConfigError(
                f"policy {policy.name}: power policy {policy.power.kind!r} wakes nodes for "
                "pending jobs, but the twin switches no nodes; use psus or psas-auto, or "
                "mode observe or advise"
            )
        if policy.power.name != pool[0].power.name:
            raise ConfigError(
                f"policies {pool[0].name} and {policy.name} have different power policies, "
                "but the cluster switches its nodes and the twin cannot change that; give "
                "all policies of the pool the cluster's power policy, or use mode observe "
                "or advise"
            )


def check_told(
    policies: Sequence[Policy], objective: Objective, cluster: str, nodes: Iterable[NodeRecord]
) -> None:
    """Check that a cluster reports the power states that policies and objective need.

    Raises:
        ConfigError: No node has a power state, but a policy or the objective needs it.
    """
    asks = [f"policy {policy.name} switches nodes" for policy in policies if policy.power.switches]
    if objective.function is None and objective.weights.get("total_energy_j"):
        asks.append("the objective uses total_energy_j")
    if asks and all(node.power is None for node in nodes):
        raise ConfigError(
            f"{asks[0]}, but cluster {cluster!r} does not report which nodes are switched "
            "on; add the power draw and sleep states of its nodes: for Slurm under "
            "manager.power, for an emulated cluster in the cluster file ('modes' and "
            "'sleep')"
        )


# A path at the beginning, or after a separator in a policy; see `hpctwin.policies.parse_policy`.
_FILE = re.compile(r"((?:^|\+\s*easy(?::\d+)?/|[+@~])\s*)([^+@~]*?\.py)(?=[:+@~]|\s*$)")


def named_beside(text: str, folder: Path) -> str:
    """Return a policy or function with absolute paths of the Python files in it."""
    return _FILE.sub(lambda m: f"{m[1]}{(folder / m[2]).absolute()}", text)


def check_named_code(text: str) -> None:
    """Reject a policy or function ``module:name`` whose code other users may write.

    Missing code is ignored: loading it fails with its own message.

    Raises:
        ConfigError: Another user may write the code; see `hpctwin.model.trusted`.
    """
    files = [Path(m[2]) for m in _FILE.finditer(text)]
    for file in files:
        if file.is_file():
            check_trusted(file)
    module, colon, name = text.partition(":")
    if not files and colon and name.isidentifier() and re.fullmatch(r"\w+(\.\w+)*", module):
        check_module(module)


def texts_of(content: Any) -> list[tuple[dict[str, Any] | list[Any], Any]]:
    """Return container and key of each text in a configuration that may name code.

    Args:
        content: Plain values of the configuration, not validated yet.
    """
    if not isinstance(content, dict):
        return []
    core, places = content.get("core"), kinds_of([content])
    if not isinstance(core, dict):
        return places
    objective = core.get("objective")
    places.append((core, "site_policy"))
    lists = [core.get("pool")]
    if isinstance(objective, dict):
        places.append((objective, "function"))
        lists.append(objective.get("tie_break"))
    for values in lists:
        if isinstance(values, list):
            places += [(values, i) for i in range(len(values))]
    return [(where, key) for where, key in places if isinstance(_at(where, key), str)]


def kinds_of(sites: Iterable[Any]) -> list[tuple[dict[str, Any] | list[Any], Any]]:
    """Return container and key of each custom manager kind, ``module:name``.

    Args:
        sites: Plain values with a ``manager`` each, not validated yet.
    """
    managers = [site.get("manager") for site in sites if isinstance(site, dict)]
    return [
        (manager, "kind")
        for manager in managers
        if isinstance(manager, dict)
        and isinstance(manager.get("kind"), str)
        and ":" in manager["kind"]
    ]


def _at(where: dict[str, Any] | list[Any], key: Any) -> Any:
    return where.get(key) if isinstance(where, dict) else where[key]


M = TypeVar("M", bound=Settings)

Mode = Literal["observe", "advise", "approve", "act"]

PAPER_POOL = ("wfp+easy", "fcfs+easy", "sjf+easy")
"""Pool of the SchedTwin paper, in its order for ties (§4.1, §4.2)."""


class ObjectiveSettings(Settings):
    """Objective by which the best policy is chosen.

    Args:
        weights: Weight of each metric; see `hpctwin.twin.what_if.objective.METRICS`.
        normalize: Value over all candidates that a metric is divided by; see `Objective`.
        function: ``module:function`` or ``FILE.py:function`` instead of weights.
        tau: Threshold of bounded slowdowns: shorter runtimes count as this.
        window: Period before now: jobs that started within it count, too, in addition to pending
            jobs. With 0 (as in the paper) only the queue counts. With the whole run, the score is
            a forecast of the objective over the whole run.
        tie_break: Order of preference among policies with equal scores; omitted policies follow in the
            order of the pool.
        hysteresis: Share of the best score by which another policy must be better to replace the
            policy in force.
    """

    weights: dict[str, float] = Field(default_factory=lambda: dict(PAPER_WEIGHTS))
    normalize: Normalize = "mean"
    function: str | None = None
    tau: Duration = Field(default=TAU_S, gt=0)
    window: Duration = Field(default=0.0, ge=0)
    tie_break: tuple[str, ...] = PAPER_POOL
    hysteresis: float = Field(default=0.0, ge=0, le=10)

    @field_validator("tie_break")
    @classmethod
    def _readable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return _policies(value)


class CoreSettings(Settings):
    """Policies that the twin compares, and its expectations of jobs.

    Args:
        pool: Policies, written as for ``hpctwin simulate``.
        objective: Objective by which the best policy is chosen.
        site_policy: Policy of the cluster's scheduler, used for forecasts while the twin is not in
            control.
        predictor: Expected runtime of a job: its ``walltime``, or ``recent``, the mean of the
            user's last two jobs (Tsafrir).
        learned: File from ``hpctwin predictor train``, whose quantiles are another source of
            sampled runtimes. By default they are drawn from past jobs alone.
        samples: Number of futures with sampled runtimes and arrivals; a policy is judged by their
            mean. With 0 there is one future, with expected runtimes and without arrivals.
        arrivals: Time from now within which jobs arrive in sampled futures.
        futures: Number of futures drawn for forecasts of starts; 0 for none.
        horizon: Length of a what-if; by default it ends when its queue is empty.
        seed: Seed of the sampled futures.
        retry_after: Time before a job is tried again after its start was refused.
        start_timeout: Time after which a requested start that was not seen is checked.
    """

    pool: tuple[str, ...] = Field(default=PAPER_POOL, min_length=1)
    objective: ObjectiveSettings = ObjectiveSettings()
    site_policy: str | None = None
    predictor: Predictor = "walltime"
    learned: Path | None = None
    samples: int = Field(default=0, ge=0, le=1000)
    arrivals: Duration = Field(default=3600.0, ge=0)
    futures: int = Field(default=16, ge=0, le=1000)
    horizon: Duration | None = Field(default=None, gt=0)
    seed: int = Field(default=0, ge=0)
    retry_after: Duration = Field(default=60.0, gt=0)
    start_timeout: Duration = Field(default=30.0, gt=0)

    @field_validator("site_policy")
    @classmethod
    def _readable(cls, value: str | None) -> str | None:
        return None if value is None else _policies((value,))[0]

    @field_validator("pool")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = [parse_policy(text).name for text in _policies(value)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice:
            raise ValueError(f"policy {twice} is in the pool twice; list it once")
        return value


class ActSettings(Settings):
    """Actions that the twin may take.

    Args:
        mode: ``observe`` only forecasts; ``advise`` also shows decisions; ``approve`` applies a
            decision after a person has confirmed it; ``act`` applies decisions at once.
        by: ``lease``: the cluster keeps scheduling; the twin repeatedly delays the begin time of
            pending jobs, but not of the chosen ones. ``start``: the twin starts jobs itself, by
            force. ``priority``: the twin only orders the pending jobs. By default ``lease`` for
            Slurm and PBS, ``start`` for an emulated cluster.
        lease: Length of a lease; jobs that cannot start soon get longer ones.
        max_lease: Maximum length of a lease.
        max_staleness: Maximum age of the last snapshot of the cluster with which the twin acts.
        allow: Kinds of action that may be sent; by default the ones that ``by`` needs.
        starts_per_minute: Maximum number of starts, or changes of priority, in any minute of
            wall-clock time.
        dwell: Minimum time that a policy stays in force.
        forecast_error: Median error of recent forecasts above which the twin stops acting, as a
            share of the forecast wait. By default there is no bound.
        kill_switch: Path of a file; while it exists, the twin does nothing.
        approval_timeout: Time within which a decision must be confirmed; then it lapses.
        inactive_after: Time without starts by the twin after which it warns, if jobs that it leaves
            to the resource manager have started meanwhile.
        idle_starts: With Slurm's leases: whether a job starts without a decision if no job is
            pending and it fits, as without a twin. If false, each job waits for a decision.
    """

    mode: Mode = "observe"
    by: Way = "start"
    lease: Duration = Field(default=30.0, ge=5, le=3600)
    max_lease: Duration = Field(default=600.0, ge=5, le=86_400)
    max_staleness: Duration = Field(default=30.0, ge=1)
    allow: tuple[Literal["start", "set_priority"], ...] | None = None
    starts_per_minute: int = Field(default=600, ge=1)
    dwell: Duration = Field(default=0.0, ge=0)
    forecast_error: float | None = Field(default=None, gt=0)
    kill_switch: Path | None = None
    approval_timeout: Duration = Field(default=300.0, gt=0)
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
            says = (
                "mode approve works with by: lease or start; by: order is not approved job by job"
            )
            raise ValueError(says)
        if self.max_lease < self.lease:
            raise ValueError("max_lease is shorter than lease; it must be at least as long")
        return self


class BusSettings(Settings):
    """Source of the cluster's events.

    Args:
        kind: ``manager``: the resource manager's connection; ``redis``: Redis Streams.
        url: URL of Redis, such as ``redis://localhost:6379/0``; the password is in
            ``password_env``.
        stream: Name of the stream.
        group: Name of the consumer group.
        password_env: Environment variable with the password.
        max_length: Approximate number of entries that the stream is trimmed to.
        claim_after: Time after which the entries of a dead consumer are claimed.
    """

    kind: Literal["manager", "redis"] = "manager"
    url: RedisUrl = Field(default="redis://localhost:6379/0", repr=False)
    stream: str = "hpctwin:events"
    group: str = "hpctwin"
    password_env: str | None = None
    max_length: int = Field(default=1_000_000, ge=1000)
    claim_after: Duration = Field(default=10.0, gt=0)


class JournalSettings(Settings):
    """The journal, the record of inputs, decisions and actions.

    Args:
        path: Path of the SQLite file.
        checkpoint_interval: Number of decisions after which the whole state is stored.
        retention: Age at which records are deleted; by default never.
    """

    path: Path = Path("hpctwin-journal.sqlite")
    checkpoint_interval: int = Field(default=200, ge=1)
    retention: Duration | None = Field(default=None, gt=0)


class WhatIfSettings(Settings):
    """Executor of the what-ifs, and its deadline.

    Args:
        deadline: Time for a decision's what-ifs. Later answers are ignored, and the decision
            records that. The what-if of the policy in force is always awaited. By default all are.
        timeout: Time after which a whole decision is stopped: the twin then observes and decides
            again. If the decision cannot be stopped, `hpctwin twin run` ends after twice this time.
        dask: Address of a Dask scheduler, such as ``tcp://host:8786``, whose workers run the
            what-ifs; it needs a deadline. By default they run in threads of this process.
        scheduler_file: File that the Dask scheduler wrote, instead of its address.
    """

    deadline: Duration | None = Field(default=None, gt=0)
    timeout: Duration = Field(default=300.0, gt=0)
    dask: str | None = Field(default=None, min_length=1)
    scheduler_file: Path | None = None

    @property
    def on_dask(self) -> bool:
        """Whether the what-ifs run on Dask's workers."""
        return self.dask is not None or self.scheduler_file is not None

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.dask is not None and self.scheduler_file is not None:
            raise ValueError("give dask or scheduler_file, not both")
        if self.on_dask and self.deadline is None:
            raise ValueError("what-ifs on Dask's workers need a deadline, such as deadline: 500ms")
        return self


class TwinConfig(Settings):
    """Configuration of a live twin.

    Args:
        manager: Resource manager of the cluster.
        bus: Source of the cluster's events.
        core: Pool, objective and expectations.
        act: Actions that the twin may take.
        journal: Record of inputs, decisions and actions.
        gap_timeout: Time to wait for a missing event before a snapshot is requested.
        resync_interval: Time between two comparisons of the mirror with a snapshot, which is adopted
            if they differ.
        cycle_interval: Maximum time between two decisions while jobs are pending, for changes that
            come with time alone.
        heartbeat_interval: Time between two heartbeats to the resource manager.
        threads: Number of threads for what-ifs in this process, in addition to the one for the
            policy in force.
        what_ifs: Executor of the what-ifs, and its deadline.
        meter: Meter of the cluster's power, on which the twin calibrates its power forecast.
        lock: File that twins on several hosts share, so that only one of them acts. On one host,
            twins of one cluster find each other without it.
        web_address: Address of the twin's web page, to which `hpctwin twin explain` links.
    """

    manager: AnyManager
    bus: BusSettings = BusSettings()
    core: CoreSettings = CoreSettings()
    act: ActSettings = ActSettings()
    journal: JournalSettings = JournalSettings()
    gap_timeout: Duration = Field(default=1.0, gt=0)
    resync_interval: Duration = Field(default=60.0, gt=0)
    cycle_interval: Duration = Field(default=30.0, gt=0)
    heartbeat_interval: Duration = Field(default=1.0, gt=0)
    threads: int = Field(default=2, ge=1, le=256)
    what_ifs: WhatIfSettings = WhatIfSettings()
    meter: AnyMeter | None = None
    lock: Path | None = None
    web_address: Annotated[str, StringConstraints(pattern=r"^https?://\S+$")] | None = None

    @model_validator(mode="before")
    @classmethod
    def _by_default(cls, content: Any) -> Any:
        """Set the default of ``act.by``: the first way of this kind of resource manager."""
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
            says = f"manager kind {self.manager.kind} does not support it; use {' or '.join(ways)}"
            raise ValueError(f"act.by: {self.act.by}: {says}")
        if self.act.mode in ("act", "approve"):
            try:
                check_acting([parse_policy(text) for text in self.core.pool])
            except HpctwinError as error:
                raise ValueError(f"core.pool: {error}") from error
        return self

    @classmethod
    def from_yaml(cls, path: str | Path) -> TwinConfig:
        """Read a YAML file; paths in it, and names of Python files, are relative to it.

        Raises:
            ConfigError: The file cannot be read or is not valid; the message names the field. Or
                another user may write it, or Python code that it names; see
                `hpctwin.model.trusted`.
        """
        if not Path(path).exists():
            raise ConfigError(
                f"{path}: No such file or directory; write one with "
                "`hpctwin twin run --manager slurm --init`"
            )
        content = read_trusted_yaml(path, "manager")
        base = Path(path).parent
        for where, key in texts_of(content):
            where[key] = named_beside(where[key], base)
        return paths_beside(cls.of(content, str(path)), base)

    @classmethod
    def of(cls, content: dict[str, Any], where: str = "configuration") -> TwinConfig:
        """Validate plain values, and return the configuration.

        Raises:
            ConfigError: The values are not valid; the message names the field. Or another user may
                write Python code that they name.
        """
        for named_in, key in texts_of(content):
            check_named_code(named_in[key])
        config = cls.checked(content, where)
        objective = config.core.objective
        try:
            Objective(objective.weights, normalize=objective.normalize, function=objective.function)
        except HpctwinError as error:
            raise ConfigError(f"{where}, core.objective: {error}") from error
        return config


def read_trusted_yaml(path: str | Path, example: str) -> dict[str, Any]:
    """Return the fields of a YAML file of settings; see `hpctwin.model.read_yaml`.

    Raises:
        ConfigError: The file cannot be read, has no fields, or another user may write it.
    """
    content = read_yaml(path, example)
    check_trusted(path)
    return content


def paths_beside(settings: M, folder: Path) -> M:
    """Return settings whose relative paths are resolved against a folder."""
    changed: dict[str, Any] = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, Settings):
            changed[name] = paths_beside(value, folder)
        elif isinstance(value, Path):
            changed[name] = folder / value
    return settings.model_copy(update=changed)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
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
