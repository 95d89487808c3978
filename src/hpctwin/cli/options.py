"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from hpctwin.cli.option_values import AT_LEAST_1, complete_policy
from hpctwin.errors import ConfigError

if TYPE_CHECKING:
    from polars import DataFrame

    from hpctwin.formats.mapped_table import Columns
    from hpctwin.formats.record import Tally
    from hpctwin.model import Cluster, Workload
    from hpctwin.model.settings import Settings
    from hpctwin.simulation import Window

__all__ = [
    "BY_POLICY",
    "POLICIES",
    "By",
    "ClusterOptions",
    "ClustersOptions",
    "ConfigPath",
    "Init",
    "Latex",
    "Overwrite",
    "RunOptions",
    "Trace",
    "TraceOptions",
    "WindowOptions",
    "is_settings_file",
    "named_values",
    "temperature_or_file",
    "with_site_policy",
    "within",
    "write_settings",
]


def _no_option(_: Any, path: Path | None) -> None:
    if path is not None and str(path).startswith("-") and str(path) != "-":
        raise ValueError(f"option {path} does not exist; write ./{path} if it is a file")


Trace = Annotated[Path, Parameter(allow_leading_hyphen=True, validator=_no_option)]
"""A trace to read; ``-`` is standard input."""

ConfigPath = Annotated[
    Path,
    Parameter(name=["--config", "-c"], env_var="HPCTWIN_CONFIG", help="The twin's YAML file."),
]

Overwrite = Annotated[bool, Parameter(help="Overwrite an existing file.")]

Latex = Annotated[
    bool, Parameter(group="Output", help="Print tables as LaTeX, for the package booktabs.")
]
"""Whether tables are printed as LaTeX."""

Tau = Annotated[
    str,
    Parameter(group="Run", help="Threshold of bounded slowdowns: shorter runtimes count as this."),
]
"""Threshold of bounded slowdowns, see `tau_seconds`."""

By = Annotated[
    Literal["size", "walltime", "user", "account", "partition", "state"] | None,
    Parameter(
        group="Output",
        help="Break metrics down by size, walltime, user, account, partition or state.",
    ),
]

BY_POLICY = Parameter(
    name=["--policy", "-p"], group="Policy", allow_leading_hyphen=True, completer=complete_policy
)

POLICIES = ("fcfs+easy", "sjf+easy", "wfp+easy", "fcfs+conservative")
"""Policies that are compared by default."""


def named_values(option: str, given: Iterable[str], example: str) -> dict[str, str]:
    """Return the values given as ``NAME=VALUE``.

    Args:
        option: The option, for the message.
        given: The given texts.
        example: A valid example, for the message.

    Raises:
        ConfigError: A text does not have this form.
    """
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(
                f"{option} {text!r} is invalid; write NAME=VALUE, for example {example}"
            )
        found[name.strip()] = value.strip()
    return found


def temperature_or_file(weather: str | None) -> float | str | None:
    """Return the value of --weather: wet-bulb temperature in °C, or a file of weather.

    Raises:
        ConfigError: The value is neither.
    """
    if weather is None:
        return None
    try:
        return float(weather)
    except ValueError:
        if not Path(weather).is_file():
            raise ConfigError(
                f"--weather is {weather}; it must be a temperature in °C or a file"
            ) from None
    return weather


def within(trace: Path | None, name: str) -> Path | None:
    """Return a file in a folder of ``hpctwin import``; None for any other trace.

    Raises:
        ConfigError: The folder has no such file.
    """
    if trace is None or not trace.is_dir():
        return None
    if not (trace / name).is_file():
        from hpctwin.formats import dataset_of

        if dataset_of(trace) is not None:
            return None
        if name == "workload.parquet" and (trace / "policy.yaml").is_file():
            raise ConfigError(
                f"{trace} contains no jobs, because hpctwin import found no accounting; "
                f"give other jobs: hpctwin simulate TRACE --cluster {trace}/cluster.yaml"
            )
        raise ConfigError(
            f"{trace} contains no {name}; give a trace, a folder made by hpctwin import, "
            "or a folder of a data set"
        )
    return trace / name


