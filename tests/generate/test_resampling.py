"""Random replicates: users drawn again with all their jobs, and shifted arrivals."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from hpctwin import Workload, generate, simulate
from hpctwin.errors import WorkloadError
from hpctwin.generate.resampling import resample_users, shift_arrivals
from hpctwin.model import Dependencies, DependencyKind

WEEK_S = 7 * 86_400


def by_user(jobs: Workload) -> dict[str, list[tuple[int, int]]]:
    names = [jobs.user.labels[code] for code in jobs.user.codes]
    found: dict[str, list[tuple[int, int]]] = {}
    for name, runtime, nodes in zip(names, jobs.runtime_ms, jobs.nodes, strict=True):
        found.setdefault(name, []).append((int(runtime), int(nodes)))
    return found


def weeks(count: int) -> Workload:
    rng = np.random.default_rng(5)
    return Workload.build(
        submit_s=np.sort(rng.integers(0, count * WEEK_S, 400)),
        runtime_s=rng.integers(60, 7200, 400),
        nodes=rng.integers(1, 9, 400),
        user=rng.choice(["ann", "bob", "cem", "dee", "eva"], 400).tolist(),
    )


def test_users_are_drawn_with_all_jobs_at_their_time_of_the_week() -> None:
    given = weeks(6)
    whole, names = by_user(given), set()
    for seed in range(5):
        found = resample_users(given, seed)
        users = by_user(found)
        assert len(users) == 5
        for name, jobs in users.items():
            assert Counter(jobs) == Counter(whole[name.partition("#")[0]])
        assert (np.diff(found.submit_ms) >= 0).all()
        assert len(set(found.job_id)) == len(found)
        at = (given.submit_ms - given.submit_ms[0]) % (WEEK_S * 1000)
        again = (found.submit_ms - given.submit_ms[0]) % (WEEK_S * 1000)
        assert set(again.tolist()) <= set(at.tolist())
        names.add(tuple(sorted(users)))
    assert len(names) == 5
    assert any("#2" in name for one in names for name in one)
    assert by_user(resample_users(given, 3)) == by_user(resample_users(given, 3))


def test_a_short_workload_moves_by_days() -> None:
    given = weeks(1)
    found = resample_users(given, 1)
    day = 86_400_000
    first = given.submit_ms[0]
    assert set(((found.submit_ms - first) % day).tolist()) <= set(
        ((given.submit_ms - first) % day).tolist()
    )


def test_users_must_be_known() -> None:
    with pytest.raises(WorkloadError, match="each job needs a user"):
        resample_users(generate("poisson", jobs=20, nodes=8).replace(user=[None] * 20))
    with pytest.raises(WorkloadError, match="two users or more"):
        resample_users(weeks(1).replace(user=["ann"] * 400))


def test_arrivals_move_by_at_most_the_shift() -> None:
    given = weeks(1)
    found = shift_arrivals(given, 600, seed=4)
    assert (np.diff(found.submit_ms) >= 0).all()
    before = dict(zip(given.job_id.tolist(), given.submit_ms.tolist(), strict=True))
    moved = np.array(
        [at - before[job] for job, at in zip(found.job_id.tolist(), found.submit_ms, strict=True)]
    )
    assert 590_000 < np.abs(moved).max() <= 600_000
    assert abs(moved.mean()) < 50_000
    assert found.submit_ms[0] >= given.submit_ms[0]
    assert Counter(found.runtime_ms.tolist()) == Counter(given.runtime_ms.tolist())
    assert (shift_arrivals(given, 0).submit_ms == given.submit_ms).all()


def test_a_job_still_waits_for_another_that_now_comes_later() -> None:
    given = Workload.build(
        submit_s=[0, 10, 20], runtime_s=[100, 100, 100], nodes=[1, 1, 1],
        dependencies=Dependencies.of(
            [(1, 0, DependencyKind.AFTEROK, 0), (2, 1, DependencyKind.AFTEROK, 0)]
        ),
    )  # fmt: skip
    found = shift_arrivals(given, 3600, seed=2)
    jobs = simulate(found, 8, "fcfs+easy").jobs.sort("job_id")
    assert jobs["start_s"][1] >= jobs["end_s"][0]
    assert jobs["start_s"][2] >= jobs["end_s"][1]
    assert found.job_id.tolist() != [1, 2, 3]


def test_a_cancellation_moves_with_its_job() -> None:
    given = Workload.build(submit_s=[0, 100], runtime_s=[50, 50], nodes=[1, 1], cancel_s=[-1, 130])
    found = shift_arrivals(given, 40, seed=1)
    row = found.job_id.tolist().index(2)
    assert found.cancel_ms[row] - found.submit_ms[row] == 30_000
    assert found.cancel_ms[1 - row] == -1
