"""Do what a tutorial says, and compare what is printed with what the page shows.

The blocks of a page are done in order, in an empty folder:

- ``sh`` holds commands. Those in `BACKGROUND` run until the page ends.
- ``yaml`` and ``python`` that start with ``# NAME`` are files; other ``python`` is run.
- ``text`` is what the block before prints; ``…`` stands for any text, and a line of it for any lines.

``<!-- numbers vary -->`` before an output compares its words only, ``<!-- not compared: REASON -->``
skips it, and ``<!-- not run: REASON -->`` skips a block with its output.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BACKGROUND = re.compile(r"hpctwin (rms emulate|twin run|serve|demo --serve)\b")
"""Programs that run until the page ends, or they are started again."""
PATIENCE_S = 300.0
_BLOCK = re.compile(
    r"(?:<!-- (?P<note>[^>]*) -->\n)?^```(?P<kind>sh|yaml|python|text)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_COMPILING = re.compile(r"hpctwin: compiling the engine")
_NUMBER = re.compile(r"[−-]?\d[\d.,]*(?: ?(?:s|ms|min|h|d|%|pts)\b| ?%)?\*?")


class Block(NamedTuple):
    """One block of a page, with the comment before it."""

    kind: str
    text: str
    note: str


def blocks(page: str) -> Iterator[Block]:
    """Return the blocks of a page that are done, and their outputs."""
    skipped = False
    for found in _BLOCK.finditer(page):
        one = Block(found["kind"], found["text"], found["note"] or "")
        skipped = one.note.startswith("not run:") or (skipped and one.kind == "text")
        if not skipped and not one.note.startswith("not compared:"):
            yield one


def same(shown: str, printed: str, *, numbers: bool) -> bool:
    """Return whether an output is the one that a page shows."""
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line == "…" else re.escape(line).replace("…", r"[^\n]*?") + r"\n"
        for line in _lines(shown, numbers)
    )
    return (
        re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(printed, numbers))) is not None
    )


def _lines(text: str, numbers: bool) -> list[str]:
    """Return the lines that count, without what may differ from run to run."""
    lines = [
        line.rstrip() for line in text.splitlines() if line.strip() and not _COMPILING.match(line)
    ]
    if numbers:
        return lines
    lines = [re.sub(r"[─━┏┓┃┡┩╇┳└┘┴│╭╮╰╯]+", "|", _NUMBER.sub("#", line)) for line in lines]
    # The number may be 1 on the page, and another here.
    lines = [re.sub(r"(# [a-z]{3,}?)s\b", r"\1", line) for line in lines]
    return [" ".join(line.split()) for line in lines]


class Reader:
    """A reader of a page, with a terminal in a folder.

    Args:
        folder: Folder in which the page is followed.
        first_on_path: Folder with other programs that the page uses, such as a cluster's.
    """

    def __init__(self, folder: Path, first_on_path: Path | None = None) -> None:
        self.folder = folder
        folders = [first_on_path, Path(sys.executable).parent, os.environ["PATH"]]
        self.environment = {
            **os.environ, "PATH": ":".join(str(one) for one in folders if one), "TERM": "dumb",
            "COLUMNS": "100", "MPLBACKEND": "Agg", "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.last: list[str] = []
        self.log: Path | None = None

    def follow(self, page: str) -> None:
        """Do all that a page says; what is printed must be what it shows."""
        try:
            for number, block in enumerate(blocks(page)):
                self._do(block, number)
        finally:
            for process in reversed(self.running.values()):
                self._end(process)

    def _do(self, block: Block, number: int) -> None:
        named = re.match(r"# (\S+\.\w+)\n", block.text)
        if block.kind == "text":
            self._compare(block)
        elif named:
            (self.folder / named[1]).write_text(block.text.removeprefix(named[0]))
        elif block.kind == "python":
            script = self.folder / f"block{number}.py"
            script.write_text(block.text)
            self.last, self.log = [sys.executable, str(script)], None
            self._run()
        elif BACKGROUND.match(block.text):
            self._start(block.text, number)
        else:
            self.last, self.log = ["bash", "-ec", block.text], None
            self._run()

    def _start(self, command: str, number: int) -> None:
        """Start a program; the same one that runs already is ended before, as by Ctrl-C."""
        found = BACKGROUND.match(command)
        assert found is not None
        name = found[0]
        if name in self.running:
            self._end(self.running.pop(name))
        command = re.sub(r"\\\n", " ", command).strip()
        if command.startswith("hpctwin serve"):
            command += " --port 0"
        self.log = self.folder / f"block{number}.log"
        with self.log.open("wb") as log:
            self.running[name] = subprocess.Popen(
                ["bash", "-ec", f"exec {command}"], cwd=self.folder, env=self.environment,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(PATIENCE_S)

    def _run(self) -> None:
        """Run the last block; next to other processes, until they are ready for it."""
        until = time.monotonic() + (PATIENCE_S if self.running else 0)
        while True:
            done = subprocess.run(
                self.last, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S,
                check=False,
            )  # fmt: skip
            self.printed = done.stdout
            if done.returncode == 0:
                return
            assert time.monotonic() < until, self.printed
            time.sleep(0.2)

    def _compare(self, block: Block) -> None:
        until = time.monotonic() + (PATIENCE_S if self.running else 0)
        while True:
            if self.log is not None:
                self.printed = self.log.read_text()
            if same(block.text, self.printed, numbers=block.note != "numbers vary"):
                return
            assert time.monotonic() < until, f"shown:\n{block.text}\nprinted:\n{self.printed}"
            time.sleep(0.2)
            if self.log is None:
                self._run()
