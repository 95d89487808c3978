"""Sources of measured power: a growing CSV or JSON Lines file, or Prometheus."""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
import os
import re
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol, Self
from urllib.parse import urlencode
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, PlainSerializer, field_validator, model_validator

from hpctwin.errors import ConfigError, UnreachableError, near
from hpctwin.model.settings import Duration, Settings
from hpctwin.model.text import epoch_s_of
from hpctwin.model.web import UNREAD, has_password, http_address, why_unread, without_password
from hpctwin.rms.polling.spool import Tail

__all__ = ["AnyMeter", "CsvMeter", "JsonMeter", "Meter", "PrometheusMeter", "Reading", "unix_time"]

_POWER = {"W": 1.0, "kW": 1e3, "MW": 1e6}
_ENERGY = {"uJ": 1e-6, "J": 1.0, "kJ": 1e3, "MJ": 1e6, "Wh": 3.6e3, "kWh": 3.6e6, "MWh": 3.6e9}
_WORDS = {"W": ("W", "Watt", "Watts")}
_SEPARATORS = ",;\t|"
_TIMEOUT_S = 5.0
_MOST_BYTES = 1_000_000
_ZONE = re.compile(r"Z([+-]\d\d:?\d\d)$|([+-]\d\d:?\d\d)Z$")


class Reading(NamedTuple):
    """One reading of a meter.

    Args:
        time_s: Time of measurement, Unix time; NaN if it cannot be parsed, None if it is not given.
        value: Power in W, or the count of an energy counter in J; NaN if it cannot be parsed.
        sensor: Name of the sensor, if the meter has several.
    """

    time_s: float | None
    value: float
    sensor: str = ""


class Meter(Protocol):
    """An open meter. A reading may take long, because a separate thread waits for it."""

    every_s: float
    """Pause between two readings, in seconds."""

    def read(self) -> list[Reading]:
        """Return the new readings.

        Raises:
            HpctwinError: The meter cannot be read.
        """


