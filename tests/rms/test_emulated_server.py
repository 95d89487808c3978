"""A real process that emulates a cluster, and what clients may do to it."""

from __future__ import annotations

import json
import queue
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hpctwin.rms.emulated.server as server_module
from hpctwin.errors import CommandError, HpctwinError, UnreachableError
from hpctwin.model import Cluster
from hpctwin.rms.emulated.client import EmulatedManager
from hpctwin.rms.emulated.server import MAX_REQUEST, Request, Server
from hpctwin.rms.records.events import parse_event
from hpctwin.rms.records.records import JobSpec
from hpctwin.twin.core.mirror import Mirror
from hpctwin.twin.emulated import emulated_cluster

EMULATE = (sys.executable, "-m", "hpctwin", "rms", "emulate")
FOUR_PHASE = ("--workload", "four-phase")


class Process:
    """One emulated cluster, ended with the test."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "c.sock"
        self.log = folder / "log"
        self.running: subprocess.Popen[bytes] | None = None
        self.managers: list[EmulatedManager] = []

    def begin(self, *options: str) -> EmulatedManager:
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(
                [*EMULATE, str(self.socket), *options],
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + 180
        while True:
            try:
                return self.manager()
            except UnreachableError:
                if time.monotonic() > until or self.running.poll() is not None:
                    raise AssertionError(self.log.read_text()) from None
                time.sleep(0.05)

    def manager(self) -> EmulatedManager:
        self.managers.append(EmulatedManager(self.socket, timeout_s=30))
        return self.managers[-1]

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.running is not None
        self.running.send_signal(number)
        return self.running.wait(180)

    def close(self) -> None:
        for manager in self.managers:
            manager.close()
        if self.running is not None and self.running.poll() is None:
            self.running.kill()
            self.running.wait()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path)
    yield process
    process.close()


def wait_for(reached: Callable[[], Any]) -> None:
    until = time.monotonic() + 120
    while not reached():
        assert time.monotonic() < until, "not reached"
        time.sleep(0.02)


def job(job_id: str, nodes: int = 1, walltime_s: float = 1000.0) -> JobSpec:
    return JobSpec(id=job_id, submit_s=0.0, nodes=nodes, walltime_s=walltime_s)


def test_at_full_speed_without_a_twin_it_runs_to_the_end_and_ends_on_sigterm(
    process: Process,
) -> None:
    manager = process.begin(*FOUR_PHASE, "--speed", "max", "--history")
    wait_for(lambda: manager.ask("state")["done"])
    state = manager.ask("state", history=True)
    assert state["ended"] == 150
    assert sum(what == "started" for *_, what in state["history"]) == 150
    assert process.end() == 0
    assert not process.socket.exists()
    with pytest.raises(UnreachableError):
        manager.snapshot()


def test_without_heartbeats_it_takes_scheduling_back_in_time_and_gives_it_again(
    process: Process,
) -> None:
    takeover_s = 4
    manager = process.begin("--workload", "none", "--nodes", "4", "--takeover", str(takeover_s))
    assert manager.clock_speed == 1.0
    assert manager.take_scheduling().result == "done"
    assert manager.submit(job("1"), 500).result == "done"
    until = time.monotonic() + 1.5 * takeover_s
    while time.monotonic() < until:
        time.sleep(0.1)
        manager.heartbeat(1)
    found = manager.snapshot()
    assert not found.own_scheduling
    assert found.jobs[0].start_s is None
    manager.close()
    lost = time.monotonic()
    other = process.manager()
    wait_for(lambda: other.snapshot().own_scheduling)
    # Just when, is tested with a clock of the test's own, below.
    assert time.monotonic() - lost > takeover_s / 2
    wait_for(lambda: other.snapshot().jobs[0].start_s is not None)
    assert other.ask("state")["takeovers"] == 1
    assert other.take_scheduling().result == "done"
    other.submit(job("2"), 500)
    assert not other.snapshot().own_scheduling
    assert [j.start_s is None for j in other.snapshot().jobs] == [False, True]


class Clock:
    """A clock that goes when it is told to."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def is_active(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Server, Clock]:
    """A server in this process, at full speed, of which somebody has taken scheduling over."""
    clock = Clock()
    monkeypatch.setattr(server_module, "time", clock)
    server = Server(tmp_path / "c.sock", speed=None, takeover_s=4.0)
    server.attach(emulated_cluster(Cluster.uniform(4), publish=server.publish))
    assert server._answer({"op": "take_scheduling"})["result"] == "done"  # type: ignore[index,call-overload]
    return server, clock


