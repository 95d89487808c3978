"""Settings and the Python that they name run as code: only where nobody else may have written them."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from hpctwin.errors import ConfigError
from hpctwin.model import trusted
from hpctwin.model.trusted import check_module, check_trusted
from hpctwin.twin.facility.service import LiveFacility
from hpctwin.twin.settings.config import TwinConfig
from hpctwin.twin.what_if.objective import Objective
from tests.twin.test_objective import outlook

NOBODY = 65534


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    path = tmp_path / "twin.yaml"
    path.write_text("manager: {kind: emulated, address: c.sock}\n")
    path.chmod(0o644)
    return path


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a file seem to belong to somebody; only root could really give it away."""
    owners: dict[str, tuple[int | None, int | None]] = {}
    lstat = os.lstat

    def seen(path: Path) -> os.stat_result:
        about = list(lstat(path))
        uid, gid = owners.get(str(path), (None, None))
        about[4] = about[4] if uid is None else uid
        about[5] = about[5] if gid is None else gid
        return os.stat_result(about)

    def give(path: Path, uid: int | None = None, gid: int | None = None) -> None:
        owners[str(path)] = uid, gid

    monkeypatch.setattr(trusted.os, "lstat", seen)
    return give


def test_settings_of_ours_that_only_we_may_write_are_taken(settings: Path) -> None:
    check_trusted(settings)
    TwinConfig.from_yaml(settings)


@pytest.mark.parametrize(("mode", "who"), [(0o646, "others"), (0o664, "its group")])
def test_settings_that_others_may_write_are_rejected(
    settings: Path, given: Callable[..., None], mode: int, who: str
) -> None:
    given(settings, gid=NOBODY)
    settings.chmod(mode)
    with pytest.raises(ConfigError, match=f"{who} can write it; to fix this: chmod") as fault:
        TwinConfig.from_yaml(settings)
    assert str(settings) in str(fault.value)


def test_settings_in_a_folder_that_others_may_write_are_rejected(settings: Path) -> None:
    settings.parent.chmod(0o777)
    with pytest.raises(ConfigError, match=r"others can write /.*; to fix this: chmod o-w"):
        TwinConfig.from_yaml(settings)


def test_a_sticky_folder_that_all_may_write_is_as_good_as_tmp(settings: Path) -> None:
    settings.parent.chmod(0o1777)
    check_trusted(settings)


def test_settings_of_another_user_are_rejected(settings: Path, given: Callable[..., None]) -> None:
    given(settings, uid=NOBODY)
    with pytest.raises(ConfigError, match=f"it belongs to {pwd.getpwuid(NOBODY).pw_name}"):
        TwinConfig.from_yaml(settings)


def test_a_folder_of_another_user_above_the_settings_is_rejected(
    settings: Path, given: Callable[..., None]
) -> None:
    given(settings.parent, uid=NOBODY)
    with pytest.raises(ConfigError, match="belongs to"):
        check_trusted(settings)


def test_the_target_of_a_link_is_checked_and_the_folder_of_the_link(settings: Path) -> None:
    away = settings.parent / "away"
    away.mkdir()
    target = away / "real.yaml"
    settings.rename(target)
    settings.symlink_to("away/../away/real.yaml")
    check_trusted(settings)
    away.chmod(0o777)
    with pytest.raises(ConfigError, match="others can write"):
        check_trusted(settings)
    away.chmod(0o755)
    target.chmod(0o666)
    with pytest.raises(ConfigError, match="others can write"):
        check_trusted(settings)


