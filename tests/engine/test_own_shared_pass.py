"""A backfill of one's own is one file, where jobs share nodes too."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import hpctwin.engine.passes
from hpctwin import Cluster, Simulation, Workload, simulate
from hpctwin.engine.passes import kept_of
from hpctwin.errors import ConfigError
from hpctwin.simulation import explain

PAGE = Path(__file__).parents[2] / "docs/how-to/write-a-backfill.md"
ANYONE = '''
"""Anyone who fits starts, in order."""

from hpctwin.engine.passes import Pass, capacity


def anyone(sim):
    capacity.begin_pass(sim)
    size = capacity.order_jobs(sim)
    for i in range(size):
        j = capacity.job_at(i, size, sim)
        if not capacity.is_skipped(j, sim):
            capacity.start(j, sim)


PASS = Pass(anyone)
'''
WHOLE = '''
"""Anyone who fits starts, in order, on whole nodes."""

from hpctwin.engine.capacity.plan import fits_plan, plan_build
from hpctwin.engine.jobs.transitions import start_now
from hpctwin.engine.passes import Pass
from hpctwin.engine.queue.limits import is_skipped
from hpctwin.engine.queue.order import order_queue, pop_order, reckon_fairshare


def anyone(sim):
    reckon_fairshare(sim)
    plan_build(sim)
    for left in range(order_queue(sim), 0, -1):
        j = pop_order(left, sim)
        if not is_skipped(j, sim) and fits_plan(j, sim):
            start_now(j, sim)


PASS = Pass(anyone)
'''
NODE = {
    "name": "n",
    "count": 4,
    "cores": 8,
    "modes": {"base": {"power_w": 200, "idle_w": 90}},
    "sleep": [
        {
            "name": "off",
            "power_w": 9,
            "switch_off": {"time": 20, "power_w": 90},
            "switch_on": {"time": 40, "power_w": 90},
        }
    ],
}
MACHINE = Cluster.model_validate({"nodes": [NODE]})


def jobs(tasks: bool, count: int = 120) -> Workload:
    rng = np.random.default_rng(3)
    runtime = rng.integers(10, 300, count)
    chunks = {"tasks": rng.integers(1, 9, count), "cores_per_task": rng.integers(1, 5, count)}
    return Workload.build(
        submit_s=np.sort(rng.integers(0, 30 * count, count)),
        runtime_s=runtime,
        walltime_s=runtime * rng.integers(1, 4, count),
        nodes=rng.integers(1, 4, count) if not tasks else np.ones(count),
        chunks=chunks if tasks else None,
    )


@pytest.fixture(scope="module")
def anyone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its file, which is compiled when it is first used."""
    file = tmp_path_factory.mktemp("own") / "anyone.py"
    file.write_text(ANYONE)
    return file


@pytest.mark.parametrize("power", ["none", "psus:60", "psas-ipm:60"])
@pytest.mark.parametrize("tasks", [False, True])
def test_a_backfill_in_one_file_goes_with_power_states_and_shared_nodes(
    tasks: bool, power: str, anyone: Path, tmp_path: Path
) -> None:
    workload = jobs(tasks)
    mine = simulate(workload, MACHINE, f"wfp+{anyone}~{power}")
    theirs = simulate(workload, MACHINE, f"wfp+first-fit~{power}")
    assert mine.jobs.equals(theirs.jobs)
    assert mine.energy is not None
    assert theirs.energy is not None
    assert mine.energy.total_j == theirs.energy.total_j
    whole = Simulation(workload, MACHINE, f"wfp+{anyone}~{power}")
    whole.advance(until_s=2000)
    whole.save(tmp_path / "half.npz")
    assert whole.fork().run().jobs.equals(mine.jobs)
    assert Simulation.load(tmp_path / "half.npz").run().jobs.equals(mine.jobs)


def test_the_page_s_file_in_the_package_is_a_backfill_of_shared_nodes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n# relaxed.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "shared_relaxed.py").write_text(code)
    passes = hpctwin.engine.passes
    monkeypatch.setattr(passes, "__path__", [*passes.__path__, str(tmp_path)])
    workload = jobs(tasks=True)
    for slack_s in (0, 600):
        run = Simulation(workload, MACHINE, f"fcfs+shared-relaxed:slack={slack_s}s")
        run.advance()
        promised = kept_of(run.state, "shared-relaxed")["promised"]
        late_s = (run.column("start") - promised)[promised >= 0] / 1000
        assert len(late_s) > 10
        assert late_s.max() <= slack_s


def test_one_that_plans_whole_nodes_is_rejected_there_by_name(tmp_path: Path) -> None:
    file = tmp_path / "whole.py"
    file.write_text(WHOLE)
    with pytest.raises(ConfigError, match=r"whole\.py:PASS' plans exclusive nodes .*; use .*easy"):
        Simulation(jobs(tasks=True), MACHINE, f"fcfs+{file}")


@pytest.mark.parametrize(
    ("keeps", "told"), [("", "does not let it start"), (', keeps="one at a time"', "one at a time")]
)
def test_the_reason_for_waiting_is_that_of_the_backfill(
    keeps: str, told: str, tmp_path: Path
) -> None:
    file = tmp_path / "alone.py"
    code = WHOLE.replace("and fits_plan(", "and sim.clock.running == 0 and fits_plan(")
    file.write_text(code.replace("Pass(anyone", f"Pass(anyone{keeps}"))
    two = Workload.build(submit_s=[0, 1], runtime_s=[50, 50], nodes=[1, 1])
    story = explain(Simulation(two, MACHINE, f"fcfs+{file}"), 2)
    assert any(told in moment.text for moment in story)
