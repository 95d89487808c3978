"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from hpctwin.cli.options.completing import complete_policy
from hpctwin.cli.options.numbers import AT_LEAST_1
from hpctwin.errors import ConfigError

if TYPE_CHECKING:
    from polars import DataFrame

    from hpctwin.formats.common.record import Tally
    from hpctwin.formats.tables.mapped import Columns
    from hpctwin.model import Cluster, Workload
    from hpctwin.simulation import Window

__all__ = [
    "BY_POLICY",
    "By",
    "ClusterOptions",
    "ConfigPath",
    "RunOptions",
    "Trace",
    "TraceOptions",
    "WindowOptions",
    "named_values",
    "temperature_or_file",
    "within",
]


def _no_option(_: Any, path: Path | None) -> None:
    if path is not None and str(path).startswith("-") and str(path) != "-":
        raise ValueError(f"there is no option {path}; write ./{path} if it is a file")


Trace = Annotated[Path, Parameter(allow_leading_hyphen=True, validator=_no_option)]
"""A trace to read; ``-`` is the standard input."""

ConfigPath = Annotated[Path, Parameter(name=["--config", "-c"], env_var="HPCTWIN_CONFIG")]
"""The twin's YAML file."""

By = Annotated[
    Literal["size", "walltime", "user", "account", "partition", "state"] | None,
    Parameter(group="Output"),
]
"""Classes of jobs that figures are broken down by."""

BY_POLICY = Parameter(
    name=["--policy", "-p"], group="Policy", allow_leading_hyphen=True, completer=complete_policy
)


def named_values(option: str, given: Iterable[str], example: str) -> dict[str, str]:
    """What is given as ``NAME=VALUE``.

    Args:
        option: where it is given.
        given: each.
        example: one that is right.

    Raises:
        ConfigError: one is not so written.
    """
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"{option} {text!r}: write NAME=VALUE, for example {example}")
        found[name.strip()] = value.strip()
    return found


def temperature_or_file(weather: str | None) -> float | str | None:
    """What --weather says: wet-bulb temperature, °C, or a file of weather.

    Raises:
        ConfigError: it is neither.
    """
    if weather is None:
        return None
    try:
        return float(weather)
    except ValueError:
        if not Path(weather).is_file():
            raise ConfigError(
                f"--weather {weather}: it is neither a temperature in °C nor a file"
            ) from None
    return weather


def within(trace: Path | None, name: str) -> Path | None:
    """A file of the folder that ``hpctwin import`` made; None if the trace is no folder, or a data set's.

    Raises:
        ConfigError: the folder has no such file.
    """
    if trace is None or not trace.is_dir():
        return None
    if not (trace / name).is_file():
        from hpctwin.formats import dataset_of

        if dataset_of(trace) is not None:
            return None
        if name == "workload.parquet" and (trace / "policy.yaml").is_file():
            raise ConfigError(
                f"{trace}: no jobs are in it, as hpctwin import found no accounting; give others, as in "
                f"hpctwin simulate TRACE --cluster {trace}/cluster.yaml"
            )
        raise ConfigError(
            f"{trace}: there is no {name} in it; expected a trace, a folder that hpctwin import "
            "made, or a data set's"
        )
    return trace / name


