"""Many jobs at full speed; HPCTWIN_SOAK_JOBS sets how many (100,000 take about a quarter of an hour)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from hpctwin.twin.journal.journal import Journal
from tests.twin.processes import Pair
from tests.twin.test_live import every_job_ran_once, the_mirror_is_the_cluster


@pytest.mark.slow
def test_at_full_speed_no_job_is_lost_or_started_twice_and_the_mirror_is_the_cluster(
    tmp_path: Path,
) -> None:
    jobs = int(os.environ.get("HPCTWIN_SOAK_JOBS", "1000"))
    pair = Pair(tmp_path, journal={"checkpoint_interval": 1000})
    try:
        options = json.dumps({"jobs": jobs, "nodes": 128, "seed": 1})
        pair.begin_cluster(
            "--speed", "max", "--wait", "--nodes", "128", "--workload", "poisson", "--options", options,
            "--takeover", "30",
        )  # fmt: skip
        pair.begin_twin()
        pair.wait_done(120 + jobs / 20)
        every_job_ran_once(pair, jobs)
        the_mirror_is_the_cluster(pair)
        assert pair.state()["takeovers"] == 0
        pair.kill_twin(signal.SIGTERM)
        status = pair.status()
        assert status["counts"]["starts"] == jobs
        assert status["counts"]["drifts"] == 0
        journal = Journal(tmp_path / "journal.sqlite", read_only=True)
        assert journal.unfinished_actions() == []
        journal.close()
    finally:
        pair.end()
