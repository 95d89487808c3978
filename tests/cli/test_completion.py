"""The shell's completion, as it is installed and asked by bash, zsh and fish."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import lacking

PROGRAM = Path(sys.executable).with_name("hpctwin")
TAB = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); COMPREPLY=(); _hpctwin
printf '%s\\n' "${COMPREPLY[@]}"
"""


def at_home(home: Path) -> dict[str, str]:
    """The environment of somebody who lives there and has the program on the path."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ZSH", "ZDOT"))}
    return {**kept, "HOME": str(home), "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}


def install(shell: str, home: Path) -> subprocess.CompletedProcess[str]:
    """What one does once."""
    command = [PROGRAM, "--install-completion", "--shell", shell]
    return subprocess.run(command, env=at_home(home), capture_output=True, text=True, check=True)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script, in a home that had nothing."""
    home = tmp_path_factory.mktemp("home")
    done = install("bash", home)
    (script,) = (file for file in home.rglob("hpctwin") if file.is_file())
    assert str(script) in done.stdout.replace("\n", "")
    assert str(script) in (home / ".bashrc").read_text()
    return script


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("pol", {"policy"}),
        ("policy ", {"check", "list", "search", "serve"}),
        ("simulate t.swf --overr", {"--overrun"}),
        ("simulate t.swf --overrun ", {"terminate", "continue"}),
        ("simulate t.swf -p wfp+ea", {"wfp+easy"}),
        ("simulate t.swf -b pack:pa", {"pack:patience="}),
        ("policy check sj", {"sjf"}),
    ],
)
def test_a_shell_offers_what_fits(installed: Path, typed: str, offered: set[str]) -> None:
    command = ["bash", "--norc", "-c", TAB, "bash", installed, PROGRAM, *typed.split(" ")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == offered


def need_shell(name: str) -> None:
    if shutil.which(name) is None:
        lacking(f"{name} is not installed")


def test_fish_offers_what_fits(tmp_path: Path) -> None:
    need_shell("fish")
    install("fish", tmp_path)
    for typed, offered in (("-b ea", "easy"), ("-p wfp+ea", "wfp+easy"), ("--overr", "--overrun")):
        done = subprocess.run(
            ["fish", "-c", f"complete -C 'hpctwin simulate t.swf {typed}'"],
            env=at_home(tmp_path), capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == [offered]


def test_zsh_completes_what_is_typed(tmp_path: Path) -> None:
    """In a pseudo-terminal, with compinit where most have it."""
    need_shell("zsh")
    (tmp_path / ".zshrc").write_text("PS1='READY> '\nautoload -Uz compinit\ncompinit -u\n")
    assert "compinit" in install("zsh", tmp_path).stdout
    terminal, inside = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", "zsh", "-i"], cwd=tmp_path, env={**at_home(tmp_path), "TERM": "dumb"},
        stdin=inside, stdout=inside, stderr=inside,
    )  # fmt: skip
    os.close(inside)
    try:
        read_until(terminal, "READY> ")
        os.write(terminal, b"hpctwin simulate -b ea\t")
        read_until(terminal, "easy ")
    finally:
        os.close(terminal)
        process.kill()
        process.wait()


def read_until(terminal: int, pattern: str) -> None:
    """Read what a terminal shows until it matches; fails if it does not within two minutes."""
    shown, end = "", time.monotonic() + 120
    while not re.search(pattern, shown):
        assert time.monotonic() < end, shown
        if select.select([terminal], [], [], 1.0)[0]:
            shown += os.read(terminal, 65536).decode(errors="replace")
