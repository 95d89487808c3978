"""Options of power, energy costs and cooling, and the metrics they add."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from hpctwin.cli.option_values import complete_part
from hpctwin.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl

    from hpctwin.energy import Energy, Series
    from hpctwin.model import Cluster, Workload
    from hpctwin.simulation import Result, Window

__all__ = ["CostOptions", "EnergyOptions"]


@Parameter(name="*")
@dataclass(frozen=True)
class CostOptions:
    """Energy costs and cooling."""

    price: Annotated[str | None, Parameter(group="Energy")] = None
    """Electricity price per kWh, such as 0.25, or a CSV file; default the cluster's."""
    carbon: Annotated[str | None, Parameter(group="Energy")] = None
    """Grams of CO2 per kWh, such as 380, or a CSV file; default the cluster's."""
    weather: Annotated[str | None, Parameter(group="Energy")] = None
    """Wet-bulb temperature in °C, or a CSV file of weather; adds cooling to the summary."""
    cooling_fmu: Annotated[Path | None, Parameter(group="Energy")] = None
    """YAML file of an FMU of the plant (docs/reference/systems.md); default the cluster's cooling."""

    def check(self, cluster: Cluster) -> None:
        """Check that the cluster has what the given options need.

        Raises:
            ConfigError: A given option needs the nodes' power model or a cooling model, and the cluster
                has none.
        """
        if not cluster.has_power:
            for option in dataclasses.fields(self):
                if option.name != "power" and getattr(self, option.name) != option.default:
                    name = "--" + option.name.replace("_", "-")
                    raise ConfigError(
                        f"{name}: the cluster has no power model; give --cluster with "
                        "'modes' in each node group (docs/how-to/power-price-and-carbon.md)"
                    )
        if self.cooling_fmu is not None and self.weather is None:
            raise ConfigError("--cooling-fmu: the weather is missing; add --weather")
        if self.weather is not None and cluster.cooling is None and self.cooling_fmu is None:
            raise ConfigError(
                f"--weather: cluster {cluster.name!r} has no cooling model; add 'cooling' "
                "to its file (docs/reference/systems.md)"
            )

    def series(
        self, workload: Workload, cluster: Cluster
    ) -> tuple[dict[str, Series], dict[str, str]]:
        """Return price and carbon from the workload's time zero, and notes on the alignment.

        An omitted option means the cluster's own series.
        """
        found: dict[str, Series] = {}
        notes: dict[str, str] = {}
        kinds: tuple[tuple[Literal["price", "carbon"], Any, Any, str], ...] = (
            ("price", self.price, cluster.price, cluster.currency),
            ("carbon", self.carbon, cluster.carbon, "g"),
        )
        for name, given, own, unit in kinds:
            what = own if given is None else _flat(name, given)
            if what is None:
                continue
            from hpctwin.energy import Series

            if isinstance(what, float):
                found[name] = Series.hourly([what], unit)
            else:
                found[name], how = Series.read(what, what=name).aligned(workload.start_epoch_s)
                notes[f"{name}_aligned"] = f"by {how}"
        return found, notes

    def cooled(self, energy: Energy | None, begin_s: float | None = None) -> pl.DataFrame | None:
        """Return the cooling's power over time from a time on; None without --weather."""
        if self.weather is None or energy is None:
            return None
        from hpctwin.energy.accounts.component_energy import ComponentEnergy

        if not isinstance(energy, ComponentEnergy):
            return None
        wet_bulb: float | str = self.weather
        with suppress(ValueError):
            wet_bulb = float(self.weather)
        if self.cooling_fmu is not None:
            from hpctwin.energy.cooling.fmu import Fmu

            return energy.cooled_by(Fmu.from_yaml(self.cooling_fmu), wet_bulb, begin_s=begin_s)
        return energy.cooled(wet_bulb, begin_s=begin_s)

    def summed(
        self, result: Result, series: dict[str, Series], more: dict[str, Any], window: Window | None
    ) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
        """Return all metrics of a run or window, and its tables ``cooling`` and ``costs``.

        Args:
            result: Result of the run.
            series: Price and carbon from `series`.
            more: Further metrics.
            window: The simulated part; None for the whole trace.
        """
        energy = result.energy
        if window is None:
            summary = {
                **result.summary(),
                **({} if energy is None else costs(energy.cost, series)),
                **more,
            }
        else:
            summary = {**window.summary(result, series), **more}
        cooled = self.cooled(energy, None if window is None else window.begin_s)
        if cooled is not None:
            from hpctwin.energy.cooling.model import cooling_figures

            summary |= cooling_figures(cooled, cooled["step_s"].to_numpy())
        tables = {} if cooled is None else {"cooling": cooled}
        if energy is not None:
            from hpctwin.energy.accounts.outputs import cost_changes

            costing = cost_changes(energy, series)
            tables |= {} if costing is None else {"costs": costing}
        return summary, tables


