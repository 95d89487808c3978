"""All figures of a report, the same for the page and for files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl
from matplotlib.figure import Figure

from hpctwin.metrics import mean_summaries
from hpctwin.model import Workload, write_folder
from hpctwin.report.energy import (
    plot_cooling,
    plot_node_states,
    plot_pareto,
    plot_power,
)
from hpctwin.report.figures.comparison import (
    plot_compare_bars,
    plot_radar,
    plot_wait_by_size,
    plot_wait_cdf,
)
from hpctwin.report.figures.gantt import plot_gantt
from hpctwin.report.figures.style import save_figure
from hpctwin.report.figures.timeline import plot_congestion, plot_queue, plot_utilization
from hpctwin.report.figures.workload import plot_wait_heat, plot_workload
from hpctwin.report.pages.run import ReportedRun

__all__ = ["Drawn", "report_figures", "write_figures"]

_GANTT_SPAN_S = 7 * 86400.0


class Drawn(NamedTuple):
    """A figure of a report."""

    section: str
    name: str
    caption: str
    figure: Figure


def report_figures(
    entries: Sequence[ReportedRun],
    *,
    workload: Workload | None = None,
    start_epoch_s: float | None = None,
) -> list[Drawn]:
    """Draw all figures for which the runs have data.

    Runs of one policy on the same cluster that differ only in the trace or the seed are replicates:
    metrics are then means with their spread, waits are those of all jobs together, and charts over
    time show the first run of each policy.

    Args:
        entries: The runs in display order; labels are distinct.
        workload: Workload whose distributions are also drawn.
        start_epoch_s: Unix time of time zero, to show dates.
    """
    repeated = _replicates(entries)
    # Charts over time of all replicates would be many, and alike.
    firsts = [runs[0] for runs in repeated.values()] or entries
    found = [
        *_policies(entries, repeated),
        *_over_time(firsts, start_epoch_s),
        *_energy(firsts, start_epoch_s),
        *_network(firsts, start_epoch_s),
        *_gantts(firsts, start_epoch_s),
    ]
    if workload is not None:
        found.append(Drawn("Workload", "workload", "Distributions", plot_workload(workload)))
    return found


def write_figures(folder: Path, drawn: Sequence[Drawn], suffix: str) -> None:
    """Write each figure as a file.

    Args:
        folder: Folder, created if it does not exist.
        drawn: The figures.
        suffix: ``.png``, ``.svg`` or ``.pdf``.

    Raises:
        ConfigError: The suffix is another one.
        OutputError: A figure cannot be written; then no figure is kept.
    """
    with write_folder(folder) as new:
        for one in drawn:
            save_figure(one.figure, new / f"{one.name}{suffix}")


def _policies(
    entries: Sequence[ReportedRun], repeated: Mapping[str, Sequence[ReportedRun]]
) -> list[Drawn]:
    groups = repeated or {entry.label: [entry] for entry in entries}
    jobs = {label: _together([one.jobs for one in runs]) for label, runs in groups.items()}
    of = "cores" if any(entry.of == "core" for entry in entries) else "nodes"
    sized = {label: _together([one.sized for one in runs]) for label, runs in groups.items()}
    summaries = {
        label: mean_summaries([{label: one.summary} for one in runs])[label]
        if repeated
        else runs[0].summary
        for label, runs in groups.items()
    }
    of_all = " of all replicates together" if repeated else ""
    section = "Results"
    found = []
    if len(entries) > 1:
        bars = "Main metrics, policy by policy"
        if repeated:
            bars += (
                ": means over replicates, which differ in the trace or the seed. Points are runs; "
                "bars of 6 runs or more have a 95 % interval of the mean"
            )
        spread = {label: [one.summary for one in runs] for label, runs in repeated.items()}
        found = [Drawn(section, "bars", bars, plot_compare_bars(summaries, replicates=spread))]
    if len(groups) > 1:
        kiviat = (
            "Each axis: share of the best policy's value; half way to the rim is half as good, such "
            "as twice the wait. The area depends on the order of the axes and is not a score."
        )
        found.append(Drawn(section, "kiviat", kiviat, plot_radar(summaries)))
    heat = "Mean wait by job size: narrow or wide, short or long jobs. In brackets, number of jobs"
    return [
        *found,
        Drawn(
            section, "wait-cdf", f"Jobs{of_all} with at most the given wait", plot_wait_cdf(jobs)
        ),
        Drawn(
            section,
            "wait-by-size",
            f"Waits by job size{of_all}",
            plot_wait_by_size(sized, of=of),
        ),
        Drawn(section, "wait-heat", heat, plot_wait_heat(sized, of=of)),
    ]


def _together(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal_relaxed")


def _replicates(entries: Sequence[ReportedRun]) -> dict[str, list[ReportedRun]]:
    """Return the runs of each policy if some are replicates, and all are comparable; else none."""
    setups: dict[str, set[str]] = {}
    draws: dict[str, list[str]] = {}
    runs: dict[str, list[ReportedRun]] = {}
    for entry in entries:
        about = entry.manifest
        policy = str(about.get("policy", entry.label))
        options = {**about.get("options", {})}
        seed = options.pop("seed", None)
        inputs = sorted(about.get("inputs", {}).values())
        setups.setdefault(policy, set()).add(json.dumps([about.get("cluster"), options]))
        draws.setdefault(policy, []).append(json.dumps([about.get("workload"), inputs, seed]))
        runs.setdefault(policy, []).append(entry)
    repeated = any(len(found) > 1 for found in runs.values())
    alike = all(len(found) == 1 for found in setups.values())
    distinct = all(len(set(found)) == len(found) for found in draws.values())
    return runs if repeated and alike and distinct else {}


def _over_time(entries: Sequence[ReportedRun], start_epoch_s: float | None) -> list[Drawn]:
    series = {entry.label: entry.series for entry in entries}
    section = "Over time"
    used = plot_utilization(series, start_epoch_s=start_epoch_s)
    queue = plot_queue(series, start_epoch_s=start_epoch_s)
    caption = (
        "Nodes in use and nodes up. For long runs the area is the mean, the thin line the peak"
    )
    return [
        Drawn(section, "utilization", caption, used),
        Drawn(section, "queue", "Pending jobs and their requests", queue),
    ]


def _energy(entries: Sequence[ReportedRun], start_epoch_s: float | None) -> list[Drawn]:
    section = "Energy"
    found = []
    points = {
        entry.label: (joules, wait)
        for entry in entries
        if (joules := entry.summary.get("total_energy_j"))
        and (wait := entry.summary.get("mean_wait_s")) is not None
    }
    if len(points) > 1:
        caption = "The line joins the policies that no other beats in both"
        found.append(Drawn(section, "energy-against-wait", caption, plot_pareto(points)))
    power = {entry.label: entry.power for entry in entries if entry.power is not None}
    power = {label: table for label, table in power.items() if len(table) > 1}
    if power:
        drawn = plot_power(power, start_epoch_s=start_epoch_s)
        found.append(Drawn(section, "power", "Power draw of all nodes; means for long runs", drawn))
    for number, entry in enumerate(entries, 1):
        if entry.cooling is not None:
            drawn = plot_cooling(entry.cooling, title=entry.label, start_epoch_s=start_epoch_s)
            found.append(Drawn(section, f"cooling-{number}", f"{entry.label}: cooling", drawn))
    return found


def _network(entries: Sequence[ReportedRun], start_epoch_s: float | None) -> list[Drawn]:
    found = []
    for number, entry in enumerate(entries, 1):
        if entry.link_tables is not None:
            drawn = plot_congestion(
                entry.link_tables, title=entry.label, start_epoch_s=start_epoch_s
            )
            caption = f"{entry.label}: utilization of links, by level of the network"
            found.append(Drawn("Network", f"congestion-{number}", caption, drawn))
    return found


def _gantts(entries: Sequence[ReportedRun], start_epoch_s: float | None) -> list[Drawn]:
    start, end = _busiest_window(entries)
    section = "Jobs on nodes"
    found = []
    for number, entry in enumerate(entries, 1):
        drawn = plot_gantt(
            entry.jobs,
            entry.lanes,
            lost=entry.lost,
            nodes=entry.lane_count,
            of=entry.of,
            ticks=entry.ticks,
            title=entry.label,
            color_by="wait",
            start_s=start,
            end_s=end,
            start_epoch_s=start_epoch_s,
        )
        caption = f"{entry.label}: jobs over time, colored by wait"
        found.append(Drawn(section, f"gantt-{number}", caption, drawn))
        if entry.states is not None and len(entry.states):
            states = plot_node_states(
                entry.states,
                title=f"Node states, {entry.label}",
                start_s=start,
                end_s=end,
                start_epoch_s=start_epoch_s,
            )
            caption = f"{entry.label}: states of the nodes"
            found.append(Drawn(section, f"states-{number}", caption, states))
    return found


def _busiest_window(entries: Sequence[ReportedRun]) -> tuple[float, float]:
    """Return the week of the first run's longest queue; a year is unreadable."""
    times = [entry.series["time_s"] for entry in entries if len(entry.series)]
    if not times:
        return 0.0, 0.0
    first, last = min(float(t[0]) for t in times), max(float(t[-1]) for t in times)
    if last - first <= 1.5 * _GANTT_SPAN_S:
        return first, last
    leader = next(entry.series for entry in entries if len(entry.series))
    peak = float(leader["time_s"][leader["queue_length"].arg_max() or 0])
    start = min(max(peak - _GANTT_SPAN_S / 2, first), last - _GANTT_SPAN_S)
    return start, start + _GANTT_SPAN_S
