"""A placement of the user's own: it scores free nodes, and a job gets those with the smallest scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, make_policy, parse_policy, simulate
from hpctwin.engine.compile.policy_modules import JobView, NodeView
from hpctwin.errors import PolicyError, UnknownNameError
from hpctwin.policies import PLACEMENTS, find_placement
from tests import strategies
from tests.cli.test_cli import run
from tests.engine.adapter import ms
from tests.engine.examples import examples
from tests.engine.test_against_reference import BACKFILLS, ORDERINGS, as_reference, name_of
from tests.reference import simulate_reference

MIXED = Cluster.model_validate(
    {
        "nodes": [
            {"name": "gpu", "count": 2, "gpus": 4, "cores": 64},
            {"name": "fast", "count": 2, "gpus": 0, "cores": 64, "speed": 2.0},
            {"name": "plain", "count": 4, "gpus": 0, "cores": 64},
        ]
    }
)


def keep_gpus(now: float, job: JobView, node: NodeView) -> float:
    """Nodes with GPUs only to those that need them."""
    return node.gpus if job.gpus == 0 else -node.gpus


def last_first(now: float, job: JobView, node: NodeView) -> float:
    return -node.number


def by_all_there_is(now: float, job: JobView, node: NodeView) -> float:
    wide = job.nodes > 2
    few = node.free if wide else -node.free
    return (
        few
        + node.speed * (job.wait % 3)
        + ((node.number * 7 + now) % 5)
        + node.gpus
        - node.cores / 8
    )


def by_group(now: float, job: JobView, node: NodeView) -> float:
    return (node.group * 2 + job.submit) % 3 + (node.memory_gb > 16)


PLACES = {one.__name__: one for one in (keep_gpus, last_first, by_all_there_is, by_group)}
COMPILED = {name: find_placement(one) for name, one in PLACES.items()}


def nodes_of(simulation: Simulation) -> dict[tuple[int, int], list[int]]:
    """The nodes of each job, by its id and start, ms."""
    table = simulation.result().node_map
    assert table is not None
    found: dict[tuple[int, int], list[int]] = {}
    for job, start, first, count in table.select("job_id", "start_s", "first_node", "count").rows():
        found.setdefault((job, ms(start)), []).extend(range(first, first + count))
    return found


def test_nodes_with_gpus_are_kept_for_those_that_need_them(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def keep_gpus(now, job, node):\n    return node.gpus if job.gpus == 0 else -node.gpus\n"
    )
    workload = Workload.build(
        submit_s=[0, 0, 1], runtime_s=[10] * 3, nodes=[3, 2, 2], per_node={"gpus": [0, 0, 4]}
    )
    waits = {
        text: simulate(workload, MIXED, text).jobs.sort("job_id")["wait_s"].to_list()
        for text in ("fcfs", f"fcfs+easy@{tmp_path}/mine.py:keep_gpus")
    }
    assert list(waits.values()) == [[0, 0, 9], [0, 0, 0]]


@pytest.mark.parametrize("policy", BACKFILLS, ids=name_of)
@settings(max_examples=examples(40))
@given(
    case=strategies.clusters().flatmap(
        lambda cluster: st.tuples(st.just(cluster), strategies.workloads(cluster))
    ),
    place=st.sampled_from(sorted(PLACES)),
    order=st.sampled_from(["fcfs", "sjf", "wfp"]),
)
def test_every_job_gets_the_nodes_that_the_plain_reference_gives_it(
    policy: dict[str, Any], case: tuple[Cluster, Workload], place: str, order: str
) -> None:
    cluster, workload = case
    chosen = make_policy(ORDERINGS[order], **policy, placement=COMPILED[place])
    score = COMPILED[place].score
    assert score is not None
    simulation = Simulation(workload, cluster, chosen)
    simulation.advance()
    reference = simulate_reference(
        workload,
        cluster,
        order=as_reference(chosen.order),
        backfill=chosen.backfill,
        reservations=chosen.setting("reservations") or 1,
        candidate_order=as_reference(chosen.candidates),
        place=lambda now, job, node: score.compiled(
            now,
            JobView(*(getattr(job, name) for name in JobView._fields)),
            NodeView(*(getattr(node, name) for name in NodeView._fields)),
        ),
        depth=chosen.setting("depth") or 0,
        patience_ms=round((chosen.setting("patience") or 0) * 1000),
        settings=chosen.numbers(),
    )
    nodes = nodes_of(simulation)
    for row, job in enumerate(reference):
        name = int(workload.job_id[row])
        assert simulation.column("start")[row] == job.start_ms, f"job {name}"
        assert sorted(nodes.get((name, job.start_ms), [])) == sorted(job.nodes), f"job {name}"


def test_it_goes_with_forks_and_files(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def back(now, job, node):\n    return -node.number\n")
    text = f"sjf+conservative@{tmp_path}/mine.py:back"
    assert parse_policy(text).name == text
    workload = Workload.build(
        submit_s=range(20),
        runtime_s=[5 + i % 7 for i in range(20)],
        nodes=[1 + i % 4 for i in range(20)],
    )
    whole = Simulation(workload, 6, text)
    whole.run()
    half = Simulation(workload, 6, text)
    half.advance(9)
    half.save(tmp_path / "half.npz")
    again = Simulation.load(tmp_path / "half.npz")
    for other in (half.fork(), again):
        other.advance()
        assert nodes_of(other) == nodes_of(whole)
    plain = Simulation(workload, 6, "sjf+conservative", track_nodes=True)
    plain.advance(9)
    fork = plain.fork(text)
    fork.advance()
    assert fork.done
    assert nodes_of(fork) != nodes_of(whole)
    with pytest.raises(PolicyError, match="no such file"):
        parse_policy("sjf@none.py:back")


@pytest.mark.parametrize(
    ("body", "line", "told"),
    [
        ("return node.size", 2, "a node has no field 'size'"),
        ("return job.size", 2, "a job has no field 'size'"),
        ("return str(node.number)", 2, "it returns Literal[str]"),
        ("import random\n    return random.random()", 2, "imports random"),
        ("return nowhere(node)", 2, "uses 'nowhere', which is not defined"),
    ],
)
def test_an_unusable_one_is_reported_in_one_line(
    body: str, line: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"def mine(now, job, node):\n    {body}\n")
    assert run("policy", "check", f"fcfs+easy@{path}:mine") == 2
    err = capsys.readouterr().err
    assert f"{path}, line {line}: placement '{path}:mine'" in err
    assert told in err
    assert len(err.splitlines()) == 1


def test_it_is_checked_at_the_edges_of_what_there_can_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import math\n"
        "def fine(now, job, node):\n    return node.active_w - job.nodes\n"
        "def nan(now, job, node):\n    return math.log(-1 - node.gpus)\n"
        "def two(now, job):\n    return job.nodes\n"
    )
    assert run("policy", "check", f"fcfs@{path}:fine") == 0
    assert "fine; scored for every free node when a job starts" in capsys.readouterr().out
    for name, told in (
        ("nan", "returns NaN"),
        ("two", "exactly three arguments, (now, job, node)"),
    ):
        assert run("policy", "check", f"fcfs@{path}:{name}") == 2
        assert told in capsys.readouterr().err
    with pytest.raises(UnknownNameError, match=r"Did you mean 'fine'"):
        find_placement(f"{path}:fin")
    with pytest.raises(PolicyError, match="it must be a name, a function or a Placement"):
        find_placement(7)  # type: ignore[arg-type]
    one = Workload.build(submit_s=[0], runtime_s=[1], nodes=[1])
    with pytest.raises(PolicyError, match=r"mine.py:nan', called for node 0, returned NaN for job"):
        simulate(one, 1, f"fcfs@{path}:nan")


def test_registered_placements_score_nothing() -> None:
    assert all(PLACEMENTS.find(name).make().score is None for name in PLACEMENTS)