def test_links_in_a_circle_are_an_error_and_no_loop(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(ConfigError, match="too many symbolic links"):
        check_trusted(tmp_path / "a")


def test_a_private_group_of_a_user_may_write_as_under_umask_002(
    settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.chmod(0o664)
    me = pwd.getpwuid(os.geteuid())
    assert settings.stat().st_gid == me.pw_gid
    check_trusted(settings)
    real = trusted.grp.getgrgid(me.pw_gid)
    shared = type(real)((real.gr_name, real.gr_passwd, real.gr_gid, ["somebody"]))
    monkeypatch.setattr(trusted.grp, "getgrgid", lambda gid: shared)
    with pytest.raises(ConfigError, match="its group can write it"):
        check_trusted(settings)


def test_the_python_file_of_an_objective_is_found_next_to_the_settings(
    settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (settings.parent / "objective.py").write_text("def cost(outlook):\n    return 42.0\n")
    settings.write_text(
        settings.read_text() + 'core: {objective: {function: "objective.py:cost"}}\n'
    )
    monkeypatch.chdir("/")
    config = TwinConfig.from_yaml(settings)
    objective = Objective(function=config.core.objective.function)
    assert objective.measure(outlook([], [], [], [])) == {"cost": 42.0}
    # As the journal has it, for replaying from anywhere.
    assert TwinConfig.of(config.model_dump(mode="json")) == config


def test_the_python_file_of_a_policy_is_found_next_to_the_settings(
    settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (settings.parent / "mine.py").write_text(
        "from hpctwin import ordering\n\n@ordering\ndef mine(now, job):\n    return job.nodes\n"
    )
    settings.write_text(
        settings.read_text() + "core: {pool: [mine.py:mine+easy, fcfs+easy:1/mine.py:mine]}\n"
    )
    monkeypatch.chdir("/")
    config = TwinConfig.from_yaml(settings)
    assert config.core.pool[0] == f"{settings.parent}/mine.py:mine+easy"
    assert config.core.pool[1] == f"fcfs+easy:1/{settings.parent}/mine.py:mine"


@pytest.mark.parametrize(
    "core",
    [
        'core: {objective: {function: "code.py:cost"}}',
        "core: {pool: [code.py:mine+easy]}",
        "core: {site_policy: fcfs+easy/code.py:mine}",
        "core: {pool: [fcfs+code.py:PASS]}",
        "core: {pool: [fcfs+easy@code.py:mine]}",
        "core: {site_policy: 'fcfs~code.py:control:20m'}",
    ],
)
def test_python_that_others_may_write_is_rejected_before_it_runs(settings: Path, core: str) -> None:
    ran = settings.parent / "ran"
    code = settings.parent / "code.py"
    code.write_text(f"open({str(ran)!r}, 'w')\ndef cost(outlook):\n    return 1\n")
    code.chmod(0o666)
    settings.write_text(settings.read_text() + core + "\n")
    with pytest.raises(ConfigError, match=r"code\.py: its content runs as code, but others"):
        TwinConfig.from_yaml(settings)
    assert not ran.exists()


def test_a_module_that_others_may_write_is_rejected_before_it_runs(
    settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = settings.parent / "ran"
    package = settings.parent / "open_to_all"
    package.mkdir()
    (package / "__init__.py").write_text(f"open({str(ran)!r}, 'w')\n")
    (package / "__init__.py").chmod(0o666)
    (package / "inner.py").write_text("def cost(outlook):\n    return 1\n")
    monkeypatch.syspath_prepend(settings.parent)
    settings.write_text(
        settings.read_text() + 'core: {objective: {function: "open_to_all.inner:cost"}}\n'
    )
    with pytest.raises(ConfigError, match="others can write it"):
        TwinConfig.from_yaml(settings)
    assert not ran.exists()
    check_module("json.decoder")
    check_module("there_is.no_such.module")


def test_settings_of_a_live_facility_are_rejected_as_well(tmp_path: Path) -> None:
    path = tmp_path / "live.yaml"
    described = tmp_path / "two.yaml"
    described.write_text("name: two\nclusters: [{name: a, nodes: 4, policy: fcfs+easy}]\n")
    path.write_text(
        "facility: two.yaml\nsites: {a: {manager: {kind: emulated, address: a.sock}}}\n"
    )
    LiveFacility.from_yaml(path)
    described.chmod(0o666)
    with pytest.raises(ConfigError, match=r"two\.yaml: .*others can write it"):
        LiveFacility.from_yaml(path)
    described.chmod(0o644)
    path.chmod(0o666)
    with pytest.raises(ConfigError, match=r"live\.yaml: .*others can write it"):
        LiveFacility.from_yaml(path)


def test_python_of_a_live_facility_is_rejected_before_it_runs(tmp_path: Path) -> None:
    ran, code = tmp_path / "ran", tmp_path / "code.py"
    code.write_text(f"open({str(ran)!r}, 'w')\n")
    code.chmod(0o666)
    cluster = f"clusters: [{{name: a, nodes: 4, policy: '{code}:mine+easy'}}]"
    sites = "sites: {a: {manager: {kind: emulated, address: a.sock}}}\n"
    path = tmp_path / "live.yaml"
    (tmp_path / "one.yaml").write_text(f"name: one\n{cluster}\n")
    for facility in ("one.yaml", f"{{name: one, {cluster}}}"):
        path.write_text(f"facility: {facility}\n{sites}")
        with pytest.raises(ConfigError, match=r"code\.py: .*others can write it"):
            LiveFacility.from_yaml(path)
    assert not ran.exists()


def test_paths_in_the_settings_are_relative_to_their_file(settings: Path) -> None:
    settings.write_text(
        "manager: {kind: slurm, heartbeat: alive, conf: /etc/slurm.conf, events: {spool: news}}\n"
        "act: {kill_switch: stop}\njournal: {path: j.sqlite}\n"
    )
    config = TwinConfig.from_yaml(settings)
    here = settings.parent
    assert config.journal.path == here / "j.sqlite"
    assert config.act.kill_switch == here / "stop"
    assert config.manager.kind == "slurm"
    assert config.manager.heartbeat == here / "alive"
    assert config.manager.conf == Path("/etc/slurm.conf")
    assert config.manager.events is not None
    assert config.manager.events.spool == here / "news"
