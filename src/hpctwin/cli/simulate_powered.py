"""``hpctwin simulate … --platform``: with node power states."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpctwin.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hpctwin.cli.options import ClusterOptions, PowerOptions, RunOptions, TraceOptions
    from hpctwin.energy import Energy, Series
    from hpctwin.metrics import By
    from hpctwin.model import Workload
    from hpctwin.policies import Policy

__all__ = ["simulate_powered", "simulate_spars"]


def simulate_powered(
    trace: Path,
    policy: Policy,
    reading: TraceOptions,
    machine: ClusterOptions,
    run: RunOptions,
    energy: PowerOptions,
    *,
    by: By | None,
    out: Path | None,
    plot: Path | None,
    json: bool,
) -> int:
    """Simulate, and show how it went and what it took; arguments as of `simulate_command`."""
    from hpctwin.cli.output import need_jobs, note_reading, note_rejected, progress_bar
    from hpctwin.energy import PoweredSimulation
    from hpctwin.energy.control import find_control
    from hpctwin.formats.machines import read_cluster
    from hpctwin.model import PowerCap

    assert energy.platform is not None
    cluster = read_cluster(energy.platform)
    if machine.nodes is not None and machine.nodes != cluster.node_count:
        raise ConfigError(
            f"--nodes is {machine.nodes}, but the platform has {cluster.node_count} nodes"
        )
    if machine.cluster is not None:
        raise ConfigError("give --cluster or --platform, not both")
    power = energy.policy()
    if energy.lower_modes and energy.cap is None:
        raise ConfigError("--lower-modes needs --cap: what to fit under")
    workload = reading.read(trace)
    note_reading(workload)
    need_jobs(workload)
    series, notes = _series(energy, workload)
    drawn = plot is not None and any(word in plot.stem for word in ("states", "power"))
    options = run.as_dict()
    simulation = PoweredSimulation(
        workload,
        cluster,
        policy=policy,
        power=power,
        log=bool(series) or out is not None or energy.spars_out is not None or drawn,
        cap=None
        if energy.cap is None
        else PowerCap.parse(energy.cap, lower_modes=energy.lower_modes),
        control=None if energy.control is None else find_control(energy.control),
        begin_s=_begins(energy, workload, series),
        **options,
    )
    with progress_bar(f"{workload.name} under {policy.name}, {power.name}") as progress:
        simulation.run(progress)
    used = simulation.energy()
    summary = {
        **used.summary(),
        "power": energy.control or power.name,
        **_costs(used, series),
        **notes,
    }
    _show(used, summary, options, by=by, out=out, spars=energy.spars_out, plot=plot, json=json)
    return note_rejected(used.result)


def simulate_spars(path: Path, *, out: Path | None, plot: Path | None, json: bool) -> int:
    """Run SPARS's ``simulator_config.yaml``; its CSV files go where it says.

    Args:
        path: the configuration.
        out, plot, json: as of `simulate_command`.
    """
    import sys

    from hpctwin.cli.output import need_jobs, note_reading, note_rejected, progress_bar
    from hpctwin.energy import PoweredSimulation, read_spars_config

    run = read_spars_config(path)
    note_reading(run.workload)
    need_jobs(run.workload)
    for note in run.notes:
        print(note, file=sys.stderr)
    simulation = PoweredSimulation(
        run.workload,
        run.cluster,
        "fcfs",
        run.backfill,
        power=run.power,
        overrun=run.overrun,
        log=True,
    )
    with progress_bar(f"{run.workload.name} under {run.power.name}") as progress:
        simulation.run(progress)
    used = simulation.energy()
    summary = {**used.summary(), "power": run.power.name, "rule": run.power.rule}
    options = {"overrun": run.overrun}
    _show(used, summary, options, by=None, out=out, spars=run.output, plot=plot, json=json)
    return note_rejected(used.result)


def _show(
    used: Energy,
    summary: dict[str, Any],
    options: dict[str, Any],
    *,
    by: By | None,
    out: Path | None,
    spars: Path | None,
    plot: Path | None,
    json: bool,
) -> None:
    """Write and print what a run gave."""
    import dataclasses

    from rich.console import Console

    from hpctwin.cli.output import print_json, write_result
    from hpctwin.energy.outputs import write_energy, write_spars
    from hpctwin.report import summary_table
    from hpctwin.report.accessor import breakdown_table, save_figure

    result = dataclasses.replace(used.result, jobs=used.jobs)
    if out is not None:
        write_result(result, out, {**options, "power": summary["power"]}, summary)
        write_energy(used, out)
    if spars is not None:
        write_spars(used, spars)
    if plot is not None:
        save_figure(_figure(used, plot.stem), plot)
    if json:
        print_json(summary if by is None else {**summary, "by": _by(used, by)})
        return
    console = Console()
    console.print(summary_table(summary))
    if by is not None:
        console.print(breakdown_table(result.jobs, by))


def _series(energy: PowerOptions, workload: Workload) -> tuple[dict[str, Series], dict[str, str]]:
    """Price and carbon intensity with time zero where the workload's is, and how that was found."""
    from hpctwin.energy import Series

    found, notes = {}, {}
    for name, path in (("price", energy.price), ("carbon", energy.carbon)):
        if path is not None:
            found[name], how = Series.read(path).aligned(workload.start_epoch_s)
            notes[f"{name}_aligned"] = f"by {how}"
    return found, notes


def _begins(energy: PowerOptions, workload: Workload, series: dict[str, Series]) -> Any:
    import numpy as np

    from hpctwin.energy import cheapest_begins
    from hpctwin.model import parse_duration_s

    if energy.may_wait is None:
        return None
    if not series:
        raise ConfigError("--may-wait needs --price or --carbon: what to wait for")
    seconds = parse_duration_s(energy.may_wait)
    if not seconds >= 0:
        raise ConfigError(f"--may-wait is {energy.may_wait!r}, it must be 0 or more")
    return cheapest_begins(
        workload.submit_ms / 1000,
        workload.walltime_ms / 1000,
        np.full(len(workload), seconds),
        next(iter(series.values())),
    )


def _costs(used: Energy, series: dict[str, Series]) -> dict[str, float]:
    costs = {}
    if "price" in series:
        unit = series["price"].unit.lower() or "currency"
        costs[f"cost_{unit}"] = used.cost(series["price"])
    if "carbon" in series:
        costs["emissions_kg"] = used.cost(series["carbon"]) / 1000
    return costs


def _by(used: Energy, by: By) -> list[dict[str, Any]]:
    from hpctwin.metrics import breakdown

    rows = breakdown(used.jobs, by).to_dicts()
    if by in ("user", "account", "partition"):
        joules = {row[by]: row["energy_j"] for row in used.by(by).iter_rows(named=True)}
        for row in rows:
            row["energy_j"] = joules.get(row["bin"])
    return rows


def _figure(used: Energy, stem: str) -> Figure:
    from hpctwin.report.accessor import Plots
    from hpctwin.report.energy import plot_node_states, plot_power

    result = used.result
    title = f"{result.workload.name} under {result.policy}"
    if "states" in stem:
        return plot_node_states(used, title=f"Node states, {title}")
    if "power" in stem:
        return plot_power({result.policy: used}, title=f"Power drawn, {title}")
    if "gantt" in stem:
        return Plots(result).gantt()
    return Plots(result).queue() if "queue" in stem else Plots(result).utilization()
