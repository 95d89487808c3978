"""``hpctwin facility``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from hpctwin.cli.option_values import AT_LEAST_1
from hpctwin.cli.options import (
    By,
    ClustersOptions,
    Init,
    Latex,
    Tau,
    Trace,
    TraceOptions,
    tau_seconds,
    write_settings,
)

if TYPE_CHECKING:
    from hpctwin.facility import FacilityResult, Strategy

__all__ = ["facility_app"]

facility_app = App(name="facility", help="Choose among several clusters for each job.")
for name, target, summary in (
    ("run", "run_command", "Place the jobs of a facility's queue at its clusters, live."),
    ("submit", "submit_command", "Add a job to a facility's queue, and print its key."),
    ("queue", "queue_command", "Show a facility's queue, and the clusters of its jobs."),
    ("cancel", "withdraw_command", "Cancel a job that has no cluster yet."),
):
    facility_app.command(f"hpctwin.cli.live.facility_live:{target}", name=name, help=summary)


@Parameter(name="*")
@dataclass(frozen=True)
class StrategyOptions:
    """Settings of look-ahead strategies: sgs-t, sgs(…), earliest-start."""

    tie_break: Annotated[
        Literal["least-loaded", "random", "first"], Parameter(group="Strategy")
    ] = "least-loaded"
    """Choice between equally good clusters."""
    samples: Annotated[int, Parameter(group="Strategy")] = 0
    """Number of futures with sampled arrivals per placement; 0: no later arrivals."""
    horizon: Annotated[str, Parameter(group="Strategy")] = "24h"
    """Length of the future with sampled arrivals."""
    batch: Annotated[int, Parameter(group="Strategy")] = 1
    """Number of simultaneous jobs that a look-ahead tree places together."""
    window: Annotated[str, Parameter(group="Strategy")] = "0s"
    """Place jobs together at whole multiples of this time."""
    move_every: Annotated[str, Parameter(group="Strategy")] = "0s"
    """Time between two checks whether pending jobs move because they would end sooner."""
    move_gain: Annotated[str, Parameter(group="Strategy")] = "10m"
    """Minimum gain in end time for a move."""

    def as_dict(self) -> dict[str, Any]:
        """Return the options as arguments of `parse_strategy`."""
        from hpctwin.model import parse_duration_s

        return {
            "tie_break": self.tie_break,
            "samples": self.samples,
            "horizon_s": parse_duration_s(self.horizon),
            "batch": self.batch,
            "window_s": parse_duration_s(self.window),
            "move_every_s": parse_duration_s(self.move_every),
            "move_gain_s": parse_duration_s(self.move_gain),
        }


Overrun = Annotated[Literal["terminate", "continue"], Parameter(group="Run")]
Seed = Annotated[int, Parameter(group="Run")]
Json = Annotated[bool, Parameter(group="Output")]


@facility_app.command
def check(path: Path, /, *, json: Json = False) -> int:
    """Check a facility's YAML file and print a summary of the facility.

    Args:
        path: The YAML file.
        json: Print the facility as JSON, with all default values.
    """
    from hpctwin.cli.output import print_json
    from hpctwin.facility import Facility
    from hpctwin.model.text import count_text

    facility = Facility.from_yaml(path)
    if json:
        print_json(facility.model_dump(mode="json"))
        return 0
    print(
        f"{path}: valid; facility {facility.name} has {count_text(len(facility.clusters), 'cluster')}"
    )
    kinds = [kind.name for kind in facility.kinds] + ["any"]
    for cluster in facility.clusters:
        print(
            f"  {cluster.name}: {count_text(cluster.cluster.node_count, 'node')}, {cluster.policy}"
        )
        allowed = cluster.kinds or kinds
        factors = ", ".join(f"{kind} × {cluster.factor_of(kind):g}" for kind in allowed)
        print(f"    runtimes: {factors}")
    return 0


@facility_app.command
def schema() -> int:
    """Print the JSON Schema of a facility's YAML file, for editors."""
    from hpctwin.cli.output import print_json
    from hpctwin.facility import Facility

    print_json(Facility.model_json_schema())
    return 0


