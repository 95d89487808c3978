"""``hpctwin signal``: prices and carbon intensities from their publishers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

__all__ = ["signal_app"]

signal_app = App(name="signal", help="Fetch prices and carbon intensities of the grid.")


@signal_app.command(name="list")
def list_sources(*, json: bool = False) -> int:
    """List the sources of signals, and the environment variables for their keys.

    Args:
        json: Print the list as JSON.
    """
    from hpctwin.cli.output import plain_table, print_json, screen
    from hpctwin.energy.prices.sources import AREAS, SOURCES

    if json:
        print_json(
            [
                {"name": s.name, "about": s.about, "url": s.url, "secrets": list(s.secrets),
                 "forecasts": s.has_forecasts, "zones": list(AREAS) if s.name == "entsoe" else None}
                for s in SOURCES.values()
            ]
        )  # fmt: skip
        return 0
    rows = [(source.name, source.about, ", ".join(source.secrets)) for source in SOURCES.values()]
    screen().print(plain_table(("source", "what it gives", "variables"), rows))
    return 0


@signal_app.command
def fetch(
    source: str,
    zone: str,
    /,
    *,
    out: Path,
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    until: str | None = None,
    source_forecast: bool = False,
    url: str | None = None,
    json: bool = False,
) -> int:
    """Fetch a series into a CSV file for --price and --carbon.

    Args:
        source: Name of the source, from `hpctwin signal list`.
        zone: The source's name of the zone: DE, US-CAL-CISO (electricitymaps), CAISO_NORTH
            (watttime), DE-LU or a code of 16 letters (entsoe).
        out: CSV file; written once the series is complete.
        from_: First date of the series, such as 2026-01-31 or 2026-01-31T13:00; UTC by default.
        until: End of the series; default now.
        source_forecast: Fetch the source's forecast from now on.
        url: Address of the source's API, if it is not the usual one.
        json: Print the fetched series as JSON.
    """
    import time

    from hpctwin.cli.output import check_outputs, print_json
    from hpctwin.energy.prices import sources
    from hpctwin.errors import ConfigError
    from hpctwin.model import write_atomically
    from hpctwin.model.text import count_text

    check_outputs(files=[out])
    if source_forecast is (from_ is not None):
        raise ConfigError("give --from or --source-forecast")
    if source_forecast and until is not None:
        raise ConfigError("--until works only with --from; --source-forecast fetches all of it")
    begin_s, end_s = _date("--from", from_) or 0.0, _date("--until", until) or time.time()
    if not begin_s < end_s:
        raise ConfigError(f"--from is {from_}; it must be before {until or 'now'}")
    found = sources.fetch(source, zone, begin_s, end_s, forecast=source_forecast, url=url)
    table = found.table()
    with write_atomically(out) as file:
        table.write_csv(file)
    told: dict[str, Any] = {
        "file": str(out),
        "values": len(table),
        "first": table[0, 0],
        "last": table[-1, 0],
        "column": table.columns[1],
        "missing": found.missing,
        "estimated": found.estimated,
    }
    if json:
        print_json(told)
        return 0
    print(
        f"{out}: {count_text(told['values'], 'value')} of {told['column']}, "
        f"{told['first']} to {told['last']} UTC"
    )
    if found.missing:
        print(f"missing: {count_text(found.missing, 'value')}; the value before each applies")
    if found.estimated:
        print(f"estimated by {source}: {count_text(found.estimated, 'value')}")
    return 0


def _date(option: str, text: str | None) -> float | None:
    """Return the Unix time of an option's date; None if the option is not given."""
    from hpctwin.errors import ConfigError
    from hpctwin.model.text import epoch_s_of

    if text is None:
        return None
    try:
        return epoch_s_of(text)
    except ValueError as error:
        raise ConfigError(f"{option} is {text!r}; give a date such as 2026-01-31T13:00") from error
