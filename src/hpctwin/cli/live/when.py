"""``hpctwin when``: when a job will start, and why it has not started yet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hpctwin.cli.option_values import AT_LEAST_1
from hpctwin.cli.options import ConfigPath

if TYPE_CHECKING:
    from hpctwin.twin.start_times.estimate import When

__all__ = ["when_command"]

MOST_NOTES = 5

_NO_FIGURE = {
    "gone": "the job is not in the queue",
    "running": "the job is already running",
    "stuck": "no estimate of the job's start is possible",
    "never": "the job would never start in the current state",
}


def when_command(
    job_id: str | None = None,
    /,
    *,
    nodes: Annotated[int | None, AT_LEAST_1] = None,
    walltime: str | None = None,
    partition: str = "",
    user: str = "",
    account: str = "",
    cores: float = 0.0,
    gpus: float = 0.0,
    memory_gb: float = 0.0,
    config: ConfigPath = Path("hpctwin.yaml"),
    fresh: bool = False,
    compare_rm: bool = False,
    plot: Annotated[Path | None, Parameter(name=["--plot", "--chart"])] = None,
    json: bool = False,
) -> int:
    """Forecast when a job will start, with an interval, and explain why not now.

    Give the id of a pending job, or --nodes and --walltime of a job to submit later. The running
    twin answers at no cost for the controller; without a running twin, the resource manager is
    queried once. Exit code 1 if the job has ended or never existed.

    Args:
        job_id: Id of a job on the cluster; for PBS, the server's name is optional.
        nodes: Number of nodes of a job that is not submitted yet.
        walltime: Time limit of the future job, such as 2h or 1:30:00.
        partition: Partition of the future job; default the cluster's default partition.
        user: User of the future job.
        account: Account of the future job.
        cores: Cores per node of the future job.
        gpus: GPUs per node of the future job.
        memory_gb: Memory per node of the future job, in GB.
        fresh: Query the resource manager even if a twin runs.
        compare_rm: Also show the resource manager's own estimate (squeue --start), at the cost of a
            query.
        plot: Write a chart of the probability of a start over time to this file (.png, .svg, .pdf).
        json: Print the forecast as JSON.
    """
    from hpctwin.cli.output import check_outputs, print_json, print_lines
    from hpctwin.errors import ConfigError
    from hpctwin.model import parse_duration_s
    from hpctwin.model.text import count_text
    from hpctwin.twin.forecast.forecaster import LEVELS
    from hpctwin.twin.service.when import answered
    from hpctwin.twin.settings.config import TwinConfig
    from hpctwin.twin.start_times.estimate import JobToCome, Question
    from hpctwin.twin.words import clock_text

    if (job_id is None) == (nodes is None):
        raise ConfigError(
            "when: job is missing; give a job's id, or --nodes and --walltime of a future job"
        )
    if nodes is not None and (nodes < 1 or walltime is None):
        raise ConfigError("when: --nodes must be 1 or more, together with --walltime")
    settings = TwinConfig.from_yaml(config)
    walltime_s = 0.0 if walltime is None else parse_duration_s(walltime)
    if walltime is not None and walltime_s <= 0:
        raise ConfigError(f"--walltime {walltime} is invalid; give a positive duration such as 2h")
    question: Question
    if job_id is not None:
        question = job_id
    else:
        assert nodes is not None
        question = JobToCome(nodes, walltime_s, partition, user, account, cores, gpus, memory_gb)
        title = f"A job of {count_text(nodes, 'node')} for {walltime}, submitted now,"
    check_outputs(figures=[plot])
    said = answered(settings, question, look=fresh)
    found = said.when
    if job_id is not None:
        job_id = said.job or job_id
        title = f"Job {job_id}"
    own_s: float | None = None
    if compare_rm and job_id is not None:
        from hpctwin.twin.service.service import open_manager

        manager = open_manager(settings.manager)
        own_s = manager.own_estimates().get(job_id)
        manager.close()
    if plot is not None:
        _draw(found, said.now_s, title, plot)
    if json:
        print_json(
            {
                "job": job_id,
                "nodes": nodes,
                "walltime_s": walltime_s or None,
                "state": found.state,
                "start_s": found.start_s,
                "low_s": found.low_s,
                "high_s": found.high_s,
                "calibrated": found.calibrated,
                "quantiles_s": dict(zip(map(str, LEVELS), found.quantiles_s, strict=False)),
                "policy": found.policy,
                "why": list(found.why),
                "as_of_s": said.now_s,
                "source": said.source,
                "not_read": list(said.not_read),
                "managers_estimate_s": own_s,
            }
        )
        return 1 if found.state == "gone" else 0
    first = {
        "gone": "is not in the queue.",
        "running": "is already running.",
        "starting": "starts now.",
        "waiting": f"is pending; expected start {clock_text(found.start_s, unix_time=said.unix_time)}.",
        "stuck": "is pending; no estimate of its start is possible.",
        "never": "would never start in the current state.",
    }[found.state]
    lines = [f"{title} {first}", *found.why]
    if compare_rm and job_id is not None:
        own = "no estimate" if own_s is None else clock_text(own_s, unix_time=said.unix_time)
        lines.append(f"Estimate of the resource manager: {own}.")
    lines.append(f"As of {clock_text(said.now_s, unix_time=said.unix_time)}, from {said.source}.")
    lines += [f"Not included: {note}." for note in said.not_read[:MOST_NOTES]]
    if len(said.not_read) > MOST_NOTES:
        lines.append(f"… and {len(said.not_read) - MOST_NOTES} more (--json lists them).")
    print_lines(lines)
    return 1 if found.state == "gone" else 0


def _draw(found: When, now_s: float, title: str, path: Path) -> None:
    """Draw the distribution of the start time.

    Raises:
        HpctwinError: There is no distribution: the job waits for an unknown event, or runs, or too
            few starts were observed.
    """
    from hpctwin.errors import HpctwinError
    from hpctwin.report.figures.style import save_figure
    from hpctwin.report.figures.workload import plot_start
    from hpctwin.twin.forecast.forecaster import LEVELS

    low_s, high_s = found.low_s, found.high_s
    if found.start_s is None or low_s is None or high_s is None or not found.quantiles_s:
        why = _NO_FIGURE.get(found.state, "too few starts were observed for an estimate")
        raise HpctwinError(f"--plot: no distribution to draw: {why}")
    figure = plot_start(
        found.quantiles_s,
        LEVELS,
        now_s=now_s,
        start_s=found.start_s,
        span_s=(low_s, high_s),
        title=f"{title.rstrip(',')}: predicted start",
    )
    save_figure(figure, path)