@facility_app.command
def simulate(
    trace: Trace,
    facility: Path,
    /,
    *,
    strategy: Annotated[str, Parameter(name=["--strategy", "-s"], group="Strategy")] = "sgs-t",
    knowledge: Annotated[
        Literal["oracle", "walltime", "like-jobs"],
        Parameter(name=["--knowledge", "-k"], group="Strategy"),
    ] = "walltime",
    looking: StrategyOptions = StrategyOptions(),
    reading: TraceOptions = TraceOptions(),  # noqa: B008
    overrun: Overrun = "terminate",
    seed: Seed = 0,
    tau: Tau = "10s",
    by: By = None,
    out: Annotated[Path | None, Parameter(group="Output")] = None,
    plot: Annotated[Path | None, Parameter(group="Output")] = None,
    json: Json = False,
    latex: Latex = False,
) -> int:
    """Simulate a trace in a facility under one strategy.

    Args:
        trace: The trace: SWF, SPARS or Batsim JSON, CSV or Parquet; also .gz.
        facility: The facility's YAML file.
        strategy: Strategy: siloed, random, user(0.6), round-robin, always(CLUSTER), shortest-queue,
            most-free, least-loaded, peer, earliest-start, sgs-t or sgs(OBJECTIVE), for example
            sgs(wait) or "sgs(turnaround + 0.5*carbon)".
        knowledge: Source of runtimes in forecasts: walltime; like-jobs, the share of the walltime
            that similar jobs used; oracle, the actual runtimes.
        overrun: Terminate or continue a job at the end of its walltime.
        seed: Seed of all random numbers.
        out: Write jobs.parquet, weeks.parquet and summary.json to this folder, and a folder per
            cluster for hpctwin serve and hpctwin report.
        plot: Write a chart of utilization by week to this file, .png, .svg or .pdf.
        json: Print the summary as JSON.
    """
    from hpctwin.cli.output import (
        check_outputs,
        note_facility,
        print_json,
        screen,
        with_notes,
    )
    from hpctwin.facility import Facility, FacilitySimulation, parse_strategy
    from hpctwin.metrics import breakdown
    from hpctwin.model.text import progress_bar

    check_outputs(trace, folders=[out], figures=[plot])
    tau_s = tau_seconds(tau)
    chosen = parse_strategy(strategy, knows=knowledge, **looking.as_dict())
    place = Facility.from_yaml(facility)
    workload = reading.jobs(trace)
    notes = note_facility(workload, place)
    simulation = FacilitySimulation(place, workload, chosen, seed=seed, overrun=overrun)
    with progress_bar(f"{workload.name} under {chosen.name}") as progress:
        result = simulation.run(progress)
    _write({chosen.name: result}, tau_s, out, plot, facility, trace)
    summary = result.summary(tau_s=tau_s)
    if json:
        if by is not None:
            summary["by"] = breakdown(result.jobs, by, tau_s=tau_s).to_dicts()
        print_json(summary | with_notes(notes))
        return 0
    console = screen(latex=latex)
    _show({chosen.name: result}, tau_s, console)
    if by is not None:
        from hpctwin.report.accessor import breakdown_table

        console.print(breakdown_table(breakdown(result.jobs, by, tau_s=tau_s), by, alike=latex))
    return 0


