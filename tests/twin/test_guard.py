"""What the twin may do, and when it stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctwin.errors import ConfigError
from hpctwin.twin.acting.authority import Guard
from hpctwin.twin.settings.config import ActSettings, TwinConfig, config_schema

MANAGER = {"kind": "emulated", "address": "x.sock"}


@pytest.mark.parametrize("mode", ["observe", "advise"])
def test_nothing_is_sent_unless_acting_was_asked_for(mode) -> None:
    guard = Guard(ActSettings(mode=mode))
    assert guard.refuses("start", 0.0) == f"the mode is {mode}"
    assert not guard.is_active()


def test_only_allowed_kinds_are_sent() -> None:
    assert Guard(ActSettings(mode="act")).refuses("hold", 0.0) == "hold is not allowed"


def test_starts_are_limited_in_any_minute() -> None:
    guard = Guard(ActSettings(mode="act", starts_per_minute=3))
    sent = [t for t in range(200) if guard.refuses("start", float(t)) is None]
    assert len(sent) == 3 * 3 + 3
    for t in range(200):
        assert sum(t <= s < t + 60 for s in sent) <= 3


def test_the_kill_switch_is_looked_at_before_each_action_and_changes_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    switch = tmp_path / "stop"
    guard = Guard(ActSettings(mode="act", kill_switch=switch))
    assert guard.refuses("start", 0.0) is None
    switch.touch()
    assert "kill switch" in guard.refuses("start", 0.0)
    assert not guard.is_active()
    switch.unlink()
    assert guard.refuses("start", 0.0) is None
    said = [f"kill switch {switch} exists: not acting", f"kill switch {switch} is gone"]
    assert caplog.messages == said


def test_it_stops_itself_when_forecasts_get_too_bad_and_stays_stopped() -> None:
    guard = Guard(ActSettings(mode="act", forecast_error=0.5))
    guard.watch(None)
    guard.watch(0.5)
    assert guard.is_active()
    guard.watch(0.51)
    guard.watch(0.1)
    assert guard.mode == "observe"
    assert "51%" in guard.stopped
    guard.resume()
    assert guard.is_active()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({}, "manager: it is missing"),
        ({"core": {"pool": ["wfp+easy", "wpf+easy"]}}, "core.pool: unknown ordering 'wpf'"),
        ({"core": {"pool": []}}, "core.pool"),
        ({"core": {"pool": ["wfp", "wfp+easy"]}}, "in the pool twice"),
        ({"core": {"objective": {"weights": {"mean_wiat_s": 1}}}}, "unknown metric 'mean_wiat_s'"),
        ({"act": {"mode": "acting"}}, "act.mode"),
        ({"act": {"allow": ["reboot"]}}, "act.allow"),
        ({"resync_interval": "soon"}, "resync_interval"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_configuration_is_named_by_its_field(content, says) -> None:
    with pytest.raises(ConfigError, match=says):
        TwinConfig.of({"manager": MANAGER, **content} if content else {})


def test_paths_are_relative_to_the_file_and_durations_may_be_words(tmp_path: Path) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(
        "manager: {kind: emulated, address: x.sock}\n"
        "act: {mode: act, kill_switch: stop, dwell: 10m}\n"
        "journal: {path: j.sqlite}\n"
    )
    config = TwinConfig.from_yaml(path)
    assert config.act.kill_switch == tmp_path / "stop"
    assert config.journal.path == tmp_path / "j.sqlite"
    assert config.act.dwell == 600


def test_the_schema_knows_every_section() -> None:
    assert set(config_schema()["properties"]) >= {"manager", "bus", "core", "act", "journal"}
