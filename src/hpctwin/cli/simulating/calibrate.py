"""``hpctwin calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

if TYPE_CHECKING:
    import polars as pl

__all__ = ["calibrate_command"]


def calibrate_command(
    measured: Path,
    /,
    *,
    power_column: str = "power_w",
    time_column: str = "time_s",
    use_column: tuple[str, ...] = (),
    horizon: str = "1h",
    window: str = "48h",
    refit_every: str = "10m",
    residual: str = "10m",
    rolling: str = "1d",
    out: Annotated[Path | None, Parameter(group="Output")] = None,
    plot: Annotated[Path | None, Parameter(group="Output")] = None,
    json: Annotated[bool, Parameter(group="Output")] = False,
) -> int:
    """Fit measured power to use, based on the past only, and show the forecast errors.

    Each sample is forecast by models that know the measurements up to some time before it, and the
    use at its own time. Errors are mean absolute percentage errors. They count from the time when
    the models have as much past as they forecast ahead.

    Args:
        measured: CSV or Parquet file of times at equal steps, measured power, and columns of use.
            Use has one unit, such as busy nodes, or nodes at each of several levels.
        power_column: Column of measured power, in W.
        time_column: Column of times, in s.
        use_column: Column of use; default all others. Repeatable.
        horizon: Time from a forecast to the predicted sample.
        window: Length of the past for a fit.
        refit_every: Time between two fits.
        residual: Length of the past whose mean error corrects the fitted line.
        rolling: Length of the periods of the rolling errors.
        out: Write the forecasts of each model to this Parquet file.
        plot: Write a chart (.png, .svg, .pdf) of measured power, the ensemble's forecast, and
            rolling errors to this file.
        json: Print the errors as JSON.
    """
    import numpy as np

    from hpctwin.cli.output import check_outputs, plain_table, print_json, screen
    from hpctwin.energy.power.calibration import calibrate, mape_pct, rolling_mape_pct
    from hpctwin.errors import ConfigError
    from hpctwin.model import parse_duration_s, write_atomically

    check_outputs(measured, files=[out], figures=[plot])
    table, step_s = _read(measured, time_column, power_column, use_column)
    samples = {}
    for name, text in {
        "horizon": horizon,
        "window": window,
        "refit-every": refit_every,
        "residual": residual,
        "rolling": rolling,
    }.items():
        samples[name] = round(parse_duration_s(text) / step_s)
        if samples[name] < 1:
            raise ConfigError(
                f"--{name} is {text}; it must be at least the {step_s:g} s between samples"
            )
    first = 2 * samples["horizon"]
    if len(table) <= first:
        raise ConfigError(
            f"{measured} covers {len(table) * step_s:g} s; a forecast {horizon} ahead needs "
            f"more than {first * step_s:g} s"
        )
    watts = table[power_column].fill_null(float("nan")).to_numpy()
    found = calibrate(
        table.drop(time_column, power_column).to_numpy(),
        watts,
        ahead=samples["horizon"],
        window=samples["window"],
        every=samples["refit-every"],
        residual=samples["residual"],
    )
    rows: list[dict[str, Any]] = [
        {"model": name, "mape_pct": mape_pct(forecast, watts, first), "rolling_pct": errors}
        for (name, forecast), errors in zip(
            found.items(),
            rolling_mape_pct(found, watts, first, samples["rolling"]).values(),
            strict=True,
        )
    ]
    if out is not None:
        with write_atomically(out) as file:
            table.select(time_column, power_column).with_columns(
                **{name: np.asarray(forecast) for name, forecast in found.items()}
            ).write_parquet(file)
    if plot is not None:
        from hpctwin.report.energy import plot_calibration
        from hpctwin.report.figures.style import save_figure

        time_s = table[time_column].to_numpy()
        drawn = plot_calibration(time_s, watts, found, rolling=samples["rolling"], first=first)
        save_figure(drawn, plot)
    if json:
        print_json(rows)
        return 0
    shown = []
    for row in rows:
        by = " ".join("–" if error is None else f"{error:.2f}" for error in row["rolling_pct"])
        shown.append((row["model"], f"{row['mape_pct']:.2f}", by))
    screen().print(
        plain_table(("model", "error %", f"by {rolling}"), shown, numbers=slice(1, None))
    )
    return 0


def _read(path: Path, time: str, power: str, use: tuple[str, ...]) -> tuple[pl.DataFrame, float]:
    """Return times, power and use as numbers, and the step in seconds."""
    import numpy as np
    import polars as pl

    from hpctwin.errors import TraceError, near
    from hpctwin.model.text import count_text

    try:
        frame = (
            pl.read_parquet(path, glob=False)
            if path.suffix == ".parquet"
            else pl.read_csv(path, glob=False)
        )
    except (OSError, pl.exceptions.PolarsError) as error:
        raise TraceError(path, f"cannot be read as a table: {error}") from error
    wanted = [time, power, *(use or [name for name in frame.columns if name not in (time, power)])]
    for name in wanted:
        if name not in frame.columns:
            raise TraceError(
                path,
                f"column is missing; found {', '.join(frame.columns)}.{near(name, frame.columns)}",
                field=name,
            )
    if len(wanted) < 3:
        raise TraceError(path, f"no column of use next to {time} and {power}")
    frame = frame.select(wanted)
    table = frame.cast(pl.Float64, strict=False)
    for name in wanted:
        bad = ~table[name].is_finite().fill_null(False)
        if name == power:
            # An empty cell is a time without a measurement.
            bad = (bad & frame[name].is_not_null()) | (table[name] <= 0).fill_null(False)
        if bad.any():
            row = int(bad.arg_max() or 0)
            must = "a number above 0" if name == power else "a number"
            raise TraceError(
                path, f"row {row + 1}: found {frame[name][row]!r}, expected {must}", field=name
            )
    steps = np.diff(table[time].to_numpy())
    if not len(steps):
        raise TraceError(path, f"table has {count_text(len(table), 'row')}; two or more are needed")
    uneven = np.abs(steps - steps[0]) > 1e-6 * abs(steps[0])
    if steps[0] <= 0 or uneven.any():
        row = int(np.argmax(uneven)) + 2
        raise TraceError(
            path, f"row {row}: times must increase by equal steps, here {steps[0]:g} s", field=time
        )
    return table, float(steps[0])