def with_site_policy(trace: Path, policies: Iterable[str]) -> list[str]:
    """Return policies; the site's own comes first if the trace is a folder of an import."""
    site = within(trace, "policy.yaml")
    if site is None:
        return [*policies]
    from hpctwin.policies.policy import read_policy

    return [*dict.fromkeys((read_policy(site), *policies))]


@Parameter(name="*")
@dataclass(frozen=True)
class TraceOptions:
    """Reading of the trace."""

    format: Annotated[str | None, Parameter(group="Trace")] = None
    """Format: swf, spars, batsim, elastisim, wfcommons, csv, parquet, sacct, pbs, a data set, or
    sacct's --format; detected by default."""
    skip_invalid: Annotated[bool, Parameter(group="Trace")] = False
    """Skip malformed records, and report them."""
    missing_walltime: Annotated[str, Parameter(group="Trace")] = "runtime"
    """Jobs without a requested time: use the 'runtime', 'drop' them, or use a duration."""
    cancelled: Annotated[Literal["keep", "drop"] | None, Parameter(group="Trace")] = None
    """Jobs cancelled before their start; default keep if a trace is written, else drop."""
    procs_per_node: Annotated[int, Parameter(group="Trace"), AT_LEAST_1] = 1
    """Number of processors in one node."""
    processors: Annotated[Literal["nodes", "cores"], Parameter(group="Trace")] = "nodes"
    """Meaning of an SWF log's processors: nodes (or parts of them), or cores of nodes that
    jobs share. Also applies to tasks of a WfCommons workflow."""
    partition_field: Annotated[Literal["queue", "partition", "none"], Parameter(group="Trace")] = (
        "none"
    )
    """SWF field for the partition."""
    timezone: Annotated[str | None, Parameter(group="Trace")] = None
    """Time zone of accounting or a data set, such as Europe/Berlin; default UTC or the
    data set's."""
    use: Annotated[
        Literal["measured", "components", "none", "predicted"], Parameter(group="Trace")
    ] = "measured"
    """Power data of a data set: the nodes' measured power if it exists, use of components,
    or none. For any trace: predicted, the power draw from hpctwin predictor apply instead of
    measurements."""
    only: Annotated[tuple[str, ...], Parameter(group="Trace")] = ()
    """Read only rows of a data set with one of these values, as in partition=1,2."""
    columns: Annotated[tuple[str, ...], Parameter(group="Trace")] = ()
    """Columns: for CSV or Parquet submit=Submit,walltime=limit_min*60, or YAML; for
    sacct -n its --format, such as JobID,Submit,Start,End."""
    still_running: Annotated[Literal["elapsed", "limit", "drop"], Parameter(group="Trace")] = (
        "elapsed"
    )
    """End of jobs that ran when accounting was written: then, at their limit, or excluded."""

    def read(self, path: Path, *, to_write: bool = False) -> Workload:
        """Read a trace with these options.

        Args:
            path: The trace.
            to_write: Whether the trace will be written again. Times then stay as they are in the
                file, and jobs that cannot be simulated are kept if the reader understands them.
        """
        from hpctwin.formats import SwfRules, read_workload
        from hpctwin.model import parse_duration_s

        path = within(path, "workload.parquet") or path
        walltime: Any = self.missing_walltime
        if walltime not in ("runtime", "drop"):
            walltime = parse_duration_s(walltime)
        rules = SwfRules(
            missing_walltime=walltime,
            cancelled=self.cancelled or ("keep" if to_write else "drop"),
            no_runtime="zero" if to_write else "drop",
            rebase=not to_write,
            procs_per_node=self.procs_per_node,
            processors=self.processors,
            partition_field=self.partition_field,
        )
        listed = self.format is not None and "," in self.format
        workload = read_workload(
            path,
            format=None if listed else self.format,
            rules=rules,
            skip_invalid=self.skip_invalid,
            timezone=self.timezone,
            use="measured" if self.use == "predicted" else self.use,
            only=self.only,
            columns=self.format if listed else self._mapping(),
            running=self.still_running,
        )
        if self.use != "predicted":
            return workload
        from hpctwin.learn.prediction import drawing_as_predicted

        return drawing_as_predicted(workload)

    def jobs(self, path: Path, machine: ClusterOptions | None = None) -> Workload:
        """Read a trace to simulate, and report what the reader changed or excluded.

        Args:
            path: The trace.
            machine: The cluster; without it, accounting shows whether jobs share nodes.

        Raises:
            WorkloadError: The trace has no jobs.
        """
        return self.part(path, WindowOptions(), machine)[0]

    def part(
        self, path: Path, part: WindowOptions, machine: ClusterOptions | None = None
    ) -> tuple[Workload, Window | None]:
        """Read as `jobs`; return the jobs of the selected part, and that part or None."""
        from hpctwin.cli.output import need_jobs, note_reading

        workload = self.read(path)
        if machine is not None:
            workload = machine.derive(workload, path)
        window = part.cut(workload)
        workload = workload if window is None else window.workload
        note_reading(workload)
        need_jobs(workload)
        return workload, window

    def _mapping(self) -> Columns | str | None:
        """Return the mapping of columns, or the names of sacct's columns; or None."""
        if not self.columns:
            return None
        names = ",".join(self.columns)
        if "=" not in names and not names.lower().endswith((".yaml", ".yml")):
            return names
        from hpctwin.formats.mapped_table import columns_of

        return columns_of(self.columns)


