"""The core: the same inputs give the same decisions, and its rules of choice hold."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Workload, generate
from hpctwin.engine.compile.jit import Kernel
from hpctwin.policies import Policy, compile_policies
from hpctwin.rms.records import events as ev
from hpctwin.rms.records.records import JobRecord, JobSpec, NodeRecord, Snapshot
from hpctwin.twin.core.core import Core
from hpctwin.twin.core.decision import Decision, LeaseRule
from hpctwin.twin.emulated import emulated_cluster
from hpctwin.twin.service.virtual_time import drive
from hpctwin.twin.settings.config import CoreSettings, ObjectiveSettings
from hpctwin.twin.what_if import pool as what_ifs
from tests import strategies
from tests.energy.powered import uniform
from tests.examples import examples
from tests.rms.test_columns import differences
from tests.twin.test_mirror import stories

NODES = 8


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    jobs = draw(st.integers(1, 20))

    def column(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=jobs, max_size=jobs))

    return Workload.build(
        submit_s=column(st.integers(0, 60)),
        runtime_s=column(st.integers(1, 40)),
        walltime_s=column(st.integers(1, 60)),
        nodes=column(st.integers(1, NODES)),
    )


def decisions(workload: Workload, core: Core, nodes: int = NODES) -> list[Decision]:
    made: list[Decision] = []
    cluster = emulated_cluster(Cluster.uniform(nodes), workload, publish=core.take_event)
    drive(cluster, core, watch=made.append)
    assert cluster.ended == len(workload)
    return made


ALL = CoreSettings(
    pool=("wfp+easy", "fcfs+easy", "sjf+easy", "sjf+first-fit", "fcfs+conservative"),
    predictor="recent",
    samples=2,
    arrivals=60,
    objective=ObjectiveSettings(window=1e6),
)


@settings(max_examples=examples(20))
@given(workloads())
def test_the_same_inputs_give_the_same_decisions_bit_for_bit(workload) -> None:
    assert decisions(workload, Core(ALL)) == decisions(workload, Core(ALL))


def test_the_number_of_threads_does_not_change_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_ifs, "WORTH_THREADS", 0)
    workload = generate("four-phase", seed=1, shortest_run=0.3)[:50]
    threads = what_ifs.LocalPool(3)
    assert decisions(workload, Core(ALL, threads), 32) == decisions(workload, Core(ALL), 32)
    threads.close()


@settings(max_examples=examples(20))
@given(workloads(), st.integers(0, 40))
def test_a_core_restored_from_json_continues_identically(workload, when) -> None:
    core = Core(ALL)
    other: list[Core] = []
    made: list[tuple[Decision | None, Decision | None]] = []
    cluster = emulated_cluster(
        Cluster.uniform(NODES),
        workload,
        publish=lambda e: [c.take_event(e) for c in (core, *other)],
    )
    core.take_snapshot(cluster.snapshot())
    cluster.take_scheduling()
    number = 0
    while (due_s := cluster.next_time()) is not None:
        cluster.advance(due_s)
        if number == when:
            again = Core(ALL)
            again.restore(json.loads(json.dumps(core.state())))
            other.append(again)
        number += 1
        decision = core.decide(cluster.now_s)
        made += [(decision, one.decide(cluster.now_s)) for one in other]
        for job_id in decision.starts if decision else ():
            assert cluster.start(job_id).result == "done"
    assert all(one == another for one, another in made)


@settings(max_examples=examples(20))
@given(stories(), st.data())
def test_the_state_carried_between_queries_is_what_a_first_query_sees(story, data) -> None:
    # Jobs and nodes change in all ways there are; events come twice and in any order.
    source, first, _ = story
    changing = ALL.model_copy(update={"samples": 0, "futures": 0})
    core = Core(changing)
    core.take_snapshot(first)
    copies = [e for e in source.events for _ in range(data.draw(st.integers(1, 2)))]
    for event in data.draw(st.permutations(copies)):
        core.take_event(event)
        if not data.draw(st.booleans()):
            continue
        now_s = core.mirror.time_s
        anew = Core(changing)
        anew.restore(json.loads(json.dumps(core.state())))
        assert differences(anew.present(now_s), core.present(now_s)) == []
        assert anew.decide(now_s) == core.decide(now_s)


@given(workloads())
def test_the_cluster_never_refuses_a_start(workload) -> None:
    # `drive` raises if it does.
    decisions(workload, Core(CoreSettings()))


POOLS = Cluster.model_validate(
    {
        "nodes": [{"name": "x", "count": 3}, {"name": "y", "count": 2}],
        "partitions": [
            {"name": "all", "default": True},
            {"name": "x", "groups": ["x"]},
            {"name": "y", "groups": ["y"]},
        ],
    }
)


@given(strategies.workloads(POOLS, cancellations=False))
def test_where_jobs_may_be_on_some_nodes_only_it_rejects_nothing_either(workload) -> None:
    core = Core(CoreSettings())
    drive(emulated_cluster(POOLS, workload, publish=core.take_event), core)


def test_a_job_that_fits_other_nodes_takes_none_from_a_job_that_does_not() -> None:
    # A policy may put the second before the first: told in order of submission, the first took the lowest
    # numbers, and the second found no room.
    core = core_with(job(1, 3, 50), job(2, 2, 20, partition="x"), machine=POOLS)
    assert core.actions(0.0, ("1", "2")).starts == ("1",)
    assert core.actions(0.0, ("2", "1")).starts == ("2",)
    core.asked_to_start("1", 0.0)
    assert core.actions(0.0, ("2",)).starts == ()
    assert core.actions(0.0, ()).starts == ()


@settings(max_examples=examples(20))
@given(data=st.data())
def test_on_shared_nodes_too_the_cluster_rejects_nothing_that_it_starts(
    data: st.DataObject,
) -> None:
    machine = data.draw(strategies.shared_clusters(maintenance=False, outages=False))
    jobs = strategies.shared_workloads(
        machine, cancellations=False, several=data.draw(st.booleans())
    )
    workload = data.draw(jobs)
    core = Core(CoreSettings())
    drive(emulated_cluster(machine, workload, publish=core.take_event), core)


def test_a_job_asked_to_start_holds_its_share_of_a_node_until_it_is_seen_to_run() -> None:
    four = {"tasks": 1, "cores_per_task": 4}
    machine = Cluster.model_validate({"nodes": [{"name": "a", "count": 1, "cores": 8}]})
    core = core_with(*(job(i, 1, 10, **four) for i in (1, 2, 3)), machine=machine)
    assert core.decide(0.0).starts == ("1", "2")
    core.asked_to_start("1", 0.0)
    assert core.decide(0.0).starts == ("2",)


def core_with(
    *jobs: JobSpec, now_s: float = 0.0, machine: Cluster | None = None, **settings: object
) -> Core:
    core = Core(CoreSettings(**settings))
    machine = machine or Cluster.uniform(NODES)
    nodes = tuple(NodeRecord(name=f"n{i}") for i in range(machine.node_count))
    core.take_snapshot(Snapshot(cluster="c", time_s=now_s, run="r", machine=machine, nodes=nodes))
    for number, job in enumerate(jobs, 1):
        event = ev.JobSubmitted(cluster="c", run="r", seq=number, time_s=job.submit_s, job=job)
        assert core.take_event(event) == "applied"
    return core


def job(job_id: int, nodes: int, walltime_s: float, **about: object) -> JobSpec:
    return JobSpec(id=str(job_id), submit_s=0, nodes=nodes, walltime_s=walltime_s, **about)


# Long and short compete for the same nodes: SJF has the lower mean wait.
RIVALS = (job(1, 8, 1000), job(2, 8, 10))


def test_the_lowest_score_wins_and_its_jobs_are_started() -> None:
    decision = core_with(*RIVALS).decide(0.0)
    assert (decision.policy, decision.reason, decision.starts) == (
        "sjf+easy",
        "lowest score",
        ("2",),
    )
    scores = {c.policy: c.score for c in decision.candidates}
    assert scores["sjf+easy"] == min(scores.values())


def test_equal_scores_are_decided_by_the_order_for_ties() -> None:
    for ties in (("fcfs+easy", "wfp+easy"), ("sjf+easy",)):
        core = core_with(job(1, 1, 10), objective=ObjectiveSettings(tie_break=ties))
        decision = core.decide(0.0)
        assert (decision.policy, decision.reason) == (ties[0], "tie")


def test_with_hysteresis_a_policy_stays_until_another_is_better_by_so_much() -> None:
    for hysteresis, policy, reason in (
        (0.0, "sjf+easy", "lowest score"),
        (5.0, "fcfs+easy", "kept"),
    ):
        about = ObjectiveSettings(tie_break=("fcfs+easy",), hysteresis=hysteresis)
        core = core_with(job(3, 1, 5), pool=("fcfs+easy", "sjf+easy"), objective=about)
        assert core.decide(0.0).policy == "fcfs+easy"
        for seq, one in enumerate((job(1, 8, 30), job(2, 8, 20)), 2):
            core.take_event(ev.JobSubmitted(cluster="c", run="r", seq=seq, time_s=1, job=one))
        decision = core.decide(1.0)
        assert (decision.policy, decision.reason) == (policy, reason)


def test_a_policy_dwells_as_long_as_it_must() -> None:
    core = core_with(job(3, 1, 5), objective=ObjectiveSettings(tie_break=("fcfs+easy",)))
    core.decide(0.0)
    for seq, one in enumerate(RIVALS, 2):
        core.take_event(ev.JobSubmitted(cluster="c", run="r", seq=seq, time_s=1, job=one))
    assert core.decide(1.0, dwell_s=60).policy == "fcfs+easy"
    assert core.decide(61.0, dwell_s=60).policy == "sjf+easy"


def test_a_policy_under_which_jobs_would_never_start_is_excluded() -> None:
    # Under no backfilling nothing passes a job that waits for a node which is away.
    core = core_with(job(1, 8, 10), job(2, 1, 10), pool=("fcfs+none", "fcfs+easy"))
    core.take_event(ev.NodeDown(cluster="c", run="r", seq=3, time_s=0, node_name="n0"))
    decision = core.decide(0.0)
    never = {c.policy: c.never for c in decision.candidates}
    if never["fcfs+none"]:
        assert decision.policy == "fcfs+easy"
    assert decision.starts == ("2",)
    assert next(f for f in decision.forecasts if f.job_id == "1").start_s is None


def test_a_job_asked_to_start_holds_nodes_until_it_is_seen_to_run() -> None:
    core = core_with(*RIVALS)
    core.asked_to_start("2", 0.0)
    decision = core.decide(1.0)
    assert decision.starts == ()
    assert decision.free_nodes == 0
    assert core.overdue(10.0) == []
    assert core.overdue(100.0) == ["2"]


def test_a_rejected_job_is_left_alone_for_a_while_and_does_not_block_others() -> None:
    core = core_with(*RIVALS, retry_after=30)
    core.asked_to_start("2", 0.0)
    core.refused("2", 0.0)
    assert core.decide(1.0).starts == ("1",)
    assert core.decide(31.0).starts == ("2",)


PARTITIONS = [{"name": "day"}, {"name": "night"}]
SITE = {
    "nodes": [{"name": "a", "count": 8, "cores": 8}],
    "resources": {"lic": 2},
    "partitions": PARTITIONS,
}
NOT_REPORTED = (
    ({"resources": {"other": 1}}, "requests resource 'other', but the cluster reports lic"),
    ({"consumables": {"fpga": 1}}, "requests consumable 'fpga', but the cluster reports none"),
    (
        {"tasks": 1, "cores_per_task": 1, "more_tasks": "1:cores=1:fpga=1"},
        "requests consumable 'fpga', but the cluster reports none",
    ),
    ({"tasks": 1, "consumables": {"fpga": 1}}, "requests consumable 'fpga'"),
    ({"partition": "old"}, "names partition 'old', but the cluster reports day, night"),
    ({"partition": ""}, "names no partition, but the cluster reports day, night"),
)


@pytest.mark.parametrize(("asks", "why"), NOT_REPORTED)
def test_a_job_that_requests_what_the_cluster_does_not_report_stops_no_decision(
    asks: dict[str, object], why: str
) -> None:
    machine = Cluster.model_validate(SITE)
    odd = job(1, 1, 100, **{"partition": "day", **asks})
    usual = [job(i, 4, 100, partition="night", resources={"lic": 1}) for i in (2, 3, 4)]
    core = core_with(odd, *usual, machine=machine, samples=2, futures=4, arrivals=100)
    core.expectations.saw_submission(odd.model_copy(update={"submit_s": -50}))
    decision = core.decide(0.0)
    assert decision.starts == ("2", "3")
    assert [f.job_id for f in decision.forecasts if f.start_s is None] == ["1"]
    assert why in core.mirror.not_modeled["1"]
    # It gets no lease, even before a decision.
    leases, rule = {"1": 0.0, "4": 0.0}, LeaseRule(60, 600)
    for last in (None, decision):
        due = core.actions(0.0, decision.starts, leases=leases, rule=rule, decision=last).leases
        assert due.keys() == {"4"}
    # It holds its nodes once the cluster has started it, and nothing is left of it at its end.
    begins = ev.JobStarted(cluster="c", run="r", seq=5, time_s=1.0, job_id="1", node_names=("n0",))
    core.take_event(begins)
    assert core.decide(2.0).starts == ("2",) if not odd.shares else ("2", "3")
    core.take_event(ev.JobEnded(cluster="c", run="r", seq=6, time_s=3.0, job_id="1"))
    assert core.decide(4.0).starts == ("2", "3")
    assert not core.mirror.not_modeled


def test_a_job_is_decided_on_once_the_cluster_reports_what_it_requests() -> None:
    core = core_with(job(1, 1, 100, resources={"lic": 1, "unused": 0}))
    assert core.decide(0.0).starts == ()
    machine = Cluster.uniform(NODES).model_copy(update={"resources": {"lic": 2}})
    core.take_snapshot(core.mirror.snapshot().model_copy(update={"machine": machine}))
    assert core.decide(0.0).starts == ("1",)


def test_without_charge_forecasts_follow_the_clusters_own_policy() -> None:
    core = core_with(*RIVALS, site_policy="fcfs+easy")
    said = {f.job_id: f.start_s for f in core.decide(0.0, is_active=False).forecasts}
    assert said == {"1": 0.0, "2": 1000.0}
    core = core_with(*RIVALS, site_policy="fcfs+easy")
    said = {f.job_id: f.start_s for f in core.decide(0.0).forecasts}
    assert said == {"1": 10.0, "2": 0.0}


def test_sampled_futures_give_a_mean_and_a_spread() -> None:
    jobs = [job(i, 4, 100, user="u") for i in range(1, 6)]
    core = core_with(*jobs, samples=8)
    # Experience: jobs of half their walltime or all of it.
    core.expectations._shares.extend([0.5, 1.0])
    decision = core.decide(0.0)
    for candidate in decision.candidates:
        assert candidate.spread["mean_wait_s"] > 0
    again = core_with(*jobs, samples=8)
    again.expectations._shares.extend([0.5, 1.0])
    assert replace(again.decide(0.0)) == decision


def test_the_predictor_takes_the_mean_of_the_users_last_two_jobs_but_not_more_than_the_walltime() -> (
    None
):
    core = Core(CoreSettings(predictor="recent"))
    workload = Workload.build(
        submit_s=[0, 100, 200, 300],
        runtime_s=[10, 30, 50, 1],
        walltime_s=[99, 99, 99, 15],
        nodes=[1] * 4,
    )
    cluster = emulated_cluster(Cluster.uniform(2), workload, publish=core.take_event)
    core.take_snapshot(cluster.snapshot())
    seen = []
    for until_s in (50, 150, 250, 300):
        cluster.advance(until_s)
        spec = job(9, 1, 60)
        cluster.submit(spec, 1.0)
        seen.append(core.expectations.runtime_s([core.mirror.jobs["9"]]).get("9"))
        cluster.cancel("9")
    short = core.mirror.jobs["4"]
    assert seen == [10, 20, 40, 40]
    assert core.expectations.runtime_s([short])["4"] == 15


def test_memory_stays_flat_however_many_jobs_come_and_go() -> None:
    core = core_with(objective=ObjectiveSettings(window=100.0))
    sizes = []
    seq = 0
    for number in range(6000):
        now_s = float(number)
        name = str(number)
        for kind, about in (
            (ev.JobSubmitted, {"job": job(number, 1, 5, user=f"u{number % 7}")}),
            (ev.JobStarted, {"job_id": name, "node_names": ("n0",)}),
            (ev.JobEnded, {"job_id": name}),
        ):
            seq += 1
            core.take_event(kind(cluster="c", run="r", seq=seq, time_s=now_s, **about))
        if number in (2999, 5999):
            sizes.append(len(json.dumps(core.state())))
    assert sizes[1] < 1.1 * sizes[0]


MACHINES = {
    "counted": Cluster.uniform(nodes=NODES),
    "powered": uniform(NODES),
    "shared": Cluster.model_validate({"nodes": [{"name": "n", "count": NODES, "cores": 4}]}),
}


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the kernels that were needed so far."""
    found: set[str] = set()
    load = Kernel.load

    def seen(kernel: Kernel) -> bool:
        found.add(kernel.name)
        return load(kernel)

    monkeypatch.setattr(Kernel, "load", seen)
    return found


