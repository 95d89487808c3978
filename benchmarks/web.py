"""A hundred viewers of the live page: what they are told, how the server grows, and what the twin notices.

python benchmarks/web.py [--viewers 100] [--seconds 60]

An emulated cluster at 30 times life, a twin that acts on it, `hpctwin serve`, and viewers that hold the
stream of events; one in ten of them reads nothing. From event to action is measured in three parts of equal
length: before there are viewers, with them, and after they have gone.
"""

from __future__ import annotations

import argparse
import json
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
        while not self.slow:
            try:
                data = self.connection.recv(65_536)
            except OSError:
                return
            if not data:
                return
            self.told += data.count(b"event: head")


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
    asked = parser.parse_args()
    processes: list[subprocess.Popen[str]] = []

    def begin(*command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True
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
            server = begin("hpctwin", "serve", "-c", str(config), "--port", "0")
            assert server.stdout is not None
            where = urlsplit(server.stdout.readline().strip())
            token = where.fragment.removeprefix("token=")
            assert where.hostname is not None
            assert where.port is not None
            viewers: list[Viewer] = []

            def part() -> dict[str, Any]:
                """A part of the time: from event to action, processor time, and memory."""
                first = memory_mib(server.pid)
                begin, twin_s, server_s = (
                    time.time(),
                    processor_s(twin.pid),
                    processor_s(server.pid),
                )
                time.sleep(asked.seconds)
                used: dict[str, Any] = {
                    "server_mib": (first, memory_mib(server.pid)),
                    "twin_cpu_s": processor_s(twin.pid) - twin_s,
                    "server_cpu_s": processor_s(server.pid) - server_s,
                }
                return event_to_action(folder / "journal.sqlite", begin) | used

            alone = part()
            for i in range(asked.viewers):
                viewers.append(Viewer(where.hostname, where.port, token, slow=i % 10 == 9))
                viewers[-1].start()
            time.sleep(asked.seconds / 6)
            watched = part()
            told = sorted(one.told for one in viewers if not one.slow)
            for one in viewers:
                one.connection.close()
            found = {
                "viewers": asked.viewers,
                "seconds": asked.seconds,
                "told_least": told[0],
                "told_most": told[-1],
                "without": alone,
                "with": watched,
                "without_again": part(),
            }
            print(json.dumps(found, indent=2))
        finally:
            for process in reversed(processes):
                process.terminate()
                process.communicate(timeout=60)


if __name__ == "__main__":
    main()