@Parameter(name="*")
@dataclass(frozen=True)
class WindowOptions:
    """Part of the trace, including jobs running and pending at its begin."""

    begin: Annotated[str | None, Parameter(name="--from", group="Trace")] = None
    """Start of the part: a date such as 2020-10-10T00:00 (UTC), or a time since the trace's begin,
    such as 30d."""
    until: Annotated[str | None, Parameter(group="Trace")] = None
    """End of the part, in the same form; running jobs are cut off."""

    def cut(self, workload: Workload) -> Window | None:
        """Return the selected window; None without one.

        Raises:
            ConfigError: Only one of the two is given, or a date for a trace without dates.
            WorkloadError: The window has no jobs.
        """
        if self.begin is None and self.until is None:
            return None
        if self.begin is None or self.until is None:
            raise ConfigError("give both --from and --until")
        from hpctwin.simulation.running.window import moment, window

        return window(workload, moment(self.begin, workload), moment(self.until, workload))


@Parameter(name="*")
@dataclass(frozen=True)
class ClusterOptions:
    """The cluster."""

    nodes: Annotated[int | None, Parameter(name=["--nodes", "-n"], group="Cluster")] = None
    """Number of equal nodes; by default from the trace, the data set or accounting."""
    cluster: Annotated[Path | None, Parameter(name=["--cluster", "-M"], group="Cluster")] = None
    """Cluster file: YAML of hpctwin, SPARS's platform.json, Batsim's XML; or a name of
    `system list`."""

    outages: Annotated[Path | None, Parameter(group="Cluster")] = None
    """Outages and drains of nodes: output of sacctmgr -P list events, or CSV of node, start,
    end, state. Default the data set's; none: ignore them."""

    shown: Annotated[dict[Path, Any], Parameter(parse=False)] = field(
        default_factory=dict, compare=False, repr=False
    )
    """The cluster derived from a file's accounting, if nothing else describes it."""

    def make(
        self, workload: Workload, trace: Path | None = None, timezone: str | None = None
    ) -> Cluster:
        """Return the cluster with its outages; report assumptions and ignored job fields.

        Args:
            workload: The jobs; they may contain the size of their cluster.
            trace: Source of the jobs; the folder of an import also contains a cluster.
            timezone: Time zone of dates without one, as for the trace.

        Raises:
            ConfigError: Both or neither was given, or the file is not valid.
            TraceError: The outages cannot be read.
        """
        from hpctwin.cli.output import note_without_effect

        cluster = self._machine(workload, trace)
        away = self._away(trace, timezone)
        if away is not None:
            from hpctwin.formats.outages import with_outages

            cluster = with_outages(cluster, away[0], workload, away[1])
        if len(workload):
            note_without_effect(workload, cluster)
        return cluster

    def _away(self, trace: Path | None, timezone: str | None) -> tuple[DataFrame, Tally] | None:
        """Return the nodes' outages; None without a source for them."""
        from hpctwin.formats import dataset_of

        if str(self.outages) == "none":
            return None
        if self.outages is not None:
            from hpctwin.formats.outages import read_away

            return read_away(self.outages, timezone=timezone)
        found = None if trace is None else dataset_of(trace)
        if found is None or trace is None:
            return None
        from hpctwin.formats.datasets import nodes_away

        return nodes_away(trace, found)

    def _machine(self, workload: Workload, trace: Path | None) -> Cluster:
        from hpctwin.model import Cluster, ReadNotes
        from hpctwin.simulation.state.arguments import stated_cluster

        if self.nodes is not None and self.cluster is not None:
            raise ConfigError("give --nodes or --cluster, not both")
        file = self.cluster
        if self.nodes is None and file is None:
            file = within(trace, "cluster.yaml")
        if file is not None:
            from hpctwin.formats.clusters import read_cluster

            return read_cluster(file)
        if self.nodes is None and trace is not None and (system := _system_of(trace)):
            from hpctwin.formats.systems import read_system

            remark = f"cluster {system!r} of the data set"
            return read_system(system).noted(ReadNotes(remarks=(remark,)))
        if self.nodes is not None:
            return Cluster.uniform(nodes=self.nodes)
        if workload.nodes_hint is None and trace in self.shown:
            shown: Cluster = self.shown[trace]
            return shown
        return stated_cluster(workload, "--nodes N")

    def derive(self, workload: Workload, trace: Path) -> Workload:
        """Derive the cluster from the nodes where jobs ran, if nothing else describes it.

        Returns:
            The jobs as they are on this cluster.
        """
        self.shown.clear()
        given = (
            self.nodes is not None or self.cluster is not None or workload.nodes_hint is not None
        )
        if given or workload.recorded_nodes is None or trace.is_dir() or _system_of(trace):
            return workload
        from hpctwin.rms.derived_nodes import as_derived, derived_cluster, derived_nodes

        derived = derived_nodes(workload.to_frame().lazy())
        if derived is None:
            return workload
        self.shown[trace] = derived_cluster(derived, workload.name)
        return as_derived(workload, derived)


