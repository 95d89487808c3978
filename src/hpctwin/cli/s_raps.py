"""``hpctwin experiment s-raps``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hpctwin.cli.options import ClusterOptions, Trace, TraceOptions, WindowOptions

if TYPE_CHECKING:
    from hpctwin.experiments.s_raps import Run

__all__ = ["s_raps"]


def s_raps(
    trace: Trace,
    /,
    *,
    reading: TraceOptions = TraceOptions(),  # noqa: B008
    part: WindowOptions = WindowOptions(),  # noqa: B008
    machine: ClusterOptions = ClusterOptions(),  # noqa: B008
    policy: Annotated[tuple[str, ...], Parameter(name=["--policy", "-p"])] = (),
    weather: str | None = None,
    step: str = "1m",
    plot: Path | None = None,
    out: Path | None = None,
    json: bool = False,
) -> int:
    """S-RAPS, figures 4 to 6: a part of a trace as it was, and under three policies.

    Args:
        trace: with recorded starts, such as a data set's file or folder (`hpctwin dataset list`).
        policy: replay, fcfs-nobf, fcfs-easy, priority-ffbf (all four if left out), or any policy.
        weather: wet-bulb temperature, °C, or a CSV file of weather: PUE and temperatures, of machines with
            cooling.
        step: of what is told over time.
        plot: file for the figure (.png, .svg, .pdf).
        out: folder for a table over time of each policy.
        json: print the statistics as JSON.
    """
    from hpctwin.cli.output import check_outputs, need_jobs, note_reading, print_json
    from hpctwin.experiments import s_raps as experiment
    from hpctwin.model import parse_duration_s, write_atomically, write_folder
    from hpctwin.model.progress import progress_bar
    from hpctwin.simulation import window

    check_outputs(trace, folders=[out], figures=[plot])
    workload = reading.read(trace)
    need_jobs(workload)
    ends = workload.recorded_start_ms + workload.runtime_ms
    chosen = part.cut(workload) or window(workload, 0.0, float(ends.max()) / 1000)
    note_reading(chosen.workload)
    cluster = machine.make(workload, trace)
    wet_bulb: str | float | None = weather
    if weather is not None and weather.replace(".", "", 1).removeprefix("-").isdigit():
        wet_bulb = float(weather)
    names = policy or tuple(experiment.POLICIES)
    done: list[str] = []
    with progress_bar(f"{workload.name} under {len(names)} policies") as progress:

        def one_more(name: str) -> None:
            done.append(name)
            progress(len(done) / len(names))

        runs = experiment.run(
            chosen,
            cluster,
            policies=names,
            wet_bulb=wet_bulb,
            step_s=parse_duration_s(step),
            progress=one_more,
        )
    if plot is not None:
        from hpctwin.report.machine import plot_machine
        from hpctwin.report.saving import save_figure

        drawn = plot_machine(
            {run.name: run.over_time for run in runs},
            title=f"{workload.name} on {cluster.name}",
            start_epoch_s=workload.start_epoch_s,
        )
        save_figure(drawn, plot)
    if out is not None:
        with write_folder(out) as new:
            for run in runs:
                with write_atomically(new / f"{run.name.replace('/', '-')}.parquet") as file:
                    run.over_time.write_parquet(file)
    if json:
        print_json([run.figures for run in runs])
    else:
        _show(runs)
    return 0


_ROWS = (
    ("jobs completed", "completed", 1.0, ",.0f"),
    ("utilization, %", "window_utilization", 100.0, ".1f"),
    ("mean power, MW", "window_mean_power_w", 1e-6, ".3f"),
    ("highest power, MW", "max_power_w", 1e-6, ".3f"),
    ("deviation of power, MW", "sd_power_w", 1e-6, ".3f"),
    ("energy, MWh", "window_energy_j", 1 / 3.6e9, ",.1f"),
    ("lost in conversion, %", "loss_share", 100.0, ".2f"),
    ("mean wait, h", "mean_wait_s", 1 / 3600, ".2f"),
    ("mean turnaround, h", "mean_turnaround_s", 1 / 3600, ".2f"),
    ("mean nodes of a job", "mean_job_nodes", 1.0, ",.1f"),
    ("mean power of a job, kW", "mean_job_power_w", 1e-3, ",.1f"),
    ("mean energy of a job, MWh", "mean_job_energy_j", 1 / 3.6e9, ".3f"),
    ("PUE", "pue", 1.0, ".4f"),
    ("water to the towers, °C", "return_mean_c", 1.0, ".2f"),
    ("water used, t", "cooling_water_kg", 1e-3, ",.1f"),
)


def _show(runs: list[Run]) -> None:
    from rich.table import Table

    from hpctwin.cli.output import screen

    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for run in runs:
        table.add_column(run.name, justify="right")
    for label, key, factor, form in _ROWS:
        values = [run.figures.get(key) for run in runs]
        if any(value is not None for value in values):
            cells = ["" if value is None else format(factor * value, form) for value in values]
            table.add_row(label, *cells)
    screen().print(table)