@Parameter(name="*")
@dataclass(frozen=True)
class EnergyOptions(CostOptions):
    """Power states, power caps and energy costs."""

    power: Annotated[str | None, Parameter(group="Energy", completer=complete_part("power"))] = None
    """Power policy, such as psus:20m or psas-ipm:20m,keep=4, or a function in a file,
    my.py:my_control."""
    power_cap: Annotated[str | None, Parameter(group="Energy")] = None
    """Maximum power draw of all nodes: 20kW, or by time of day 20kW,22:00-06:00=30kW."""
    lower_modes: Annotated[bool, Parameter(group="Energy")] = False
    """Lower DVFS modes to fit under the cap."""
    max_delay: Annotated[str | None, Parameter(group="Energy")] = None
    """Defer each job by up to this, such as 12h, to cheaper energy, or without price to lower
    carbon."""
    forecast: Annotated[str, Parameter(group="Energy")] = "past"
    """Price forecast for --max-delay: the past price, a mean error such as 5%, or oracle."""
    spars_out: Annotated[Path | None, Parameter(group="Energy")] = None
    """Write SPARS's CSV files to this folder."""

    def machine(self, cluster: Cluster) -> Cluster:
        """Return the cluster with the given cap.

        Raises:
            ConfigError: A given option needs the nodes' power model, and the cluster has none.
        """
        from hpctwin.model import PowerCap

        self.check(cluster)
        cap = cluster.cap
        if self.power_cap is not None:
            cap = PowerCap.parse(self.power_cap)
        if self.lower_modes and cap is None:
            raise ConfigError("--lower-modes: the power cap is missing; add --power-cap")
        if cap is not None and self.lower_modes:
            cap = dataclasses.replace(cap, lower_modes=True)
        return cluster if cap == cluster.cap else cluster.model_copy(update={"cap": cap})

    def deferred(
        self, workload: Workload, series: dict[str, Series], window: Window | None
    ) -> tuple[Any, dict[str, float]]:
        """Return the earliest start of each job, and the share that deferred jobs save.

        The starts are None if no job is deferred. The share is given by forecast and by perfect
        knowledge. It assumes that nodes draw the same power for the whole walltime, and that some
        are always free.
        """
        import numpy as np

        begins, saved = self._deferred(workload, series)
        if window is not None:
            begins = np.maximum(0 if begins is None else begins, window.not_before_s)
        return begins, saved

    def _deferred(
        self, workload: Workload, series: dict[str, Series]
    ) -> tuple[Any, dict[str, float]]:
        if self.max_delay is None:
            return None, {}
        if not series:
            raise ConfigError(
                "--max-delay: the price or carbon intensity is missing; add --price or --carbon"
            )
        import numpy as np

        from hpctwin.energy import cheapest_start_times
        from hpctwin.energy.prices.forecast import forecast_start_times, parse_forecast, saving
        from hpctwin.model import parse_duration_s

        seconds = parse_duration_s(self.max_delay)
        if not seconds >= 0:
            raise ConfigError(f"--max-delay is {self.max_delay!r}; it must be 0 or more")
        one = next(iter(series.values()))
        jobs = workload.submit_ms / 1000, workload.walltime_ms / 1000
        bound = np.full(len(workload), seconds)
        forecast = parse_forecast(self.forecast, one)
        known = cheapest_start_times(*jobs, bound, one)
        chosen = known if forecast is None else forecast_start_times(*jobs, bound, one, forecast)
        return chosen, {
            name: saving(begins, *jobs, workload.nodes.astype(np.float64), one)
            for name, begins in (("delay_saving", chosen), ("delay_saving_oracle", known))
        }


def _flat(name: str, text: str) -> float | Path:
    """Return a constant number, or the path of a file.

    Raises:
        ConfigError: The number is not valid.
    """
    try:
        value = float(text)
    except ValueError:
        return Path(text)
    if not 0 <= value < float("inf"):
        raise ConfigError(f"--{name} is {text}; it must be 0 or more per kWh, or a CSV file")
    return value


def costs(cost_of: Callable[[Series], float | None], series: dict[str, Series]) -> dict[str, float]:
    """Return the cost and the emissions of energy, if they are known.

    Args:
        cost_of: Function that returns the sum over a series.
        series: Price and carbon from `CostOptions.series`.
    """
    found: dict[str, float] = {}
    for name, one in series.items():
        cost = cost_of(one)
        if cost is not None:
            unit = one.unit.lower() or "currency"
            found |= {f"cost_{unit}": cost} if name == "price" else {"emissions_kg": cost / 1000}
    return found
