"""A million jobs in the browser's timeline: when the first picture stands, and frames a second while moving.

python benchmarks/timeline.py [--jobs 1000000] [--nodes 10000] [--seconds 4] [--visits 3]

A simulated run, `hpctwin serve RUN`, and Debian's Chromium without a screen, which draws without a graphics
card. Each visit is by a browser that was just started; its start is not counted. Times of frames are
Chromium's own (requestAnimationFrame), while each frame zooms or moves the timeline.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hpctwin import Cluster, Simulation, generate
from hpctwin.report.pages.run import write_run

FRAMES = """async ([step, seconds]) => {
  const canvas = document.getElementById("gantt"), box = canvas.getBoundingClientRect();
  const place = { clientX: box.left + 500, clientY: box.top + 100, bubbles: true, cancelable: true };
  const wheel = (deltaY) =>
    canvas.dispatchEvent(new WheelEvent("wheel", { deltaY, ctrlKey: true, ...place }));
  const key = (name) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key: name }));
  const times = [];
  const end = performance.now() + 1000 * seconds;
  let i = 0;
  await new Promise((done) => {
    const frame = (now) => {
      times.push(now);
      if (performance.now() > end) return done();
      if (step === "zoom") wheel((i >> 5) % 2 ? 1 : -1);
      else key((i >> 4) % 2 ? "ArrowLeft" : "ArrowRight");
      i += 1;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  const spans = times.slice(1).map((time, k) => time - times[k]).sort((a, b) => a - b);
  const at = (share) => spans[Math.floor(share * (spans.length - 1))];
  const rate = 1000 * spans.length / (times.at(-1) - times[0]);
  const frames = spans.length;
  return { frames, frames_per_s: rate, median_ms: at(0.5), p95_ms: at(0.95), longest_ms: at(1) };
}"""


FIRST = """() => new Promise((done) => {
  new PerformanceObserver((seen) => {
    for (const one of seen.getEntriesByName("timeline")) done(one.startTime);
  }).observe({ type: "mark", buffered: true });
})"""


def processor_s(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def browser_s(server: int) -> float:
    """Processor time of all processes that come from this one, but for the server."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parents[int(entry.name)] = int(fields[1])
    found, more = {os.getpid()}, True
    while more:
        new = {pid for pid, parent in parents.items() if parent in found} - found
        more = bool(new)
        found |= new
    return sum(processor_s(pid) for pid in found - {os.getpid(), server} if pid in parents)


def look(address: str, seconds: float, visits: int, server: int) -> dict[str, Any]:
    """What a browser makes of the page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found: dict[str, Any] = {"visits": []}
        for visit in range(visits):
            browser = playwright.chromium.launch(
                executable_path="/usr/bin/chromium", args=["--no-sandbox"]
            )
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(600_000)
            page.wait_for_timeout(1000)
            begin = processor_s(server), browser_s(server)
            page.goto(address, wait_until="commit")
            first = page.evaluate(FIRST)
            used = processor_s(server) - begin[0], browser_s(server) - begin[1]
            found["visits"].append(
                {"first_picture_ms": first, "server_cpu_s": used[0], "browser_cpu_s": used[1]}
            )
            if visit + 1 < visits:
                browser.close()
        for step in ("zoom", "move"):
            page.wait_for_timeout(2000)
            begin = browser_s(server)
            found[step] = page.evaluate(FRAMES, [step, seconds])
            used = browser_s(server) - begin
            found[step]["browser_cpu_ms_a_frame"] = 1000 * used / found[step]["frames"]
        browser.close()
    return found


def main() -> None:
    """Print what was measured as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--visits", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        workload = generate("poisson", jobs=asked.jobs, nodes=asked.nodes, seed=1)
        cluster = Cluster.uniform(nodes=asked.nodes)
        write_run(Simulation(workload, cluster, "fcfs+easy", track_nodes=True).run(), folder, {})
        begin = time.perf_counter()
        server = subprocess.Popen(
            [sys.executable, "-m", "hpctwin", "serve", str(folder), "--port", "0", "--no-token"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            ready_s = time.perf_counter() - begin
            cpu = processor_s(server.pid)
            found = {
                "jobs": asked.jobs,
                "nodes": asked.nodes,
                "ready_s": ready_s,
                "ready_cpu_s": cpu,
            }
            found |= look(address, asked.seconds, asked.visits, server.pid)
            found["server_cpu_s"] = processor_s(server.pid) - cpu
            print(json.dumps(found, indent=2))
        finally:
            server.terminate()
            server.communicate(timeout=60)


if __name__ == "__main__":
    main()
