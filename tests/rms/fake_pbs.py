"""PBS's commands as scripts that answer what a real OpenPBS said, and note how they were called."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from tests.rms.recorded import PBS

SCRIPT = """#!/bin/sh
me=${{0##*/}}
cd {folder}
echo "$me $*" >>calls
[ -f hang-$me ] && exec sleep 20
if [ -f fail-$me ]; then cat fail-$me >&2; exit 1; fi
case "$me $*" in
  "qstat -f -t -F json" | "qstat -f -F json") cat qstat.json ;;
  "qstat -f -F json "*) cat job.json ;;
  qsub*) cat says-qsub 2>/dev/null || echo 60.vm ;;
  "qstat -Q -f -F json") cat queues.json ;;
  "qstat -B -f -F json") cat server.json ;;
  "pbsnodes -a -v -F json") cat pbsnodes.json ;;
  "pbs_rstat -f") cat rstat.txt ;;
  "qmgr -c print resource") cat resources.txt 2>/dev/null ;;
  qstat*|pbsnodes*) echo "not expected: $*" >&2; exit 2 ;;
esac
exit 0
"""
NAMES = ("qstat", "pbsnodes", "pbs_rstat", "qrun", "qalter", "qmgr", "qsub", "qdel", "qrls")


class FakePbs:
    """A folder of such scripts.

    Args:
        folder: an empty one.
        recording: what they answer: ``leases`` is a server whose hook marks jobs.
    """

    def __init__(self, folder: Path, recording: Literal["", "leases"] = "") -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        begin = f"{recording}-" if recording else ""
        for name in ("qstat.json", "queues.json", "server.json", "pbsnodes.json"):
            (folder / name).write_bytes(PBS[begin + name])
        (folder / "rstat.txt").write_bytes(PBS.get(f"{begin}rstat.txt", b""))
        # The older recording is of a server whose scheduling was off.
        self.scheduling(True)
        for name in NAMES:
            script = self.bin / name
            script.write_text(SCRIPT.format(folder=folder))
            script.chmod(0o755)

    def calls(self) -> list[str]:
        """All calls so far, and forget them."""
        path = self.folder / "calls"
        said = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return said

    def fail(self, name: str, said: str) -> None:
        """From now on a command fails."""
        (self.folder / f"fail-{name}").write_text(said)

    def says(self, name: str, said: str) -> None:
        """From now on ``qsub`` answers so."""
        (self.folder / f"says-{name}").write_text(said)

    def hang(self, name: str) -> None:
        """From now on a command does not end."""
        (self.folder / f"hang-{name}").touch()

    def mend(self, name: str) -> None:
        """A command works again."""
        for what in ("fail", "hang"):
            (self.folder / f"{what}-{name}").unlink(missing_ok=True)

    def scheduling(self, on: bool) -> None:
        """An administrator turns PBS's scheduling on or off."""
        path = self.folder / "server.json"
        path.write_text(re.sub(r'("scheduling":\s*")\w+"', rf'\g<1>{on}"', path.read_text()))
