"""The bus on a real Redis."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpctwin.errors import ConfigError
from hpctwin.rms.polling.redis_stream import FIELD, RedisPublisher, connect_redis
from hpctwin.rms.records import events as ev
from hpctwin.twin.following import redis_bus
from hpctwin.twin.following.bus import Delivery
from hpctwin.twin.following.redis_bus import RedisBus
from tests.twin.processes import Pair
from tests.twin.redis_server import RedisServer
from tests.twin.test_live import (
    every_job_ran_once,
    the_journal_is_consistent,
    the_mirror_is_the_cluster,
)

pytestmark = pytest.mark.redis


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.begin()
    yield server
    server.end()


def event(seq: int) -> ev.Event:
    return ev.NodeUp(cluster="c", run="r", seq=seq, time_s=float(seq), node_name="n1")


def numbers(deliveries: list[Delivery]) -> list[int]:
    return [ev.parse_event(one.data).seq for one in deliveries]


def take_all(bus: RedisBus, count: int, seconds: float = 120) -> list[int]:
    """Receive and acknowledge until so many have come, without those that were sent twice.

    A publisher sends events again if Redis does not answer in time.
    """
    found: dict[int, None] = {}
    until = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < until:
        deliveries = bus.receive(0.1)
        found.update(dict.fromkeys(numbers(deliveries)))
        bus.acknowledge([one.id for one in deliveries])
    return list(found)


def test_events_come_in_order_and_none_is_missing(server: RedisServer) -> None:
    publisher = RedisPublisher(server.url, "events")
    bus = RedisBus(server.url, "events")
    for seq in range(1, 3001):
        publisher.publish(event(seq))
    assert take_all(bus, 3000) == list(range(1, 3001))
    assert bus.lag() == 0
    assert bus.receive(0.05) == []
    publisher.close()
    bus.close()


def test_unacknowledged_messages_are_sent_again_to_the_same_consumer_after_a_restart(
    server,
) -> None:
    publisher = RedisPublisher(server.url, "events")
    for seq in range(1, 6):
        publisher.publish(event(seq))
    publisher.close()
    bus = RedisBus(server.url, "events")
    first = bus.receive(1.0)
    bus.acknowledge([one.id for one in first[:2]])
    bus.close()
    again = RedisBus(server.url, "events")
    assert numbers(again.receive(1.0)) == [3, 4, 5]
    again.close()


def test_messages_of_a_dead_consumer_are_claimed_by_another(server) -> None:
    publisher = RedisPublisher(server.url, "events")
    publisher.publish(event(1))
    publisher.close()
    dead = RedisBus(server.url, "events", consumer="one")
    assert numbers(dead.receive(1.0)) == [1]
    dead.close()
    other = RedisBus(server.url, "events", consumer="two", claim_after_s=0.2)
    assert take_all(other, 1, seconds=5) == [1]
    assert other.lag() == 0
    other.close()


def test_a_consumer_killed_between_receiving_and_acknowledging_loses_nothing(server) -> None:
    publisher = RedisPublisher(server.url, "events")
    total = 2000
    for seq in range(1, total + 1):
        publisher.publish(event(seq))
    publisher.close()
    script = textwrap.dedent(
        f"""
        from hpctwin.rms.records.events import parse_event
        from hpctwin.twin.following import redis_bus
        redis_bus.BATCH = 50
        bus = redis_bus.RedisBus({server.url!r}, "events")
        while True:
            found = bus.receive(1.0)
            print(*[parse_event(one.data).seq for one in found], flush=True)
            bus.acknowledge([one.id for one in found])
        """
    )
    seen: set[int] = set()
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
        )
        lines = [process.stdout.readline() for _ in range(4)]
        os.kill(process.pid, signal.SIGKILL)
        lines += process.stdout.read().splitlines()
        process.stdout.close()
        process.wait()
        assert any(line.strip() for line in lines)
        # What was printed was received; whether it was acknowledged nobody knows.
        seen.update(int(word) for line in lines for word in line.split())
    bus = RedisBus(server.url, "events")
    until = time.monotonic() + 60
    while len(seen) < total and time.monotonic() < until:
        seen.update(take_all(bus, total, seconds=1))
    assert seen == set(range(1, total + 1))
    bus.close()


def test_redis_gone_for_a_while_costs_nothing_and_empty_after_it_is_a_gap_that_is_seen(
    server,
) -> None:
    publisher = RedisPublisher(server.url, "events")
    bus = RedisBus(server.url, "events")
    publisher.publish(event(1))
    assert take_all(bus, 1) == [1]
    server.end()
    publisher.publish(event(2))
    assert bus.receive(0.3) == []
    assert not bus.connected
    assert bus.lag() == 0
    server.begin()
    assert take_all(bus, 1) == [2]
    server.end(forget=True)
    publisher.publish(event(3))
    server.begin()
    assert take_all(bus, 1) == [3]
    assert bus.connected
    publisher.close()
    bus.close()


def test_an_acknowledgement_while_redis_is_away_is_sent_later(server) -> None:
    publisher = RedisPublisher(server.url, "events")
    publisher.publish(event(1))
    bus = RedisBus(server.url, "events")
    (one,) = bus.receive(2.0)
    server.end()
    bus.acknowledge([one.id])
    server.begin()
    publisher.publish(event(2))
    assert take_all(bus, 1) == [2]
    assert bus.lag() == 0
    publisher.close()
    bus.close()


def test_messages_that_cannot_be_parsed_go_to_the_dead_letters_with_the_reason(server) -> None:
    client = server.client()
    bus = RedisBus(server.url, "events")
    bus.receive(0.05)
    client.xadd("events", {FIELD: b"\xff\x00 garbage"})
    client.xadd("events", {"other": "field"})
    for one in bus.receive(1.0):
        bus.dead_letter(one, "not an event")
    dead = [fields for _, fields in client.xrange("events:dead")]
    assert [d[b"data"] for d in dead] == [b"\xff\x00 garbage", b""]
    assert dead[0][b"reason"] == b"not an event"
    assert bus.lag() == 0
    client.close()
    bus.close()


def test_trimming_keeps_the_stream_short_and_nothing_unread_is_lost(server, monkeypatch) -> None:
    monkeypatch.setattr(redis_bus, "TRIM_EVERY", 1000)
    publisher = RedisPublisher(server.url, "events")
    bus = RedisBus(server.url, "events")
    client = server.client()
    found, longest = [], 0
    for begin in range(0, 20_000, 1000):
        for seq in range(begin + 1, begin + 1001):
            publisher.publish(event(seq))
        if begin % 5000 == 0:
            continue  # some wait unread while trimming goes on
        found += take_all(bus, 1000)
        longest = max(longest, client.xlen("events"))
    found += take_all(bus, 20_000 - len(found))
    assert found == list(range(1, 20_001))
    assert longest < 5000
    client.close()
    publisher.close()
    bus.close()


def test_a_publisher_never_waits_and_counts_what_it_drops(tmp_path: Path) -> None:
    publisher = RedisPublisher(f"unix://{tmp_path}/nothing.sock", "events", spool=100)
    begin = time.perf_counter()
    for seq in range(1, 1001):
        publisher.publish(event(seq))
    assert time.perf_counter() - begin < 60  # a wait for each, were it ever so short, would be more
    assert publisher.dropped == 900
    assert publisher.waiting() == 100
    publisher.close(0.1)


def test_a_password_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError) as fault:
        connect_redis("http://user:secret@host")
    assert "secret" not in str(fault.value)
    with pytest.raises(ConfigError, match="NO_SUCH"):
        connect_redis("redis://localhost", password_env="NO_SUCH")
    monkeypatch.setenv("PW", "secret")
    bus = RedisBus("redis://localhost:1", "events", password_env="PW")
    assert "secret" not in repr(bus.__dict__)
    bus.close()


@pytest.fixture
def live(tmp_path: Path, server: RedisServer) -> Iterator[Pair]:
    pair = Pair(tmp_path, redis=server.url)
    yield pair
    pair.end()


@pytest.mark.slow
def test_the_twin_over_redis_runs_every_job_once(live: Pair) -> None:
    live.begin_cluster("--speed", "3000", "--wait", faults={"duplicated": 0.1, "reordered": 0.1})
    live.begin_twin()
    live.wait_done(120)
    every_job_ran_once(live)
    the_mirror_is_the_cluster(live)
    live.kill_twin(signal.SIGTERM)
    the_journal_is_consistent(live)


@pytest.mark.slow
def test_redis_restarted_and_gone_and_garbage_on_the_stream_do_no_lasting_harm(
    live: Pair, server: RedisServer
) -> None:
    live.begin_cluster("--speed", "1000", "--wait")
    live.begin_twin()
    live.wait(lambda: live.state()["submitted"] > 30, 30)
    client = server.client()
    for text in (b"\xff\xfe", b"{}", b'{"kind": "job_started"}', b"x" * (ev.MAX_EVENT_BYTES + 1)):
        client.xadd("events", {FIELD: text})
    client.xadd("events", {"nothing": "here"})
    live.wait(lambda: client.xlen("events:dead") == 5, 10)
    server.end()
    went_down_s = live.state()["now_s"]
    live.wait(lambda: live.state()["now_s"] > went_down_s + 3000, 120)
    server.begin()
    live.wait(lambda: live.state()["submitted"] > 100, 60)
    server.end(forget=True)
    went_down_s = live.state()["now_s"]
    live.wait(lambda: live.state()["done"] or live.state()["now_s"] > went_down_s + 1000, 120)
    server.begin()
    live.wait_done(120)
    every_job_ran_once(live)
    the_mirror_is_the_cluster(live)
    client.close()


@pytest.mark.slow
def test_a_twin_killed_while_events_wait_in_redis_continues_where_it_was(live: Pair) -> None:
    live.begin_cluster("--speed", "500", "--wait", "--takeover", "5")
    live.begin_twin()
    live.wait(lambda: live.status()["rows"]["actions"] > 5, 60)
    for _ in range(4):
        live.kill_twin()
        seen = live.status()["seq"]
        live.begin_twin()
        live.wait(lambda seen=seen: live.status()["seq"] != seen or live.state()["done"], 60)
    live.wait_done(120)
    every_job_ran_once(live)
    the_mirror_is_the_cluster(live)
    live.kill_twin(signal.SIGTERM)
    the_journal_is_consistent(live)