@Parameter(name="*")
@dataclass(frozen=True)
class ClustersOptions:
    """One or more clusters."""

    nodes: Annotated[tuple[int, ...], Parameter(name=["--nodes", "-n"], group="Cluster")] = ()
    """Number of equal nodes of a cluster. Repeatable."""
    cluster: Annotated[tuple[Path, ...], Parameter(name=["--cluster", "-M"], group="Cluster")] = ()
    """Cluster file, or a name of `system list`. Repeatable."""

    def listed(self, trace: Path) -> list[int | str]:
        """Return numbers of nodes and cluster files; by default the file in a trace's folder."""
        found: list[int | str] = [*self.nodes, *map(str, self.cluster)]
        own = None if found else within(trace, "cluster.yaml")
        return found if own is None else [str(own)]


def _system_of(trace: Path) -> str | None:
    """Return the name of a data set's cluster."""
    from hpctwin.formats import dataset_of

    found = dataset_of(trace)
    return None if found is None else found.system


def tau_seconds(text: str) -> float:
    """Return a threshold of bounded slowdowns, in seconds."""
    from hpctwin.metrics.registry import check_tau
    from hpctwin.model import parse_duration_s

    try:
        return check_tau(parse_duration_s(text))
    except ConfigError as error:
        raise ConfigError(f"--tau: {error}") from error


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """Rules of the simulation."""

    overrun: Annotated[Literal["terminate", "continue"], Parameter(group="Run")] = "terminate"
    """Terminate or continue a job at the end of its walltime."""
    on_dependency_failure: Annotated[Literal["cancel", "hold"], Parameter(group="Run")] = "cancel"
    """Cancel or hold a job whose afterok dependency failed."""
    tau: Tau = "10s"
    seed: Annotated[int, Parameter(group="Run")] = 0
    """Seed of random placement."""
    sharing: Annotated[Literal["simgrid", "fair"] | None, Parameter(group="Run")] = None
    """Let jobs that communicate share hosts and links, as SimGrid does or fairly."""

    def as_dict(self) -> dict[str, Any]:
        """Return the options as arguments of `Simulation`."""
        shared = {} if self.sharing is None else {"sharing": self.sharing}
        return shared | {
            "overrun": self.overrun,
            "on_dependency_failure": self.on_dependency_failure,
            "tau_s": tau_seconds(self.tau),
            "seed": self.seed,
        }


