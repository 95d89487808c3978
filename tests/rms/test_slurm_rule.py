"""The submit rule as it is printed, and the manager that has to know what it gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctwin.cli import main
from hpctwin.rms.slurm.listing.jobs import Mine
from hpctwin.rms.slurm.manager import SlurmManager
from hpctwin.twin.settings.config import TwinConfig

NOW_S = 1_764_000_000.0


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["rms", "slurm", "rule", *map(str, words)])
    assert stop.value.code in (0, None), capsys.readouterr().err
    return capsys.readouterr().out


def test_the_rule_and_the_manager_have_the_first_lease_of_the_twins_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(
        "manager:\n  kind: slurm\n  first_lease: 90s\n  heartbeat: /run/twin/alive\n"
        "  events: {spool: /var/spool/twin/news.jsonl}\n"
    )
    text = said(capsys, "-c", path)
    assert "\nlocal LEASE_S = 90 " in text
    assert '"/run/twin/alive"' in text
    assert '"/var/spool/twin/news.jsonl"' in text
    manager = TwinConfig.from_yaml(path).manager.open()
    assert isinstance(manager, SlurmManager)
    # Submitted while the twin lives, with what the rule has given: a lease, no wish.
    manager.begins.since_s = NOW_S - 60
    mine = Mine(parts=("7",), begin_s=NOW_S + 85, submit_s=NOW_S - 3)
    assert manager.begins.seen({"7": mine}, NOW_S) == {"7": None}
    assert manager.begins.leases == {"7": NOW_S + 85}


def test_without_settings_the_first_lease_is_20_s_and_it_can_be_set(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "\nlocal LEASE_S = 20 " in said(capsys)
    assert "\nlocal LEASE_S = 45 " in said(capsys, "--lease", "45s")


@pytest.mark.parametrize("lease", ["0s", "2h", "soon"])
def test_a_first_lease_that_makes_no_sense_is_rejected(
    capsys: pytest.CaptureFixture[str], lease: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["rms", "slurm", "rule", "--lease", lease])
    assert stop.value.code == 2
    assert lease.removesuffix("s") in capsys.readouterr().err or lease == "2h"
