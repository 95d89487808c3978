"""Agents that switch nodes beside timeouts, on parts of the NASA log that they were not trained on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hpctwin import simulate
from hpctwin.cli import main
from hpctwin.learn import Episodes, PowerManagementEnv
from hpctwin.learn.training.trial import Plan
from hpctwin.policies.agents import Network
from hpctwin_papers.spars import nasa_agents as experiment
from hpctwin_papers.spars import schedulers


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as left:
        main(["experiment", "nasa-agents", *map(str, arguments)])
    code = left.value.code
    assert isinstance(code, int)
    return code


@pytest.mark.traces
def test_jobs_for_learning_come_before_jobs_for_choosing_and_those_before_the_tested(
    traces: Path,
) -> None:
    tested, chosen_on = experiment.windows(), experiment.validation()
    trained, before, held_out = experiment.training(), experiment.before(), schedulers.workload()
    assert len(tested) == experiment.WINDOWS
    for windows, part in (
        (tested, held_out.runtime_ms),
        (chosen_on, before.runtime_ms[len(trained) :]),
    ):
        rows = np.concatenate([one.runtime_ms for one in windows])
        assert rows.tolist() == part[: len(rows)].tolist()
        assert len(part) - len(rows) < experiment.JOBS
        assert all(one.submit_ms[0] == 0 for one in windows)
    assert trained.runtime_ms.tolist() == before.runtime_ms[: len(trained)].tolist()
    assert before.submit_ms[-1] <= (held_out.start_epoch_s - before.start_epoch_s) * 1000


@pytest.mark.traces
def test_the_weight_with_the_largest_lesser_lead_is_taken(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leads = {0.3: (1.0, 30.0), 0.35: (4.0, 3.0), 0.4: (2.5, 20.0), 0.5: (9.0, -2.0)}
    monkeypatch.setattr(experiment, "lead", lambda network: leads[network.card["options"]["alpha"]])
    found = experiment.agent(Plan(1, layers=(), trials=0, learner="cma"))
    assert found.card["options"]["alpha"] == 0.35
    assert found.card["validation"]["leads"] == {str(k): list(v) for k, v in leads.items()}


@pytest.mark.traces
def test_a_lead_is_over_the_least_energy_and_the_least_wait_of_timeouts(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts, some = ("psus:10m", "psus:1h"), experiment.validation()[:2]
    monkeypatch.setattr(experiment, "PLAIN", timeouts)
    monkeypatch.setattr(experiment, "validation", lambda: some)
    experiment.least_before.cache_clear()
    weights = np.array([[0.5, -4.0, *[0.0] * 8]], np.float32)  # always the same level: 2 of 32
    options = {**experiment.OPTIONS, "alpha": 0.5, "beta": 0.5}
    card = {"environment": "PowerManagement", "options": options}
    leads = experiment.lead(Network(((weights, np.zeros(1, np.float32)),), True, card))
    environment = PowerManagementEnv(Episodes.of(some[0], schedulers.MACHINE, jobs=361), **options)
    own = []
    for jobs in some:
        environment.reset(options={"jobs": jobs})
        over = False
        while not over:
            _, _, over, _, told = environment.step(2)
        own.append((told["energy_j"], told["mean_wait_s"]))
    found = [
        [simulate(jobs, schedulers.MACHINE, f"fcfs+easy~{name}") for jobs in some]
        for name in timeouts
    ]
    energy = min(np.mean([one.energy.total_j for one in runs]) for runs in found)
    wait = min(np.mean([one.jobs["wait_s"].mean() for one in runs]) for runs in found)
    mean = np.mean(own, axis=0)
    experiment.least_before.cache_clear()
    assert leads == pytest.approx((100 * (1 - mean[0] / energy), 100 * (1 - mean[1] / wait)))


@pytest.mark.traces
def test_agents_are_compared_with_timeouts_and_are_not_trained_twice(
    tmp_path: Path,
    traces: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(experiment, "TIMEOUTS", ("psus:20m",))
    monkeypatch.setattr(experiment, "PLAIN", ("psus:20m",))
    monkeypatch.setattr(experiment, "lead", lambda network: (network.card["options"]["alpha"], 1.0))
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
    shown = capsys.readouterr().out
    # Its own leads, over the only timeout.
    own_row = next(line for line in shown.splitlines() if "seed 0" in line)
    assert f"{timeout['less_energy']['mean']:,.1f}" in own_row
    assert f"{timeout['less_wait']['mean']:,.1f}" in own_row
    assert kept.stat().st_mtime_ns == made
