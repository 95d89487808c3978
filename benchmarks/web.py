"""Viewers and attackers of the live page: what they get, how the server grows, and what the twin notices.

python benchmarks/web.py [--viewers 100] [--seconds 60] [--half-open 1000] [--what-ifs 10]

An emulated cluster at 30 times life, a twin that acts on it, `hpctwin serve`, and viewers that hold the
stream of events; one in ten of them reads nothing. With ``--half-open``, so many connections send half a
header, again and again as they are closed. With ``--what-ifs``, so many clients ask for the largest what-if
that is allowed, again and again. From event to action is measured in three parts of equal length: before
there are clients, with them, and after they have gone. ``/healthz`` is asked ten times a second.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

JOBS = {"jobs": 20_000, "nodes": 32, "mean_runtime_s": 45, "load": 0.8}
CONFIG = """\
manager: {{kind: emulated, address: {folder}/cluster.sock, timeout: 60}}
act: {{mode: act, starts_per_minute: 1000000}}
journal: {{path: {folder}/journal.sqlite}}
"""


def give_way() -> None:
    """Let others go before this thread: clients that make load are usually on other computers."""
    if sys.platform == "linux":  # elsewhere it is for the whole process
        os.nice(19)


class Viewer(threading.Thread):
    """Holds the stream and counts what it is told; a slow one only holds it."""

    def __init__(self, host: str, port: int, token: str, *, slow: bool) -> None:
        super().__init__(daemon=True)
        self.told = 0
        self.slow = slow
        self.connection = socket.create_connection((host, port))
        ask = f"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        self.connection.sendall(ask.encode())

    def run(self) -> None:
        """Read until the connection is closed."""
        give_way()
        while not self.slow:
            try:
                data = self.connection.recv(65_536)
            except OSError:
                return
            if not data:
                return
            self.told += data.count(b"event: head")


class HalfOpen(threading.Thread):
    """Holds many connections that sent half a header; opens another for each that is closed."""

    def __init__(self, host: str, port: int, number: int) -> None:
        super().__init__(daemon=True)
        self.where, self.number, self.opened = (host, port), number, 0
        self.ended = threading.Event()

    def run(self) -> None:
        """Open connections until it is ended."""
        give_way()
        held: list[socket.socket] = []
        while not self.ended.wait(0.05):
            while len(held) < self.number and not self.ended.is_set():
                try:
                    held.append(socket.create_connection(self.where, timeout=10))
                    held[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
                    held[-1].setblocking(False)
                except OSError:
                    break
                self.opened += 1
            held = [one for one in held if _is_open(one)]
        for one in held:
            one.close()


def _is_open(connection: socket.socket) -> bool:
    try:
        if connection.recv(1):
            return True
    except BlockingIOError:
        return True
    except OSError:
        pass
    connection.close()
    return False


class Asking(threading.Thread):
    """Asks for one thing again and again, and notes how long each answer takes, and its status."""

    def __init__(
        self, host: str, port: int, token: str, what: str, body: str, pause_s: float
    ) -> None:
        super().__init__(daemon=True)
        self.where, self.what, self.body, self.pause_s = (host, port), what, body, pause_s
        self.headers = {"Host": "localhost", "Authorization": f"Bearer {token}"}
        self.ended = threading.Event()
        self.took_ms: list[float] = []
        self.statuses: dict[int, int] = {}

    def run(self) -> None:
        """Ask until it is ended."""
        if self.body:
            give_way()
            self.headers["Content-Type"] = "application/json"
        while not self.ended.wait(self.pause_s):
            begin = time.perf_counter()
            connection = http.client.HTTPConnection(*self.where, timeout=60)
            try:
                method = "POST" if self.body else "GET"
                connection.request(method, self.what, self.body or None, self.headers)
                answer = connection.getresponse()
                answer.read()
                status = answer.status
            except (OSError, http.client.HTTPException):
                status = 0
            finally:
                connection.close()
            self.took_ms.append(1000 * (time.perf_counter() - begin))
            self.statuses[status] = self.statuses.get(status, 0) + 1


def times_ms(took_ms: list[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum."""
    ordered = sorted(took_ms)
    if not ordered:
        return {}
    at = {"median": 0.5, "p99": 0.99, "max": 1.0}
    return {name: round(ordered[int(q * (len(ordered) - 1))], 1) for name, q in at.items()}


