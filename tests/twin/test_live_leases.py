"""A real twin that acts by leases on a real emulated cluster, which schedules by itself all the time."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hpctwin.twin.journal.journal import Journal
from tests.twin.processes import Pair
from tests.twin.test_live import every_job_ran_once, the_mirror_is_the_cluster

pytestmark = pytest.mark.slow

LONGEST_S = 2400.0
"""Of a lease, by the cluster's clock, which goes 400 times as fast as ours."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    act = {"by": "lease", "lease": 1200, "max_lease": LONGEST_S, "max_staleness": 120}
    pair = Pair(tmp_path, act=act, core={"start_timeout": 1200})
    pair.begin_cluster("--speed", "400", "--options", '{"seed": 1}', "--policy", "fcfs+easy")
    yield pair
    pair.end()


def leases(pair: Pair) -> dict[str, float]:
    """The waiting jobs, and until when each is leased by the cluster's clock."""
    return dict(pair.ask("leases")["leases"])


def leased(pair: Pair) -> bool:
    """Whether the twin keeps jobs waiting now."""
    now_s = pair.state()["now_s"]
    return sum(until_s > now_s for until_s in leases(pair).values()) > 3


def test_killed_while_it_keeps_jobs_waiting_it_leaves_only_leases_that_run_out(pair: Pair) -> None:
    pair.begin_twin()
    pair.wait(lambda: leased(pair), 60)
    pair.wait(lambda: pair.status()["rows"]["actions"] > 5, 60)
    pair.kill_twin(signal.SIGKILL)
    killed_s = pair.state()["now_s"]
    left = leases(pair)
    assert max(left.values(), default=0.0) <= killed_s + LONGEST_S
    # Nobody gives anything back: the cluster's own scheduler, always on, starts what is not leased any more.
    pair.wait_done(120)
    every_job_ran_once(pair)
    history = pair.ask("state", history=True)["history"]
    begun = {job: time_s for time_s, job, what in history if what == "started"}
    after = [job for job, time_s in begun.items() if time_s > killed_s]
    assert left.keys() <= set(after)
    assert pair.state()["own_scheduling"]
    assert pair.state()["takeovers"] == 0
    # It had chosen before, and the cluster had started what it chose.
    with closing(Journal(pair.folder / "journal.sqlite", read_only=True)) as journal:
        shares = journal.starts_by_policy()
    assert sum(shares.values()) == pytest.approx(1)


def test_killed_again_and_again_while_it_leases_every_job_runs_once(pair: Pair) -> None:
    rng = random.Random(5)
    pair.begin_twin()
    pair.wait(lambda: leased(pair), 60)
    kills = 0
    while not pair.state()["done"] and kills < 6:
        time.sleep(rng.uniform(0.0, 2.0))
        pair.kill_twin(signal.SIGKILL)
        kills += 1
        pair.begin_twin()
        time.sleep(rng.uniform(0.5, 2.0))
    pair.wait_done(120)
    every_job_ran_once(pair)
    the_mirror_is_the_cluster(pair)
    pair.kill_twin(signal.SIGTERM)
    assert pair.status()["ended"]