def test_scheduling_is_taken_back_when_the_time_without_a_heartbeat_is_over_and_not_before(
    is_active: tuple[Server, Clock],
) -> None:
    server, clock = is_active
    for now, own in ((3.9, False), (4.0, False), (7.9, False), (7.95, True)):
        clock.now = now
        server._watch_heartbeat()
        assert server.cluster.own_scheduling == own, now
        if now == 3.9:
            server._answer({"op": "heartbeat", "seq": 0})
    assert server.takeovers == 1


def test_the_clock_waits_for_a_twin_that_confirms_nothing_as_long_as_agreed_and_no_longer(
    is_active: tuple[Server, Clock],
) -> None:
    server, clock = is_active
    assert server._may_go_on()
    server._answer({"op": "submit", "job": job("1").model_dump()})
    for now, may in (
        (0.1, False),
        (4.0, False),
        (4.2, True),
        (4.3, False),
        (8.2, False),
        (8.4, True),
    ):
        clock.now = now
        assert server._may_go_on() == may, now
    server._answer({"op": "heartbeat", "seq": server.cluster.seq})
    assert server._may_go_on()


def test_a_cluster_that_is_behind_its_clock_answers_all_the_same(tmp_path: Path) -> None:
    server = Server(tmp_path / "c.sock", speed=1e6)
    server.attach(emulated_cluster(Cluster.uniform(4), publish=server.publish))
    server.cluster.next_time = lambda: -1.0  # type: ignore[method-assign]  # something is always due
    asked = Request({"op": "hello"})
    server._requests.put(asked)
    server._turn()
    assert asked.done.is_set()


def test_at_full_speed_the_clock_waits_for_the_twin_but_not_forever(process: Process) -> None:
    takeover_s = 4
    manager = process.begin(*FOUR_PHASE, "--speed", "max", "--wait", "--takeover", str(takeover_s))
    events: queue.Queue[bytes] = queue.Queue()
    manager.subscribe(events.put)
    manager.take_scheduling()
    assert parse_event(events.get(timeout=300)).seq == 1
    time.sleep(0.3)
    assert manager.ask("state")["seq"] == 1
    manager.heartbeat(1)
    assert parse_event(events.get(timeout=300)).seq == 2
    # A twin that lives but confirms nothing holds the clock up for the time agreed.
    begin = time.monotonic()
    while manager.ask("state")["seq"] < 3:
        assert time.monotonic() - begin < 120
        manager.heartbeat(1)
        time.sleep(0.1)
    assert time.monotonic() - begin > takeover_s / 2
    assert not manager.ask("state")["own_scheduling"]


def test_events_of_a_subscription_lead_from_one_snapshot_to_the_next(process: Process) -> None:
    manager = process.begin(*FOUR_PHASE, "--speed", "2000", "--wait", "--takeover", "60")
    events: queue.Queue[bytes] = queue.Queue()
    manager.subscribe(events.put)
    mirror = Mirror(manager.snapshot())
    manager.take_scheduling()
    wait_for(lambda: manager.ask("state")["submitted"] >= 60)
    manager.give_scheduling()
    wait_for(lambda: manager.ask("state")["ended"] >= 40)
    manager.hold("149")
    last = manager.snapshot()
    while mirror.seq < last.seq:
        mirror.take(parse_event(events.get(timeout=300)))
    while not events.empty() and mirror.seq == last.seq:
        break
    assert mirror.difference(last) == []


def test_actions_are_done_or_rejected_with_the_reason(process: Process) -> None:
    manager = process.begin("--workload", "none", "--nodes", "4")
    manager.take_scheduling()
    assert manager.submit(job("1", 3), 500).result == "done"
    assert manager.submit(job("2", 2)).result == "done"
    refused = manager.submit(job("3", 5))
    assert (refused.result, refused.reason) == (
        "refused", "job 3 requests 5 nodes, which do not fit on the cluster"
    )  # fmt: skip
    assert manager.start("1").result == "done"
    assert manager.start("1").reason == "job 1 is not pending"
    assert manager.start("2").reason == "not enough nodes are free"
    assert manager.hold("2").result == "done"
    assert manager.start("2").reason == "job 2 is held"
    assert manager.release("2").result == "done"
    assert manager.set_priority("2", 5.0).result == "done"
    assert manager.set_priority("9", 5.0).result == "refused"
    assert manager.cancel("1").result == "done"
    assert manager.start("2").result == "done"
    assert [j.spec.id for j in manager.snapshot().jobs] == ["2"]


