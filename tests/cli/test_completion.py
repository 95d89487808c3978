"""The shell's completion, as it is installed and asked by bash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("hpctwin")
TAB = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); COMPREPLY=(); _hpctwin
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script, in a home that had nothing."""
    home = tmp_path_factory.mktemp("home")
    command = [PROGRAM, "--install-completion", "--shell", "bash"]
    environment = {**os.environ, "HOME": str(home)}
    environment = {k: v for k, v in environment.items() if not k.startswith("XDG_")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
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