@Parameter(name="*")
@dataclass(frozen=True)
class TraceOptions:
    """How the trace is read."""

    format: Annotated[str | None, Parameter(group="Trace")] = None
    """swf, spars, batsim, wfcommons, csv, parquet, sacct, pbs, a data set, or sacct's own --format string;
    by default the file tells."""
    skip_invalid: Annotated[bool, Parameter(group="Trace")] = False
    """Leave out malformed records, and say which."""
    no_walltime: Annotated[str, Parameter(group="Trace")] = "runtime"
    """Jobs without a requested time: 'runtime' takes the run time, 'drop' leaves them out, or a duration."""
    cancelled: Annotated[Literal["keep", "drop"] | None, Parameter(group="Trace")] = None
    """Jobs cancelled before they started; left out, they are kept where a trace is written, else dropped."""
    procs_per_node: Annotated[int, Parameter(group="Trace"), AT_LEAST_1] = 1
    """Processors that make one node."""
    processors: Annotated[Literal["nodes", "cores"], Parameter(group="Trace")] = "nodes"
    """What an SWF log's processors are: nodes (or parts of them), or cores of nodes that jobs share, as tasks
    of a WfCommons workflow then do."""
    partition_field: Annotated[Literal["queue", "partition", "none"], Parameter(group="Trace")] = (
        "none"
    )
    """SWF field that names the partition."""
    timezone: Annotated[str | None, Parameter(group="Trace")] = None
    """Where accounting or a data set wrote its times, such as Europe/Berlin; UTC, or its own, if left out."""
    use: Annotated[
        Literal["measured", "components", "none", "predicted"], Parameter(group="Trace")
    ] = "measured"
    """Of a data set: measured power of nodes, where there is one; use of their components; or neither. Of any
    trace: predicted, what hpctwin predictor apply foretold that nodes draw, in place of what was measured."""
    only: Annotated[tuple[str, ...], Parameter(group="Trace")] = ()
    """Of a data set: only rows of which a column has one of some values, as partition=1,2."""
    columns: Annotated[tuple[str, ...], Parameter(group="Trace")] = ()
    """What columns are: of CSV or Parquet submit=Submit,walltime=limit_min*60, or YAML; of sacct -n its
    --format string, such as JobID,Submit,Start,End."""
    still_running: Annotated[Literal["elapsed", "limit", "drop"], Parameter(group="Trace")] = (
        "elapsed"
    )
    """Jobs that still ran when accounting was written: end them then, at their limit, or leave them out."""

    def read(self, path: Path, *, to_write: bool = False) -> Workload:
        """Read a trace with these options.

        Args:
            path: the trace.
            to_write: whether it is written again: then times stay as they are in the file, and jobs that
                could not be simulated stay too, as far as they can be told.
        """
        from hpctwin.formats import SwfRules, read_workload
        from hpctwin.model import parse_duration_s

        path = within(path, "workload.parquet") or path
        walltime: Any = self.no_walltime
        if walltime not in ("runtime", "drop"):
            walltime = parse_duration_s(walltime)
        rules = SwfRules(
            no_walltime=walltime,
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
        """Read a trace to simulate, and say what the reader changed or left out.

        Args:
            path: the trace.
            machine: the cluster; if it is not given, accounting shows whether jobs share nodes.

        Raises:
            WorkloadError: it has no jobs.
        """
        return self.part(path, WindowOptions(), machine)[0]

    def part(
        self, path: Path, part: WindowOptions, machine: ClusterOptions | None = None
    ) -> tuple[Workload, Window | None]:
        """As `jobs`, of a part of the trace if one is asked for, and that part."""
        from hpctwin.cli.output.output import need_jobs, note_reading

        workload = self.read(path)
        if machine is not None:
            workload = machine.derive(workload, path)
        window = part.cut(workload)
        workload = workload if window is None else window.workload
        note_reading(workload)
        need_jobs(workload)
        return workload, window

    def _mapping(self) -> Columns | str | None:
        """The mapping of columns, or the names of columns of sacct, if either is given."""
        if not self.columns:
            return None
        names = ",".join(self.columns)
        if "=" not in names and not names.lower().endswith((".yaml", ".yml")):
            return names
        from hpctwin.formats.tables.mapped import columns_of

        return columns_of(self.columns)


@Parameter(name="*")
@dataclass(frozen=True)
class WindowOptions:
    """A part of the trace, with what ran and waited when it began."""

    begin: Annotated[str | None, Parameter(name="--from", group="Trace")] = None
    """Its beginning: a date such as 2020-10-10T00:00 (UTC), or a time from time zero, such as 30d."""
    until: Annotated[str | None, Parameter(group="Trace")] = None
    """Its end, in the same way; what runs then is cut off."""

    def cut(self, workload: Workload) -> Window | None:
        """The window that is asked for; None if none is.

        Raises:
            ConfigError: only one of the two is given, or a date of a trace without one.
            WorkloadError: no job is in it.
        """
        if self.begin is None and self.until is None:
            return None
        if self.begin is None or self.until is None:
            raise ConfigError("give --from and --until, both")
        from hpctwin.simulation.running.window import moment, window

        return window(workload, moment(self.begin, workload), moment(self.until, workload))


@Parameter(name="*")
@dataclass(frozen=True)
class ClusterOptions:
    """The machine."""

    nodes: Annotated[int | None, Parameter(name=["--nodes", "-n"], group="Cluster")] = None
    """Equal nodes; by default as the trace or data set says, or as accounting shows."""
    cluster: Annotated[Path | None, Parameter(name=["--cluster", "-M"], group="Cluster")] = None
    """The machine's file: our YAML, SPARS's platform.json, Batsim's XML; or a name of `system list`."""

    outages: Annotated[Path | None, Parameter(group="Cluster")] = None
    """When nodes were down or drained: what sacctmgr -P list events tells, or CSV of node, start, end, state;
    what a data set tells of it, if left out; none: nothing of that."""

    shown: Annotated[dict[Path, Any], Parameter(parse=False)] = field(
        default_factory=dict, compare=False, repr=False
    )
    """The cluster that the accounting in a file shows, if nothing else describes it."""

    def make(
        self, workload: Workload, trace: Path | None = None, timezone: str | None = None
    ) -> Cluster:
        """The cluster meant, with nodes away as they were; says what is assumed, and not used of the jobs.

        Args:
            workload: may say how large its machine was.
            trace: where it was read; the folder of an import has a machine too.
            timezone: of dates that name none, as the trace's.

        Raises:
            ConfigError: both or neither was given, or the file is not valid.
            TraceError: the outages cannot be read.
        """
        from hpctwin.cli.output.output import note_without_effect

        cluster = self._machine(workload, trace)
        away = self._away(trace, timezone)
        if away is not None:
            from hpctwin.formats.clusters.outages import with_outages

            cluster = with_outages(cluster, away[0], workload, away[1])
        if len(workload):
            note_without_effect(workload, cluster)
        return cluster

    def _away(self, trace: Path | None, timezone: str | None) -> tuple[DataFrame, Tally] | None:
        """Which nodes were away; None if nothing tells it."""
        from hpctwin.formats import dataset_of

        if str(self.outages) == "none":
            return None
        if self.outages is not None:
            from hpctwin.formats.clusters.outages import read_away

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
            from hpctwin.formats.clusters.files import read_cluster

            return read_cluster(file)
        if self.nodes is None and trace is not None and (system := _system_of(trace)):
            from hpctwin.formats.systems import read_system

            remark = f"it is the machine {system!r}, which the data set is of"
            return read_system(system).noted(ReadNotes(remarks=(remark,)))
        if self.nodes is not None:
            return Cluster.uniform(nodes=self.nodes)
        if workload.nodes_hint is None and trace in self.shown:
            shown: Cluster = self.shown[trace]
            return shown
        return stated_cluster(workload, "--nodes N")

    def derive(self, workload: Workload, trace: Path) -> Workload:
        """Derive the cluster from where jobs ran, if nothing else describes it.

        Returns:
            The jobs, as they are on this cluster.
        """
        self.shown.clear()
        given = (
            self.nodes is not None or self.cluster is not None or workload.nodes_hint is not None
        )
        if given or workload.recorded_nodes is None or trace.is_dir() or _system_of(trace):
            return workload
        from hpctwin.rms.site.derived_nodes import as_derived, derived_cluster, derived_nodes

        derived = derived_nodes(workload.to_frame().lazy())
        if derived is None:
            return workload
        self.shown[trace] = derived_cluster(derived, workload.name)
        return as_derived(workload, derived)


def _system_of(trace: Path) -> str | None:
    """The machine that a data set is of."""
    from hpctwin.formats import dataset_of

    found = dataset_of(trace)
    return None if found is None else found.system


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """How the simulation runs."""

    overrun: Annotated[Literal["terminate", "continue"], Parameter(group="Run")] = "terminate"
    """Whether a walltime ends a job."""
    on_dependency_failure: Annotated[Literal["cancel", "hold"], Parameter(group="Run")] = "cancel"
    """What becomes of a job whose afterok dependency failed."""
    seed: Annotated[int, Parameter(group="Run")] = 0
    """Of random placement."""

    def as_dict(self) -> dict[str, Any]:
        """As arguments of `Simulation`."""
        return {
            "overrun": self.overrun,
            "on_dependency_failure": self.on_dependency_failure,
            "seed": self.seed,
        }