def decide_with(core: Core, kind: str, number: int) -> None:
    tasks = {"tasks": 8, "cores_per_task": 1} if kind == "shared" else {}
    names = tuple(f"n{number}" for number in range(NODES))
    jobs = [
        JobRecord(spec=JobSpec(id=str(n), submit_s=n, nodes=n % 7 + 1, walltime_s=9.0 + n, **tasks))
        for n in range(number)
    ]
    core.take_snapshot(
        Snapshot(
            cluster="c", time_s=700.0, machine=MACHINES[kind], jobs=tuple(jobs),
            nodes=tuple(NodeRecord(name=name) for name in names),
        )
    )  # fmt: skip
    assert core.decide(700.0) is not None


@pytest.mark.parametrize("kind", MACHINES)
def test_no_decision_waits_for_the_engine_to_be_compiled(kind: str, loaded: set[str]) -> None:
    pool = [
        "fcfs+easy",
        "wfp+easy@best-fit",
        "sjf+conservative",
        "fcfs+slurm",
        "fcfs+slurm@contiguous",
    ]
    core = Core(CoreSettings.model_validate({"pool": pool, "futures": 2}))
    core.warm_up()
    warm = loaded.copy()
    decide_with(core, kind, 600)
    assert loaded - warm == set()


def test_a_short_queue_on_nodes_without_failures_needs_what_is_compiled_at_first(
    loaded: set[str],
) -> None:
    core = Core(CoreSettings())
    compile_policies(core.pool, Policy.kernels_at_first)
    first = loaded.copy()
    decide_with(core, "counted", 150)
    assert loaded == first
    assert first.isdisjoint({"pass_raced", "pass_easy_whole_nodes", "build_plan"})


