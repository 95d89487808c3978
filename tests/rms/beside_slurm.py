"""A twin process beside a real Slurm."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpctwin.cli.live import rms
from hpctwin.rms.slurm.listing.listing import rows_of
from tests.conftest import lacking
from tests.rms.slurm_accounting import Accounting, missing_accounting, settings_of
from tests.rms.slurm_cluster import SlurmCluster, free_ports, missing

NOBODY = "65534"


def made_rule(folder: Path, **options: Any) -> Path:
    """The submit rule as `hpctwin rms slurm rule` prints it, for a twin that works in a folder."""
    path = folder / "rule.lua"
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        rms.rule(heartbeat=folder / "alive", spool=folder / "news.jsonl", **options)
    path.write_text(said.getvalue())
    return path


def made_events(folder: Path) -> Path:
    """The event script as `hpctwin rms slurm events` prints it."""
    path = folder / "events.sh"
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        rms.events(spool=folder / "news.jsonl")
    path.write_text(said.getvalue())
    path.chmod(0o755)
    return path


@contextmanager
def readable_folder() -> Iterator[Path]:
    """One in which jobs of other users can read their scripts."""
    # Steps of jobs may still write when Slurm's daemons have ended.
    with tempfile.TemporaryDirectory(prefix="hpctwin-slurm-", ignore_cleanup_errors=True) as place:
        Path(place).chmod(0o755)
        yield Path(place)


@contextmanager
def running(
    folder: Path,
    *,
    version: str | None = None,
    rule: bool | dict[str, Any] = False,
    events: bool = False,
    accounting: bool = False,
    **options: Any,
) -> Iterator[SlurmCluster]:
    """A Slurm; with the submit rule, the event script and slurmdbd if asked for.

    Its commands are the first on this process's search path, so hpctwin finds them as a site's.
    """
    absent = missing_accounting(version) if accounting else missing(version)
    if absent or os.getuid() != 0:
        lacking(f"a real Slurm needs root and {', '.join(absent) or 'nothing else'}")
    if rule is not False:
        options["rule"] = made_rule(folder, **(rule if isinstance(rule, dict) else {}))
    if events:
        options["events"] = made_events(folder)
    port = free_ports(1) if accounting else 0
    if accounting:
        options["more"] = (*options.get("more", ()), *settings_of(port))
    cluster = SlurmCluster(folder, version=version, **options)
    database = Accounting(cluster, port) if accounting else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", cluster.env["PATH"])
        try:
            if database is not None:
                database.begin()
            cluster.begin()
            if database is not None:
                database.wait_for_controller()
            yield cluster
        finally:
            cluster.end()
            if database is not None:
                database.end()


class Beside:
    """A twin process beside it; `zone`: the time zone of its environment."""

    def __init__(self, slurm: SlurmCluster, *, zone: str = "", **more: Any) -> None:
        self.slurm = slurm
        self.zone = zone
        self.config = slurm.folder / "twin.yaml"
        self.heartbeat = slurm.folder / "alive"
        manager = {
            "kind": "slurm", "cluster": "emul", "conf": str(slurm.conf), "min_poll_interval": 0.2,
            "timeout": 5, "heartbeat": str(self.heartbeat), **more.pop("manager", {}),
        }  # fmt: skip
        if (slurm.folder / "rule.lua").exists():
            manager["events"] = {"spool": str(slurm.folder / "news.jsonl")}
        self.config.write_text(
            yaml.safe_dump(
                {
                    "manager": manager,
                    "act": {"mode": "act", **more.pop("act", {})},
                    "core": {"retry_after": 5, "start_timeout": 8, **more.pop("core", {})},
                    "journal": {"path": "journal.sqlite"},
                    "heartbeat_interval": 0.3,
                    "threads": 1,
                    **more,
                }
            )
        )
        self.program = ("-m", "hpctwin")
        self.environment = dict(os.environ)
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self, *, wait: bool = True) -> None:
        """Start it; it is waited for until it is in charge."""
        self.heartbeat.unlink(missing_ok=True)
        with (self.slurm.folder / "twin.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.program, "twin", "run", "-c", str(self.config)],
                stdout=log, stderr=log,
                env={**self.environment, **({"TZ": self.zone} if self.zone else {})},
            )  # fmt: skip
        if wait:
            self.slurm.wait(self.heartbeat.exists, 60)
            self.slurm.wait(lambda: self.status()["is_active"], 20)

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(180)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hpctwin", *words, "-c", str(self.config)],
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    def status(self) -> dict[str, Any]:
        """What its journal says of it; not in charge before there is one."""
        from hpctwin.errors import HpctwinError
        from hpctwin.twin.journal.journal import Journal

        try:
            with contextlib.closing(
                Journal(self.slurm.folder / "journal.sqlite", read_only=True)
            ) as journal:
                found = journal.read_latest("status")
        except HpctwinError:
            found = None
        return {"is_active": False, "fault": None} if found is None else dict(found[1])


@contextmanager
def beside(slurm: SlurmCluster, **more: Any) -> Iterator[Beside]:
    """A twin that is in charge; ended at the end."""
    twin = Beside(slurm, **more)
    try:
        twin.begin()
        yield twin
    finally:
        twin.end()


def as_user(slurm: SlurmCluster, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as an ordinary user, who cannot read the folder of the test."""
    with tempfile.TemporaryDirectory(prefix="hpctwin-conf-") as folder:
        conf = Path(folder) / "slurm.conf"
        conf.write_text(slurm.conf.read_text())
        Path(folder).chmod(0o755)
        return subprocess.run(
            ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", *command],
            env={**slurm.env, "SLURM_CONF": str(conf)}, capture_output=True, text=True, timeout=300,
            check=False, cwd="/tmp",
        )  # fmt: skip


