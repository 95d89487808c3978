"""A hundred viewers of the live page for a minute: what they are told, and how the server's memory grows.

python benchmarks/web.py [--viewers 100] [--seconds 60]

An emulated cluster at 30 times life, a twin that watches it, `hpctwin serve`, and viewers that hold the
stream of events; one in ten of them reads nothing.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

CONFIG = """\
manager: {{kind: emulated, address: {folder}/cluster.sock}}
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
                "hpctwin.twin.emulated", f"{folder}/cluster.sock", "--nodes", "32", "--speed", "30"
            )
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
            before = memory_mib(server.pid)
            viewers = [
                Viewer(where.hostname, where.port, token, slow=i % 10 == 9)
                for i in range(asked.viewers)
            ]
            for one in viewers:
                one.start()
            time.sleep(asked.seconds / 6)
            early, cpu, twin_cpu = (
                memory_mib(server.pid),
                processor_s(server.pid),
                processor_s(twin.pid),
            )
            time.sleep(asked.seconds * 5 / 6)
            told = sorted(one.told for one in viewers if not one.slow)
            found = {
                "viewers": asked.viewers,
                "seconds": asked.seconds,
                "told_least": told[0],
                "told_most": told[-1],
                "server_mib": {"alone": before, "early": early, "end": memory_mib(server.pid)},
                "server_cpu_s": processor_s(server.pid) - cpu,
                "twin_cpu_s": processor_s(twin.pid) - twin_cpu,
            }
            print(json.dumps(found, indent=2))
        finally:
            for process in reversed(processes):
                process.terminate()
                process.communicate(timeout=60)


if __name__ == "__main__":
    main()
