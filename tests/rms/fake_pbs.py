"""PBS's commands as scripts that answer what a real OpenPBS said, and note how they were called."""

from __future__ import annotations

from pathlib import Path

from tests.rms.recorded import PBS

SCRIPT = """#!/bin/sh
me=${{0##*/}}
cd {folder}
echo "$me $*" >>calls
[ -f hang-$me ] && exec sleep 20
if [ -f fail-$me ]; then cat fail-$me >&2; exit 1; fi
case "$me $*" in
  "qstat -f -t -F json") cat qstat.json ;;
  "qstat -Q -f -F json") cat queues.json ;;
  "qstat -B -f -F json") cat server.json ;;
  "pbsnodes -a -v -F json") cat pbsnodes.json ;;
  "qmgr -c set server scheduling=true") sed -i '/"scheduling"/s/False/True/' server.json ;;
  "qmgr -c set server scheduling=false") sed -i '/"scheduling"/s/True/False/' server.json ;;
  qstat*|pbsnodes*) echo "not expected: $*" >&2; exit 2 ;;
esac
exit 0
"""
NAMES = ("qstat", "pbsnodes", "pbs_rstat", "qrun", "qhold", "qrls", "qalter", "qmgr")


class FakePbs:
    """A folder of such scripts.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name in ("qstat.json", "queues.json", "server.json", "pbsnodes.json"):
            (folder / name).write_bytes(PBS[name])
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

    def hang(self, name: str) -> None:
        """From now on a command does not end."""
        (self.folder / f"hang-{name}").touch()

    def mend(self, name: str) -> None:
        """A command works again."""
        for what in ("fail", "hang"):
            (self.folder / f"{what}-{name}").unlink(missing_ok=True)

    def scheduling(self) -> bool:
        """Whether PBS's own scheduling is on."""
        return '"scheduling":\t"True"' in (self.folder / "server.json").read_text()
