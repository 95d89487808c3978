"""Which jobs are leased, and until when: never longer than agreed, never one that must not be kept."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin.rms.records.records import JobSpec
from hpctwin.twin.core.core import Core
from hpctwin.twin.core.decision import Actions, LeaseRule, PendingJob, leases_due
from hpctwin.twin.core.memory import Blocked
from hpctwin.twin.settings.config import CoreSettings
from tests.examples import examples
from tests.rms.slurm_said import job
from tests.rms.test_slurm_parse import read
from tests.twin.source import Source

NOW_S = 1_000_000.0
RULE = LeaseRule(short_s=30.0, longest_s=600.0)
ahead = st.floats(min_value=-1e4, max_value=1e5)
waiting = st.builds(
    PendingJob,
    until_s=st.just(0.0) | ahead.map(lambda s: NOW_S + s),
    expected_s=st.none() | ahead.map(lambda s: NOW_S + s),
    fits=st.booleans(),
)
queues = st.dictionaries(st.integers(1, 50).map(str), waiting, max_size=20)
rules = st.floats(5, 600).flatmap(
    lambda short: st.floats(short, 3600).map(lambda longest: LeaseRule(short, longest))
)


@given(queues, st.sets(st.integers(1, 50).map(str)), rules)
def test_no_lease_is_longer_than_the_longest_or_given_to_a_job_that_is_free(
    jobs: dict[str, PendingJob], free: set[str], rule: LeaseRule
) -> None:
    due = leases_due(NOW_S, jobs, free, rule)
    assert not due.keys() & free
    assert due.keys() <= jobs.keys()
    for job_id, until_s in due.items():
        assert NOW_S + rule.short_s <= until_s <= NOW_S + rule.longest_s
        assert until_s > jobs[job_id].until_s  # none is shortened


@given(queues, rules)
def test_after_a_plan_is_done_every_job_is_leased_for_half_a_short_lease_and_nothing_is_due(
    jobs: dict[str, PendingJob], rule: LeaseRule
) -> None:
    due = leases_due(NOW_S, jobs, (), rule)
    after = {
        i: PendingJob(due.get(i, job.until_s), job.expected_s, job.fits) for i, job in jobs.items()
    }
    assert all(job.until_s >= NOW_S + rule.short_s / 2 for job in after.values())
    assert leases_due(NOW_S, after, (), rule) == {}


@given(queues, rules)
def test_a_job_that_could_start_now_gets_no_more_than_a_short_lease(
    jobs: dict[str, PendingJob], rule: LeaseRule
) -> None:
    for job_id, until_s in leases_due(NOW_S, jobs, (), rule).items():
        job = jobs[job_id]
        if job.fits or job.expected_s is None or job.expected_s < NOW_S + 2 * rule.short_s:
            assert until_s == NOW_S + rule.short_s
        else:
            # Half of what it is expected to wait: it may be sooner than that.
            assert until_s - NOW_S <= max(rule.short_s, (job.expected_s - NOW_S) / 2)


def test_the_leases_of_ten_thousand_jobs_end_at_few_times() -> None:
    jobs = {str(i): PendingJob(0.0, NOW_S + 7.0 * i, fits=False) for i in range(10_000)}
    due = leases_due(NOW_S, jobs, (), RULE)
    assert sorted(set(due.values())) == [NOW_S + s for s in (30, 60, 120, 240, 480)]


def spec(number: int, nodes: int = 1, hours: int = 1, **about: Any) -> JobSpec:
    return JobSpec(id=str(number), submit_s=0, nodes=nodes, walltime_s=3600.0 * hours, **about)


def test_a_limit_blocks_the_users_other_jobs_of_that_size_and_length_and_no_other_users() -> None:
    blocked = Blocked([spec(1, 4, 2, user="ada", reason="limit: QOSMaxJobsPerUserLimit")])
    assert blocked.like(spec(2, 4, 2, user="ada")) == "1"
    assert blocked.like(spec(3, 8, 3, user="ada")) == "1"
    assert blocked.like(spec(4, 2, 2, user="ada")) is None
    assert blocked.like(spec(5, 4, 1, user="ada")) is None
    assert blocked.like(spec(6, 4, 2, user="bob")) is None
    assert blocked.like(spec(1, 4, 2, user="ada")) is None


def test_a_limit_of_a_named_resource_blocks_the_users_jobs_that_request_it_alone() -> None:
    gpu = {"user": "ada", "tasks": 1, "cores_per_task": 1, "gpus_per_task": 1}
    blocked = Blocked([spec(1, reason="limit: AssocGrpGRES", **gpu)])
    assert blocked.like(spec(2, **gpu)) == "1"
    assert blocked.like(spec(3, user="ada")) is None
    licence = {"user": "ada", "constraints": "licences=matlab:1"}
    blocked = Blocked([spec(1, reason="limit: QOSGrpLicense", **licence)])
    assert blocked.like(spec(2, **licence)) == "1"
    assert blocked.like(spec(3, user="ada")) is None
    assert blocked.like(spec(4, user="bob", constraints="licences=matlab:1")) is None


def test_the_limit_of_an_array_blocks_no_other_job_of_its_user() -> None:
    reason = read([job(state_reason="JobArrayTaskLimit")]).snapshot.jobs[0].spec.reason
    blocked = Blocked([spec(1, user="ada", reason=reason)])
    assert blocked.like(spec(2, user="ada")) is None


def test_a_license_blocks_jobs_that_request_the_same_and_a_hold_blocks_none() -> None:
    blocked = Blocked(
        [
            spec(1, constraints="licences=matlab:1", reason="licence: Licenses"),
            spec(2, reason="hold: JobHeldUser"),
            spec(3, reason="nodes: ReqNodeNotAvail"),
        ]
    )
    assert blocked.like(spec(4, constraints="licences=matlab:1")) == "1"
    assert blocked.like(spec(5, constraints="licences=other:1")) is None
    assert blocked.like(spec(6)) is None


@settings(max_examples=examples(100))
@given(st.data())
def test_each_job_of_the_twin_is_started_released_or_leased_and_none_is_both(
    data: st.DataObject,
) -> None:
    source = Source(data.draw)
    for _ in range(data.draw(st.integers(10, 40))):
        source.step()
    core = Core(CoreSettings(pool=("fcfs+easy",)))
    core.take_snapshot(source.snapshot())
    now_s = source.time_s
    pending = [i for i, job in source.jobs.items() if job.start_s is None]
    may = [i for i in pending if not source.jobs[i].spec.held and not source.jobs[i].spec.reason]
    asked = set(data.draw(st.lists(st.sampled_from(may), unique=True)) if may else [])
    for job_id in asked:
        core.asked_to_start(job_id, now_s)
    left = [i for i in may if i not in asked]
    starts = data.draw(st.permutations(left))
    most = data.draw(st.integers(0, 3))
    # Jobs that have begun or are gone may still be among the leases of the last snapshot.
    leases = {
        i: data.draw(st.just(0.0) | st.floats(-90, 700).map(now_s.__add__)) for i in source.jobs
    }
    leases["gone"] = 0.0

    def actions() -> Actions:
        return core.actions(now_s, starts, most=most, leases=leases, rule=RULE)

    found = actions()
    assert found == actions()
    assert {*found.starts} | found.deferred == {*starts}
    assert not found.deferred.intersection(found.starts)
    started = set(found.starts[:most])
    assert not found.leases.keys() & started
    assert found.leases.keys() <= {*may} - asked
    for job_id in {*may} - asked - started:
        # Deferred jobs and those above the limit are leased as all others are.
        assert found.leases.get(job_id, leases[job_id]) >= now_s + RULE.short_s / 2
    assert core.actions(now_s, starts, most=most, leases=leases).leases == {}
