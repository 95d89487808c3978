"""A scheduling pass is one file: in a user's folder, or in the package, and no other file is touched."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hpctwin.engine.passes
from hpctwin import Simulation, Workload, generate, simulate
from hpctwin.engine.passes import PASSES
from hpctwin.policies import BACKFILLS
from hpctwin.simulation import explain

PAGE = Path(__file__).parents[2] / "docs/how-to/write-a-backfill.md"


def test_the_page_s_file_in_the_package_is_a_backfill_by_name_with_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n# relaxed.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "page_relaxed.py").write_text(code)
    passes = hpctwin.engine.passes
    assert "page-relaxed" not in PASSES.names()
    monkeypatch.setattr(passes, "__path__", [*passes.__path__, str(tmp_path)])
    assert "page-relaxed" in PASSES.names()
    told = BACKFILLS.find("page-relaxed")
    assert told.help.startswith("Relaxed backfilling: ")
    (slack,) = told.parameters
    assert (slack.name, slack.default) == ("slack", 600.0)
    workload = generate("poisson", jobs=200, nodes=64, seed=1)
    mine = simulate(workload, 64, "fcfs", "page-relaxed:slack=1h")
    easy = simulate(workload, 64, "fcfs", "easy")
    assert mine.policy == "fcfs+page-relaxed:1h"
    assert mine.jobs["start_s"].to_list() != easy.jobs["start_s"].to_list()


ALONE = """
from hpctwin.engine.queue.order import order_queue, pop_order
from hpctwin.engine.capacity.plan import fits_plan, plan_build
from hpctwin.engine.jobs.transitions import start_now


def alone(sim):
    plan_build(sim)
    j = pop_order(order_queue(sim), sim)
    if sim.clock.running == 0 and fits_plan(j, sim):
        start_now(j, sim)
"""


def test_a_delay_by_a_custom_backfill_alone_is_reported(
    tmp_path: Path,
) -> None:
    (tmp_path / "alone.py").write_text(ALONE)
    two = Workload.build(submit_s=[0, 1], runtime_s=[50, 50], nodes=[1, 1])
    story = explain(Simulation(two, 4, f"fcfs+{tmp_path}/alone.py:alone"), 2)
    assert any("the backfill does not let it start" in moment.text for moment in story)
