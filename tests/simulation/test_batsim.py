"""Batsim's protocol, either way round: its schedulers schedule our jobs, and our policies its."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpctwin import Cluster, Simulation, errors, generate, simulate
from hpctwin.simulation.schedulers import BatsimDecisions, BatsimScheduler, decide_for_batsim, drive

NODES = 16


@pytest.fixture
def batsim_scheduler() -> Iterator[tuple[str, list[dict[str, object]]]]:
    """A scheduler that speaks Batsim's protocol, first come first served: its address, what it was told."""
    zmq = pytest.importorskip("zmq")
    context = zmq.Context()
    socket = context.socket(zmq.REP)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    socket.setsockopt(zmq.RCVTIMEO, 60_000)
    heard: list[dict[str, object]] = []

    def serve() -> None:
        queue, free, nodes = [], set(range(NODES)), {}
        ended = False
        while not ended:
            message = json.loads(socket.recv_string())
            answer = []
            for event in message["events"]:
                heard.append(event)
                data = event["data"]
                if event["type"] == "JOB_COMPLETED":
                    free |= nodes.pop(data["job_id"], set())
                elif event["type"] == "JOB_SUBMITTED":
                    queue.append(data["job"])
                ended |= event["type"] == "SIMULATION_ENDS"
            while queue and queue[0]["res"] <= len(free):
                job = queue.pop(0)
                mine = set(sorted(free)[: job["res"]])
                free -= mine
                nodes[job["id"]] = mine
                alloc = " ".join(map(str, sorted(mine)))
                answer.append(
                    {
                        "timestamp": message["now"],
                        "type": "EXECUTE_JOB",
                        "data": {"job_id": job["id"], "alloc": alloc},
                    }
                )
            socket.send_string(json.dumps({"now": message["now"], "events": answer}))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"tcp://127.0.0.1:{port}", heard
    thread.join(30)
    context.destroy(0)


def test_a_scheduler_that_speaks_batsims_protocol_schedules_our_jobs(
    batsim_scheduler: tuple[str, list[dict[str, object]]],
) -> None:
    address, heard = batsim_scheduler
    workload = generate("poisson", jobs=200, nodes=NODES, seed=5)
    with BatsimScheduler(address, Cluster.uniform(NODES)) as scheduler:
        found = drive(
            Simulation(workload, Cluster.uniform(NODES), "fcfs", "outside"), scheduler
        ).jobs
    own = simulate(workload, NODES, "fcfs", "none").jobs
    assert found["start_s"].to_list() == own["start_s"].to_list()
    kinds = [event["type"] for event in heard]
    assert (kinds[0], kinds[-1]) == ("SIMULATION_BEGINS", "SIMULATION_ENDS")
    assert kinds.count("JOB_SUBMITTED") == kinds.count("JOB_COMPLETED") == 200
    assert kinds.count("NOTIFY") == 1


def test_batsims_protocol_is_rejected_where_nodes_differ() -> None:
    cluster = Cluster.model_validate(
        {"nodes": [{"name": "a", "count": 1}, {"name": "b", "count": 2}]}
    )
    with pytest.raises(errors.ConfigError, match="nodes must be equal"):
        BatsimScheduler("tcp://127.0.0.1:1", cluster)


@pytest.mark.parametrize("policy", ["sjf+none", "wfp+easy"])
def test_our_engine_schedules_for_batsim_as_it_does_for_itself(policy: str, tmp_path: Path) -> None:
    workload = generate("poisson", jobs=60, nodes=NODES, seed=5)
    address = f"ipc://{tmp_path}/batsim"
    server = threading.Thread(target=decide_for_batsim, args=(address, policy), daemon=True)
    server.start()
    with BatsimScheduler(address, Cluster.uniform(NODES)) as scheduler:
        found = drive(
            Simulation(workload, Cluster.uniform(NODES), "fcfs", "outside"), scheduler
        ).jobs
    server.join(60)
    assert not server.is_alive()
    assert found["start_s"].equals(simulate(workload, NODES, policy).jobs["start_s"])


def say(decisions: BatsimDecisions, now_s: float, *events: tuple[str, dict[str, object]]) -> object:
    """What is answered to a message of these events."""
    told = [{"timestamp": now_s, "type": kind, "data": data} for kind, data in events]
    answer = json.loads(decisions.answer(json.dumps({"now": now_s, "events": told})))
    assert answer["now"] == now_s
    return [(one["type"], one["data"]) for one in answer["events"]]


def submission(name: str, res: int, **more: float) -> tuple[str, dict[str, object]]:
    """As Batsim's documentation has it."""
    job = {"profile": "delay_10s", "res": res, "id": name, "subtime": 5.0, **more}
    return "JOB_SUBMITTED", {"job_id": name, "job": job}


