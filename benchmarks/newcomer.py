"""Walk through the documentation as a newcomer: a new environment, an empty home, every command and block in order.

    python benchmarks/newcomer.py                   # builds a wheel of this tree, installs it, walks
    python benchmarks/newcomer.py --page twin.md    # one page, or some
    python benchmarks/newcomer.py --keep /tmp/walk --from facility.md       # go on where an earlier walk has been

Each page is walked in a folder of its own that holds what a newcomer has: traces, a machine, settings. What needs a real resource
manager, root, a network or data that cannot be given away is listed with its reason. Ends with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md", ROOT / "docs/index.md",
    *(
        page for page in sorted((ROOT / "docs").rglob("*.md"))
        # your-site.md needs a Slurm; tests/test_docs.py has an example of one.
        if page.name not in {"index.md", "your-site.md"} and "/_" not in str(page)
    ),
]  # fmt: skip
EXTRAS = "live,energy,learn,train,search,web,mcp,batsim"
NOT_HERE = {
    r"python benchmarks/": "needs a clone of the repository",
    r"^pip install": "the wheel of this tree is installed in its place",
    r"workload download": "needs the network",
    r"/etc/hpctwin/|/var/lib/hpctwin/|/opt/hpctwin": "needs root, on the host of a service",
    r"rms pbs (un)?install$": "needs a PBS server",
    r"^sacct |^cp /etc/slurm": "needs a Slurm",
    r"import pbs --from|(simulate|compare) site/": "needs the files of a PBS",
    r"--columns jobid,user": "needs a file of Slurm's without a header",
    r"--owner": "needs the accounts of the site's services",
    r"--init -c twin.yaml": "this walk has written the file",
    r"rms probe|twin run --view$": "needs a resource manager",
    r"experiment schedtwin --(on|stored)|schedtwin_live": "needs a real Slurm",
    r"experiment (spars|surf|s-raps|cqsim-plus)\b": "needs traces that cannot be given away",
    r"experiment all": "needs all of them",
    r"carbonflex\.experiment import": "needs traces that cannot be given away",
    r"--use predicted": "needs a trace with measured power",
    r"facility (run|submit|queue|withdraw) live\.yaml": "needs two real Slurms",
    r"pybatsim|batsim:tcp|^batsim ": "needs Batsim, or a scheduler written for it",
    r"--host 10\.0\.0\.5": "needs the site's address and certificate",
}
UNTIL_ENDED = r"^hpctwin (twin run|serve|mcp)\b|^hpctwin rms emulate|&$"
"""What runs until somebody ends it."""
PATIENCE_S = 3600.0
"""For one step, on a machine that may be busy with other things."""

MATERIAL = """
import datetime, random, shutil
from pathlib import Path
import numpy as np
from hpctwin import generate, simulate, write_workload
from hpctwin.model import Category

def recorded(jobs, nodes, policy="fcfs+easy"):
    starts = simulate(jobs, nodes, policy).jobs["start_s"].to_numpy() * 1000
    return jobs.replace(recorded_start_ms=np.rint(starts).astype(np.int64))

theta = recorded(generate("theta-year", jobs=1500, days=20, seed=1), 4360)
theta = theta.replace(user=Category.of(np.arange(1500) % 12))
write_workload(theta, "theta.swf.gz")
write_workload(generate("theta-year", jobs=3000, days=365, seed=1), "theta_2022.swf.gz")
small = recorded(generate("poisson", jobs=300, nodes=128, seed=1), 128)
small = small.replace(account=Category.of(np.array(["physics", "chemistry", "biology"])[np.arange(300) % 3]))
for name in ("trace.swf", "trace.swf.gz", "trace.parquet", "next.swf.gz", "next.parquet"):
    write_workload(small, name)
power = "nodes: [{name: n, count: 128, modes: {base: {power_w: 220, idle_w: 95}}, sleep: [{name: off, power_w: 4, switch_off: {time: 1m, power_w: 95}, switch_on: {time: 5m, power_w: 180}}]}]"
for name in ("machine.yaml", "m.yaml"):
    Path(name).write_text(power)
