"""Where the jobs of a decision lie, until the cluster says that they run there."""

from __future__ import annotations

import json

from hpctwin.model import Cluster
from hpctwin.rms.records.records import JobRecord, JobSpec, NodeRecord, Snapshot
from hpctwin.twin.core.core import Core
from hpctwin.twin.journal.journal import Input
from hpctwin.twin.journal.restore import apply_input
from hpctwin.twin.settings.config import CoreSettings

MACHINE = Cluster.model_validate({"nodes": [{"name": "a", "count": 3, "cores": 4}]})


def waiting(job_id: str, **about: object) -> JobRecord:
    spec = {"submit_s": float(job_id), "nodes": 1, "walltime_s": 60, "cores_per_task": 2, **about}
    return JobRecord(spec=JobSpec(id=job_id, **spec))


def core_of(
    *jobs: JobRecord, machine: Cluster = MACHINE, pool: tuple[str, ...] = ("fcfs+easy@first-fit",)
) -> Core:
    core = Core(CoreSettings(pool=pool))
    nodes = tuple(NodeRecord(name=f"n{i}") for i in range(machine.node_count))
    core.take_snapshot(
        Snapshot(
            cluster="c", time_s=50, run="r", seq=0, machine=machine, jobs=jobs, nodes=nodes,
            own_scheduling=True,
        )
    )  # fmt: skip
    return core


def test_each_task_that_a_policy_starts_has_its_node() -> None:
    more = "1:cores=4"
    core = core_of(
        waiting("1", tasks=3), waiting("2", tasks=1, more_tasks=more), waiting("3", tasks=9)
    )
    decision = core.decide(50.0)
    assert decision is not None
    assert decision.starts == ("1", "2")
    where = core.places(decision.starts, 50.0, decision.policy)
    assert where == {"1": [("n0", (2,)), ("n1", (1,))], "2": [("n1", (1, 0)), ("n2", (0, 1))]}


def test_jobs_are_started_in_the_order_in_which_a_policy_gives_them_shared_nodes() -> None:
    """In that of submission the first would take what only the second could have."""
    machine = Cluster.model_validate(
        {"nodes": [{"name": "a", "count": 1, "cores": 4}, {"name": "b", "count": 1, "cores": 2}]}
    )
    first, second = waiting("1", tasks=1, walltime_s=90), waiting("2", tasks=2)
    core = core_of(first, second, machine=machine, pool=("sjf+easy@first-fit",))
    decision = core.decide(50.0)
    assert decision is not None
    assert decision.starts == ("2", "1")
    assert core.present(50.0).starts() == ["2", "1"]
    where = core.places(decision.starts, 50.0, decision.policy)
    assert where == {"1": [("n1", (1,))], "2": [("n0", (2,))]}


def test_a_job_is_on_its_planned_nodes_until_the_cluster_reports_where_it_runs() -> None:
    core = core_of(waiting("1", tasks=1), waiting("2", tasks=2))
    core.asked_to_start("1", 50.0, [("n1", (1,))])
    where = core.places(["2"], 50.0, core.policy)
    assert where == {"2": [("n0", (2,))]}
    core.asked_to_start("2", 50.0, where["2"])
    # Saved and gone on from, and by its journal, it is the same.
    other = Core(core.settings)
    other.restore(json.loads(json.dumps(core.state())))
    third = core_of(waiting("1", tasks=1), waiting("2", tasks=2))
    for job_id, told in (("1", [("n1", (1,))]), ("2", where["2"])):
        body = json.dumps({"job_id": job_id, "time_s": 50.0, "where": told})
        apply_input(third, Input(1, 50.0, "asked", body))
    for one in (core, other, third):
        assert one.present(50.0).base.state["share"]["jobs"].tolist() == [1, 1, 0]


def test_a_job_whose_planned_nodes_are_taken_uses_free_ones() -> None:
    runs = waiting("1", tasks=2).model_copy(update={"start_s": 40.0, "node_names": ("n1",)})
    core = core_of(runs, waiting("2", tasks=2))
    core.asked_to_start("2", 50.0, [("n1", (2,))])
    assert core.present(50.0).base.state["share"]["jobs"].tolist() == [1, 1, 0]
    core.asked_to_start("2", 50.0, [("gone", (2,))])
    assert core.present(50.0).base.state["share"]["jobs"].tolist() == [1, 1, 0]
