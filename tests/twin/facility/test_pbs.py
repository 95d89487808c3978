"""Jobs placed at two PBS servers by a placer that is killed."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest
import yaml

from hpctwin.rms.gate import JobRequest
from hpctwin.twin.facility.queue import Queue
from tests.twin.facility.dying_placer import place
from tests.twin.facility.pbs_commands import make_commands

SITES = ("north", "south")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "facility.yaml"
    sites = {
        name: {
            "manager": {
                "kind": "pbs", "cluster": name, "folder": str(make_commands(tmp_path / name)),
                "poll_interval": 0.3, "min_poll_interval": 0.2,
            }
        }
        for name in SITES
    }  # fmt: skip
    facility = {"clusters": [{"name": name, "nodes": 32} for name in SITES]}
    path.write_text(
        yaml.safe_dump(
            {"facility": facility, "sites": sites, "queue": "q.sqlite", "strategy": "round-robin"}
        )
    )
    path.chmod(0o600)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("point", ["after intend", "after submit", "after admit"])
def test_a_placer_killed_anywhere_places_each_job_into_pbs_exactly_once(
    config: Path, point: str
) -> None:
    folder = config.parent
    queue = Queue(folder / "q.sqlite")
    keys = [f"job-{number}" for number in range(4)]
    for key in keys:
        script = f"#!/bin/sh\necho {key} >> {folder}/ran\n"
        queue.add(JobRequest(key=key, nodes=2, walltime_s=60, script=script))
    assert place(config, point) == -signal.SIGKILL
    assert {entry.stage for entry in queue.entries()} != {"placed"}
    assert place(config, "never") == 0
    entries = queue.entries()
    queue.close()
    assert [entry.stage for entry in entries] == ["placed"] * len(keys)
    assert Counter((folder / "ran").read_text().split()) == dict.fromkeys(keys, 1)
    for entry in entries:
        jobs = json.loads((folder / str(entry.cluster) / "jobs.json").read_text())
        assert jobs[str(entry.job_id)]["Job_Name"] == entry.request.key
