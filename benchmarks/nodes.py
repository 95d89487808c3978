"""Ten thousand nodes on the live page: processor time for each change, and of a drawing.

python benchmarks/nodes.py [--nodes 10000] [--seconds 30] [--picture FILE]

An emulated cluster at 30 times life in racks of 100, a twin that watches it, `hpctwin serve`, and Debian's
Chromium without a screen or a graphics card.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from timeline import browser_s, processor_s

RACK = 100
DRAWN = """async () => {
  const { Nodes } = await import("/static/nodes.js");
  const [canvas, said, by] = ["nodes", "nodes-said", "by"].map((id) => document.getElementById(id));
  const told = await (await fetch("api/v1/nodes")).json(), grid = new Nodes(canvas, said, by);
  const spans = [];
  for (let i = 0; i < 20; i += 1) {
    const begin = performance.now();
    grid.set(told);
    grid.paint();
    spans.push(performance.now() - begin);
  }
  return Math.min(...spans);
}"""


def look(address: str, seconds: float, picture: Path | None, server: int) -> dict[str, Any]:
    """What a browser makes of the page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(600_000)
        told: list[int] = []
        page.on(
            "response",
            lambda one: told.append(len(one.body())) if one.url.endswith("/nodes") else None,
        )
        page.goto(address)
        page.wait_for_selector("#queue tbody tr")
        begin, had = (processor_s(server), browser_s(server)), len(told)
        page.wait_for_timeout(1000 * seconds)
        used = processor_s(server) - begin[0], browser_s(server) - begin[1]
        changes = max(1, len(told) - had)
        found = {
            "changes": changes,
            "bytes_of_nodes": told[-1],
            "server_cpu_ms_a_change": 1000 * used[0] / changes,
            "browser_cpu_ms_a_change": 1000 * used[1] / changes,
            "drawing_ms": page.evaluate(DRAWN),
        }
        if picture is not None:
            page.screenshot(path=picture, full_page=True)
        browser.close()
    return found


def main() -> None:
    """Print what was measured as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--picture", type=Path)
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
        socket, config, machine = (folder / one for one in ("c.sock", "twin.yaml", "machine.yaml"))
        racks = [
            {"name": f"r{i:03}", "count": min(RACK, asked.nodes - i * RACK), "cores": 64}
            for i in range(-(-asked.nodes // RACK))
        ]
        machine.write_text(yaml.safe_dump({"nodes": racks}))
        body = {
            "manager": {"kind": "emulated", "address": str(socket), "timeout": 60},
            "act": {"mode": "observe"},
            "journal": {"path": str(folder / "journal.sqlite")},
        }
        config.write_text(yaml.safe_dump(body))
        options = {"jobs": 20_000, "nodes": asked.nodes, "mean_runtime_s": 600, "load": 1.2}
        try:
            begin(
                "hpctwin", "rms", "emulate", str(socket), "--cluster", str(machine), "--speed", "30",
                "--workload", "poisson", "--options", json.dumps(options),
            )  # fmt: skip
            while not socket.exists():
                time.sleep(0.1)
            begin("hpctwin", "twin", "run", "-c", str(config))
            status = [sys.executable, "-m", "hpctwin", "twin", "status", "-c", str(config)]
            while subprocess.run(status, capture_output=True, check=False).returncode:
                time.sleep(0.5)
            server = begin("hpctwin", "serve", "-c", str(config), "--port", "0", "--no-token")
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            found = look(address, asked.seconds, asked.picture, server.pid)
            print(json.dumps({"nodes": asked.nodes, **found}, indent=2))
        finally:
            for process in reversed(processes):
                process.terminate()
                process.communicate(timeout=60)


if __name__ == "__main__":
    main()
