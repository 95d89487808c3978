"""Prices and carbon intensities from ENTSO-E, Electricity Maps and WattTime.

Their web interfaces are used as documented in 2026, without the publishers' own libraries: each
request covers one period. Libraries for retries would put the address, and with it a token, into
their messages.
"""

from __future__ import annotations

import base64
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import urlencode
from xml.etree import ElementTree

import numpy as np
import polars as pl

from hpctwin.errors import ConfigError, DownloadError, RefusedError, UnknownNameError
from hpctwin.model.text import epoch_s_of
from hpctwin.model.web import UNREAD, http_address, why_unread

__all__ = ["AREAS", "SOURCES", "Fetched", "Source", "fetch"]

_DAY_S = 86_400.0
_TIMEOUT_S = 30.0
_MOST_BYTES = 64 * 1024 * 1024
_TRIES, _LONGEST_PAUSE_S = 4, 60.0
_G_PER_LB = 453.59237

AREAS = {
    "AT": "10YAT-APG------L", "BE": "10YBE----------2", "CH": "10YCH-SWISSGRIDZ",
    "CZ": "10YCZ-CEPS-----N", "DE-LU": "10Y1001A1001A82H", "DK1": "10YDK-1--------W",
    "DK2": "10YDK-2--------M", "ES": "10YES-REE------0", "FI": "10YFI-1--------U",
    "FR": "10YFR-RTE------C", "IT-North": "10Y1001A1001A73I", "NL": "10YNL----------L",
    "NO1": "10YNO-1--------2", "NO2": "10YNO-2--------T", "PL": "10YPL-AREA-----S",
    "PT": "10YPT-REN------W", "SE1": "10Y1001A1001A44P", "SE2": "10Y1001A1001A45N",
    "SE3": "10Y1001A1001A46L", "SE4": "10Y1001A1001A47J",
}  # fmt: skip
"""ENTSO-E's bidding zones by name; others have a code of 16 characters (EIC)."""

Points = list[tuple[float, float]]
"""Unix times, and the values from then on."""