def test_messages_as_batsim_documents_them_are_answered_by_hand() -> None:
    decisions = BatsimDecisions("fcfs+easy")
    machine = {
        "nb_resources": 5, "nb_compute_resources": 4, "allow_compute_sharing": False,
        "compute_resources": [{"id": number, "name": f"host{number}"} for number in (1, 2, 3, 4)],
    }  # fmt: skip
    assert say(decisions, 0.0, ("SIMULATION_BEGINS", machine)) == []
    first = say(decisions, 5.0, submission("w0!a", 3, walltime=60), submission("w0!big", 5))
    assert first == [
        ("REJECT_JOB", {"job_id": "w0!big"}),
        ("EXECUTE_JOB", {"job_id": "w0!a", "alloc": "1-3"}),
    ]
    # Job b waits for 65 s; c would pass 65 s and waits too, d is short enough.
    waits = [
        submission("w0!b", 4, walltime=9),
        submission("w0!c", 1),
        submission("w0!d", 1, walltime=60),
    ]
    assert say(decisions, 5.0, *waits) == [("EXECUTE_JOB", {"job_id": "w0!d", "alloc": "4"})]
    done = ("JOB_COMPLETED", {"job_id": "w0!a", "job_state": "COMPLETED_SUCCESSFULLY"})
    assert say(decisions, 20.0, done, ("NOTIFY", {"type": "no_more_static_job_to_submit"})) == []
    done = ("JOB_COMPLETED", {"job_id": "w0!d", "job_state": "COMPLETED_SUCCESSFULLY"})
    assert say(decisions, 30.0, done) == [("EXECUTE_JOB", {"job_id": "w0!b", "alloc": "1-4"})]
    assert say(decisions, 99.0, ("SIMULATION_ENDS", {})) == []
    assert decisions.over


def test_batsim_is_asked_to_call_again_when_a_policy_has_something_to_do_then() -> None:
    decisions = BatsimDecisions("fcfs+conservative")
    say(decisions, 0.0, ("SIMULATION_BEGINS", {"nb_resources": 4}))
    running = submission("w0!a", 4, walltime=60)
    waits = submission("w0!b", 4, walltime=60)
    assert say(decisions, 5.0, running, waits) == [
        ("EXECUTE_JOB", {"job_id": "w0!a", "alloc": "0-3"}),
        ("CALL_ME_LATER", {"timestamp": 65.0}),
    ]
    # Nothing has ended: it is expected within the next minute.
    later = [("CALL_ME_LATER", {"timestamp": 125.0})]
    assert say(decisions, 65.0, ("REQUESTED_CALL", {})) == later
    done = ("JOB_COMPLETED", {"job_id": "w0!a", "job_state": "COMPLETED_WALLTIME_REACHED"})
    assert say(decisions, 66.0, done) == [("EXECUTE_JOB", {"job_id": "w0!b", "alloc": "0-3"})]


def test_real_batsim_is_answered_as_when_it_was_recorded() -> None:
    # Batsim 4.2.1 asked (25 jobs of our making on 8 nodes, four of which outrun their walltimes), and went on
    # by these answers.
    recorded = (Path(__file__).with_name("batsim_messages.jsonl")).read_text().splitlines()
    decisions = BatsimDecisions("fcfs+conservative")
    kinds = []
    for line in recorded:
        asked, answered = json.loads(line)
        assert json.loads(decisions.answer(json.dumps(asked))) == answered
        kinds += [event["type"] for event in (*asked["events"], *answered["events"])]
    assert decisions.over
    assert kinds.count("JOB_COMPLETED") == kinds.count("EXECUTE_JOB") == 25
    assert {"NOTIFY", "CALL_ME_LATER", "REQUESTED_CALL"} < set(kinds)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hello", "is not a message of Batsim's protocol"),
        ('{"now": 1}', "is not a message of Batsim's protocol: KeyError"),
        (
            '{"now": 1, "events": [{"type": "ANSWER", "data": {}}]}',
            "Batsim sent ANSWER at 1 s, which is not supported",
        ),
        (
            '{"now": 1, "events": [{"type": "JOB_COMPLETED", "data": {"job_id": "x"}}]}',
            "before SIMULATION_BEGINS",
        ),
        (
            '{"now": 1, "events": [{"type": "SIMULATION_BEGINS", "data": {"allow_compute_sharing": true}}]}',
            "option allow_compute_sharing is on, but node sharing is not supported",
        ),
    ],
)
def test_information_missing_in_batsim_is_reported(text: str, told: str) -> None:
    with pytest.raises(errors.SimulationError, match=told):
        BatsimDecisions("fcfs").answer(text)
