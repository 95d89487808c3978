"""A live twin's meter: what is read of it, what is made of it, and that it never stands in the twin's way."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest

from hpctwin import Cluster
from hpctwin.errors import ConfigError, HpctwinError, UnreachableError
from hpctwin.rms.records.records import JobRecord, JobSpec, NodeRecord, Snapshot
from hpctwin.twin.core.core import Core
from hpctwin.twin.meters import CsvMeter, JsonMeter, PrometheusMeter, Reading, unix_time
from hpctwin.twin.service.explain import status_lines
from hpctwin.twin.service.metering import Metering, use_expected, use_now
from hpctwin.twin.service.service import check_connections
from hpctwin.twin.settings.config import TwinConfig
from hpctwin.web.server.assembly import Live
from hpctwin.web.server.prometheus import Collector, exposition
from hpctwin.web.views.source import Source
from tests.twin.test_runner import Setting

NOW = 1_699_999_800.0


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_csv_file_is_followed_from_its_end_on_by_its_head(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    append(path, f"time_s,rack,power_w\n{NOW},a,1\n")
    meter = CsvMeter(kind="csv", path=path, unit="kW").open()
    assert meter.read() == []
    append(path, f"{NOW + 1},a,2.5\n{NOW + 2},a,")
    assert meter.read() == [Reading(NOW + 1, 2500.0)]
    append(path, "3\n")
    assert meter.read() == [Reading(NOW + 2, 3000.0)]  # a line that came in two parts
    path.rename(tmp_path / "m.csv.1")
    with pytest.raises(UnreachableError, match="file does not exist"):
        meter.read()
    append(path, f"power_w,time_s\n4,{NOW + 3}\n")
    assert meter.read() == [Reading(NOW + 3, 4000.0)]  # another file, other columns
    append(path, "much,now\n7\n")
    assert all(math.isnan(power) or math.isnan(time or 0) for time, power, _ in meter.read())


def test_a_csv_file_without_the_column_is_named_with_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    append(path, "time_s,power\n")
    with pytest.raises(
        ConfigError,
        match=r"column power_w does not exist; the file has time_s, power.*Did you mean",
    ):
        CsvMeter(kind="csv", path=path).open().read()


def test_json_lines_are_read_as_mqtt_s_client_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    append(path, "")
    meter = JsonMeter(
        kind="jsonl", path=path, time="tst", power="payload.w", where={"topic": "site/power"}
    ).open()
    assert meter.read() == []
    told = {"tst": "2023-11-14T22:10:00.000000Z+0000", "topic": "site/power", "payload": {"w": 5e6}}
    in_text = told | {"payload": json.dumps({"w": "6000000"})}
    other = told | {"topic": "site/water"}
    append(path, "".join(f"{json.dumps(one)}\n" for one in (told, in_text, other)))
    append(path, 'no JSON\n[1]\n{"topic": "site/power"}\n')
    found = meter.read()
    assert found[:2] == [Reading(NOW, 5e6), Reading(NOW, 6e6)]
    assert len(found) == 4  # what is no JSON and what lacks the field are told as no numbers
    assert all(math.isnan(power) for _, power, _ in found[2:])


@pytest.mark.parametrize(
    ("told", "time_s"),
    [
        (NOW, NOW), (str(NOW), NOW), (NOW * 1e3, NOW), (NOW * 1e6, NOW), (NOW * 1e9, NOW),
        ("2023-11-14T22:10:00Z", NOW), ("2023-11-14 23:10:00+01:00", NOW),
        ("2023-11-14 22:10:00", NOW),
    ],
)  # fmt: skip
def test_times_are_seconds_or_parts_of_them_or_dates(told: Any, time_s: float) -> None:
    assert unix_time(told) == pytest.approx(time_s, abs=1e-3)
    assert math.isnan(unix_time("soon"))
    assert math.isnan(unix_time(None))


class Prometheus(BaseHTTPRequestHandler):
    """Answers as Prometheus does (HTTP API v1, instant queries)."""

    answers: ClassVar[list[tuple[int, Any]]] = []
    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization")))
        code, body = self.answers.pop(0)
        said = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def prometheus() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Prometheus)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Prometheus.answers, Prometheus.asked = [], []
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_twin_check_tries_the_meter(prometheus: str, tmp_path: Path) -> None:
    def found(**meter: Any) -> tuple[str, bool, str]:
        config = {
            "manager": {"kind": "emulated", "address": str(tmp_path / "none")},
            "journal": {"path": str(tmp_path / "j.sqlite")},
            "meter": meter,
        }
        return check_connections(TwinConfig.of(config))[-1]

    path = tmp_path / "m.csv"
    asked = {"kind": "prometheus", "url": prometheus, "query": "w", "unit": "kW"}
    Prometheus.answers = [(200, vector("12.5")), (200, vector("NaN"))]
    assert found(**asked) == ("meter", True, "it reports 12,500 W")
    assert found(**asked)[1] is False
    assert "file does not exist" in found(kind="csv", path=str(path))[2]
    append(path, "time_s,power_w\n")
    fine = ("meter", True, "readable, without new readings")
    assert found(kind="csv", path=str(path)) == fine


def vector(*values: str) -> dict[str, Any]:
    found = [{"metric": {"node": str(i)}, "value": [NOW, v]} for i, v in enumerate(values)]
    return {"status": "success", "data": {"resultType": "vector", "result": found}}


def test_prometheus_is_queried_and_its_answer_is_reported(
    prometheus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"kind": "prometheus", "url": prometheus, "query": "sum(w)", "token_env": "A_TOKEN"}
    meter = PrometheusMeter(**fields).open()
    with pytest.raises(ConfigError, match="environment variable A_TOKEN is not set"):
        meter.read()
    monkeypatch.setenv("A_TOKEN", "secret")
    scalar = {"status": "success", "data": {"resultType": "scalar", "result": [NOW, "7"]}}
    wrong = {"status": "error", "errorType": "bad_data", "error": "parse error"}
    Prometheus.answers = [
        (200, vector("12.5")), (200, scalar), (200, vector()), (200, vector("NaN")),
        (200, vector("1", "2")), (400, wrong), (503, b"<html>"), (200, b"<html>"), (200, [1]),
        (200, {"data": None}), (200, {"data": {"resultType": "vector", "result": [{"value": 3}]}}),
    ]  # fmt: skip
    assert meter.read() == [Reading(NOW, 12.5)]
    assert Prometheus.asked == [("/api/v1/query?query=sum%28w%29", "Bearer secret")]
    assert meter.read() == [Reading(NOW, 7.0)]
    assert meter.read() == []
    assert math.isnan(meter.read()[0].value)
    for said in (
        "returns 2 numbers",
        "400 parse error",
        "503",
        *["answer is not that of Prometheus"] * 4,
    ):
        with pytest.raises(HpctwinError, match=said):
            meter.read()


@pytest.mark.parametrize(
    ("meter", "said"),
    [
        ({"kind": "mqtt"}, "kind 'mqtt' is unknown. Known: csv, jsonl, prometheus"),
        ({"kind": "csv"}, "path: it is missing"),
        ({"kind": "csv", "path": "a", "unit": "kw"}, "'kw' is unknown. Did you mean 'kW'"),
        ({"kind": "csv", "path": "a", "min_w": 5, "max_w": 5}, "min_w must be less"),
        (
            {"kind": "csv", "path": "a", "horizon": "10s"},
            "step, horizon and window must be in increasing order",
        ),
        ({"kind": "csv", "path": "a", "step": "1s"}, "use longer steps"),
        ({"kind": "prometheus", "url": "host:1", "query": "w"}, "must start with http"),
        (
            {"kind": "prometheus", "url": "http://u:p@h", "query": "w"},
            "passwords are not allowed here",
        ),
    ],
)
def test_settings_of_a_meter_that_make_no_sense_are_rejected(
    meter: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match="meter") as refused:
        TwinConfig.of({"manager": {"kind": "emulated", "address": "a"}, "meter": meter})
    assert said in str(refused.value)


def snapshot(now_s: float, running: int, waiting: int = 0, **machine: Any) -> Snapshot:
    nodes = tuple(NodeRecord(name=f"n{i}") for i in range(16))
    jobs = [
        JobRecord(
            spec=JobSpec(id=str(i), submit_s=NOW - 900, nodes=1, walltime_s=1800),
            start_s=NOW - 600,
            node_names=(f"n{i}",),
        )
        for i in range(running)
    ]
    jobs += [
        JobRecord(spec=JobSpec(id=f"w{i}", submit_s=NOW - 60, nodes=16, walltime_s=7200))
        for i in range(waiting)
    ]
    return Snapshot(
        cluster="cluster", time_s=now_s, run="r", seq=0, machine=Cluster.uniform(16, **machine),
        nodes=nodes, jobs=tuple(jobs),
    )  # fmt: skip


def test_what_will_be_used_is_what_the_present_run_on_shows() -> None:
    core = Core(TwinConfig.of({"manager": {"kind": "emulated", "address": "a"}}).core)
    core.take_snapshot(snapshot(NOW, running=3, waiting=1))
    assert use_now(core) == {"nodes_in_use": 3}
    # The three end 20 min from now, then the one that waits takes all.
    assert use_expected(core, NOW, 600, is_active=True) == {"nodes_in_use": 3}
    assert use_expected(core, NOW, 3600, is_active=True) == {"nodes_in_use": 16}


def lead(
    metering: Metering, path: Path, hours: float, *, factor: float = 1.0, from_s: float = NOW
) -> float:
    """Every 10 s a reading of 1 kW and 100 W for each node in use, which change every 10 min."""
    core = Core(TwinConfig.of({"manager": {"kind": "emulated", "address": "a"}}).core)
    now_s, reader = from_s, metering._reader
    while now_s < from_s + hours * 3600:
        running = int(now_s // 600) * 7 % 16
        if now_s % 600 < 10:
            core = Core(core.settings)
            core.take_snapshot(snapshot(now_s, running, active_w=200, idle_w=60))
        append(path, f"{now_s},{factor * (1000 + 100 * running)}\n")
        reader._found.extend(reader._meter.read())
        metering._due = 0.0
        metering.turn(core, now_s, is_active=False)
        now_s += 10
    return now_s


@pytest.fixture
def csv_meter(tmp_path: Path) -> tuple[CsvMeter, Path]:
    path = tmp_path / "m.csv"
    append(path, "time_s,power_w\n")
    return CsvMeter(kind="csv", path=path, step="30s", horizon="20m", window="2h"), path


def test_the_twin_calibrates_on_its_meter_and_continues_after_a_restart(
    csv_meter: tuple[CsvMeter, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long it takes to say what is expected, it is said in each step.
    monkeypatch.setattr("hpctwin.twin.service.metering.SPARING", 0)
    settings, path = csv_meter
    first = Metering(settings, tmp_path / "kept.parquet")
    now_s = lead(first, path, hours=1.5)
    status = first.status(now_s)
    assert status["fault"] is None
    assert status["error_pct"]["line"] < 1 < 10 < status["error_pct"]["as it was"]
    assert status["expected_w"] is not None
    first.end()
    kept = pl.read_parquet(tmp_path / "kept.parquet")
    assert kept.columns == ["time_s", "power_w", "nodes_in_use", "expected_w"]
    second = Metering(settings, tmp_path / "kept.parquet")
    later = lead(second, path, hours=0.05, from_s=now_s + 600)
    assert second.status(later)["error_pct"]["line"] < 1


def test_readings_without_a_time_are_of_now_together(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    append(path, "power_w\n")
    metering = Metering(CsvMeter(kind="csv", path=path, time=""), tmp_path / "kept.parquet")
    core = Core(TwinConfig.of({"manager": {"kind": "emulated", "address": "a"}}).core)
    core.take_snapshot(snapshot(NOW, running=3))
    append(path, "1000\n3000\n")
    metering._reader._found.extend(metering._reader._meter.read())
    metering.turn(core, NOW, is_active=False)
    told = metering.status(NOW)
    assert (told["power_w"], told["omitted"], told["fault"]) == (2000, {}, None)


def test_a_silent_meter_and_one_that_reports_another_unit_are_reported_by_name(
    csv_meter: tuple[CsvMeter, Path], tmp_path: Path
) -> None:
    settings, path = csv_meter
    metering = Metering(settings, tmp_path / "kept.parquet")
    now_s = lead(metering, path, hours=0.2)
    quiet = metering.status(now_s + 1000)
    assert (quiet["fault"], quiet["power_w"]) == ("it is silent", None)
    now_s = lead(metering, path, hours=0.2, factor=1e-3, from_s=now_s)
    other = metering.status(now_s)
    assert "1/1,000 of the previous value: another unit" in other["fault"]
    assert sum(other["omitted"].values()) == 72
    # From the first reading on, where the machine's description tells what its nodes draw.
    fresh = Metering(settings, tmp_path / "other.parquet")
    now_s = lead(fresh, path, hours=0.2, factor=1e-3)
    assert "outside the possible power draw of the cluster" in fresh.status(now_s)["fault"]


def test_an_error_of_the_meter_is_reported_and_the_twin_stays_in_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.csv"
    append(path, "power_w\n")
    setting = Setting(tmp_path, meter={"kind": "csv", "path": str(path), "time": ""})
    twin = setting.twin
    assert twin.metering is not None
    setting.turn()

    def measured() -> bool:
        append(path, "4321\n")
        return bool(twin.status()["meter"]["power_w"] == 4321)

    setting.until(measured)
    assert "Measured power 4.3 kW." in status_lines(
        {**twin.status(), "age_s": 0, "running_now": True}
    )
    path.unlink()
    setting.until(lambda: "file does not exist" in (twin.status()["meter"]["fault"] or ""))

    def fails(*args: Any) -> None:
        raise ZeroDivisionError("of the meter's")

    monkeypatch.setattr("hpctwin.twin.service.metering.use_now", fails)
    append(path, "power_w\n4321\n")
    setting.until(lambda: "ZeroDivisionError" in (twin.status()["meter"]["fault"] or ""))
    setting.submit(1)
    setting.until(lambda: setting.running() == {"1"})
    assert twin.is_active
    assert twin.fault is None
    twin.status_writer.due = 0.0
    twin.turn(0.01)
    source = Source(setting.journal.path)
    head = source.head()
    assert head.meter is not None
    assert head.meter.power_w == 4321
    assert any("ZeroDivisionError" in text for text in head.trouble)
    assert b'hpctwin_metered_power_watts{cluster="cluster"} 4321.0' in exposition(
        Collector(source, Live(source))
    )
    twin.end()
    setting.journal.close()
