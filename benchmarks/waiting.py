"""How near jobs that may wait come to the oracle: GAIA's traces, five regions' carbon intensity.

Prints by how much emissions are lower than if each job began at once, for the oracle, for a forecaster with a
mean error of 5 %, and by the series' own past; and how far above the oracle's emissions these are.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl

from hpctwin.energy import Series, cheapest_start_times
from hpctwin.energy.prices.forecast import forecast_start_times, parse_forecast, saving

ZONES = (
    "emaps_US-CAL-CISO_2022_hourly",
    "sc_carbon_DE-LU_2022",
    "sc_carbon_US-TEX-ERCO_2022",
    "sc_carbon_US-NY-NYIS_2022",
    "sc_carbon_US-MIDA-PJM_2022",
)


def main(folder: Path) -> None:
    for jobs in ("mustang_2015", "alibaba_pai"):
        table = pl.read_csv(folder / "jobs_csv" / f"gaia_{jobs}_100k.csv.gz")
        submit, length = (3600 * table[name].to_numpy() for name in ("arrival_time", "length"))
        cores = table["cpus"].to_numpy().astype(float)
        for zone in ZONES:
            series = Series.read(folder / "energy" / f"{zone}.csv.gz")
            for hours in (6, 24):
                bound = np.full(len(table), 3600.0 * hours)
                begins = {"oracle": cheapest_start_times(submit, length, bound, series)}
                for known in ("5%", "past"):
                    forecast = parse_forecast(known, series)
                    assert forecast is not None
                    begins[known] = forecast_start_times(submit, length, bound, series, forecast)
                shares = {k: saving(at, submit, length, cores, series) for k, at in begins.items()}
                best = 1 - shares["oracle"]
                told = [f"{k} {s:.1%} ({(1 - s) / best - 1:.2%} above)" for k, s in shares.items()]
                print(f"{jobs}, {zone}, {hours} h: {', '.join(told)}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
