"""Agents that switch nodes beside timeouts, on parts of the NASA log that they were not trained on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hpctwin.cli import main
from hpctwin.experiments import nasa_agents as experiment
from hpctwin.experiments import spars


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as left:
        main(["experiment", "nasa-agents", *map(str, arguments)])
    code = left.value.code
    assert isinstance(code, int)
    return code


@pytest.mark.traces
def test_windows_are_the_last_fifth_and_no_job_of_theirs_is_trained_on(traces: Path) -> None:
    tested, trained = experiment.windows(), experiment.training()
    held_out = spars.workload()
    assert (
        sum(len(one) for one in tested) <= len(held_out) < sum(map(len, tested)) + experiment.JOBS
    )
    assert np.concatenate([one.runtime_ms for one in tested]).tolist() == (
        held_out.runtime_ms[: sum(map(len, tested))].tolist()
    )
    assert all(one.submit_ms[0] == 0 for one in tested)
    assert trained.submit_ms[-1] <= (held_out.start_epoch_s - trained.start_epoch_s) * 1000


@pytest.mark.traces
def test_agents_stand_beside_timeouts_and_are_not_trained_twice(
    tmp_path: Path,
    traces: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(experiment, "TIMEOUTS", ("psus:20m",))
    some = experiment.windows()[:6]
    monkeypatch.setattr(experiment, "windows", lambda: some)
    given = ("--seeds", 1, "--steps", 1, "--out", tmp_path)
    assert run(*given, "--json") == 0
    timeout, own = json.loads(capsys.readouterr().out)
    (kept,) = tmp_path.iterdir()
    made = kept.stat().st_mtime_ns
    energy, wait = (np.mean(timeout[name]) - np.mean(own[name]) for name in ("energy_j", "wait_s"))
    assert timeout["less_energy"]["mean"] == pytest.approx(
        energy / np.mean(timeout["energy_j"]) * 100
    )
    assert timeout["less_wait"]["mean"] == pytest.approx(wait / np.mean(timeout["wait_s"]) * 100)
    assert (
        timeout["less_wait"]["low"] <= timeout["less_wait"]["mean"] <= timeout["less_wait"]["high"]
    )
    assert run(*given) == 0
    assert "seed 0" in capsys.readouterr().out
    assert kept.stat().st_mtime_ns == made