@dataclass(frozen=True)
class Fetched:
    """A series as received from a source.

    Args:
        times_s: Start of each value as Unix time, ascending [n].
        per_kwh: Values per kWh [n].
        what: ``price`` or ``carbon``.
        unit: Unit of a value times energy, such as ``EUR`` or ``gCO2eq``.
        missing: Number of missing values; the value before each holds for it too.
        estimated: Number of values that the source marks as estimated.
    """

    times_s: np.ndarray[Any, np.dtype[np.float64]]
    per_kwh: np.ndarray[Any, np.dtype[np.float64]]
    what: Literal["price", "carbon"]
    unit: str
    missing: int
    estimated: int = 0

    def table(self) -> pl.DataFrame:
        """Return the table that `Series.read` reads: times in UTC, and values per kWh."""
        name = "Price" if self.what == "price" else "Carbon intensity"
        times = [datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%d %H:%M:%S") for t in self.times_s]
        return pl.DataFrame(
            {"Datetime (UTC)": times, f"{name} ({self.unit}/kWh)": self.per_kwh.tolist()}
        )


@dataclass(frozen=True)
class Source:
    """Publisher of a series.

    Args:
        name: Name in commands.
        about: Content, in one sentence.
        url: Address of the interface.
        secrets: Required environment variables.
        most_s: Longest period of one request, in seconds.
        ask: Function that returns the points of a period, their unit, and the number of estimates.
        has_forecasts: Whether the source offers forecasts.
    """

    name: str
    about: str
    url: str
    secrets: tuple[str, ...]
    most_s: float
    ask: Callable[[_Asking, float, float], tuple[Points, str, int]]
    has_forecasts: bool


def fetch(
    source: str,
    zone: str,
    from_s: float = 0.0,
    until_s: float = 0.0,
    *,
    forecast: bool = False,
    url: str | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Fetched:
    """Request a period from a source, in as many requests as needed.

    Args:
        source: Name of one of `SOURCES`.
        zone: Zone in the source's notation, such as ``DE``, ``CAISO_NORTH``, ``DE-LU``.
        from_s: Start of the period, Unix time; ignored for a forecast, as is the end.
        until_s: End of the period, Unix time.
        forecast: Whether to request the forecast from now on instead of the past.
        url: Address of the interface, if it is not the source's own.
        pause: Function that waits a number of seconds, used when the source asks to retry later.

    Raises:
        UnknownNameError: There is no such source.
        ConfigError: An environment variable is not set, the source does not offer the data, or the
            URL is invalid.
        DownloadError: The source does not answer, refuses, or gives an unexpected answer.
    """
    if source not in SOURCES:
        raise UnknownNameError("source", source, SOURCES)
    found = SOURCES[source]
    if forecast and not found.has_forecasts:
        raise ConfigError(
            f"{source} offers no forecasts; its prices are known until the end of tomorrow"
        )
    if not forecast and not from_s < until_s:
        raise ConfigError("period ends before it starts; give an end after its start")
    base = http_address(found.url if url is None else url).rstrip("/")
    secrets = [os.environ.get(name, "") for name in found.secrets]
    if not all(secrets):
        name = found.secrets[secrets.index("")]
        raise ConfigError(f"{source}: environment variable {name} is not set")
    asking = _Asking(found, zone, base, secrets, forecast, pause)
    points: Points = []
    unit, estimated, at_s = "", 0, from_s
    while forecast or at_s < until_s:
        some, unit, guessed = found.ask(asking, at_s, min(at_s + found.most_s, until_s))
        points += some
        estimated += guessed
        at_s += found.most_s
        if forecast:
            break
    return _fetched(asking, points, unit, estimated, (from_s, until_s))


def _fetched(
    asking: _Asking, points: Points, unit: str, estimated: int, period: tuple[float, float]
) -> Fetched:
    """Return the requested part of the points; the last point of each time counts."""
    known = dict(points)
    if not asking.forecast:
        known = {t: v for t, v in known.items() if period[0] <= t < period[1]}
    times = np.array(sorted(known))
    if len(times) < 2:
        raise DownloadError(asking.url, f"no values of zone {asking.zone} in this period")
    steps = np.diff(times)
    missing = int(np.round(steps / np.median(steps) - 1).clip(0).sum())
    values = np.array([known[t] for t in times.tolist()])
    what: Literal["price", "carbon"] = "carbon" if unit == "gCO2eq" else "price"
    return Fetched(times, values, what, unit, missing, estimated)


@dataclass
class _Asking:
    """Requests to one source; secrets never appear in messages."""

    source: Source
    zone: str
    url: str
    secrets: list[str]
    forecast: bool
    pause: Callable[[float], None]
    token: str | None = None

    def get(self, path: str, asked: Mapping[str, str], headers: Mapping[str, str]) -> bytes:
        """Return an answer; retry if the source is busy.

        Raises:
            DownloadError: The source does not answer, or refuses.
        """
        url = f"{self.url}{path}{'?' if asked else ''}{urlencode(asked)}"
        for last in (*[False] * (_TRIES - 1), True):
            try:
                request = urllib.request.Request(url, headers=dict(headers))
                with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                    said: bytes = answer.read(_MOST_BYTES)
                    return said
            except urllib.error.HTTPError as error:
                with error:
                    said = error.read(_MOST_BYTES)
                if error.code not in (429, 500, 502, 503, 504) or last:
                    raise _refused(self.url, error.code, said) from None
                after_s = _number(error.headers.get("Retry-After"), 5.0)
            except UNREAD as error:
                raise DownloadError(self.url, f"no answer: {why_unread(error)}") from None
            self.pause(min(max(after_s, 1.0), _LONGEST_PAUSE_S))
        raise AssertionError("the last try returns or raises")

    def json(self, path: str, asked: Mapping[str, str], headers: Mapping[str, str]) -> Any:
        """Return an answer in JSON; see `get`."""
        said = self.get(path, asked, headers)
        try:
            return json.loads(said)
        except ValueError:
            raise self.odd() from None

    def odd(self) -> DownloadError:
        """Return the error for an answer that is not as documented."""
        return DownloadError(self.url, "answer differs from the documented interface")


def _refused(url: str, code: int, said: bytes) -> RefusedError:
    why = {
        401: "the key or password is invalid or has expired",
        403: "this key has no access to the requested data",
        404: "the zone is unknown or has no data",
        429: "too many requests; try again later",
    }
    text = " ".join(re.sub(r"<[^>]*>", " ", said.decode("utf-8", "replace")).split())
    reason = f"{code}, {why.get(code, 'refused')}; the server says: {text[:200]}"
    return RefusedError(url, reason, code, said)


def _electricity_maps(asking: _Asking, from_s: float, until_s: float) -> tuple[Points, str, int]:
    path = "forecast" if asking.forecast else "past-range"
    asked = {"zone": asking.zone}
    if not asking.forecast:
        asked |= {"start": _iso(from_s), "end": _iso(until_s)}
    headers = {"auth-token": asking.secrets[0]}
    told = asking.json(f"/v3/carbon-intensity/{path}", asked, headers)
    rows = [
        (epoch_s_of(row["datetime"]), row.get("carbonIntensity"), bool(row.get("isEstimated")))
        for row in _rows(asking, told, "forecast" if asking.forecast else "data", "datetime")
    ]
    points = [(t, float(v)) for t, v, _ in rows if v is not None]
    return points, "gCO2eq", sum(guessed for _, v, guessed in rows if v is not None)


def _watt_time(asking: _Asking, from_s: float, until_s: float) -> tuple[Points, str, int]:
    path = "forecast" if asking.forecast else "historical"
    asked = {"region": asking.zone, "signal_type": "co2_moer"}
    asked |= {} if asking.forecast else {"start": _iso(from_s), "end": _iso(until_s)}
    for last in (False, True):
        if asking.token is None:
            asking.token = _login(asking)
        try:
            headers = {"Authorization": f"Bearer {asking.token}"}
            told = asking.json(f"/v3/{path}", asked, headers)
            break
        except RefusedError as error:
            # A token is valid for 30 minutes.
            if error.code != 401 or last:
                raise
            asking.token = None
    rows = _rows(asking, told, "data", "point_time")
    units = told.get("meta", {}).get("units")
    if units != "lbs_co2_per_mwh":
        raise DownloadError(asking.url, f"values are in {units!r}; expected lbs_co2_per_mwh")
    known = [(row["point_time"], row.get("value")) for row in rows]
    points = [(epoch_s_of(t), float(v) * _G_PER_LB / 1000) for t, v in known if v is not None]
    return points, "gCO2eq", 0


def _login(asking: _Asking) -> str:
    pair = base64.b64encode(":".join(asking.secrets).encode()).decode()
    told = asking.json("/login", {}, {"Authorization": f"Basic {pair}"})
    if not isinstance(told, dict) or not isinstance(told.get("token"), str):
        raise asking.odd()
    return str(told["token"])


def _rows(asking: _Asking, told: Any, name: str, time_name: str) -> list[dict[str, Any]]:
    rows = told.get(name) if isinstance(told, dict) else None
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and time_name in row for row in rows
    ):
        raise asking.odd()
    return rows


def _entsoe(asking: _Asking, from_s: float, until_s: float) -> tuple[Points, str, int]:
    area = AREAS.get(asking.zone, asking.zone)
    if len(area) != 16:
        raise UnknownNameError("zone", asking.zone, AREAS)
    first, last = (datetime.fromtimestamp(t, UTC).strftime("%Y%m%d%H%M") for t in (from_s, until_s))
    asked = {
        "documentType": "A44", "in_Domain": area, "out_Domain": area, "contract_MarketAgreement.type": "A01",
        "periodStart": first, "periodEnd": last, "securityToken": asking.secrets[0],
    }  # fmt: skip
    try:
        said = asking.get("/api", asked, {})
    except RefusedError as error:
        if error.code == 400 and b"No matching data" in error.said:
            return [], "EUR", 0
        raise
    try:
        document = ElementTree.fromstring(said)
    except ElementTree.ParseError:
        raise asking.odd() from None
    if _name(document) == "Acknowledgement_MarketDocument":
        why = " ".join(one.text or "" for one in document.iter() if _name(one) == "text")
        if "No matching data" in why:
            return [], "EUR", 0
        raise DownloadError(asking.url, f"it says: {why[:200]}")
    if _name(document) != "Publication_MarketDocument":
        raise asking.odd()
    try:
        return _prices(asking, document)
    except (ValueError, KeyError, StopIteration):
        raise asking.odd() from None


def _prices(asking: _Asking, document: ElementTree.Element) -> tuple[Points, str, int]:
    """Return the prices of a document: of the first auction, and of the shortest step."""
    periods = []
    unit = "EUR"
    for series in _all(document, "TimeSeries"):
        auction = "classificationSequence_AttributeInstanceComponent.position"
        if _text(series, auction, "1") != "1":
            continue
        unit = _text(series, "currency_Unit.name", "EUR")
        if _text(series, "price_Measure_Unit.name", "MWH") != "MWH":
            raise asking.odd()
        for period in _all(series, "Period"):
            step = re.fullmatch(r"PT(\d+)M", _text(period, "resolution"))
            if step is None:
                raise asking.odd()
            periods.append((60.0 * int(step[1]), period))
    points: Points = []
    for step_s, period in sorted(periods, key=lambda one: -one[0]):
        inner = next(iter(_all(period, "timeInterval")))
        begin, end = (epoch_s_of(_text(inner, edge)) for edge in ("start", "end"))
        told = {int(_text(p, "position")): float(_text(p, "price.amount")) / 1000
                for p in _all(period, "Point")}  # fmt: skip
        # An omitted position has the price of the one before it (curve type A03).
        price = told[1]
        for position in range(1, round((end - begin) / step_s) + 1):
            price = told.get(position, price)
            points.append((begin + (position - 1) * step_s, price))
    return points, unit, 0


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _all(element: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    return (one for one in element if _name(one) == name)


def _text(element: ElementTree.Element, name: str, default: str | None = None) -> str:
    found = next(_all(element, name), None)
    if found is None or found.text is None:
        if default is None:
            raise KeyError(name)
        return default
    return found.text.strip()


def _iso(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _number(text: Any, default: float) -> float:
    try:
        return float(text or default)
    except ValueError:  # Retry-After may also be a date
        return default


SOURCES = {
    one.name: one
    for one in (
        Source(
            "electricitymaps",
            "carbon intensity of the grid (life cycle), hourly, and its forecast",
            "https://api.electricitymaps.com",
            ("ELECTRICITYMAPS_TOKEN",), 10 * _DAY_S, _electricity_maps, True,
        ),
        Source(
            "entsoe", "day-ahead prices of Europe's bidding zones, per hour or quarter of an hour",
            "https://web-api.tp.entsoe.eu", ("ENTSOE_API_KEY",), 30 * _DAY_S, _entsoe, False,
        ),
        Source(
            "watttime", "marginal carbon intensity (co2_moer), every 5 min, and its forecast",
            "https://api.watttime.org", ("WATTTIME_USER", "WATTTIME_PASSWORD"), 30 * _DAY_S, _watt_time, True,
        ),
    )
}  # fmt: skip
"""Sources by name."""
