"""What `hpctwin twin check` and `hpctwin rms probe` see before the twin runs into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctwin.errors import UnreachableError
from hpctwin.rms.gate import beat
from hpctwin.rms.managers import probe
from hpctwin.twin.service.service import check_connections, open_manager
from hpctwin.twin.settings.config import TwinConfig
from tests.rms.fake_pbs import FakePbs


def found(config: TwinConfig) -> dict[str, tuple[bool, str]]:
    return {what: (fine, says) for what, fine, says in check_connections(config)}


def test_a_heartbeat_without_its_folder_is_found_by_check(tmp_path: Path) -> None:
    pbs = FakePbs(tmp_path)
    path = tmp_path / "away" / "alive"
    config = TwinConfig.of(
        {
            "manager": {"kind": "pbs", "folder": str(pbs.bin), "heartbeat": str(path)},
            "journal": {"path": str(tmp_path / "j.sqlite")},
        }
    )
    fine, says = found(config)["heartbeat"]
    assert not fine
    assert f"the folder {path.parent} is not there" in says
    with pytest.raises(UnreachableError, match=r"heartbeat: .*cannot be written"):
        beat(path, 1)
    path.parent.mkdir()
    assert found(config)["heartbeat"] == (True, str(path))
    beat(path, 1)


def test_slurm_conf_in_the_environment_is_reported_as_unusable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SLURM_CONF", "/elsewhere/slurm.conf")
    config = TwinConfig.of({"manager": {"kind": "slurm", "folder": str(tmp_path)}})
    said = "SLURM_CONF=/elsewhere/slurm.conf is ignored; set manager.conf instead"
    assert found(config)["environment"] == (False, said)
    open_manager(config.manager)
    assert said in caplog.text
    (tmp_path / "squeue").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    (slurm,) = probe(str(tmp_path))
    assert "SLURM_CONF=/elsewhere/slurm.conf is ignored" in slurm.findings[0].says
    # Where the settings name one, that is meant.
    named = TwinConfig.of({"manager": {"kind": "slurm", "conf": "/etc/slurm.conf"}})
    assert "environment" not in found(named)


def test_a_pbs_server_in_the_environment_is_reported_as_unusable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PBS_DEFAULT", "other")
    pbs = FakePbs(tmp_path)
    manager = {"kind": "pbs", "folder": str(pbs.bin)}
    fine, says = found(TwinConfig.of({"manager": manager}))["environment"]
    assert not fine
    assert says == "PBS_DEFAULT=other is ignored; set manager.server instead"
    assert "environment" not in found(TwinConfig.of({"manager": {**manager, "server": "this"}}))
