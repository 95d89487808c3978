"""Prices and carbon intensities from those who publish them, by a server here that answers in their forms.

Fields as documented by Electricity Maps (API v3), WattTime (v3) and ENTSO-E (Publication_MarketDocument
7:3, curve types A01 and A03; Acknowledgement_MarketDocument where there is nothing).
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from hpctwin.cli import main
from hpctwin.energy import Series
from hpctwin.energy.prices.sources import Fetched, fetch
from hpctwin.errors import ConfigError, DownloadError, UnknownNameError

HOUR, DAY = 3600.0, 86_400.0
BEGIN = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
Answer = tuple[int, Any, dict[str, str]]


class Server(ThreadingHTTPServer):
    """Asks a function for its answer to each path, with what is asked and the headers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: Callable[[str, dict[str, str], Any], Answer] = lambda *_: (404, "", {})
        self.asked: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = dict(parse_qsl(parts.query))
        self.server.asked.append((parts.path, asked))
        code, body, headers = self.server.answer(parts.path, asked, self.headers)
        said = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("ENTSOE_API_KEY", "ELECTRICITYMAPS_TOKEN", "WATTTIME_USER", "WATTTIME_PASSWORD"):
        monkeypatch.setenv(name, f"secret-{name}")
    made = Server()
    threading.Thread(target=lambda: made.serve_forever(0.01), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def asked_for(server: Server, source: str, zone: str, hours: float, **options: Any) -> Fetched:
    return fetch(source, zone, BEGIN, BEGIN + hours * HOUR, url=server.url, **options)


def date(time_s: float, form: str = "%Y-%m-%dT%H:%M:%S.000Z") -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime(form)


def electricity_maps(path: str, asked: dict[str, str], headers: Any) -> Answer:
    if headers["auth-token"] != "secret-ELECTRICITYMAPS_TOKEN":
        return 401, {"error": "Request unauthorized"}, {}
    kind = path.removeprefix("/v3/carbon-intensity/")
    first, last = (
        datetime.fromisoformat(asked.get(edge, other)).timestamp()
        for edge, other in (("start", "2026-01-01T00:00:00Z"), ("end", "2026-01-02T00:00:00Z"))
    )
    assert last - first <= 10 * DAY
    rows = [
        {"zone": asked["zone"], "carbonIntensity": 100 + round(at - BEGIN) // 3600 % 24, "datetime": date(at),
         "updatedAt": date(at), "emissionFactorType": "lifecycle", "isEstimated": at % (5 * HOUR) == 0,
         "estimationMethod": None}
        for at in (first + i * HOUR for i in range(round((last - first) / HOUR)))
    ]  # fmt: skip
    return 200, {"zone": asked["zone"], "forecast" if kind == "forecast" else "data": rows}, {}


def test_electricity_maps_is_asked_in_pieces_of_ten_days(server: Server, tmp_path: Path) -> None:
    server.answer = electricity_maps
    found = asked_for(server, "electricitymaps", "DE", 25 * 24)
    assert len(server.asked) == 3
    assert found.per_kwh.tolist() == [100 + i % 24 for i in range(25 * 24)]
    assert (found.missing, found.estimated, found.what) == (0, 120, "carbon")
    found.table().write_csv(tmp_path / "carbon.csv")
    series = Series.read(tmp_path / "carbon.csv")
    assert (series.unit, series.start_epoch_s) == ("g", BEGIN)
    assert series.per_kwh == pytest.approx(found.per_kwh)
    assert len(asked_for(server, "electricitymaps", "DE", 0, forecast=True).per_kwh) == 24


def test_hours_that_are_not_there_are_counted(server: Server) -> None:
    def answer(path: str, asked: dict[str, str], headers: Any) -> Answer:
        code, body, more = electricity_maps(path, asked, headers)
        body["data"][3]["carbonIntensity"] = None
        del body["data"][7:9]
        return code, body, more

    server.answer = answer
    found = asked_for(server, "electricitymaps", "DE", 24)
    assert (len(found.per_kwh), found.missing) == (21, 3)


class WattTime:
    """Tokens that expire after so many questions."""

    def __init__(self, questions: int) -> None:
        self.questions, self.left, self.logins = questions, 0, 0
        self.units = "lbs_co2_per_mwh"

    def __call__(self, path: str, asked: dict[str, str], headers: Any) -> Answer:
        if path == "/login":
            pair = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
            if pair != "secret-WATTTIME_USER:secret-WATTTIME_PASSWORD":
                return 403, "<html><h1>Forbidden</h1></html>", {}
            self.logins, self.left = self.logins + 1, self.questions
            return 200, {"token": f"t{self.logins}"}, {}
        if self.left == 0 or headers["Authorization"] != f"Bearer t{self.logins}":
            return 401, {"error": "invalid_token", "description": "Token expired"}, {}
        self.left -= 1
        first = datetime.fromisoformat(asked.get("start", "2026-01-01T00:00:00Z")).timestamp()
        last = datetime.fromisoformat(asked.get("end", "2026-01-01T01:00:00Z")).timestamp()
        times = [first + 300 * i for i in range(round((last - first) / 300))]
        form = "%Y-%m-%dT%H:%M:%S+00:00"
        rows = [
            {"point_time": date(at, form), "value": 1000.0, "last_updated": date(at, form)}
            for at in times
        ]
        meta = {"data_point_period_seconds": 300, "region": asked["region"], "warnings": [],
                "signal_type": asked["signal_type"], "units": self.units}  # fmt: skip
        return 200, {"data": rows, "meta": meta}, {}


def test_an_expired_watttime_token_is_requested_again(server: Server) -> None:
    server.answer = grid = WattTime(questions=1)
    found = asked_for(server, "watttime", "CAISO_NORTH", 61 * 24)
    assert grid.logins == 3  # one for each piece of thirty days
    assert len(found.per_kwh) == 61 * 288
    assert found.per_kwh[0] == pytest.approx(453.59237)  # g/kWh of 1,000 lb/MWh
    assert len(asked_for(server, "watttime", "CAISO_NORTH", 0, forecast=True).per_kwh) == 12
    grid.units = "lbs_so2_per_mwh"
    with pytest.raises(DownloadError, match="lbs_so2_per_mwh"):
        asked_for(server, "watttime", "CAISO_NORTH", 1)


def test_a_wrong_password_is_reported_without_the_password(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer = WattTime(questions=1)
    monkeypatch.setenv("WATTTIME_PASSWORD", "secret-wrong")
    with pytest.raises(DownloadError, match="403") as refused:
        asked_for(server, "watttime", "CAISO_NORTH", 1)
    assert "secret" not in str(refused.value)
    assert "<h1>" not in str(refused.value)


def period(
    begin_s: float, minutes: int, prices: dict[int, float], length: int, sequence: str = ""
) -> str:
    points = "".join(
        f"<Point><position>{at}</position><price.amount>{price}</price.amount></Point>"
        for at, price in prices.items()
    )
    ends = begin_s + 60 * minutes * length
    name = "classificationSequence_AttributeInstanceComponent.position"
    return (
        "<TimeSeries><mRID>1</mRID><auction.type>A01</auction.type><businessType>A62</businessType>"
        "<currency_Unit.name>EUR</currency_Unit.name><price_Measure_Unit.name>MWH</price_Measure_Unit.name>"
        + (f"<{name}>{sequence}</{name}>" if sequence else "")
        + "<curveType>A03</curveType>"
        f"<Period><timeInterval><start>{date(begin_s, '%Y-%m-%dT%H:%MZ')}</start>"
        f"<end>{date(ends, '%Y-%m-%dT%H:%MZ')}</end></timeInterval>"
        f"<resolution>PT{minutes}M</resolution>{points}</Period></TimeSeries>"
    )


def document(*series: str) -> str:
    space = "urn:iec62325.351:tc57wg16:451-3:publicationdocument:7:3"
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><Publication_MarketDocument xmlns="{space}">'
        f"<mRID>x</mRID><type>A44</type>{''.join(series)}</Publication_MarketDocument>"
    )


NOTHING = (
    '<?xml version="1.0" encoding="UTF-8"?><Acknowledgement_MarketDocument xmlns="urn:iec62325.351:'
    'tc57wg16:451-1:acknowledgementdocument:7:0"><Reason><code>999</code><text>No matching data found '
    "for Data item Day-ahead Prices</text></Reason></Acknowledgement_MarketDocument>"
)


def test_a_missing_entsoe_price_repeats_the_previous_one(server: Server, tmp_path: Path) -> None:
    # A day of Berlin begins at 23:00 UTC; what is before the time asked for is left out.
    hours = period(BEGIN - HOUR, 60, {1: 10.0, 3: -5.5, 20: 80.0}, 24)
    other = period(BEGIN - HOUR, 60, {1: 999.0}, 24, sequence="2")
    server.answer = lambda *_: (200, document(other, hours), {})
    found = asked_for(server, "entsoe", "DE-LU", 23)
    (path, asked), *_ = server.asked
    assert path == "/api"
    assert asked["in_Domain"] == asked["out_Domain"] == "10Y1001A1001A82H"
    assert (asked["periodStart"], asked["periodEnd"]) == ("202601010000", "202601012300")
    assert found.per_kwh.tolist() == [0.010] + [-0.0055] * 17 + [0.080] * 5
    found.table().write_csv(tmp_path / "price.csv")
    assert Series.read(tmp_path / "price.csv").unit == "EUR"


def test_entsoe_s_quarters_of_an_hour_come_before_hours_and_empty_months_are_passed_over(
    server: Server,
) -> None:
    both = document(
        period(BEGIN, 15, {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}, 4), period(BEGIN, 60, {1: 2.5}, 1)
    )
    server.answer = lambda _, asked, __: (
        (200, both, {}) if asked["periodStart"].startswith("202601") else (400, NOTHING, {})
    )
    found = asked_for(server, "entsoe", "10Y1001A1001A82H", 45 * 24)
    assert [asked["periodStart"][:8] for _, asked in server.asked] == ["20260101", "20260131"]
    assert found.per_kwh.tolist() == [0.001, 0.002, 0.003, 0.004]
    server.answer = lambda *_: (200, NOTHING, {})
    with pytest.raises(DownloadError, match="no values of zone 10Y1001A1001A82H in this period"):
        asked_for(server, "entsoe", "10Y1001A1001A82H", 24)


def test_a_source_that_is_busy_is_asked_again_when_it_says(server: Server) -> None:
    busy: list[Answer] = [
        (429, {"error": "too many"}, {"Retry-After": "7"}),
        (503, "<html>", {}),
        (429, "", {"Retry-After": "9999"}),
    ]
    server.answer = lambda *asked: busy.pop(0) if busy else electricity_maps(*asked)
    waited: list[float] = []
    assert len(asked_for(server, "electricitymaps", "DE", 24, pause=waited.append).per_kwh) == 24
    assert waited == [7.0, 5.0, 60.0]
    server.answer = lambda *_: (429, {"error": "too many"}, {})
    with pytest.raises(DownloadError, match="429, too many requests"):
        asked_for(server, "electricitymaps", "DE", 24, pause=waited.append)


@pytest.mark.parametrize("source", ["electricitymaps", "watttime", "entsoe"])
@pytest.mark.parametrize(
    "said",
    ["", "<html>", "{}", "[]", '{"data": 3}', '{"data": [{}]}', '{"token": 1}', document("<TimeSeries/>"),
     document(period(BEGIN, 60, {2: 1.0}, 24)), document(period(BEGIN, 60, {1: 1.0}, 24))[:-40]]
)  # fmt: skip
def test_an_answer_in_another_form_is_an_error_without_a_secret_in_it(
    server: Server, source: str, said: str
) -> None:
    server.answer = lambda *_: (200, said, {})
    with pytest.raises(DownloadError) as refused:
        asked_for(server, source, "DE-LU", 24)
    assert "secret" not in str(refused.value)


def test_an_impossible_request_is_reported_before_any_is_sent(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'entsoe'"):
        fetch("entso", "DE-LU", BEGIN, BEGIN + DAY)
    with pytest.raises(UnknownNameError, match="zone 'DE'"):
        asked_for(server, "entsoe", "DE", 24)
    with pytest.raises(ConfigError, match="offers no forecasts"):
        asked_for(server, "entsoe", "DE-LU", 24, forecast=True)
    with pytest.raises(ConfigError, match="period ends before it starts"):
        asked_for(server, "entsoe", "DE-LU", 0)
    monkeypatch.delenv("WATTTIME_PASSWORD")
    with pytest.raises(ConfigError, match="environment variable WATTTIME_PASSWORD is not set"):
        asked_for(server, "watttime", "CAISO_NORTH", 24)
    assert server.asked == []
    with pytest.raises(DownloadError, match="no answer: ConnectionRefusedError"):
        fetch("electricitymaps", "DE", BEGIN, BEGIN + DAY, url="http://127.0.0.1:9")


def test_a_signal_is_fetched_into_a_file_that_is_not_there_if_it_fails(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer = electricity_maps
    out = tmp_path / "carbon.csv"
    about = ["signal", "fetch", "electricitymaps", "DE", "--url", server.url, "--out", str(out)]
    for more, code in (
        (["--from", "2026-01-01", "--until", "2026-01-03T00:00+00:00", "--json"], 0),
        (["--source-forecast"], 0),
        ([], 2),
        (["--from", "yesterday"], 2),
    ):
        out.unlink(missing_ok=True)
        with pytest.raises(SystemExit) as ended:
            main([*about, *more])
        assert ended.value.code == code
        assert out.exists() is (code == 0)
        said = capsys.readouterr()
        if "--json" in more:
            told = json.loads(said.out)
            assert (told["values"], told["first"]) == (48, "2026-01-01 00:00:00")
    assert "--from is 'yesterday'; give a date such as" in said.err
    with pytest.raises(SystemExit):
        main(["signal", "list", "--json"])
    names = {row["name"] for row in json.loads(capsys.readouterr().out)}
    assert names == {"electricitymaps", "entsoe", "watttime"}
