"""The placer, with clusters in this process and gates that misbehave."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.errors import ConfigError, QueueError
from hpctwin.facility import parse_strategy
from hpctwin.rms.gate import JobRequest
from hpctwin.rms.records.records import JobSpec
from hpctwin.twin.facility.placer import check_strategy
from hpctwin.twin.facility.queue import Queue
from tests.twin.facility.local import Hall


def test_a_job_goes_where_it_ends_first_and_the_forecast_comes_true(tmp_path: Path) -> None:
    """Walltimes are exact and nobody comes later: the forecast is what happens."""
    hall = Hall(tmp_path, "sgs-t", a={"nodes": 4}, b={"nodes": 4, "factor": 2})
    for number, walltime_s in enumerate((100, 100, 300, 50, 70)):
        hall.add(f"j{number}", nodes=3, walltime_s=walltime_s)
    hall.turn()
    assert set(hall.stages().values()) == {"placed"}
    placed = {entry.request.key: entry for entry in hall.queue.entries()}
    # 0–100 on a; 0–200 on b against 200 on a: a; 400 on a against 600; 100 on b against 450; ….
    assert [placed[f"j{n}"].cluster for n in range(5)] == ["a", "a", "a", "b", "b"]
    hall.run_on(10_000)
    ended = {
        hall.gates[name].key_of[job]: time_s
        for name, cluster in hall.clusters.items()
        for time_s, job, event in cluster.history or ()
        if event not in ("submitted", "started", "held", "released")
    }
    assert ended == {"j0": 100, "j1": 200, "j2": 500, "j3": 100, "j4": 240}


@pytest.mark.parametrize("fault", ["lost", "late", "not sent", "refused"])
def test_a_submission_that_goes_wrong_leads_to_one_job(tmp_path: Path, fault: str) -> None:
    hall = Hall(tmp_path)
    hall.gates["a"].faults = [fault]
    hall.add("x")
    hall.turn(3)
    assert hall.stages() == {"x": "placed"}
    for late in hall.gates["a"].late:
        late()  # what was given up for lost gets in after all
    hall.turn()
    hall.run_on(1000)
    assert len(hall.events("started")) == 1
    assert not any(gate.jobs() for gate in hall.gates.values())


@pytest.mark.parametrize("fault", ["lost", "unknown", "busy"])
def test_an_admission_that_goes_wrong_is_made_good(tmp_path: Path, fault: str) -> None:
    hall = Hall(tmp_path)
    hall.gates["a"].admit_faults = [fault]
    hall.add("x")
    hall.turn()
    assert hall.stages() == {"x": "submitted"}
    hall.run_on(1000)  # where the answer was lost, it has run and is gone by now
    hall.turn()
    assert hall.stages() == {"x": "placed"}
    hall.run_on(1000)
    assert hall.events("started") == [("a", "x")]


@given(
    st.lists(st.sampled_from(["", "lost", "late", "not sent", "refused"]), max_size=8),
    st.lists(st.sampled_from(["", "lost", "unknown", "busy"]), max_size=4),
    st.sets(st.integers(0, 6)),
)
def test_each_job_runs_once_after_any_error(
    tmp_path_factory: pytest.TempPathFactory,
    submits: list[str],
    admits: list[str],
    restarts: set[int],
) -> None:
    hall = Hall(tmp_path_factory.mktemp("hall"))
    keys = {f"k{number}" for number in range(4)}
    for key in keys:
        hall.add(key)
    for name in ("a", "b"):
        # Only one of them ever refuses: else there would be jobs that nobody takes.
        hall.gates[name].faults = [f for f in submits if name == "a" or f != "refused"]
        hall.gates[name].admit_faults = list(admits)
    for turn in range(14):
        if turn in restarts:
            hall.begin()
        hall.turn()
        hall.run_on(20)
        if turn % 3 == 2:
            for gate in hall.gates.values():
                while gate.late:
                    gate.late.pop()()
    hall.run_on(1000)
    assert set(hall.stages().values()) == {"placed"}
    assert sorted(key for _, key in hall.events("started")) == sorted(keys)
    hall.queue.close()


def test_a_cluster_that_does_not_answer_gets_no_jobs_until_it_does(tmp_path: Path) -> None:
    hall = Hall(tmp_path)
    hall.turn()
    hall.managers["a"].reachable = False
    for number in range(3):
        hall.add(f"j{number}")
    hall.turn(3)
    assert set(hall.stages().values()) == {"placed"}
    assert sorted(hall.events("submitted")) == [("b", "j0"), ("b", "j1"), ("b", "j2")]
    hall.managers["a"].reachable = True
    hall.add("j3")
    hall.add("j4")
    hall.turn(2)
    assert {name for name, key in hall.events("submitted") if key in ("j3", "j4")} == {"a", "b"}


def test_a_job_waits_in_the_queue_while_those_of_the_clusters_are_full(tmp_path: Path) -> None:
    limit = {"nodes": 1, "max_queued": 1}
    hall = Hall(tmp_path, a=limit, b={**limit, "max_queued_per_user": 1})
    for number in range(6):
        hall.add(f"j{number}", walltime_s=100, user="u")
    hall.turn(2)
    assert list(hall.stages().values()) == ["placed"] * 4 + ["queued"] * 2
    hall.run_on(100)
    hall.turn(2)
    assert set(hall.stages().values()) == {"placed"}


def test_a_job_that_fits_nowhere_is_rejected_with_the_reasons(tmp_path: Path) -> None:
    hall = Hall(tmp_path, a={"nodes": 4}, b={"nodes": 8, "kinds": []})
    hall.add("wide", nodes=5)
    hall.turn()
    (entry,) = hall.queue.entries()
    assert entry.stage == "rejected"
    assert "a: does not have 5 nodes" in entry.reason
    assert "b: accepts no jobs of kind 'any'" in entry.reason


def test_data_on_its_way_holds_a_job_up_and_counts_in_the_choice(tmp_path: Path) -> None:
    options = {"origin": {"by": "user"}, "staging": 30}
    hall = Hall(tmp_path, "sgs-t", options, a={"nodes": 1}, b={"nodes": 1})
    hall.add("home", walltime_s=100, user="a")
    hall.add("away", walltime_s=100, user="a")
    hall.turn()
    assert [entry.cluster for entry in hall.queue.entries()] == ["a", "b"]
    hall.run_on(1000)
    starts = {name: c.history[-2][0] for name, c in hall.clusters.items() if c.history}
    assert starts == {"a": 0, "b": 30}


def test_recent_runtimes_of_a_user_correct_walltimes(tmp_path: Path) -> None:
    hall = Hall(tmp_path, "sgs-t", a={"nodes": 1}, b={"nodes": 1, "factor": 1.5})
    site = hall.sites[0]
    site.follower.core.expectations.predictor = "recent"
    hall.turn()
    for number in range(2):
        spec = JobSpec(id=f"own{number}", submit_s=0, nodes=1, walltime_s=1000, user="u")
        hall.clusters["a"].submit(spec, 10.0)
        hall.clusters["a"].schedule()
    hall.turn()
    asked = JobSpec(id="x", submit_s=0, nodes=1, walltime_s=1000, user="u")
    assert site.forecast(asked) == (2000.0, 3000.0)
    hall.run_on(20)
    hall.turn()
    assert site.forecast(asked) == pytest.approx((0.0, 10.0), abs=0.002)  # comes a moment later


def test_only_one_placer_works_on_a_queue(tmp_path: Path) -> None:
    first, second = Queue(tmp_path / "q"), Queue(tmp_path / "q")
    first.lock()
    with pytest.raises(QueueError, match="another placer"):
        second.lock()
    first.close()
    second.lock()
    second.close()


def test_a_queue_of_another_version_is_rejected_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "q"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE jobs (key TEXT)")
    other.execute("PRAGMA user_version=99")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(QueueError, match=r"q: format 99; .* reads format 2: use the version"):
        Queue(path)
    assert path.read_bytes() == before


def test_a_key_is_one_job_and_a_queued_one_can_be_withdrawn(tmp_path: Path) -> None:
    hall = Hall(tmp_path)
    request = JobRequest(key="x", nodes=1, walltime_s=60)
    assert hall.queue.add(request)
    assert not hall.queue.add(request)
    with pytest.raises(QueueError, match="key x already belongs to another job"):
        hall.queue.add(request.model_copy(update={"nodes": 2}))
    hall.queue.withdraw("x")
    hall.add("y")
    hall.turn()
    assert hall.stages() == {"x": "withdrawn", "y": "placed"}
    with pytest.raises(QueueError, match="is placed at a, job 1"):
        hall.queue.withdraw("y")
    with pytest.raises(QueueError, match="no job has the key z"):
        hall.queue.withdraw("z")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("siloed", {}),
        ("peer", {}),
        ("sgs(total)", {}),
        ("sgs-t", {"knows": "oracle"}),
        ("sgs-t", {"samples": 2}),
        ("sgs-t", {"batch": 2}),
        ("sgs-t", {"move_every_s": 60}),
    ],
)
def test_a_strategy_that_cannot_run_live_is_rejected_at_the_beginning(
    text: str, options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        check_strategy(parse_strategy(text, **options))


@pytest.mark.parametrize(
    "text",
    [
        "random",
        "user(0.7)",
        "shortest-queue",
        "most-free",
        "least-loaded",
        "earliest-start",
        "sgs(wait + 0.5*energy)",
    ],
)
def test_each_strategy_places_live(tmp_path: Path, text: str) -> None:
    hall = Hall(tmp_path, text)
    for number in range(6):
        hall.add(f"j{number}", nodes=2)
    hall.turn()
    assert set(hall.stages().values()) == {"placed"}
    assert {entry.cluster for entry in hall.queue.entries()} == {"a", "b"}