def states(slurm: SlurmCluster) -> dict[str, str]:
    """State and reason of each job that has not ended, by id as users see it."""
    said = slurm.say("squeue", "-r", "-h", "-o", "%i %T %r")
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in said.splitlines()}
    return {job: state for job, state in rows.items() if not state.startswith("COMPLETING")}


def job_rows(slurm: SlurmCluster) -> list[dict[str, str]]:
    """What scontrol prints of each job; its keys are the same in all versions."""
    rows = slurm.say("scontrol", "show", "job", "-o").splitlines()
    told = [dict(word.split("=", 1) for word in row.split() if "=" in word) for row in rows]
    return [row for row in told if "JobId" in row]  # there may be none at all


def json_rows(slurm: SlurmCluster) -> list[dict[str, Any]]:
    """Return rows of ``squeue --json`` of all jobs, ended ones too, with the same types in all versions.

    Whole numbers are integers, and ``job_state`` is one word.
    """
    rows = rows_of(slurm.say("squeue", "-a", "-t", "all", "--json").encode())
    said = slurm.say("squeue", "-a", "-t", "all", "-h", "-O", "JobID:|,Exclusive:|")
    alone = dict(line.split("|")[:2] for line in said.splitlines() if line.count("|") > 1)
    for row in rows:
        for key, value in row.items():
            if isinstance(value, float) and value.is_integer():
                row[key] = int(value)
        if isinstance(row["job_state"], list):
            row["job_state"] = row["job_state"][0]
        row["exclusive"] = alone.get(str(row["job_id"]), "")
    return rows


def begin_time(row: dict[str, str]) -> float:
    """When a job of `job_rows` may begin, s since the epoch; 0 if Slurm has not said so yet."""
    said = row["EligibleTime"]
    return 0.0 if said in ("Unknown", "N/A") else datetime.fromisoformat(said).timestamp()


def begin_times(slurm: SlurmCluster) -> dict[str, float]:
    """Eligible times of the jobs, by Slurm's own number."""
    return {row["JobId"]: begin_time(row) for row in job_rows(slurm)}


def job_ends(slurm: SlurmCluster, jobs: list[str]) -> bool:
    return not set(slurm.say("squeue", "-h", "-o", "%A").split()) & set(jobs)


class Wrapped:
    """Slurm's commands behind scripts that can be made to fail as commands do."""

    FAULTS = ("hang", "fail", "garbage", "truncated")

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "bin"
        self.folder.mkdir()
        for name in ("squeue", "sinfo", "scontrol"):
            script = self.folder / name
            script.write_text(
                "#!/bin/sh\n"
                f"real={shutil.which(name)}\n"
                f'case "$(cat {self.folder}/{name}.fault 2>/dev/null)" in\n'
                "  hang) exec sleep 600 ;;\n"
                "  fail) echo 'slurm_load error: Zero Bytes were transmitted or received' >&2; exit 1 ;;\n"
                "  garbage) echo '}{ what'; exit 0 ;;\n"
                '  truncated) "$real" "$@" | head -c 1000; exit 0 ;;\n'
                "esac\n"
                'exec "$real" "$@"\n'
            )
            script.chmod(0o755)

    def set(self, name: str, fault: str | None) -> None:
        """Have a command fail so, or no more."""
        path = self.folder / f"{name}.fault"
        if fault is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(fault)
