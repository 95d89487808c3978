"""Nodes that were down or drained, of Slurm's events, of tables, and of data sets."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from hpctwin import Cluster, Workload, read_workload, simulate
from hpctwin.cli import main
from hpctwin.errors import TraceError
from hpctwin.formats.datasets import DATASETS, nodes_away, write_sample
from hpctwin.formats.outages import read_away, with_outages
from hpctwin.formats.record import Tally
from hpctwin.model.cluster.node_group import named_nodes
from hpctwin.simulation import replay

# As Slurm 22.05.8 told them: n1 and n2 were set to drain while job 1 ran on them, n2 and n7 resumed.
EVENTS = """Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User
emul||2026-11-24T03:15:53|Unknown||Cluster Registered TRES|
emul|n1|2026-11-24T03:16:15|Unknown|DRAIN|disk full|root(0)
emul|n2|2026-11-24T03:16:15|2026-11-24T03:16:19|DRAIN|disk full|root(0)
emul|n7|2026-11-24T03:16:05|2026-11-24T03:16:18|DOWN|psu, "again"|root(0)
"""
JOBS = """JobID|Submit|Start|End|ElapsedRaw|NNodes|NodeList|State|Timelimit
1|2026-11-24T03:16:01|2026-11-24T03:16:02|2026-11-24T03:16:15|13|3|n[1-3]|COMPLETED|00:05:00
2|2026-11-24T03:16:19|2026-11-24T03:16:20|2026-11-24T03:16:24|4|2|n[3-4]|COMPLETED|00:05:00
"""


@pytest.fixture
def site(tmp_path: Path) -> tuple[Path, Path]:
    jobs, events = tmp_path / "sacct.txt", tmp_path / "events.txt"
    jobs.write_text(JOBS)
    events.write_text(EVENTS)
    return jobs, events


def outages(cluster: Cluster) -> list[tuple[int, float, float]]:
    return [(one.node, one.start, one.start + one.duration) for one in cluster.failures.outages]


def test_slurm_s_events_are_outages_of_the_nodes_that_jobs_are_recorded_on(
    site: tuple[Path, Path],
) -> None:
    workload = read_workload(site[0])
    away, tally = read_away(site[1])
    cluster = with_outages(Cluster.uniform(8), away, workload, tally)
    found = outages(cluster)
    # Time zero is the first submission, 03:16:01; n7 has the lowest number that no job is recorded on.
    assert found[0][:2] == (0, 14)
    assert found[1:] == [(1, 14, 18), (4, 4, 17)]
    assert cluster.notes.counts == {
        "event skipped: it names no node": 1, "node outage": 3,
    }  # fmt: skip
    again = replay(workload, cluster)
    assert not len(again.conflicts)
    assert again.result.capacity.rows()[:5] == [(0, 8), (4, 7), (14, 5), (17, 6), (18, 7)]
    # The second job finds six of eight nodes, and so waits for what it would have had.
    assert simulate(workload, cluster, "fcfs+easy").jobs["start_s"].to_list() == [0, 18]


def test_a_drained_node_is_away_when_the_job_that_ran_on_it_has_ended_and_a_failed_one_at_once() -> (
    None
):
    workload = Workload.build(
        submit_s=[0, 0, 200], runtime_s=[100, 50, 10], nodes=[2, 1, 2],
        recorded_start_s=[0, 0, 200], recorded_nodes=["a[1-2]", "a3", "a2,a3"],
    )  # fmt: skip
    text = "node,start,end,state\na2,20,150,drained\na3,60,90,drained\na4,20,,DOWN*+DRAIN\na2,30,40,drain\n"
    path = Path("/nonexistent")
    with pytest.raises(TraceError):
        read_away(path)
    away, tally = _read(text)
    cluster = with_outages(Cluster.uniform(4), away, workload, tally)
    ten_years = 10 * 365 * 86_400
    assert outages(cluster) == [(1, 100, 150), (2, 60, 90), (3, 20, ten_years)]
    assert (
        cluster.notes.counts[
            "outage skipped: it ended before the trace started, or before the node had drained"
        ]
        == 1
    )
    # Nobody's job is ended in a run like the recorded one.
    assert simulate(workload, cluster, "fcfs+easy").jobs["requeues"].sum() == 0


def _read(text: str, tmp: Path | None = None):

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "o.csv"
        path.write_text(text)
        return read_away(path)


def test_a_job_without_recorded_nodes_gets_no_unavailable_nodes() -> None:
    machine = Cluster.uniform(
        3, active_w=100, idle_w=10, failures={"outages": [{"node": 0, "start": 5, "duration": 50}]}
    )
    workload = Workload.build(
        submit_s=[0, 10, 20, 60], runtime_s=[5, 5, 5, 5], nodes=[1, 1, 3, 1],
        recorded_start_s=[0, 10, 20, 60],
    )  # fmt: skip
    found = replay(workload, machine)
    rows = found.result.node_map.select("job_id", "first_node", "count").rows()
    assert rows == [(1, 0, 1), (2, 1, 1), (3, 0, 3), (4, 0, 1)]
    assert found.conflicts.select("job_id", "what", "asked", "free").rows() == [(3, "nodes", 3, 2)]


def test_names_have_the_numbers_that_jobs_nodes_have_and_others_what_is_left() -> None:
    assert named_nodes(["n2", "x[1-2]", ""], ["n[1-3]"], 5) == [[1], [3, 4], []]
    assert named_nodes(["n2", "x1"], None, 5) == [[0], [1]]
    assert named_nodes(["2", "4", "7"], ["1,4"], 4) == [[1], [3], []]
    assert named_nodes(["0-2"], None, 4) == [[0, 1, 2]]
    assert named_nodes(["c", "b", "a"], None, 2) == [[], [1], [0]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("node,begin,end\n1,2,3\n", "field start: the column is missing; found node, begin, end"),
        (
            "node,start,end\n1,soon,3\n",
            "time in column start that cannot be parsed, such as 'soon'",
        ),
        ("node,start,end\n1,2,3\n4,9,7\n", "line 3, field 4: it ends at or before its start"),
        ("NodeName|TimeStart|State\nn1|2026-01-01T00:00:00|DOWN\n", "field timeend: the column"),
    ],
)
def test_what_cannot_be_read_is_reported_by_name(text: str, said: str) -> None:
    with pytest.raises(TraceError) as told:
        _read(text)
    assert said in str(told.value)


def test_dates_are_rejected_for_a_trace_without_dates(site: tuple[Path, Path]) -> None:
    workload = Workload.build(submit_s=[0], runtime_s=[1], nodes=[1])
    away, tally = read_away(site[1])
    with pytest.raises(TraceError, match="has no start date"):
        with_outages(Cluster.uniform(8), away, workload, tally)


def test_google_s_machines_are_away_from_their_removal_until_they_are_added_again(
    tmp_path: Path,
) -> None:
    write_sample(DATASETS["google2011"], tmp_path, jobs=5)
    events = tmp_path / "machine_events" / "part-00000-of-00001.csv"
    with events.open("a") as file:
        file.write(
            "9000000000,7,1,p,0.5,0.25\n9500000000,7,2,p,0.5,0.25\n600000000,late,0,p,0.5,0.25\n"
        )
    found = nodes_away(tmp_path, DATASETS["google2011"])
    assert found is not None
    zero = 1_304_290_200.0  # 2011-05-01 18:50 EDT
    assert found[0].rows() == [
        ("late", None, zero + 600, False), ("3", zero + 3600, zero + 7200, False),
        ("7", zero + 9000, None, False),
    ]  # fmt: skip
    workload = read_workload(tmp_path)
    assert workload.start_epoch_s == zero + 600
    cluster = with_outages(Cluster.uniform(12), found[0], workload, Tally())
    assert outages(cluster)[:2] == [(0, 3000, 6600), (1, 8400, 8400 + 10 * 365 * 86_400 - 8400)]


def test_the_commands_take_outages_and_say_how_many(
    site: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    def ran(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(list(words))
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    jobs, events = map(str, site)
    code, _, err = ran("simulate", jobs, "-n", "8", "--outages", events)
    assert code == 0
    assert "cluster 'cluster': 3 × node outage" in err
    code, _, err = ran("replay", jobs, "-n", "8", "--outages", jobs)
    assert code == 2
    assert "sacct.txt, field nodename: the column is missing" in err.splitlines()[-1]
    code, _, err = ran("replay", jobs, "-n", "8", "--outages", "nosuch.txt")
    assert code == 2
    assert err.splitlines()[-1].startswith("hpctwin: nosuch.txt")