class MeterSettings(Settings):
    """A meter of the whole cluster's power draw.

    The twin calibrates its power forecast on it while it runs.

    Args:
        unit: Unit of the readings. With a unit of energy (``J``, ``kWh``, …) the meter counts
            energy, and power is computed from the counts.
        min_w, max_w: Bounds of the power that the cluster can draw, in W. By default 1 % and
            1,000 % of the power in full use, from the cluster's description.
        step: Length of the steps over which utilization and power are averaged.
        horizon: Lead time of the power forecast.
        window: Length of the past that the regression lines are fitted to.
        stale_after: Time without readings after which the meter counts as silent.
    """

    unit: Literal["W", "kW", "MW", "uJ", "J", "kJ", "MJ", "Wh", "kWh", "MWh"] = "W"
    min_w: float | None = Field(default=None, ge=0)
    max_w: float | None = Field(default=None, gt=0)
    step: Duration = Field(default=30.0, ge=1, le=3600)
    horizon: Duration = Field(default=3600.0, gt=0, le=86_400)
    window: Duration = Field(default=172_800.0, gt=0, le=30 * 86_400)
    stale_after: Duration = Field(default=300.0, gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if None not in (self.min_w, self.max_w) and not (self.min_w or 0) < (self.max_w or 0):
            raise ValueError("min_w must be less than max_w")
        if not self.step <= self.horizon <= self.window:
            raise ValueError("step, horizon and window must be in increasing order")
        if self.window > 20_000 * self.step:
            raise ValueError("window has more than 20,000 steps; use longer steps")
        return self

    @property
    def factor(self) -> float:
        """W, or J, per unit of a reading."""
        return (_POWER | _ENERGY)[self.unit]

    @property
    def rising(self) -> bool:
        """Whether the meter counts energy, so that its values rise."""
        return self.unit in _ENERGY

    @property
    def sensor_count(self) -> int:
        """Number of sensors whose power is summed."""
        return 1


class FileMeter(MeterSettings):
    """A file that another program appends lines to.

    Lines from before the twin's start are ignored.

    Args:
        path: Path of the file.
        time: Column (or field) of the time: Unix time or ISO 8601. If empty, the time of reading
            counts.
        power: Column (or field) of the power, or of the counted energy.
        zone: Time zone of dates without one, such as ``Europe/Berlin``; UTC by default.
        sensor: Column (or field) with the sensor's name, if there are several, such as one per
            rack. Their power is summed.
        sensors: Number of these sensors.
    """

    path: Path
    time: str = "time_s"
    power: str = "power_w"
    zone: str | None = None
    sensor: str = ""
    sensors: int = Field(default=1, ge=1, le=100_000)

    @field_validator("zone")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        try:
            return name if name is None else ZoneInfo(name).key
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(
                f"time zone {name!r} is unknown; give one such as Europe/Berlin or UTC"
            ) from error

    @model_validator(mode="after")
    def _summed(self) -> Self:
        if (self.sensors > 1) != bool(self.sensor):
            raise ValueError(
                "sensor (column or label) and sensors (their number) are required together"
            )
        return self

    @property
    def sensor_count(self) -> int:
        """See `MeterSettings`."""
        return self.sensors

    def reading(self, fields: Mapping[str, Any]) -> Reading:
        """Return the reading of a row or an object."""
        time_s = unix_time(fields.get(self.time), self.zone) if self.time else None
        sensor = str(fields.get(self.sensor)) if self.sensor else ""
        value = _number(_without_unit(fields.get(self.power), self.unit))
        return Reading(time_s, value * self.factor, sensor)


class CsvMeter(FileMeter):
    """A CSV file with a header line.

    The separator is a comma, semicolon, tab or vertical bar. With a separator other than the
    comma, numbers may have a decimal comma.

    Args:
        kind: ``csv``.
    """

    kind: Literal["csv"]

    def open(self) -> Meter:
        """Return the open meter."""
        return _Csv(self)


class JsonMeter(FileMeter):
    """JSON objects, one per line, for example from ``mosquitto_sub -F %J >> FILE``.

    ``payload.at`` names the field ``at`` within ``payload``. The outer field may also be a string
    of JSON.

    Args:
        kind: ``jsonl``.
        where: Values that an object must have in some fields to count, such as
            ``{topic: site/power}``.
    """

    kind: Literal["jsonl"]
    where: dict[str, str] = Field(default_factory=dict)

    def open(self) -> Meter:
        """Return the open meter."""
        return _Jsonl(self)


def _http(url: str) -> str:
    http_address(url)
    if has_password(url):
        raise ValueError(
            "passwords are not allowed here; token_env names an environment variable with a token"
        )
    return url


class PrometheusMeter(MeterSettings):
    """A query to Prometheus, or to a compatible server, that returns one number.

    Args:
        kind: ``prometheus``.
        url: URL of the server, such as ``http://localhost:9090``.
        query: Query in PromQL, such as ``sum(ipmi_dcmi_power_consumption_watts)``.
        every: Time between two queries.
        token_env: Environment variable with a bearer token.
    """

    kind: Literal["prometheus"]
    url: Annotated[str, AfterValidator(_http), PlainSerializer(without_password)]
    query: str = Field(min_length=1)
    every: Duration = Field(default=15.0, ge=1)
    token_env: str | None = None

    def open(self) -> Meter:
        """Return the open meter."""
        return _Prometheus(self)


AnyMeter = Annotated[CsvMeter | JsonMeter | PrometheusMeter, Field(discriminator="kind")]


class _Csv:
    every_s = 0.5

    def __init__(self, settings: CsvMeter) -> None:
        self._settings = settings
        self._tail = Tail.at_end(settings.path)

    def read(self) -> list[Reading]:
        """See `Meter`."""
        lines = _new_lines(self._tail)
        asked = self._settings
        with asked.path.open(encoding="utf-8-sig", errors="replace") as file:
            first = file.readline(65_536)
        if not first.endswith("\n"):
            return []
        mark = max(_SEPARATORS, key=first.count)
        head = next(csv.reader([first], delimiter=mark), [])
        for name in (asked.time, asked.power, asked.sensor):
            if name and name not in head:
                listed = ", ".join(head)
                raise ConfigError(
                    f"{asked.path}: column {name} does not exist; the file has "
                    f"{listed}.{near(name, head)}"
                )
        rows = (row for row in csv.reader(lines, delimiter=mark) if row and row != head)
        found = [dict(zip(head, row, strict=False)) for row in rows]
        for row in found if mark != "," else ():
            row[asked.power] = row.get(asked.power, "").replace(",", ".")
        return [asked.reading(row) for row in found]


class _Jsonl:
    every_s = 0.5

    def __init__(self, settings: JsonMeter) -> None:
        self._settings = settings
        self._tail = Tail.at_end(settings.path)

    def read(self) -> list[Reading]:
        """See `Meter`."""
        asked, found = self._settings, []
        for line in _new_lines(self._tail):
            if not line.strip():
                continue
            try:
                told = json.loads(line)
            except ValueError:
                found.append(Reading(math.nan, math.nan))
                continue
            if all(str(_within(told, k)) == v for k, v in asked.where.items()):
                names = (asked.time, asked.power, asked.sensor)
                found.append(asked.reading({one: _within(told, one) for one in names if one}))
        return found


def _new_lines(tail: Tail) -> list[str]:
    """Return the new lines of a file.

    Raises:
        UnreachableError: The file does not exist or cannot be read.
    """
    try:
        lines = tail.lines()
    except OSError as error:
        raise UnreachableError(f"{tail.path}: {error.strerror or error}") from error
    if not lines and not tail.path.exists():
        raise UnreachableError(f"{tail.path}: file does not exist")
    return lines


def _within(told: Any, path: str) -> Any:
    """Return a field of an object, where ``a.b`` is ``b`` in ``a``; None if missing."""
    if isinstance(told, Mapping) and path in told:
        return told[path]
    first, _, rest = path.partition(".")
    inner = told.get(first) if isinstance(told, Mapping) else None
    if isinstance(inner, str) and rest:
        try:
            inner = json.loads(inner)
        except ValueError:
            return None
    return _within(inner, rest) if rest else inner


def _without_unit(value: Any, unit: str) -> Any:
    """Return a value without its unit; ``ipmitool dcmi`` prints ``220 Watts``."""
    words = str(value).split()
    return words[0] if len(words) == 2 and words[1] in _WORDS.get(unit, (unit,)) else value


def _number(value: Any) -> float:
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return math.nan


def unix_time(value: Any, zone: str | None = None) -> float:
    """Return the Unix time of a number or date; NaN for anything else.

    A number counts s, ms, µs or ns since the epoch; its size decides which. A date is in ISO 8601.

    Args:
        value: The number or date, also as text.
        zone: Time zone of a date without one; UTC by default. When clocks are set back, a local
            time occurs twice; the one nearer to now counts.
    """
    number = _number(value)
    if math.isfinite(number):
        for least, per_s in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
            if abs(number) > least:
                return number / per_s
        return number
    try:
        found = dt.datetime.fromisoformat(_ZONE.sub(r"\1\2", str(value).strip()))
    except ValueError:
        return math.nan
    if zone is None or found.tzinfo is not None:
        return epoch_s_of(found)
    there = ZoneInfo(zone)
    both = [found.replace(tzinfo=there, fold=fold).timestamp() for fold in (0, 1)]
    return min(both, key=lambda at: abs(at - time.time()))


class _Prometheus:
    def __init__(self, settings: PrometheusMeter) -> None:
        self._settings = settings
        self.every_s = settings.every
        query = urlencode({"query": settings.query})
        self._url = f"{settings.url.rstrip('/')}/api/v1/query?{query}"

    def read(self) -> list[Reading]:
        """See `Meter`."""
        asked = self._settings
        request = urllib.request.Request(self._url, headers=self._headers())
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                said = answer.read(_MOST_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(_MOST_BYTES)
            raise UnreachableError(f"{asked.url}: {error.code} {_why(said)}") from error
        except UNREAD as error:
            raise UnreachableError(f"{asked.url}: no answer: {why_unread(error)}") from error
        try:
            values = _values(json.loads(said)["data"])
            # The time is that of the query. No value means that nothing was measured lately.
            found = [Reading(unix_time(at), _number(told) * asked.factor) for at, told in values]
        except (KeyError, TypeError, ValueError) as error:
            raise UnreachableError(
                f"{asked.url}: answer is not that of Prometheus to an instant query"
            ) from error
        if len(found) > 1:
            raise ConfigError(
                f"meter.query {asked.query!r} returns {len(found)} numbers; combine them, "
                "for example with sum(…)"
            )
        return found

    def _headers(self) -> dict[str, str]:
        name = self._settings.token_env
        if name is None:
            return {}
        if not os.environ.get(name):
            raise ConfigError(f"meter.token_env: environment variable {name} is not set")
        return {"Authorization": f"Bearer {os.environ[name]}"}


def _values(data: Any) -> list[Any]:
    """Return pairs of time and value.

    Raises:
        KeyError, TypeError, ValueError: The data are not the answer to an instant query.
    """
    if data["resultType"] == "scalar":
        return [data["result"]]
    if data["resultType"] != "vector":
        raise ValueError(data["resultType"])
    return [one["value"] for one in data["result"]]


def _why(said: bytes) -> str:
    """Return Prometheus's error message; empty if there is none."""
    try:
        return str(json.loads(said)["error"])
    except (ValueError, KeyError, TypeError):
        return ""
