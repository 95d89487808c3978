"""``hpctwin facility run``, ``submit``, ``queue`` and ``withdraw``: the live facility."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from hpctwin.cli.logs import LogOptions, set_when_asked_to_end
from hpctwin.cli.option_values import AT_LEAST_1

if TYPE_CHECKING:
    from hpctwin.twin.facility.queue import Queue, QueuedJob
    from hpctwin.twin.facility.service import LiveFacility

__all__ = ["queue_command", "run_command", "submit_command", "withdraw_command"]


def run_command(
    config: Path | None = None,
    /,
    *,
    until_empty: bool = False,
    jobs: Annotated[int, Parameter(group="Demo")] = 40,
    speed: Annotated[float, Parameter(group="Demo")] = 600.0,
    seed: Annotated[int, Parameter(group="Demo")] = 0,
    strategy: Annotated[str, Parameter(name=["--strategy", "-s"], group="Demo")] = "sgs-t",
    log: LogOptions = LogOptions(),  # noqa: B008
    json: bool = False,
) -> int:
    """Place the jobs of a facility's queue on its clusters, live, until interrupted.

    Without a configuration, a demo starts two emulated clusters, which also run jobs of their local
    users. It ends when all jobs are placed.

    Args:
        config: The live facility's YAML file.
        until_empty: End when no job is left to place.
        jobs: Number of jobs that the demo places.
        speed: Seconds of cluster time per second.
        seed: Seed of the demo's jobs.
        strategy: Placement strategy.
        json: Print the jobs' outcomes as JSON at the end.
    """
    import tempfile

    from hpctwin.cli.output import screen
    from hpctwin.model.text import count_text
    from hpctwin.twin.facility.service import LiveFacility

    log.begin()
    if config is not None:
        return _run(LiveFacility.from_yaml(config), until_empty, [], json)

    from hpctwin.twin.facility.service import CLUSTERS, demo_facility, demo_requests

    sizes = ", ".join(f"{name}: {about['nodes']} nodes" for name, about in CLUSTERS.items())
    screen(stderr=True).print(
        f"Two emulated clusters ({sizes}) at {speed:g} times real time, with "
        f"{count_text(jobs, 'job')} to place."
    )
    with (
        tempfile.TemporaryDirectory(prefix="hpctwin-") as folder,
        demo_facility(Path(folder), speed=speed, seed=seed, strategy=strategy) as made,
    ):
        return _run(made, True, demo_requests(jobs, seed), json)


def submit_command(
    config: Path,
    script: Path,
    /,
    *,
    nodes: Annotated[int, AT_LEAST_1],
    walltime: str,
    key: str | None = None,
    name: str = "",
    user: str | None = None,
    account: str = "",
    partition: str = "",
    qos: str = "",
    cores: float = 0.0,
    gpus: float = 0.0,
    memory_gb: float = 0.0,
) -> int:
    """Add a job to a facility's queue, and print its key.

    Args:
        config: The live facility's YAML file.
        script: The batch script.
        nodes: Number of whole nodes.
        walltime: Time limit on a cluster of factor 1, such as 2h.
        key: Unique key of the job; a second submission with the same key has no effect.
        name: Name of the job for users; default the script's name.
        user: User for queue limits and predictions; default the current user.
        account: Account of the job.
        partition: Partition of the job.
        qos: QOS of the job.
        cores: Cores per node.
        gpus: GPUs per node.
        memory_gb: Memory per node, in GB.
    """
    import getpass
    import uuid

    from pydantic import ValidationError

    from hpctwin.errors import ConfigError
    from hpctwin.model import parse_duration_s
    from hpctwin.model.settings import faults_of
    from hpctwin.rms.gate import JobRequest

    try:
        text = script.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{script}: {getattr(error, 'strerror', None) or error}") from error
    asked = {
        "key": key or uuid.uuid4().hex, "nodes": nodes, "walltime_s": parse_duration_s(walltime),
        "name": name or script.name, "user": user or getpass.getuser(), "account": account,
        "partition": partition, "qos": qos, "cores": cores, "gpus": gpus, "memory_gb": memory_gb,
        "script": text,
    }  # fmt: skip
    try:
        request = JobRequest.model_validate(asked)
    except ValidationError as error:
        faults = faults_of(error, JobRequest, asked, "the job")
        raise ConfigError("\n".join(faults)) from error
    with _queue(config) as queue:
        queue.add(request)
    print(request.key)
    return 0


def queue_command(config: Path, /, *, all: bool = False, json: bool = False) -> int:
    """Show a facility's queue and the cluster of each job.

    Args:
        config: The live facility's YAML file.
        all: Also show jobs that are placed, rejected or withdrawn.
        json: Print the queue as JSON.
    """
    from rich import box

    from hpctwin.cli.output import print_json, screen
    from hpctwin.model import format_duration
    from hpctwin.report.verbatim import VerbatimTable

    with _queue(config) as queue:
        entries = queue.entries() if all else queue.entries("queued", "intended", "submitted")
    if json:
        print_json([_plain(entry) for entry in entries])
        return 0
    table = VerbatimTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for head in ("key", "nodes", "walltime", "stage", "cluster", "job", "why"):
        table.add_column(head, justify="right" if head == "nodes" else "left", overflow="fold")
    for entry in entries:
        request = entry.request
        table.add_row(
            request.key, str(request.nodes), format_duration(request.walltime_s), entry.stage,
            entry.cluster or "", entry.job_id or "", entry.reason,
        )  # fmt: skip
    screen().print(table)
    return 0


def withdraw_command(config: Path, key: str, /) -> int:
    """Withdraw a job for which no cluster was chosen yet.

    Args:
        config: The live facility's YAML file.
        key: Key of the job.
    """
    with _queue(config) as queue:
        queue.withdraw(key)
    return 0


def _run(config: LiveFacility, until_empty: bool, requests: list[Any], json: bool) -> int:
    from hpctwin.cli.output import print_json
    from hpctwin.twin.facility.service import open_placer

    stop = set_when_asked_to_end()
    with open_placer(config) as placer:
        queue = placer.queue
        waiting = list(requests)
        while not stop.is_set():
            if waiting:
                queue.add(waiting.pop(0))
            placer.turn()
            open_jobs = queue.entries("queued", "intended", "submitted")
            if until_empty and not waiting and not open_jobs:
                break
            stop.wait(config.every)
        entries = queue.entries()
        took = placer.decision_ms
    if json:
        print_json(
            {
                "strategy": config.placing.name,
                "decision_ms_mean": sum(took) / len(took) if took else None,
                "jobs": [_plain(entry) for entry in entries],
            }
        )
        return 0
    _summary(config, entries, took)
    return 0


def _summary(config: LiveFacility, entries: list[QueuedJob], took: list[float]) -> None:
    from collections import Counter
    from statistics import median

    from hpctwin.model.text import count_text

    placed = Counter(entry.cluster for entry in entries if entry.stage == "placed")
    others = Counter(entry.stage for entry in entries if entry.stage != "placed")
    said = [f"{count_text(placed[name], 'job')} placed at {name}" for name in config.facility.names]
    said += [f"{count:,} {stage}" for stage, count in others.items()]
    print(", ".join(said), end="")
    print(f"; {median(took):.1f} ms per decision (median)" if took else "")


def _plain(entry: QueuedJob) -> dict[str, Any]:
    import dataclasses

    request = entry.request.model_dump(mode="json", exclude={"script"})
    return {**dataclasses.asdict(entry), "request": request}


def _queue(config: Path) -> closing[Queue]:
    from hpctwin.twin.facility.queue import Queue
    from hpctwin.twin.facility.service import LiveFacility

    return closing(Queue(LiveFacility.from_yaml(config).queue))