def test_lost_answers_are_unknown_and_what_cannot_be_sent_is_unreachable(
    process: Process,
) -> None:
    manager = process.begin(
        "--workload", "none", "--nodes", "4", "--faults", json.dumps({"lost_answers": 1})
    )
    manager.take_scheduling()
    manager.submit(job("1"), 500)
    assert manager.start("1").result == "unknown"
    assert manager.snapshot().jobs[0].start_s is not None
    process.end()
    with pytest.raises(UnreachableError):
        manager.start("1")
    with pytest.raises(UnreachableError):
        manager.heartbeat(1)


def test_a_client_that_lost_its_connection_continues_with_a_restarted_cluster(
    process: Process,
) -> None:
    manager = process.begin("--workload", "none", "--nodes", "4")
    events: queue.Queue[bytes] = queue.Queue()
    manager.subscribe(events.put)
    manager.submit(job("1"), 500)
    told = [parse_event(events.get(timeout=300)) for _ in range(2)]
    process.end(signal.SIGKILL)
    process.begin("--workload", "none", "--nodes", "4", "--run", "2")
    assert manager.snapshot().jobs == ()
    assert manager.submit(job("2"), 500).result == "done"
    # What was told before the subscription was there again is told once more.
    told += [parse_event(events.get(timeout=300)) for _ in range(2)]
    kinds = {(event.run, event.seq): event.kind for event in told}
    assert kinds["1", 2] == kinds["2", 2] == "job_started"
    assert kinds["2", 1] == "job_submitted"


BAD = (
    b"hello\n", b"[]\n", b"{}\n", b"\xff\xfe\x00\n", b"\n", b"null\n", b'{"op": 7}\n',
    b'{"op": ["x"]}\n', b'{"op": "start"}\n', b'{"op": "heartbeat", "seq": 1e999}\n',
    b'{"op": "heartbeat", "seq": "x"}\n', b'{"op": "heartbeat", "seq": null}\n',
    b'{"op": "submit", "job": 3}\n', b'{"op": "submit", "job": {"id": "-x"}}\n',
    b'{"op": "submit", "runtime_s": NaN, "job": {"id": "1", "nodes": 1, "walltime_s": 9}}\n',
    b'{"op": "submit", "job": {"id": "1", "nodes": 1, "walltime_s": 9, "user": "\\ud800"}}\n',
    b'{"op": "modify", "job_id": "1", "changes": {"id": "2"}}\n',
    b'{"op": "node", "name": "n0001", "state": {}}\n', b'{"op": "node", "state": "up"}\n',
    b'{"op": "set_reservation", "reservation": {"name": "x"}}\n',
    b"[" * 100_000 + b"\n", b'{"op": "' + b"x" * MAX_REQUEST + b'"}\n',
)  # fmt: skip


def test_bad_requests_are_answered_with_an_error_and_do_no_harm(process: Process) -> None:
    manager = process.begin("--workload", "none", "--nodes", "4")
    before = manager.snapshot()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(60)
        connection.connect(str(process.socket))
        with connection.makefile("rwb") as stream:
            for line in BAD:
                stream.write(line)
                stream.flush()
                reply = json.loads(stream.readline())
                assert "bad request" in reply["error"], (line[:80], reply)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(process.socket))
        connection.sendall(b'{"op": "sta')  # and gone
    with pytest.raises(CommandError, match="unknown op 'dance'"):
        manager.ask("dance")
    after = manager.snapshot()
    assert after.model_copy(update={"time_s": before.time_s}) == before
    assert after.seq == 0


def test_too_many_connections_are_refused_until_some_close(process: Process) -> None:
    manager = process.begin("--workload", "none")
    crowd = []
    try:
        for _ in range(100):
            crowd.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            crowd[-1].connect(str(process.socket))
        assert manager.ask("hello")
    finally:
        for one in crowd:
            one.close()

    def answers() -> bool:
        try:
            process.manager()
        except HpctwinError:
            return False
        return True

    wait_for(answers)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--speed", "fast"), "must be a number"),
        (("--faults", "{"), "not JSON"),
        (("--faults", '{"dropped": 2}'), "dropped"),
        (("--workload", "tetris"), "tetris"),
        (("--policy", "fcfs+magic"), "magic"),
        (("--faults", '{"clock_skew_s": -9}'), "negative times"),
    ],
)
def test_wrong_options_are_reported_in_one_line(tmp_path: Path, options, word) -> None:
    command = [*EMULATE, str(tmp_path / "c.sock"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_neither_a_file_nor_a_running_cluster_is_replaced(process: Process) -> None:
    process.begin("--workload", "none")
    own = process.socket.parent / "thesis.txt"
    own.write_text("years of work")
    for path, word in ((own, "not a socket"), (process.socket, "another emulated cluster")):
        command = [*EMULATE, str(path), "--workload", "none"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 2
        assert word in done.stderr
    assert own.read_text() == "years of work"
    assert process.manager().cluster == "emulated"
