"""Meters as sites have them, beside a real Slurm: what they tell is what its nodes in use draw."""

from __future__ import annotations

import datetime as dt
import json
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from hpctwin.rms.slurm.manager import SlurmManager
from hpctwin.twin.core.core import Core
from hpctwin.twin.service.metering import Metering
from hpctwin.twin.settings.config import TwinConfig
from tests.rms.beside_slurm import running
from tests.rms.slurm_cluster import SlurmCluster
from tests.rms.slurm_roots import NEWEST

pytestmark = [pytest.mark.slurm(NEWEST), pytest.mark.slow]

IDLE_W, NODE_W, SECONDS = 3000.0, 400.0, 75
BERLIN = ZoneInfo("Europe/Berlin")


class Served(BaseHTTPRequestHandler):
    """Prometheus's answer to a query of now; every fifth has nothing, as while what it scrapes restarts."""

    power_w: ClassVar[float] = IDLE_W
    asked: ClassVar[int] = 0

    def do_GET(self) -> None:
        Served.asked += 1
        value = [time.time(), str(self.power_w)]
        found = [] if Served.asked % 5 == 0 else [{"metric": {}, "value": value}]
        self.send_response(200)
        self.end_headers()
        said = {"status": "success", "data": {"resultType": "vector", "result": found}}
        self.wfile.write(json.dumps(said).encode())

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def prometheus() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Served)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class Meters:
    """Ten meters of one cluster, each with a way of its own; each writes what it would at an instant."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.draw, self.number = folder, random.Random(1), 0
        self.energy_j, self.last_s, self.last_w = 1e9, math.nan, math.nan
        self.odd_after_s = 0.0
        self.racks_j = [7e8, 3e8]
        self.ways: dict[str, tuple[dict[str, Any], str, Callable[[float, float], list[str]]]] = {
            "gaps": ({}, "time_s,power_w", self.gaps),
            "again": ({}, "time_s,power_w", self.again),
            "wrong": ({}, "power_w,time_s", self.wrong),
            "mqtt": (
                {"kind": "jsonl", "time": "tst", "power": "payload.kw", "unit": "kW"}
                | {"where": {"topic": "a"}},
                "", self.mqtt,
            ),
            "german": (
                {"time": "Zeit", "power": "Leistung", "zone": "Europe/Berlin", "unit": "kW"},
                "Zeit;Leistung", self.german,
            ),
            "counter": ({"unit": "kWh", "power": "e"}, "time_s,e", self.counter),
            "racks": ({"sensor": "rack", "sensors": 3}, "rack,time_s,power_w", self.racks),
            "racks' counters": (
                {"kind": "jsonl", "sensor": "rack", "sensors": 2, "unit": "J", "power": "j"},
                "", self.counters,
            ),
            "ahead": ({}, "time_s,power_w", self.ahead),
            "ipmi": ({"time": "", "power": "power"}, "power", self.ipmi),
        }  # fmt: skip

    def path(self, way: str) -> Path:
        return self.folder / f"{way.replace(' ', '')}.txt"

    def begin(self) -> None:
        for way, (_, head, _) in self.ways.items():
            self.path(way).write_text(head + "\n" * bool(head))

    def tell(self, now_s: float, power_w: float) -> None:
        self.number += 1
        if self.number == SECONDS // 2:  # logrotate
            self.path("again").rename(self.folder / "again.1")
            self.path("again").write_text(self.ways["again"][1] + "\n")
        for way, (_, _, told) in self.ways.items():
            with self.path(way).open("a", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in told(now_s, power_w))

    def gaps(self, now_s: float, power_w: float) -> list[str]:
        return [] if self.number % 20 < 7 else [f"{now_s},{power_w}"]

    def again(self, now_s: float, power_w: float) -> list[str]:
        return [f"{now_s},{power_w}", f"{now_s},{power_w}", f"{now_s - 15},{9 * power_w}"]

    def wrong(self, now_s: float, power_w: float) -> list[str]:
        odd = self.draw.choice(["-1", "nan", "", "n/a", "1e999", str(1000 * power_w), "0"])
        # A turn that comes late is followed by one at once.
        odd_s, self.odd_after_s = max(now_s - 0.5, (self.odd_after_s + now_s) / 2), now_s
        return [f"{odd},{odd_s}", f"{power_w},{now_s}"]

    def mqtt(self, now_s: float, power_w: float) -> list[str]:
        at = dt.datetime.fromtimestamp(now_s, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ+0000")
        told = {"tst": at, "topic": "a", "payload": json.dumps({"kw": power_w / 1000})}
        return [json.dumps(told | {"topic": "b", "payload": "{}"}), json.dumps(told), "{"]

    def german(self, now_s: float, power_w: float) -> list[str]:
        at = dt.datetime.fromtimestamp(now_s, BERLIN).strftime("%Y-%m-%d %H:%M:%S.%f")
        kilowatts = f"{power_w / 1000:.3f}".replace(".", ",")
        return [f"{at};{kilowatts}"]

    def counter(self, now_s: float, power_w: float) -> list[str]:
        # What was drawn since the last second was that of then.
        risen = 0.0 if math.isnan(self.last_s) else self.last_w * (now_s - self.last_s)
        self.energy_j += risen
        self.racks_j = [self.racks_j[0] + 0.25 * risen, self.racks_j[1] + 0.75 * risen]
        self.last_s, self.last_w = now_s, power_w
        if self.number == SECONDS // 2:
            self.energy_j = self.racks_j[1] = 0.0
        return [f"{now_s},{self.energy_j / 3.6e6:.7f}"]

    def counters(self, now_s: float, power_w: float) -> list[str]:
        return [
            json.dumps({"time_s": now_s, "rack": i, "j": j}) for i, j in enumerate(self.racks_j)
        ]

    def racks(self, now_s: float, power_w: float) -> list[str]:
        own = [
            f"r{i},{now_s + i / 10},{share * power_w}" for i, share in enumerate((0.5, 0.3, 0.2))
        ]
        self.draw.shuffle(own)
        return own

    def ahead(self, now_s: float, power_w: float) -> list[str]:
        return [f"{now_s + 3600},{5 * power_w}", f"{now_s},{power_w}"]

    def ipmi(self, now_s: float, power_w: float) -> list[str]:
        return [f"{power_w:.0f} Watts"]


def in_use(slurm: SlurmCluster) -> int:
    return sum(map(int, slurm.say("squeue", "-h", "-t", "R,CG", "-o", "%D").split()))


def test_ten_meters_report_the_draw_of_slurms_nodes_although_they_differ(
    tmp_path: Path, prometheus: str, slurm_version: str
) -> None:
    meters = Meters(tmp_path)
    meters.begin()
    common = {"kind": "csv", "step": "3s", "horizon": "9s", "window": "1h", "stale_after": "20s"}
    told = {
        way: {**common, "path": str(meters.path(way)), **own}
        for way, (own, _, _) in meters.ways.items()
    }
    told["prometheus"] = {
        **common, "kind": "prometheus", "url": prometheus, "query": "sum(w)", "every": "1s",
    }  # fmt: skip
    manager = {"kind": "slurm", "cluster": "emul"}
    configs = {way: TwinConfig.of({"manager": manager, "meter": one}) for way, one in told.items()}
    metering = {
        way: Metering(config.meter, tmp_path / f"{way}.parquet")
        for way, config in configs.items()
        if config.meter is not None
    }
    with running(tmp_path, version=slurm_version) as slurm:
        source = SlurmManager("emul", conf=slurm.conf)
        core = Core(configs["gaps"].core)
        for one in metering.values():
            one.begin()
        began = time.time()
        for second in range(SECONDS):
            time.sleep(max(0.0, began + second - time.time()))
            if second % 25 == 0:
                slurm.submit(5 + second // 5, 1, 12)
            core.take_snapshot(source.snapshot())
            if second == SECONDS // 3:  # the twin is started again
                metering["racks"].end()
                metering["racks"] = Metering(metering["racks"].settings, tmp_path / "racks.parquet")
                metering["racks"].begin()
            now_s = time.time()
            Served.power_w = IDLE_W + NODE_W * in_use(slurm)
            meters.tell(now_s, Served.power_w)
            for one in metering.values():
                one.turn(core, time.time(), is_active=False)
        for one in metering.values():
            one.end()
    for way, one in metering.items():
        status, metered = one.status(time.time()), one._metered
        assert metered is not None
        known = np.isfinite(metered.measured_w)
        assert known.sum() > SECONDS / 3 / 4, (way, status)
        line = IDLE_W + NODE_W * metered.use[known, 0]
        # In steps in which a job begins or ends, Slurm's answer and the meter's are of two instants.
        deviation = np.abs(metered.measured_w[known] / line - 1)
        assert np.median(deviation) < 0.02, (way, status)
        assert np.mean(deviation) < 0.25, (way, status)
        assert metered.measured_w[known].max() < IDLE_W + 33 * NODE_W, way
        assert metered.use[known, 0].max() > 9, way
        assert status["fault"] is None, (way, status)
        assert set(status["omitted"]) <= LEFT_OUT.get(way, set()) | {"too late"}, (way, status)
    counted = metering["counter"].status(time.time())["omitted"]
    assert counted["a counter that restarted"] == 1


LEFT_OUT = {
    "again": {"told again", "goes backwards"},
    "wrong": {"no number", "not above 0", "1,000 of the previous value: another unit", "a jump"},
    "mqtt": {"no number"},
    "counter": {"a counter that restarted"},
    "racks' counters": {"a counter that restarted"},
    "ahead": {"ahead of the clock"},
}
