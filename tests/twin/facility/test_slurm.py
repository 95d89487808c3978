"""Two real Slurms, each of 32 nodes, and jobs placed at them."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from hpctwin.rms.gate import JobRequest
from hpctwin.twin.facility.queue import Queue
from tests.rms.beside_slurm import running
from tests.rms.slurm_cluster import SlurmCluster
from tests.rms.slurm_roots import NEWEST
from tests.twin.facility.dying_placer import place

pytestmark = [pytest.mark.slurm(NEWEST), pytest.mark.slow]


@pytest.fixture(scope="module")
def slurms(
    tmp_path_factory: pytest.TempPathFactory, slurm_version: str
) -> Iterator[dict[str, SlurmCluster]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(running(tmp_path_factory.mktemp(name), version=slurm_version))
            for name in ("east", "west")
        }


@pytest.fixture
def config(slurms: dict[str, SlurmCluster], tmp_path: Path) -> Path:
    path = tmp_path / "facility.yaml"
    sites = {
        name: {
            "manager": {
                "kind": "slurm", "cluster": name, "conf": str(slurm.conf), "poll_interval": 0.3,
                "min_poll_interval": 0.2,
            },
            "options": ["--output=/dev/null", "--chdir=/tmp"],
        }
        for name, slurm in slurms.items()
    }  # fmt: skip
    path.write_text(
        yaml.safe_dump(
            {
                "facility": {"clusters": [{"name": name, "nodes": 32} for name in slurms]},
                "sites": sites,
                "queue": "queue.sqlite",
                "strategy": "sgs-t",
            }
        )
    )
    return path


@pytest.mark.parametrize("point", ["after intend", "after submit", "after admit"])
def test_a_placer_killed_between_two_real_slurms_places_each_job_exactly_once(
    slurms: dict[str, SlurmCluster], config: Path, point: str
) -> None:
    ran = config.parent / "ran"
    keys = [f"{point.replace(' ', '-')}-{number}" for number in range(6)]
    queue = Queue(config.parent / "queue.sqlite")
    for key in keys:
        script = f"#!/bin/sh\necho {key} >> {ran}\nsleep 1\n"
        # Two do not fit on one cluster together: both are used.
        queue.add(JobRequest(key=key, nodes=20, walltime_s=60, script=script))
    assert place(config, point) == -signal.SIGKILL
    assert queue.entries("queued"), "it was killed before it was done"
    assert place(config, "never") == 0
    entries = queue.entries()
    queue.close()
    assert [entry.stage for entry in entries] == ["placed"] * len(keys)
    assert {entry.cluster for entry in entries} == set(slurms)
    until = time.monotonic() + 300
    while any(slurm.say("squeue", "-h") for slurm in slurms.values()):
        assert time.monotonic() < until, {n: s.say("squeue") for n, s in slurms.items()}
        time.sleep(0.2)
    assert Counter(ran.read_text().split()) == dict.fromkeys(keys, 1)
    for entry in entries:
        assert entry.cluster is not None
        assert entry.job_id is not None
        assert slurms[entry.cluster].job(entry.job_id)["JobName"] == entry.request.key
