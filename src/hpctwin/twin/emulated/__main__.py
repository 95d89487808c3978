"""``python -m hpctwin.twin.emulated``: an emulated cluster as a process."""

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
from hpctwin.formats.clusters.files import read_cluster
from hpctwin.generate import generate
from hpctwin.model import Cluster
from hpctwin.model.demand.unused import assumptions
from hpctwin.rms.emulated.faults import Faults
from hpctwin.rms.emulated.server import Server
from hpctwin.twin.emulated import emulated_cluster

app = App(name="hpctwin-emulated", help="An emulated cluster with a socket.")


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
    run: int = 1,
    record: bool = False,
    redis: str | None = None,
    stream: str = "hpctwin:events",
) -> None:
    """Serve an emulated cluster until it is told to end.

    Args:
        socket: path of the Unix socket to serve.
        nodes: how many, where no cluster's YAML is given.
        cluster: YAML of a cluster.
        name: its name.
        workload: generator of the jobs; "none" for none.
        options: of the generator, as JSON.
        trace: a trace instead.
        speed: seconds of its clock per second, or "max".
        takeover: without a heartbeat for so many seconds it schedules by itself again.
        wait: let the clock stand until somebody takes over scheduling.
        faults: what goes wrong, as JSON; see hpctwin.rms.emulated.Faults.
        policy: of its own scheduling.
        start: its clock's beginning, seconds.
        run: number of its first run; another one than before if it begins anew beside a twin that
            lives on.
        record: keep a history of all jobs.
        redis: URL of a Redis to publish events to as well.
        stream: name of the stream there.
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
            run=run, record=record,
        )
    )  # fmt: skip
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    with ExitStack() as stack:
        if redis is not None:
            from hpctwin.rms.polling.redis_publisher import RedisPublisher

            publisher = RedisPublisher(redis, stream)
            stack.callback(publisher.close)
            server.send_to(publisher.publish)
        server.serve()


def _pace(speed: str) -> float | None:
    """Seconds of the cluster's clock per second; None for as fast as possible."""
    if speed == "max":
        return None
    try:
        pace = float(speed)
    except ValueError:
        pace = 0.0
    if not 0 < pace <= 1e6:
        raise ConfigError(f"speed {speed!r} is neither a number above 0 nor 'max'")
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
