"""Where each version of Slurm comes from, and what is said where one is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import lacking
from tests.rms import slurm_roots
from tests.rms.slurm_cluster import SlurmCluster, missing

OTHERS = [version for version in slurm_roots.VERSIONS if version != slurm_roots.installed()]


@pytest.fixture
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of roots that has none."""
    monkeypatch.setenv("HPCTWIN_SLURMS", str(tmp_path / "kept"))
    return tmp_path / "kept"


def made(version: str, apt: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What the program says where apt-get is this script."""
    folder.mkdir()
    for name in ("apt-get", "dpkg-deb"):
        (folder / name).write_text(f"#!/bin/sh\n{apt}\n")
        (folder / name).chmod(0o755)
    return subprocess.run(
        [sys.executable, slurm_roots.__file__, version], capture_output=True, text=True,
        env={**os.environ, "PATH": f"{folder}:/usr/bin:/bin:/usr/sbin:/sbin"},
    )  # fmt: skip


def test_a_version_that_is_not_there_is_named_with_the_command_that_gets_it(
    nothing_kept: Path,
) -> None:
    version = OTHERS[-1]
    (said,) = [one for one in missing(version) if "munge" not in one]
    assert f"Slurm {version} is not in {nothing_kept}" in said
    assert f"python3 tests/rms/slurm_roots.py {version}" in said
    with pytest.raises(slurm_roots.UnavailableError, match=version):
        SlurmCluster(nothing_kept.parent, version=version)


@pytest.mark.parametrize(
    ("apt", "reason"),
    [
        ("exit 0", "apt knows no mirror of Debian"),
        ('[ "$1" = indextargets ] && echo MIRROR && exit; echo "E: No route" >&2; exit 100', "E: No route"),
        ('[ "$1" = indextargets ] && echo MIRROR; exit 0', "has no loader"),
    ],
)  # fmt: skip
def test_a_version_that_cannot_be_made_is_a_failure_whose_reason_the_tests_repeat(
    nothing_kept: Path, tmp_path: Path, apt: str, reason: str
) -> None:
    version = OTHERS[-1]
    done = made(version, apt, tmp_path / "bin")
    assert done.returncode == 1
    assert reason in done.stderr, done.stderr
    assert any(reason in one for one in missing(version))
    assert [path.name for path in nothing_kept.iterdir()] == [f"{version}.failed"]  # no half of one


def test_a_newer_slurm_stands_for_the_newest_alone() -> None:
    newest = slurm_roots.NEWEST
    stands_for = slurm_roots.stands_for
    assert [one for one in slurm_roots.VERSIONS if stands_for(one, "slurm-wlm 99.05.1")] == [newest]
    assert not stands_for(newest, "slurm-wlm 24.11.5")
    assert not stands_for(newest, "no version")
    assert stands_for("24.11", "slurm-wlm 24.11.5")


def test_an_unknown_version_is_a_wrong_call_that_names_those_known(nothing_kept: Path) -> None:
    done = subprocess.run(
        [sys.executable, slurm_roots.__file__, "23.02"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "'23.02' is not one of 22.05, 24.11, 26.05" in done.stderr


@pytest.mark.slurm
def test_programs_are_of_their_version_and_load_no_library_of_this_machine(
    slurm_version: str,
) -> None:
    absent = missing(slurm_version)
    if absent:
        lacking(", ".join(absent))
    folder = slurm_roots.root(slurm_version)
    daemon = str(folder / "bin" / "slurmctld") if folder else "slurmctld"
    said = subprocess.run([daemon, "-V"], capture_output=True, text=True, check=True).stdout
    assert slurm_roots.stands_for(slurm_version, said)
    if folder is None:
        return
    for program in [*(folder / "bin").iterdir(), *folder.glob("slurm/usr/lib/*/slurm-wlm/*.so")]:
        listed = subprocess.run(
            [str(next(folder.glob("system/usr/lib*/**/ld-linux*.so.*"))), "--list", str(program)],
            capture_output=True, text=True,
        )  # fmt: skip
        loaded = [line.split(" => ")[1] for line in listed.stdout.splitlines() if " => /" in line]
        assert all(one.startswith(str(folder)) for one in loaded), (program, loaded)