@facility_app.command
def compare(
    trace: Trace,
    facility: Path | None = None,
    /,
    *,
    machine: ClustersOptions = ClustersOptions(),  # noqa: B008
    init: Init = False,
    strategy: Annotated[tuple[str, ...], Parameter(name=["--strategy", "-s"], group="Strategy")] = (
        "random",
        "least-loaded",
        "sgs-t",
    ),
    knowledge: Annotated[
        tuple[Literal["oracle", "walltime", "like-jobs"], ...],
        Parameter(name=["--knowledge", "-k"], group="Strategy"),
    ] = ("walltime",),
    looking: StrategyOptions = StrategyOptions(),
    reading: TraceOptions = TraceOptions(),  # noqa: B008
    overrun: Overrun = "terminate",
    seed: Seed = 0,
    tau: Tau = "10s",
    threads: Annotated[int, Parameter(group="Run"), AT_LEAST_1] = 1,
    out: Annotated[Path | None, Parameter(group="Output")] = None,
    plot: Annotated[Path | None, Parameter(group="Output")] = None,
    json: Json = False,
    latex: Latex = False,
) -> int:
    """Simulate a trace in a facility under several strategies and compare them.

    Args:
        trace: The trace.
        facility: The facility's YAML file; or give its clusters with --nodes and --cluster.
        init: Write --nodes and --cluster to facility.yaml and stop; the file offers more settings.
        strategy: Strategy, as in `hpctwin facility simulate --help`. Repeatable.
        knowledge: Source of runtimes; look-ahead strategies run with each. Repeatable.
        overrun: Terminate or continue a job at the end of its walltime.
        seed: Seed of all random numbers.
        threads: Number of strategies simulated in parallel; each decision then takes longer.
        out: Write a folder per strategy here, each as by `hpctwin facility simulate`.
        plot: Write a chart of utilization by week to this file, .png, .svg or .pdf.
        json: Print the summaries as JSON.
    """
    from hpctwin.cli.output import (
        check_outputs,
        note_facility,
        print_json,
        screen,
        with_notes,
    )
    from hpctwin.errors import ConfigError
    from hpctwin.facility import Facility, compare_strategies, parse_strategy
    from hpctwin.facility.strategies import GUIDED
    from hpctwin.model.text import counted, progress_bar

    content = {"clusters": _clusters(machine)}
    if (facility is None) == (not content["clusters"]):
        raise ConfigError(
            "facility: give its file after the trace, or its clusters with --nodes and --cluster, "
            "but not both"
        )
    if facility is None:
        place = Facility.checked(content, "options")
    else:
        place = Facility.from_yaml(facility)
    if init:
        run = f"hpctwin facility compare {trace} facility.yaml"
        return write_settings(Path("facility.yaml"), place, content, run)
    check_outputs(trace, folders=[out], figures=[plot])
    tau_s = tau_seconds(tau)
    chosen: list[Strategy] = []
    for text in strategy:
        guided = text.partition("(")[0].strip() in GUIDED
        chosen += [
            parse_strategy(text, knows=knows, **looking.as_dict())
            for knows in (knowledge if guided else knowledge[:1])
        ]
    workload = reading.jobs(trace)
    notes = note_facility(workload, place)
    with progress_bar(f"{workload.name}, {len(chosen)} strategies") as progress:
        results = compare_strategies(
            place, workload, chosen, seed=seed, overrun=overrun, threads=threads,
            progress=counted(progress, len(chosen)),
        )  # fmt: skip
    files = machine.cluster if facility is None else (facility,)
    _write(results, tau_s, out, plot, *files, trace)
    if json:
        summaries = [result.summary(tau_s=tau_s) for result in results.values()]
        print_json([summary | with_notes(notes) for summary in summaries])
        return 0
    _show(results, tau_s, screen(latex=latex))
    return 0


def _clusters(machine: ClustersOptions) -> list[dict[str, Any]]:
    """Return the clusters of a facility as plain settings, each with a name."""
    numbered = enumerate(machine.nodes, 1)
    return [
        *({"name": f"cluster-{number}", "nodes": nodes} for number, nodes in numbered),
        *({"name": file.stem, "machine": str(file)} for file in machine.cluster),
    ]


def _show(results: dict[str, FacilityResult], tau_s: float, console: Any) -> None:
    from hpctwin.model.text import count_text
    from hpctwin.report.facility import facility_table

    summaries = {label: result.summary(tau_s=tau_s) for label, result in results.items()}
    console.print(facility_table(summaries, next(iter(results.values())).facility.names))
    nowhere = max(summary["jobs_nowhere"] for summary in summaries.values())
    if nowhere:
        console.print(f"rejected, because they can run at no cluster: {count_text(nowhere, 'job')}")


def _write(
    results: dict[str, FacilityResult],
    tau_s: float,
    out: Path | None,
    plot: Path | None,
    *inputs: Path,
) -> None:
    import json
    import re

    from hpctwin.model import write_atomically, write_folder
    from hpctwin.report.pages.run import write_run

    if plot is not None:
        from hpctwin.report.facility import plot_weeks
        from hpctwin.report.figures.style import save_figure

        save_figure(plot_weeks({name: result.weeks for name, result in results.items()}), plot)
    if out is None:
        return
    with write_folder(out) as new:
        for name, result in results.items():
            own = re.sub(r"[^A-Za-z0-9.+-]+", "_", name).strip("_")
            folder = new if len(results) == 1 else new / own
            folder.mkdir(exist_ok=True)
            for stem, table in (("jobs", result.jobs), ("weeks", result.weeks)):
                with write_atomically(folder / f"{stem}.parquet") as file:
                    table.write_parquet(file)
            about = {
                **result.summary(tau_s=tau_s),
                "assumptions": result.notes,
                "facility": result.facility.model_dump(mode="json"),
            }
            with write_atomically(folder / "summary.json") as file:
                file.write(json.dumps(about, indent=2, default=str).encode())
            for cluster, own_result in result.clusters.items():
                of = re.sub(r"[^A-Za-z0-9._+-]+", "_", cluster).strip("_.") or "cluster"
                write_run(own_result, folder / of, {"strategy": name}, inputs=inputs)