Init = Annotated[bool, Parameter(group="Output")]
"""Whether to write the settings to a new file instead of running."""


def is_settings_file(source: Path, **options: object) -> bool:
    """Return whether a source is a file of settings, and not a trace.

    Raises:
        ConfigError: It is a file, and options that need a trace are given.
    """
    if source.suffix.lower() not in (".yaml", ".yml"):
        return False
    given = [f"--{name}" for name, value in options.items() if value]
    if given:
        raise ConfigError(
            f"{source}: a file takes no {', '.join(given)}; change the file, or give a trace"
        )
    return True


def write_settings(path: Path, settings: Settings, content: Mapping[str, Any], run: str) -> int:
    """Write a new file of settings with a comment for each key; return the exit code.

    Args:
        path: The file.
        settings: The settings.
        content: Their plain values without defaults, in the order of the file.
        run: The command that uses the file.

    Raises:
        ConfigError: The file exists, or there are no values.
    """
    from hpctwin.model import write_atomically

    if not any(content.values()):
        raise ConfigError("--init: no options to write to the file are given; see --help")
    if path.exists():
        raise ConfigError(f"--init: {path} exists; rename or delete it first")
    summary = (type(settings).__doc__ or "").partition("\n")[0]
    lines = [f"# {summary}", f"# Run it: {run}", *_lines(settings, content)]
    with write_atomically(path) as file:
        file.write(("\n".join(lines) + "\n").encode())
    print(f"{path} is written; edit it, then run: {run}")
    return 0


def _lines(settings: Settings, content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the given keys with their meanings, then the omitted keys as comments."""
    import yaml

    from hpctwin.model.settings import Settings, field_help

    for key, plain in content.items():
        found = getattr(settings, key)
        yield from _comment(field_help(type(settings))[key])
        if isinstance(found, Settings):
            yield f"{key}:"
            yield from (f"  {line}" for line in _lines(found, plain))
            continue
        yield from yaml.safe_dump({key: plain}, sort_keys=False, allow_unicode=True).splitlines()
        if isinstance(plain, list) and isinstance(plain[-1], dict):
            yield from (f"  {line}" for line in _omitted(found[-1], plain[-1]))
    yield from _omitted(settings, content)


def _omitted(settings: Settings, content: Mapping[str, Any]) -> Iterator[str]:
    from hpctwin.model.settings import field_help

    for key, meaning in field_help(type(settings)).items():
        if key not in content:
            yield from _comment(f"{key}: {meaning}")


def _comment(text: str) -> list[str]:
    return wrap(text.replace("`", ""), 98, initial_indent="# ", subsequent_indent="#   ")
