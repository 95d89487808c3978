"""The bus within the process, and recordings of any bus."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Cluster, generate
from hpctwin.errors import HpctwinError
from hpctwin.rms.emulated import Faults
from hpctwin.rms.records import events as ev
from hpctwin.twin.core.mirror import Mirror
from hpctwin.twin.emulated import emulated_cluster
from hpctwin.twin.following.bus import BATCH, LocalBus, Player, Recorder, read_recording


def test_deliveries_come_in_order_and_in_bounded_batches() -> None:
    bus = LocalBus()
    for number in range(2500):
        bus.put(str(number).encode())
    found: list[bytes] = []
    while batch := bus.receive(0.0):
        assert len(batch) <= BATCH
        found += [one.data for one in batch]
    assert found == [str(n).encode() for n in range(2500)]


def test_a_full_bus_makes_the_publisher_wait_and_loses_nothing() -> None:
    bus = LocalBus(limit=10)
    thread = threading.Thread(target=lambda: [bus.put(b"%d" % n) for n in range(100)])
    thread.start()
    until = time.monotonic() + 180
    while bus.lag() < 10 and time.monotonic() < until:
        time.sleep(0.01)
    assert bus.lag() == 10
    found: list[bytes] = []
    while len(found) < 100:
        found += [one.data for one in bus.receive(1.0)]
    thread.join()
    assert found == [b"%d" % n for n in range(100)]


def test_a_closed_bus_delays_no_caller() -> None:
    bus = LocalBus(limit=1)
    bus.put(b"1")
    thread = threading.Thread(target=lambda: bus.put(b"2"))
    thread.start()
    bus.close()
    thread.join(120)
    assert not thread.is_alive()


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_a_recording_gives_back_every_byte(tmp_path_factory: pytest.TempPathFactory, data) -> None:
    path = tmp_path_factory.mktemp("recording") / "r.jsonl"
    bus = LocalBus()
    recorder = Recorder(bus, path)
    for one in data:
        bus.put(one)
    received = recorder.receive(0.0)
    recorder.close()
    player = Player(path)
    played = player.receive(0.0)
    assert played == received
    assert [one.data for one in played] == data
    player.close()


def test_a_torn_last_line_loses_only_itself_and_recording_continues_after_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r.jsonl"
    bus = LocalBus()
    recorder = Recorder(bus, path)
    event = ev.NodeUp(cluster="c", seq=1, time_s=0, node_name="n1")
    for _ in range(2):
        bus.publish(event)
        recorder.receive(0.0)
    recorder.close()
    path.write_bytes(path.read_bytes()[:-20])
    recorder = Recorder(LocalBus(), path)
    recorder.bus.publish(event)
    recorder.receive(0.0)
    recorder.close()
    player = Player(path)
    assert [ev.parse_event(one.data) for one in player.receive(0.0)] == [event, event]
    assert player.torn == 1
    assert player.done
    player.close()


def test_a_recording_is_played_at_its_pace(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    bus = LocalBus()
    recorder = Recorder(bus, path)
    for _ in range(2):
        bus.put(b"x")
        recorder.receive(0.0)
    recorder.close()
    # The second came an hour after the first.
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    second["at_s"] = first["at_s"] + 3600
    path.write_text(f"{json.dumps(first)}\n{json.dumps(second)}\n")
    player = Player(path, speed=36_000.0)
    begin = time.monotonic()
    found = 0
    while not player.done:
        found += len(player.receive(0.5))
    assert found == 2
    assert 0.1 <= time.monotonic() - begin < 360  # a tenth of a second; an hour it is not
    player.close()


def test_a_recording_that_is_not_there_is_reported_by_name(tmp_path: Path) -> None:
    with pytest.raises(HpctwinError, match="nothing"):
        next(read_recording(tmp_path / "nothing"))


def test_a_recorded_run_played_again_ends_in_the_same_state(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    recorder = Recorder(LocalBus(), path)
    faults = Faults(duplicated=0.2, reordered=0.2, mtbf_s=50_000)
    cluster = emulated_cluster(
        Cluster.uniform(32), generate("four-phase"), publish=recorder.bus.publish, faults=faults
    )
    first = cluster.snapshot()
    live = Mirror(first)
    digests = []
    for _ in range(200):
        cluster.advance(cluster.next_time())
        for one in recorder.receive(0.0):
            live.take(ev.parse_event(one.data))
            digests.append(live.digest)
    recorder.close()
    player, again = Player(path), Mirror(first)
    played = []
    while not player.done:
        for one in player.receive(0.0):
            again.take(ev.parse_event(one.data))
            played.append(again.digest)
    assert played == digests
    assert len(set(digests)) > 100
    player.close()