def test_a_policy_that_plans_particular_nodes_sees_the_nodes_of_each_job() -> None:
    nodes = tuple(NodeRecord(name=f"n{number}") for number in range(4))
    running = [
        JobRecord(
            spec=JobSpec(id=job_id, submit_s=0.0, nodes=len(names), walltime_s=walltime_s),
            start_s=0.0,
            node_names=names,
        )
        for job_id, names, walltime_s in (("1", ("n1", "n2"), 100.0), ("2", ("n3",), 90.0))
    ]
    waiting = [
        JobRecord(spec=JobSpec(id="3", submit_s=1.0, nodes=3, walltime_s=60.0)),
        JobRecord(spec=JobSpec(id="4", submit_s=2.0, nodes=1, walltime_s=200.0)),
    ]
    every = "bf_interval=1s,bf_resolution=1s"
    core = Core(
        CoreSettings.model_validate(
            {"pool": [f"fcfs+slurm:{every}", f"fcfs+slurm:{every}@contiguous"], "futures": 0}
        )
    )
    core.take_snapshot(
        Snapshot(
            cluster="c", time_s=10.0, machine=Cluster.uniform(4), jobs=(*running, *waiting), nodes=nodes
        )
    )  # fmt: skip
    decision = core.decide(10.0)
    assert decision is not None
    # At 100 s all nodes are free, and three of them are enough for job 3: by numbers one is left for job 4;
    # but job 3 gets n0 to n2, and n0 is the only one that job 4 could have now.
    by_number, by_node = decision.candidates
    assert by_number.starts == ("4",)
    assert by_node.starts == ()