def memory_mib(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise ValueError(pid)


def processor_s(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def event_to_action(journal: Path, since_s: float) -> dict[str, float]:
    """From an event in the journal to the start that it gave rise to, and to its answer, ms by the clock."""
    with sqlite3.connect(f"file:{journal}?mode=ro", uri=True) as opened:
        rows = opened.execute(
            "SELECT actions.at_s, actions.took_ms, (SELECT max(at_s) FROM inputs WHERE kind='event' AND "
            "inputs.id < decisions.input) FROM actions JOIN decisions ON decisions.id = actions.decision "
            "WHERE actions.kind = 'start' AND actions.result = 'done' AND actions.at_s > ?",
            (since_s,),
        ).fetchall()
    sent = sorted(1000 * (at - event) for at, _, event in rows if event is not None)
    if not sent:
        return {"starts": 0}
    tail = sent[int(0.95 * (len(sent) - 1))]
    return {"starts": len(sent), "median_ms": statistics.median(sent), "p95_ms": tail}


def main() -> None:
    """Print what was measured as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--half-open", type=int, default=0)
    parser.add_argument("--what-ifs", type=int, default=0)
    asked = parser.parse_args()
    processes: list[subprocess.Popen[str]] = []

    def begin(*command: str, log: Any = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], stdout=subprocess.PIPE, stderr=log, text=True
        )
        processes.append(process)
        return process

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "twin.yaml"
        config.write_text(CONFIG.format(folder=folder))
        try:
            begin(
                "hpctwin", "rms", "emulate", f"{folder}/cluster.sock", "--nodes", "32", "--speed", "30",
                "--workload", "poisson", "--options", json.dumps(JOBS),
            )  # fmt: skip
            while not (folder / "cluster.sock").exists():
                time.sleep(0.1)
            twin = begin("hpctwin", "twin", "run", "-c", str(config))
            status = [sys.executable, "-m", "hpctwin", "twin", "status", "-c", str(config)]
            while subprocess.run(status, capture_output=True, check=False).returncode:
                time.sleep(0.5)
            log = (folder / "server.log").open("w")
            server = begin("hpctwin", "serve", "-c", str(config), "--port", "0", log=log)
            assert server.stdout is not None
            where = urlsplit(server.stdout.readline().strip())
            token = where.fragment.removeprefix("token=")
            assert where.hostname is not None
            assert where.port is not None
            viewers: list[Viewer] = []
            place = where.hostname, where.port, token

            def part() -> dict[str, Any]:
                """A part of the time: from event to action, processor time, and memory."""
                first = memory_mib(server.pid)
                begin, twin_s, server_s = (
                    time.time(),
                    processor_s(twin.pid),
                    processor_s(server.pid),
                )
                health = Asking(*place, "/healthz", "", 0.1)
                health.start()
                time.sleep(asked.seconds)
                health.ended.set()
                used: dict[str, Any] = {
                    "server_mib": (first, memory_mib(server.pid)),
                    "healthz_ms": times_ms(health.took_ms),
                    "healthz_statuses": health.statuses,
                    "twin_cpu_s": processor_s(twin.pid) - twin_s,
                    "server_cpu_s": processor_s(server.pid) - server_s,
                }
                return event_to_action(folder / "journal.sqlite", begin) | used

            alone = part()
            for i in range(asked.viewers):
                viewers.append(Viewer(where.hostname, where.port, token, slow=i % 10 == 9))
                viewers[-1].start()
            half_open = HalfOpen(where.hostname, where.port, asked.half_open)
            largest = json.dumps({"add_nodes": 10_000})
            askers = [
                Asking(*place, "/api/v1/what-if", largest, 0.5) for _ in range(asked.what_ifs)
            ]
            for thread in (half_open, *askers):
                thread.start()
            time.sleep(asked.seconds / 6)
            watched = part()
            for ending in (half_open, *askers):
                ending.ended.set()
            told = sorted(one.told for one in viewers if not one.slow)
            for one in viewers:
                one.connection.close()
            statuses: dict[int, int] = {}
            for asker in askers:
                for status, number in asker.statuses.items():
                    statuses[status] = statuses.get(status, 0) + number
            found = {
                "viewers": asked.viewers,
                "seconds": asked.seconds,
                "told_least": told[0] if told else None,
                "told_most": told[-1] if told else None,
                "half_open_connections_opened": half_open.opened,
                "what_if_statuses": statuses,
                "what_if_ms": times_ms([ms for asker in askers for ms in asker.took_ms]),
                "without": alone,
                "with": watched,
                "without_again": part(),
            }
            found["log_bytes"] = (folder / "server.log").stat().st_size
            print(json.dumps(found, indent=2))
        finally:
            for process in reversed(processes):
                process.terminate()
                process.communicate(timeout=60)


if __name__ == "__main__":
    main()
