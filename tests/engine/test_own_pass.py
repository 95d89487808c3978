"""A scheduling pass is one file: in a user's folder, or in the package, and no other file is touched."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hpctwin.engine.passes
from hpctwin import generate, simulate
from hpctwin.engine.passes import PASSES
from hpctwin.policies import BACKFILLS

PAGE = Path(__file__).parents[2] / "docs/write-a-backfill.md"


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
