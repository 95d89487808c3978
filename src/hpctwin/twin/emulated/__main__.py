"""``python -m hpctwin.twin.emulated``: run an emulated cluster as a process."""

from __future__ import annotations

import json
import logging
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from hpctwin.errors import ConfigError, HpctwinError
from hpctwin.formats import read_workload
from hpctwin.formats.clusters import read_cluster
from hpctwin.generate import generate
from hpctwin.model import Cluster
from hpctwin.model.demand import assumptions
from hpctwin.rms.emulated.faults import Faults
from hpctwin.rms.emulated.server import Server
from hpctwin.twin.emulated import emulated_cluster

app = App(name="hpctwin-emulated", help="Emulated cluster with a socket.")


@app.default
def serve(
    socket: Path,
    *,
    nodes: int = 32,
    cluster: Path | None = None,
    name: str = "emulated",
    workload: str = "four-phase",
    options: Annotated[str, Parameter(allow_leading_hyphen=True)] = "{}",
    trace: Path | None = None,
    speed: str = "1",
    takeover: float = 5.0,
    wait: bool = False,
    faults: str = "{}",
    policy: str = "fcfs+easy",
    start: float = 0.0,
    dates: bool = False,
    run: int = 1,
    record: bool = False,
    redis: str | None = None,
    stream: str = "hpctwin:events",
) -> None:
    """Serve an emulated cluster until SIGTERM or SIGINT.

    Args:
        socket: Path of the Unix socket.
        nodes: Number of nodes, without --cluster.
        cluster: YAML file of the cluster.
        name: Name of the cluster, without --cluster.
        workload: Generator of the jobs, or "none".
        options: Options of the generator, as JSON.
        trace: Trace with the jobs, instead of --workload.
        speed: Seconds of the cluster's clock per second, or "max".
        takeover: Seconds without a heartbeat until the cluster schedules by itself again.
        wait: Stop the clock until a client takes over scheduling.
        faults: Faults to emulate, as JSON; see hpctwin.rms.emulated.Faults.
        policy: Policy of the cluster's own scheduler.
        start: Time at which the cluster's clock starts, in seconds.
        dates: Count --start and all times from 1970, as a real cluster does.
        run: Number of the first run; use a new one to restart next to a running twin.
        record: Record the history of all jobs.
        redis: URL of a Redis server that events are also published to.
        stream: Name of the Redis stream.
    """
    pace = _pace(speed)
    machine = Cluster.uniform(nodes, name=name) if cluster is None else read_cluster(cluster)
    jobs = None
    if trace is not None:
        jobs = read_workload(trace)
        for one in assumptions(jobs, machine):
            print(f"{jobs.name}: {one}", file=sys.stderr)
    elif workload != "none":
        jobs = generate(workload, **_json(options, "options"))
    wrong = Faults.checked(_json(faults, "faults"), "faults")
    server = Server(socket, speed=pace, takeover_s=takeover, wait=wait)
    server.attach(
        emulated_cluster(
            machine, jobs, publish=server.publish, faults=wrong, policy=policy, start_s=start,
            unix_time=dates, run=run, record=record,
        )
    )  # fmt: skip
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    with ExitStack() as stack:
        if redis is not None:
            from hpctwin.rms.polling.redis_stream import RedisPublisher

            publisher = RedisPublisher(redis, stream)
            stack.callback(publisher.close)
            server.send_to(publisher.publish)
        server.serve()


def _pace(speed: str) -> float | None:
    """Return seconds of the cluster's clock per second; None for as fast as possible."""
    if speed == "max":
        return None
    try:
        pace = float(speed)
    except ValueError:
        pace = 0.0
    if not 0 < pace <= 1e6:
        raise ConfigError(f"speed {speed!r} is invalid; it must be a number above 0, or 'max'")
    return pace


def _json(text: str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{what}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{what}: expected an object, found {text}")
    return found


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(asctime)s emulated %(levelname)s %(message)s")
    try:
        app()
    except HpctwinError as fault:
        print(f"hpctwin-emulated: {fault}", file=sys.stderr)
        sys.exit(2)
