"""PBS's commands on a queue in a file: what they write is as a real OpenPBS wrote it.

``python pbs_commands.py FOLDER COMMAND ARGUMENTS…``. A job runs at once when it is released, to its end.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[2] / "rms" / "recorded"
NAMES = ("qsub", "qstat", "qrls", "qdel", "pbsnodes", "pbs_rstat", "qmgr")


def make_commands(folder: Path) -> Path:
    """A folder of the commands, for a queue of their own."""
    where = folder / "bin"
    where.mkdir(parents=True)
    for name in NAMES:
        command = where / name
        command.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {folder} {name} "$@"\n')
        command.chmod(0o755)
    return where


def recorded(name: str) -> bytes:
    return (RECORDED / f"openpbs-23.06-leases-{name}").read_bytes()


def submit(jobs: dict[str, Any], arguments: list[str], folder: Path) -> str:
    words = arguments[:-1]
    of = {name: words[i + 1] for i, name in enumerate(words) if name in ("-N", "-v", "-A", "-q")}
    asked = dict(words[i + 1].split("=", 1) for i, word in enumerate(words) if word == "-l")
    row = json.loads(recorded("qstat.json"))["Jobs"]["8.vm"]
    job_id = f"{1 + len(jobs)}.vm"
    script = folder / f"{job_id}.sh"
    script.write_text(Path(arguments[-1]).read_text())
    row.update(
        Job_Name=of["-N"], job_state="H", Hold_Types="u", Job_Owner=f"{getpass.getuser()}@vm",
        Variable_List=dict(pair.split("=", 1) for pair in of["-v"].split(",")),
    )  # fmt: skip
    row["Resource_List"].update(asked)
    del row["Execution_Time"]
    assert "-h" in words
    jobs[job_id] = row
    return job_id


def release(row: dict[str, Any], script: Path) -> None:
    if row["job_state"] == "H":
        row.update(job_state="F", Hold_Types="n")
        subprocess.run(["sh", str(script)], check=True)


def main(folder: Path, name: str, arguments: list[str]) -> int:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = folder / "jobs.json"
        jobs = json.loads(path.read_text()) if path.exists() else {}
        if name == "qsub":
            print(submit(jobs, arguments, folder))
        elif name in ("qrls", "qdel"):
            row = jobs.get(arguments[-1])
            if row is None or row["job_state"] == "F":
                print(f"{name}: Unknown Job Id {arguments[-1]}", file=sys.stderr)
                return 153
            if name == "qdel":
                row["job_state"] = "F"
            else:
                release(row, folder / f"{arguments[-1]}.sh")
        elif name == "qstat" and arguments[0] == "-f":
            left = {job_id: row for job_id, row in jobs.items() if row["job_state"] != "F"}
            about = json.loads(recorded("qstat.json"))
            print(json.dumps({**about, "Jobs": left}))
        elif name == "qmgr":
            assert arguments == ["-c", "print resource"]
        elif name != "pbs_rstat":
            which = {"-Q": "queues.json", "-B": "server.json"}.get(arguments[0], "pbsnodes.json")
            sys.stdout.buffer.write(recorded(which))
        path.write_text(json.dumps(jobs))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
