"""Figures of power and energy.

They show:

- nodes by power state, power over time, and energy against wait
- cooling: power, PUE and the water's temperatures over time
- a calibration: measured power, its forecast, and the errors of all models
- a cluster under several policies: utilization, power, PUE, water temperature
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from hpctwin.energy import Energy
from hpctwin.energy.accounts.outputs import node_log
from hpctwin.energy.power.calibration import errors_pct
from hpctwin.metrics.time_series import integrals
from hpctwin.model.text import format_duration
from hpctwin.report.figures.style import (
    PALETTE,
    TimeScale,
    color,
    count_axis,
    empty_note,
    line_style,
    new_figure,
    styled,
)

__all__ = [
    "plot_by_timeout",
    "plot_calibration",
    "plot_cooling",
    "plot_energy_against_wait",
    "plot_machine",
    "plot_node_states",
    "plot_pareto",
    "plot_power",
]

FloatArray = npt.NDArray[np.float64]


@styled
def plot_cooling(
    cooled: pl.DataFrame, *, title: str = "Cooling", start_epoch_s: float | None = None
) -> Figure:
    """Draw the power of a cluster and its cooling, its PUE, and the water's temperatures.

    Args:
        cooled: Table as of `ComponentEnergy.cooled`.
        title: Title of the figure.
        start_epoch_s: Unix time of time zero; None if not known.
    """
    figure = new_figure(5.6)
    power, pue, water = figure.subplots(3, sharex=True)
    power.set_title(title)
    begin = float(cooled["time_s"][0])
    end = float(cooled["time_s"][-1] + cooled["step_s"][-1])
    scale = TimeScale.of(end - begin, start_epoch_s)
    at = scale.at(np.append(cooled["time_s"].to_numpy(), end))
    plant = cooled["pump_w"] + cooled["fan_w"] + cooled["air_w"]
    for ax, label, values in (
        (power, "machine", (cooled["heat_w"] + cooled["air_heat_w"]) / 1e6),
        (power, "cooling", plant / 1e6),
        (pue, "", cooled["pue"]),
        (water, "to the towers", cooled["return_c"]),
        (water, "to the machine", cooled["supply_c"]),
        (water, "wet bulb", cooled["wet_bulb_c"]),
    ):
        steps = np.append(values.to_numpy(), values[-1])
        ax.step(at, steps, where="post", label=label, color=color(len(ax.lines)), linewidth=0.9)
    for ax, unit in ((power, "MW"), (pue, "PUE"), (water, "°C")):
        ax.set_ylabel(unit)
        if len(ax.lines) > 1:
            ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3)
    power.set_ylim(bottom=0)
    scale.apply(water, begin, end)
    return figure


@styled
def plot_calibration(
    time_s: FloatArray,
    measured_w: FloatArray,
    forecasts: Mapping[str, FloatArray],
    *,
    rolling: int,
    first: int,
) -> Figure:
    """Draw measured power, the last model's forecast, and each model's rolling error.

    Args:
        time_s: Times of the samples, in seconds [samples].
        measured_w: Measured power, in W [samples].
        forecasts: Forecast power by model, in W [samples].
        rolling: Number of samples in the window of the error.
        first: Index of the first sample whose forecast counts.
    """
    figure = new_figure(4.4)
    above, below = figure.subplots(2, sharex=True)
    scale = TimeScale.of(float(time_s[-1] - time_s[0]), None)
    at = scale.at(time_s - time_s[0])
    name = list(forecasts)[-1]
    above.plot(at, measured_w / 1000, label="measured", color="#555555", linewidth=0.9)
    above.plot(
        at[first:], forecasts[name][first:] / 1000, label=name, color=color(0), linewidth=0.7
    )
    above.set_ylabel("kW")
    above.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    for number, (model, forecast) in enumerate(forecasts.items()):
        error = errors_pct(forecast, measured_w)
        error[:first] = np.nan
        total = np.concatenate([[0.0], np.cumsum(np.nan_to_num(error))])
        count = np.concatenate([[0], np.cumsum(~np.isnan(error))])
        end = np.arange(first, len(error)) + 1
        begin = np.maximum(end - rolling, first)
        below.plot(
            at[first:],
            (total[end] - total[begin]) / np.maximum(count[end] - count[begin], 1),
            label=model,
            color=color(number),
            linewidth=0.9,
        )
    below.set_ylabel("mean error, %")
    below.set_ylim(bottom=0)
    below.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4)
    scale.apply(below, 0.0, float(time_s[-1] - time_s[0]))
    return figure


_PANELS = (
    ("utilization", "nodes in use, %", 100.0),
    ("power_w", "power, MW", 1e-6),
    ("pue", "PUE", 1.0),
    ("return_c", "water to the towers, °C", 1.0),
)


@styled
def plot_machine(
    runs: Mapping[str, pl.DataFrame], *, title: str = "", start_epoch_s: float | None = None
) -> Figure:
    """Draw a cluster's state under each policy, one panel above the other.

    Args:
        runs: Tables by name: ``time_s`` and any of ``utilization``, ``power_w``, ``pue``,
            ``return_c`` in equal steps.
        title: Title of the figure.
        start_epoch_s: Unix time of time zero; None if not known.
    """
    first = next(iter(runs.values()))
    panels = [panel for panel in _PANELS if panel[0] in first.columns]
    figure = new_figure(1.2 + 1.7 * len(panels))
    axes = np.atleast_1d(figure.subplots(len(panels), sharex=True))
    begin, end = float(first["time_s"][0]), float(first["time_s"][-1])
    scale = TimeScale.of(end - begin, start_epoch_s)
    for ax, (column, label, factor) in zip(axes, panels, strict=True):
        for number, (name, table) in enumerate(runs.items()):
            ax.step(
                scale.at(table["time_s"].to_numpy()), factor * table[column].to_numpy(),
                where="post", label=name, color=color(number), linewidth=1.0,
            )  # fmt: skip
        ax.set_ylabel(label)
    axes[0].set_ylim(0, 105)
    axes[0].set_title(title)
    axes[0].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(runs))
    scale.apply(axes[-1], begin, end)
    return figure


_POINTS = 300
"""Maximum number of points in a curve; longer ones are drawn as means."""

_LOOK = {
    "computing": PALETTE[0],
    "idle": PALETTE[7],
    "switching_off": PALETTE[3],
    "switching_on": PALETTE[5],
    "sleeping": "#D9DEE3",
}


def _look(state: str) -> str:
    return _LOOK[state.partition(":")[0]]


@styled
def plot_node_states(
    energy: Energy | pl.DataFrame,
    *,
    title: str = "Node states",
    start_s: float | None = None,
    end_s: float | None = None,
    nodes: int | None = None,
    start_epoch_s: float | None = None,
) -> Figure:
    """Draw the state of each node over time, as SPARS's figure 3.

    Args:
        energy: Energy of a simulation with ``log=True``; or its
            `hpctwin.energy.accounts.outputs.node_log`.
        title: Title of the figure.
        start_s: Beginning of the window, in seconds; default the beginning of the simulation.
        end_s: End of the window, in seconds; default the end of the simulation.
        nodes: Number of nodes to draw, from the first; default all.
        start_epoch_s: Unix time of time zero, for a table.
    """
    if isinstance(energy, Energy):
        start_epoch_s, energy = energy.start_epoch_s, node_log(energy)
    node, start, end = (energy[name].to_numpy() for name in ("node", "start_s", "end_s"))
    names = energy["state"].unique().sort().to_list()
    state = energy["state"].cast(pl.Enum(names)).to_physical().to_numpy()
    last = float(end.max(initial=0.0)) if end_s is None else end_s
    if start_s is None:
        start_s = float(start.min(initial=last))
    shown = (start < last) & (end > start_s)
    if nodes is not None:
        shown &= node < nodes
    scale = TimeScale.of(last - start_s, start_epoch_s)
    figure = new_figure(4.6)
    ax = figure.subplots()
    ax.set_title(title)
    ax.set_ylabel("node number")
    ax.grid(visible=False)
    left, right = scale.at(start[shown]), scale.at(end[shown])
    low = node[shown].astype(np.float64)
    corners = np.stack(
        [np.stack(side, axis=1) for side in
         ((left, low), (left, low + 1), (right, low + 1), (right, low))],
        axis=1,
    )  # fmt: skip
    colors = np.array([_look(name) for name in names])[state[shown]]
    ax.add_collection(
        PolyCollection(list(corners), facecolors=list(colors), linewidths=0, rasterized=True)
    )
    count_axis(ax, nodes or int(node.max(initial=0)) + 1)
    scale.apply(ax, start_s, last)
    if shown.any():
        _state_legend(figure, sorted(set(state[shown].tolist())), names)
    else:
        empty_note(ax)
    return figure


@styled
def plot_power(
    energies: Mapping[str, Energy | pl.DataFrame],
    *,
    title: str = "Power drawn",
    start_epoch_s: float | None = None,
) -> Figure:
    """Draw the power of all nodes over time; long series as means over bins.

    Args:
        energies: Energy by name, each of a simulation with ``log=True``; or its
            `hpctwin.energy.accounts.outputs.power_changes`.
        title: Title of the figure.
        start_epoch_s: Unix time of time zero, for tables.
    """
    figure = new_figure(3.2)
    ax = figure.subplots()
    ax.set_title(title)
    ax.set_ylabel("kW")
    curves = {}
    for name, energy in energies.items():
        if isinstance(energy, Energy):
            start_epoch_s = energy.start_epoch_s
            curves[name] = energy.power_over_time()
        else:
            curves[name] = energy["time_s"].to_numpy(), energy["total_w"].to_numpy()
    times_s = [times for times, _ in curves.values() if len(times)]
    last = max((float(times[-1]) for times in times_s), default=0.0)
    first = min((float(times[0]) for times in times_s), default=0.0)
    scale = TimeScale.of(last - first, start_epoch_s)
    step_s = (last - first) / _POINTS
    averaged = any(len(times) > _POINTS for times in times_s)
    curves = {name: _means(*curve, step_s) for name, curve in curves.items()}
    for number, (name, (times, watts)) in enumerate(curves.items()):
        ax.step(
            scale.at(times),
            watts / 1000,
            where="post",
            label=name,
            **line_style(number),
        )
    ax.set_ylim(bottom=0)
    scale.apply(ax, first, last, f", means over {format_duration(step_s)}" if averaged else "")
    if not times_s:
        empty_note(ax)
    elif len(curves) > 1:
        figure.legend(loc="outside upper right", ncols=len(curves))
    return figure


@styled
def plot_energy_against_wait(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    *,
    bounds: Mapping[str, float] | None = None,
    published: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    title: str = "Energy against waiting",
) -> Figure:
    """Draw total energy against mean wait, a curve over timeouts for each scheduler.

    Args:
        curves: Total energy (J) and mean wait (s) of each run, by scheduler.
        bounds: Energies (J) above or below all curves, by name; the axis is broken before each.
        published: Published curves, drawn dotted; a curve has the color of the scheduler whose name
            begins its name.
        title: Title of the figure.
    """
    figure = new_figure(5.2)
    limits = sorted((bounds or {}).items(), key=lambda bound: -bound[1])
    ratios = [10 if n == 1 else 1 for n in range(3)] if limits else [1]
    panels = figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios, squeeze=False)[:, 0]
    ax = panels[1] if limits else panels[0]
    colors = {name: color(number % 7) for number, name in enumerate(curves)}
    for name, points in [*curves.items(), *(published or {}).items()]:
        joules, wait = np.array(points).T
        ours = name in curves
        like = next((known for known in curves if name.startswith(known)), None)
        ax.plot(
            wait / 60,
            joules / 1e9,
            marker="o" if ours else "x" if "SPARS" in name else "+",
            markersize=4,
            linestyle="-" if ours else ":",
            color=colors[like] if like else "#777777",
            label=name,
        )
    for panel, (name, joules) in zip((panels[0], panels[-1]), limits, strict=False):
        giga = joules / 1e9
        panel.axhline(giga, color="#808080", linewidth=1.2, linestyle="--")
        panel.set_ylim(giga - 0.6, giga + 0.6)
        panel.set_yticks([giga], [f"{giga:.2f}"])
        panel.grid(visible=False)
        panel.text(0.99, 0.62, name, transform=panel.transAxes, ha="right", fontsize=8.5)
    for panel in panels[:-1]:
        panel.spines["bottom"].set_visible(False)
        panel.tick_params(axis="x", which="both", length=0)
    panels[0].set_title(title)
    ax.set_xscale("log")
    ticks = [5, 10, 20, 30, 60, 120, 240, 480]
    ax.set_xticks(ticks, [str(t) if t < 60 else f"{t // 60} h" for t in ticks])
    ax.minorticks_off()
    ax.margins(0.04)
    panels[-1].set_xlabel("mean wait (minutes, logarithmic)")
    ax.set_ylabel("total energy (GJ)")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside right center")
    return figure


@styled
def plot_pareto(
    points: Mapping[str, tuple[float, float]], *, title: str = "Energy against waiting"
) -> Figure:
    """Draw the energy of runs against their mean wait; a line joins the Pareto front.

    Args:
        points: Total energy (J) and mean wait (s), by name.
        title: Title of the figure.
    """
    figure = new_figure(4.2)
    ax = figure.subplots()
    ax.set_title(title)
    joules, wait = np.array(list(points.values())).T
    best = [
        k
        for k in range(len(joules))
        if not ((joules <= joules[k]) & (wait <= wait[k]) & ((joules < joules[k]) | (wait < wait[k]))).any()
    ]  # fmt: skip
    best.sort(key=lambda k: wait[k])
    ax.plot(wait[best] / 60, joules[best] / 3.6e6, color="#808080", linewidth=1.0, zorder=1)
    for number, name in enumerate(points):
        marker = "osD^vPX*"[number % 8]
        at = wait[number] / 60, joules[number] / 3.6e6
        ax.plot(*at, marker, color=color(number), markersize=7, label=name, zorder=2)
    ax.set_xlabel("mean wait (minutes)")
    ax.set_ylabel("total energy (kWh)")
    ax.margins(0.12)
    figure.legend(loc="outside right upper")
    return figure


@styled
def plot_by_timeout(
    curves: Mapping[str, Sequence[tuple[float, float, float]]], *, title: str = "By timeout"
) -> Figure:
    """Draw total energy and mean wait over the timeout, as SPARS's figure 4.

    Args:
        curves: Timeout (s), total energy (J) and mean wait (s) of each run, by scheduler.
        title: Title of the figure.
    """
    figure = new_figure(3.8)
    left, right = figure.subplots(1, 2)
    figure.suptitle(title)
    for number, (name, points) in enumerate(curves.items()):
        timeout, joules, wait = np.array(points).T
        look = {"marker": "o", "markersize": 3, "color": color(number % 7)}
        left.plot(timeout / 60, joules / 1e9, label=name, **look)
        right.plot(timeout / 60, wait / 60, **look)
    for ax, label in ((left, "total energy (GJ)"), (right, "mean wait (minutes)")):
        ax.set_xlabel("timeout (minutes)")
        ax.set_ylabel(label)
    right.set_yscale("log")
    right.set_yticks([10, 20, 60, 120, 480], ["10", "20", "1 h", "2 h", "8 h"])
    right.minorticks_off()
    figure.legend(loc="outside lower center", ncols=min(len(curves), 7))
    return figure


def _means(times: FloatArray, watts: FloatArray, step_s: float) -> tuple[FloatArray, FloatArray]:
    """Return a step function; as means over bins if it has more steps than pixels."""
    if len(times) <= _POINTS:
        return times, watts
    edges = np.append(np.arange(times[0], times[-1], step_s), times[-1])
    means = integrals(times, watts, edges) / np.diff(edges)
    return edges, np.append(means, means[-1])


def _state_legend(figure: Figure, rows: list[int], states: Sequence[str]) -> None:
    names = dict.fromkeys(states[row].partition(":")[0] for row in rows)
    handles = [Patch(facecolor=_LOOK[name], label=name.replace("_", " ")) for name in names]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
