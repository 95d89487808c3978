"""``hpctwin rms emulate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from hpctwin.cli.logs import LogOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpctwin.model import Cluster, Workload
    from hpctwin.rms.emulated.agenda import Arrival

__all__ = ["emulate_command", "pace_of"]

ENDLESS = "endless"


def emulate_command(
    socket: Path,
    /,
    *,
    nodes: int | None = None,
    cores: float | None = None,
    cluster: Path | None = None,
    name: str | None = None,
    workload: str | None = None,
    options: Annotated[str, Parameter(allow_leading_hyphen=True)] = "{}",
    trace: Path | None = None,
    load: float | None = None,
    seed: int = 0,
    speed: str = "1",
    policy: str = "fcfs+easy",
    mtbf: str | None = None,
    mttr: str | None = None,
    faults: str = "{}",
    takeover: float = 5.0,
    start: float = 0.0,
    dates: bool = False,
    wait: bool = False,
    history: bool = False,
    run: int = 1,
    redis: str | None = None,
    stream_name: str = "hpctwin:events",
    log: LogOptions = LogOptions(),  # noqa: B008
) -> int:
    """Run an emulated cluster, which a twin follows and controls like a real one.

    It runs until interrupted. By default, generated users submit jobs without end at a load that
    the cluster can bear. The twin's configuration names the socket:
    `manager: {kind: emulated, address: SOCKET}`.

    Args:
        socket: Path of the Unix socket to make.
        nodes: Number of nodes; default 32.
        cores: Cores of each node, which jobs then share; by default jobs get whole nodes.
        cluster: YAML file of the cluster, instead of --nodes, --cores and --name.
        name: Name of the cluster; default emulated.
        workload: endless (default), none, or a generator: poisson, lublin, four-phase, …
        options: Options of the generator, as JSON.
        trace: Trace with the jobs, instead of --workload.
        load: Work of the endless jobs as a share of the cluster's capacity; default 0.9.
        seed: Seed of generated jobs and of faults.
        speed: Seconds of the cluster's clock per second, or "max".
        policy: Policy of the cluster's own scheduler.
        mtbf: Mean time between failures of a node, such as 30d; by default nodes never fail.
        mttr: Mean time to repair of a failed node; default 10m.
        faults: Further faults as JSON, such as lost events; see hpctwin.rms.emulated.Faults.
        takeover: Seconds without a heartbeat until the cluster schedules by itself again.
        start: Time at which the cluster's clock starts, in seconds.
        dates: Count --start and all times from 1970, as a real cluster does.
        wait: Stop the clock until a client controls scheduling.
        history: Keep the history of all jobs in memory.
        run: Number of the first run; use a new one to restart next to a running twin.
        redis: URL of a Redis server that also gets the events.
        stream_name: Name of the Redis stream.
    """
    import signal
    from contextlib import ExitStack

    from hpctwin.errors import ConfigError
    from hpctwin.model.text import count_text
    from hpctwin.rms.emulated.server import Server
    from hpctwin.twin.emulated import emulated_cluster

    log.begin()
    pace = pace_of(speed)
    if not takeover > 0:
        raise ConfigError(f"--takeover is {takeover:g}; it must be above 0")
    machine = _machine(nodes, cores, cluster, name)
    jobs = _jobs(machine, workload, options, trace, load, seed, start)
    injected = _faults(faults, mtbf, mttr, seed)
    server = Server(socket, speed=pace, takeover_s=takeover, wait=wait)
    emulated = emulated_cluster(
        machine, jobs, publish=server.publish, faults=injected, policy=policy, start_s=start,
        unix_time=dates, run=run, record=history,
    )  # fmt: skip
    server.attach(emulated)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: server.stop())

    def ready() -> None:
        print(
            f"{machine.name}: {count_text(machine.node_count, 'node')}, ready for a twin with "
            f"manager: {{kind: emulated, address: {socket}}}",
            flush=True,
        )

    with ExitStack() as stack:
        if redis is not None:
            from hpctwin.rms.polling.redis_stream import RedisPublisher

            publisher = RedisPublisher(redis, stream_name)
            stack.callback(publisher.close)
            server.send_to(publisher.publish)
        server.serve(ready)
    return 0


def _machine(
    nodes: int | None, cores: float | None, cluster: Path | None, name: str | None
) -> Cluster:
    from hpctwin.errors import ConfigError
    from hpctwin.formats.clusters import read_cluster
    from hpctwin.model import Cluster

    given = {"--nodes": nodes, "--cores": cores, "--name": name}
    if cluster is not None:
        if wrong := [option for option, value in given.items() if value is not None]:
            raise ConfigError(f"--cluster does not work with {wrong[0]}; change the file instead")
        return read_cluster(cluster)
    for option, count in (("--nodes", nodes), ("--cores", cores)):
        if count is not None and count < 1:
            raise ConfigError(f"{option} is {count:g}; it must be 1 or more")
    group = {"name": "node", "count": nodes or 32, "cores": cores}
    return Cluster.checked({"name": name or "emulated", "nodes": [group]}, "cluster")


def _jobs(
    machine: Cluster,
    workload: str | None,
    options: str,
    trace: Path | None,
    load: float | None,
    seed: int,
    start_s: float,
) -> Workload | Iterator[Arrival] | None:
    import sys

    from hpctwin.cli.output import note_no_network
    from hpctwin.errors import ConfigError
    from hpctwin.formats import read_workload
    from hpctwin.generate import generate
    from hpctwin.model.demand import assumptions
    from hpctwin.rms.emulated.agenda import endless_arrivals

    if trace is not None and workload is not None:
        raise ConfigError("--trace does not work with --workload; remove one of them")
    kind = workload or ENDLESS
    about = _json(options, "--options")
    if about and (trace is not None or kind in (ENDLESS, "none")):
        raise ConfigError("--options is for a generator; name it with --workload")
    if load is not None and (trace is not None or kind != ENDLESS):
        raise ConfigError("--load is only for endless jobs; remove it, or --trace and --workload")
    if trace is not None:
        jobs = read_workload(trace)
        note_no_network(jobs)
        if any(one is not None and one.length_s is None for one in jobs.profiles or ()):
            raise ConfigError(
                f"--trace {trace}: the length of its jobs depends on the network, which an emulated "
                "cluster does not have; give jobs of fixed length"
            )
        for one in assumptions(jobs, machine):
            print(f"{jobs.name}: {one}", file=sys.stderr)
        return jobs
    if kind == "none":
        return None
    if kind == ENDLESS:
        about = {} if load is None else {"load": load}
        return endless_arrivals(machine, seed=seed, start_s=start_s, **about)
    return generate(kind, **{"seed": seed, **about})


def _faults(text: str, mtbf: str | None, mttr: str | None, seed: int) -> Any:
    from hpctwin.errors import ConfigError
    from hpctwin.model import parse_duration_s
    from hpctwin.rms.emulated.faults import Faults

    if mttr is not None and mtbf is None:
        raise ConfigError("--mttr needs --mtbf, the mean time between failures of a node")
    given = {"mtbf_s": mtbf, "mttr_s": mttr}
    times = {key: parse_duration_s(value) for key, value in given.items() if value is not None}
    return Faults.checked({"seed": seed, **times, **_json(text, "--faults")}, "--faults")


def pace_of(speed: str) -> float | None:
    """Return seconds of the cluster's clock per second; None for as fast as possible.

    Raises:
        ConfigError: It is neither a number above 0 nor "max".
    """
    from hpctwin.errors import ConfigError

    if speed == "max":
        return None
    try:
        pace = float(speed)
    except ValueError:
        pace = 0.0
    if not 0 < pace <= 1e6:
        raise ConfigError(f"--speed is {speed!r}; it must be a number above 0, or max")
    return pace


def _json(text: str, option: str) -> dict[str, Any]:
    import json

    from hpctwin.errors import ConfigError

    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{option}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{option}: expected an object such as {{}}, found {text}")
    return found