hours = [f"2026-01-01T{h:02}:00:00" for h in range(24)]
for name, head in (("prices.csv", "Price (EUR/MWh)"), ("carbon.csv", "carbon intensity (g/kWh)")):
    Path(name).write_text("time," + head + chr(10) + "".join(f"{t},{80 + 5 * (i % 12)}{chr(10)}" for i, t in enumerate(hours)))
Path("weather.csv").write_text("time_s,wet_bulb_c" + chr(10) + "".join(f"{3600 * i},{10 + i % 5}{chr(10)}" for i in range(2000)))
random.seed(1)
lines = ["time_s,power_w,busy"]
for i in range(5 * 24 * 60):
    busy = 50 + 40 * ((i // 300) % 2)
    lines.append(f"{60 * i},{5000 + 100 * busy + random.gauss(0, 50):.1f},{busy}")
Path("measured.csv").write_text(chr(10).join(lines) + chr(10))
Path("my.py").write_text("def my_order(now, job):" + chr(10) + "    return job.expected * job.nodes" + chr(10))
Path("job.sh").write_text("#!/bin/sh" + chr(10) + "sleep 1" + chr(10))
Path("jobs.csv").write_text("Queued,Started,End,Ended,limit_min,cpus,Owner,Status" + chr(10) + "".join(
    f"2024-03-01T12:0{i}:00,2024-03-01T13:0{i}:00,,2024-03-01T14:0{i}:00,120,64,u{i},COMPLETED{chr(10)}" for i in range(9)))
Path("columns.yaml").write_text("submit: Queued" + chr(10) + "start: Started" + chr(10) + "end: Ended" + chr(10) + "nodes: ceil(cpus/64)" + chr(10) + "timezone: Europe/Berlin" + chr(10))
for folder in ("etc-slurm", "FOLDER", "site"):
    Path(folder).mkdir()
    Path(folder, "slurm.conf").write_text("ClusterName=c" + chr(10) + "NodeName=n[1-8] CPUs=4 RealMemory=8000" + chr(10) + "PartitionName=batch Nodes=ALL Default=YES" + chr(10))
    rows = "".join(f"{i}|2026-01-01T00:0{i}:00|2026-01-01T01:00:00|2026-01-01T02:00:00|01:00:00|02:00:00|1|4|u|COMPLETED|batch{chr(10)}" for i in range(1, 9))
    Path(folder, "sacct.txt").write_text("JobID|Submit|Start|End|Elapsed|Timelimit|NNodes|AllocCPUS|User|State|Partition" + chr(10) + rows)
"""

DATED = """
import sys
import polars as pl
table = pl.read_parquet(sys.argv[1])
later = pl.datetime(2020, 10, 9, 12, time_zone="UTC") - pl.lit(table["submit_time"].min())
# Dates as the pages have them: those of the data set.
table.with_columns(pl.col(pl.Datetime(time_zone="UTC")) + later).write_parquet("job_table.parquet")
"""


class Step(NamedTuple):
    """One thing that a page tells its reader to do.

    Args:
        page: its name.
        kind: ``command`` or ``block``.
        text: the command, or the code.
        file: what a block is to be written to; empty if it is to be run.
    """

    page: str
    kind: str
    text: str
    file: str = ""

    @property
    def shown(self) -> str:
        """In a line."""
        return self.text if self.kind == "command" else self.text.strip().splitlines()[-1].strip()


def steps_of(page: Path) -> Iterator[Step]:
    """All that a page tells its reader to do, in order."""
    page_text = page.read_text()
    for found in re.finditer(r"```(sh|python|yaml|text)\n(.*?)```", page_text, re.DOTALL):
        kind, text = found.groups()
        if kind != "sh":
            said = page_text[: found.start()].rstrip().split("\n\n")[-1]
            name = re.match(r"# (\w+\.\w+)\n", text) or re.search(r"`(\w+\.\w+)`:$", said)
            if kind == "python" or name:
                yield Step(page.name, "block", text, name[1] if name else "")
            continue
        for line in re.sub(r"\\\n", " ", text).splitlines():
            command = re.sub(r"\s+#\s.*$", "", line.removeprefix("$ ")).strip()
            if command and not command.startswith("#"):
                yield Step(page.name, "command", command)


def runs(journal: Path) -> bool:
    """Whether a twin has begun to write its journal."""
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as found,
    ):
        return found.execute("SELECT 1 FROM settings").fetchone() is not None
    return False


def waiting_job(journal: Path) -> str:
    """A job that waits, as a twin forecast last; empty if there is none yet."""
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as found,
    ):
        last = "SELECT job FROM forecasts WHERE came_true_s IS NULL ORDER BY id DESC LIMIT 1"
        row = found.execute(last).fetchone()
        return "" if row is None else str(row[0])
    return ""


def processor_s() -> float:
    """Processor time of all processes that were begun here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Walk:
    """Walks pages in a new environment.

    Args:
        folder: for the environment, the home, and a folder for each page.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "venv/bin"
        self.rows: list[tuple[Step, str, float]] = []
        home = folder / "home"
        home.mkdir(exist_ok=True)
        self.environment = {
            "PATH": f"{self.bin}:{home}/.local/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb", "MPLBACKEND": "Agg", "PAGER": "cat",
        }  # fmt: skip

    def install(self, wheel: Path | None) -> None:
        """Make the environment with hpctwin and its packages; without a wheel, from this tree."""
        if not (self.bin / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", self.folder / "venv"], check=True)
        pip = [self.bin / "python", "-m", "pip", "-q", "--disable-pip-version-check"]
        made = self.folder / "wheel"
        shutil.rmtree(made, ignore_errors=True)
        projects = [*sorted(ROOT.glob("packages/hpctwin-*")), *([] if wheel else [ROOT])]
        subprocess.run([*pip, "wheel", "--no-deps", "-w", made, *projects], check=True)
        wheel = wheel or next(made.glob("hpctwin-*.whl"))
        packages = [path.resolve() for path in made.glob("hpctwin_*.whl")]
        wanted = [f"hpctwin[{EXTRAS}] @ {wheel.resolve().as_uri()}", *packages]
        subprocess.run([*pip, "install", *wanted], check=True)
        # What an earlier walk installed has the same version, and may be of other sources.
        subprocess.run([*pip, "install", "--no-deps", "--force-reinstall", *wanted], check=True)

    def walk(self, page: Path) -> None:
        """Do all that a page says."""
        steps = list(steps_of(page))
        if not steps:
            return
        here = self.folder / page.stem
        material = self._material()
        shutil.rmtree(here, ignore_errors=True)
        shutil.copytree(material, here)
        emulated = self._twin(here, page)
        running: list[tuple[Step, subprocess.Popen[str]]] = []
        try:
            # A reader has seen the page: its files are there before its commands are tried.
            for step in reversed(steps):
                if step.file:
                    (here / step.file).write_text(step.text)
            for number, step in enumerate(steps):
                if step.file:
                    (here / step.file).write_text(step.text)
                    self._tell(step, f"written to {step.file}")
                    continue
                reason = next(
                    (why for what, why in NOT_HERE.items() if re.search(what, step.text)), ""
                )
                if step.kind == "command" and reason:
                    self._tell(step, f"not here: {reason}")
                elif step.kind == "command" and re.search(UNTIL_ENDED, step.text):
                    # One twin a cluster, one server a port: the one before is ended, as its reader does.
                    alone = [w for w in ("twin run", "hpctwin serve") if w in step.text]
                    for other in [o for o in running if any(w in o[0].text for w in alone)]:
                        self._end(*other)
                        running.remove(other)
                    running.append((step, self._start(step, here)))
                    self._settle(running[-1][1], here)
                    if "twin run" in step.text:
                        self._writes_journal(running[-1][1], here)
                else:
                    self._do(step, here, number)
        finally:
            for step, process in reversed(running):
                self._end(step, process)
            for started in reversed(emulated):
                os.killpg(started.pid, signal.SIGTERM)
                started.wait(PATIENCE_S)

    def _material(self) -> Path:
        made = self.folder / "material"
        if not (made / "alcf.yaml").exists():
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            self._run([self.bin / "python", "-c", MATERIAL], made)
            self._run(["bash", "-c", "hpctwin dataset sample marconi100 --out sample-m100"], made)
            for table in (made / "sample-m100").glob("*.parquet"):
                self._run([self.bin / "python", "-c", DATED, table], made)
            for accounts in ("april.json", "spring.json"):
                tell = f"hpctwin simulate trace.parquet -M machine.yaml --accounts {accounts}"
                self._run(["bash", "-c", tell], made)
            text = (ROOT / "docs/how-to/simulate-several-clusters.md").read_text()
            alcf = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0]
            homes = ", ".join(f'"{user}": {("polaris", "theta")[user % 2]}' for user in range(40))
            # An SWF log knows partitions by numbers, and generated ones know none.
            alcf = re.sub(r"origin: .*", f"origin: {{by: user, clusters: {{{homes}}}}}", alcf)
            (made / "alcf.yaml").write_text(alcf)
        return made

    def _run(self, command: list[object], here: Path) -> None:
        subprocess.run(
            list(map(str, command)), cwd=here, env=self.environment, check=True, timeout=PATIENCE_S,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def _twin(self, here: Path, page: Path) -> list[subprocess.Popen[str]]:
        """An emulated cluster for pages that run a twin, and its settings."""
        text = page.read_text()
        if "twin.yaml" not in text or "local_batch.py" in text or "hpctwin rms emulate" in text:
            settings = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
            if "local_batch.py" in text:
                (here / "twin.yaml").write_text(settings[0])
            return []
        address = here / "c.sock"
        (here / "twin.yaml").write_text(
            f"manager: {{kind: emulated, address: {address}}}\nact: {{mode: act}}\n"
        )
        process = subprocess.Popen(
            [
                self.bin / "hpctwin", "rms", "emulate", address, "--nodes", "32",
                "--speed", "60", "--workload", "four-phase",
            ],
            cwd=here, env=self.environment, start_new_session=True, text=True,
        )  # fmt: skip
        processes = [process]
        self._until(address.exists)
        if "twin run -c" not in text:
            twin = subprocess.Popen(
                [self.bin / "hpctwin", "twin", "run", "-c", "twin.yaml"], cwd=here, env=self.environment,
                start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            processes.append(twin)
            self._until(lambda: runs(here / "hpctwin-journal.sqlite"))
        return processes

    def _until(self, true) -> None:
        end = time.monotonic() + PATIENCE_S
        while not true() and time.monotonic() < end:
            time.sleep(0.2)

    def _start(self, step: Step, here: Path) -> subprocess.Popen[str]:
        command = step.text.removesuffix("&").strip()
        log = (here / f"background-{len(self.rows)}-{time.monotonic_ns()}.txt").open("w")
        return subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=here, env=self.environment, stdout=log, stdin=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True, text=True,
        )  # fmt: skip

    def _settle(self, process: subprocess.Popen[str], here: Path) -> None:
        """Until it has said something or written a journal, and some decisions are made."""
        before = time.monotonic()
        logs = lambda: max(here.glob("background-*.txt"), key=lambda one: one.stat().st_mtime_ns)  # noqa: E731
        self._until(
            lambda: (
                process.poll() is not None
                or logs().stat().st_size > 0
                or time.monotonic() - before > 60
            )
        )
        self._until(lambda: process.poll() is not None or time.monotonic() - before > 20)

    def _writes_journal(self, twin: subprocess.Popen[str], here: Path) -> None:
        """Until a twin has compiled what it needs and begun; its journal may lie elsewhere."""
        end = time.monotonic() + PATIENCE_S / 6
        self._until(
            lambda: (
                twin.poll() is not None
                or any(map(runs, here.glob("*.sqlite")))
                or time.monotonic() > end
            )
        )

    def _do(self, step: Step, here: Path, number: int) -> None:
        text = step.text
        journal = here / "hpctwin-journal.sqlite"
        if step.kind == "command" and "4711" in text and journal.exists():
            # A reader asks for a job of his own.
            self._until(lambda: waiting_job(journal) != "")
            text = text.replace("4711", waiting_job(journal) or "4711")
        command: list[object] = ["bash", "-c", text]
        if step.kind == "block":
            script = here / f"block{number}.py"
            script.write_text(step.text)
            command = [self.bin / "python", script]
        before = processor_s()
        try:
            done = subprocess.run(
                list(map(str, command)), cwd=here, env=self.environment, capture_output=True, text=True,
                timeout=PATIENCE_S, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            said = (done.stderr.strip() or done.stdout.strip())[-600:]
            fine = done.returncode == 0
        except subprocess.TimeoutExpired:
            fine, said = False, f"not done after {PATIENCE_S:g} s"
        self._tell(step, "done" if fine else f"FAILED: {said}", processor_s() - before)

    def _end(self, step: Step, process: subprocess.Popen[str]) -> None:
        before = process.poll()
        if before is None:
            os.killpg(process.pid, signal.SIGINT)
            if process.stdin:
                process.stdin.close()
        try:
            code: int | str = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = f"nothing, {PATIENCE_S:g} s after Ctrl-C"
        fine = code in (0, 130, -signal.SIGINT)
        self._tell(step, "ran until ended" if fine else f"FAILED: it ended with {code}")

    def _tell(self, step: Step, how: str, seconds: float = 0.0) -> None:
        self.rows.append((step, how, seconds))
        took = f"{seconds:6.1f} s" if seconds else " " * 8
        print(f"{step.page:28} {took}  {step.shown[:70]:70}  {how}", flush=True)


def main() -> None:
    """Walk, and print a line for each step."""
    # A shell's background job ignores Ctrl-C, and would have all that it starts ignore it too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser()
    parser.add_argument("--page", action="append", help="its name; all pages if left out")
    parser.add_argument("--wheel", type=Path, help="in place of one made of this tree")
    parser.add_argument("--keep", type=Path, help="folder to work in, which is kept")
    parser.add_argument("--from", dest="first", help="name of the page to begin with")
    given = parser.parse_args()
    names = [page.name for page in PAGES]
    for name in filter(None, [*(given.page or ()), given.first]):
        if name not in names:
            parser.error(f"no page is called {name}; there are {', '.join(names)}")
    begun = PAGES[names.index(given.first) :] if given.first else PAGES
    pages = [page for page in begun if not given.page or page.name in given.page]
    with tempfile.TemporaryDirectory(prefix="newcomer-") as passing:
        folder = given.keep or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        walk = Walk(folder)
        walk.install(given.wheel)
        for page in pages:
            walk.walk(page)
    failed = [row for row in walk.rows if row[1].startswith("FAILED")]
    left = [row for row in walk.rows if row[1].startswith("not here")]
    said = [step.text for page in PAGES for step in steps_of(page) if step.kind == "command"]
    stale = (
        []
        if given.page or given.first
        else [what for what in NOT_HERE if not any(re.search(what, one) for one in said)]
    )
    took = f"{processor_s():.0f} s of processor time"
    print(f"{len(walk.rows)} steps: {len(failed)} failed, {len(left)} not here; {took}")
    for what in stale:
        print(f"nothing is like {what!r} any more: take it out of NOT_HERE")
    sys.exit(1 if failed or stale else 0)


if __name__ == "__main__":
    main()
