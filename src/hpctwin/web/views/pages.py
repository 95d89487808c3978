"""Views of one job, node, user or partition, and of the history of weeks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any, Literal

from pydantic import Field

from hpctwin.errors import UnknownNameError
from hpctwin.rms.records.records import JobRecord
from hpctwin.twin.journal.history import HOUR_S, MINUTE_S, OTHERS
from hpctwin.twin.journal.restore import full_id
from hpctwin.web.views.cluster_views import node_views
from hpctwin.web.views.job_history import Ran
from hpctwin.web.views.source import Source
from hpctwin.web.views.views import JobView, NodeView, View
from hpctwin.web.views.visibility import EVERYTHING, Visibility

__all__ = [
    "STEPS",
    "GroupPage",
    "History",
    "JobPage",
    "NodePage",
    "group_page",
    "history",
    "job_page",
    "node_page",
]

MOST_JOBS, MOST_PAST = 500, 100
STEPS: dict[str, int] = {"minute": MINUTE_S, "hour": HOUR_S}


class PastJob(View):
    """A job that has ended within the last day. Names are empty if unknown or hidden."""

    id: str = Field(description="Id of the job.")
    user: str = Field(description="User; empty if hidden.")
    account: str = Field(description="Account; empty if none or hidden.")
    partition: str = Field(description="Partition.")
    nodes: int = Field(description="Number of nodes.")
    submit_s: float | None = Field(description="Submission, in seconds; null if unknown.")
    start_s: float = Field(description="Start, in seconds.")
    end_s: float = Field(description="End, in seconds.")


class ForecastView(View):
    """A recorded forecast of a job's start."""

    made_s: float = Field(description="Time of the forecast, in seconds.")
    start_s: float | None = Field(description="Start, in seconds.")
    low_s: float | None = Field(description="Lower bound of the 80 % interval, in seconds.")
    high_s: float | None = Field(description="Upper bound of the 80 % interval, in seconds.")
    calibrated: bool = Field(description="Whether the interval was corrected by earlier forecasts.")


class ActionView(View):
    """An action of the twin on a job."""

    decision: int = Field(description="Number of the decision.")
    kind: str = Field(description="Kind of the action.")
    decided_s: float | None = Field(
        description="Time of the decision by the cluster's clock, in seconds; null if it is deleted."
    )
    at_s: float = Field(description="Time by the twin's host, in seconds since the epoch.")
    result: str | None = Field(description="Null while there is no answer.")
    reason: str = Field(description="Reason of a failure; empty if unknown or hidden.")


class JobPage(View):
    """A job: its request, start, nodes, forecasts, and the twin's actions."""

    id: str = Field(description="Id of the job.")
    state: Literal["waiting", "running", "ended"] = Field(description="State of the job.")
    job: JobView | None = Field(description="Null if it has ended.")
    past: PastJob | None = Field(description="Its last run, if it has ended.")
    node_names: tuple[str, ...] = Field(description="Names of its nodes.")
    why: tuple[str, ...] = Field(description="Explanation in words.")
    forecasts: tuple[ForecastView, ...] = Field(description="The last forecasts, oldest first.")
    actions: tuple[ActionView, ...] = Field(
        description="The twin's last actions on the job, oldest first."
    )


class NodePage(View):
    """A node with its jobs: past, running and forecast."""

    node: NodeView = Field(description="The node.")
    running: tuple[JobView, ...] = Field(description="Running jobs.")
    expected: tuple[JobView, ...] = Field(description="Forecast jobs; their nodes are tentative.")
    past: tuple[PastJob, ...] = Field(description="Jobs of the last day, newest first.")


class GroupPage(View):
    """A user or a partition with its jobs."""

    name: str = Field(description="Name.")
    waiting: int = Field(description="Number of pending jobs.")
    running: int = Field(description="Number of running jobs.")
    nodes_in_use: int = Field(description="Nodes that its running jobs hold.")
    nodes: int | None = Field(description="Nodes of the partition; null for a user.")
    max_nodes: int | None = Field(None, description="Maximum nodes of a job; null for any.")
    max_walltime_s: float | None = Field(
        None, description="Maximum walltime of a job, in seconds; null for any."
    )
    accounts: tuple[str, ...] = Field((), description="Accounts of its jobs.")
    partitions: tuple[str, ...] = Field((), description="Partitions of its jobs.")
    jobs: tuple[JobView, ...] = Field(description="Pending jobs by forecast start, then running.")
    past: tuple[PastJob, ...] = Field(description="Jobs of the last day, newest first.")


class Counts(View):
    """Sums of a user or a partition in a period."""

    starts: int = Field(0, description="Number of started jobs.")
    mean_wait_s: float | None = Field(None, description="Mean wait of started jobs, in seconds.")
    max_wait_s: float | None = Field(None, description="Maximum wait of started jobs, in seconds.")
    waiting: float | None = Field(None, description="Mean number of pending jobs.")
    running: float | None = Field(None, description="Mean number of running jobs.")


class Period(View):
    """What happened in a period."""

    at_s: float = Field(description="Begin, by the cluster's clock, in seconds.")
    waiting: float | None = Field(description="Mean number of pending jobs.")
    max_waiting: int | None = Field(description="Maximum number of pending jobs.")
    running: float | None = Field(description="Mean number of running jobs.")
    utilization: float | None = Field(description="Share of the available nodes in use.")
    starts: int = Field(description="Number of started jobs.")
    mean_wait_s: float | None = Field(description="Mean wait of started jobs, in seconds.")
    max_wait_s: float | None = Field(description="Maximum wait of started jobs, in seconds.")
    decisions: int = Field(description="Number of decisions.")
    mean_decision_s: float | None = Field(description="Mean time of a decision, in seconds.")
    max_decision_s: float | None = Field(description="Maximum time of a decision, in seconds.")
    policy_changes: int = Field(description="Number of decisions that changed the policy.")
    policies: dict[str, int] = Field(description="Number of decisions by chosen policy.")
    forecasts: int = Field(description="Started jobs that had a forecast.")
    mean_error_s: float | None = Field(description="Mean absolute error of the first forecasts.")
    covered: float | None = Field(description="Share of starts within their 80 % interval.")
    partitions: dict[str, Counts] = Field(description="By partition.")
    users: dict[str, Counts] = Field(description="Only your own if names are hidden.")


class History(View):
    """Periods of equal length, oldest first; periods without a running twin are missing."""

    step_s: int = Field(description="Length of a period, in seconds.")
    periods: tuple[Period, ...] = Field(description="The periods, oldest first.")
    next_s: float | None = Field(
        description="Value of `from_s` for the next page; null at the end."
    )


def job_page(source: Source, job_id: str, sees: Visibility = EVERYTHING) -> JobPage:
    """Return the page of a job.

    Raises:
        UnknownNameError: The job is neither pending nor running, and did not end within a day.
        HpctwinError: The id is that of an array of several jobs.
    """
    source.update_starts()
    with source.looking() as stands:
        job_id = full_id(stands.core, job_id)
        job = stands.core.mirror.jobs.get(job_id)
        ran = source.history.last(job_id) if job is None else None
        if job is None and ran is None:
            raise UnknownNameError("pending, running or recent job", job_id, [])
        user = _user(ran) if job is None else job.spec.user
        view = next(iter(_views(source, {job_id}, sees)), None)
        past = None if ran is None else _past(ran, sees)
        names = ran.node_names if ran is not None else job.node_names if job is not None else ()
    with closing(source.journal()) as journal:
        forecasts = journal.read_forecasts(job_id)[-MOST_PAST:]
        actions = journal.read_actions(job=job_id)[-MOST_PAST:]
        decisions = {one.decision: journal.read_decision(one.decision) for one in actions}
    return JobPage(
        id=job_id,
        state="ended" if view is None else view.state,
        job=view,
        past=past,
        node_names=names,
        why=source.explain_job(job_id, sees).why,
        forecasts=tuple(
            ForecastView.model_validate(one, from_attributes=True) for one, _ in forecasts
        ),
        actions=tuple(
            ActionView(
                decision=one.decision,
                kind=one.kind,
                decided_s=None if (made := decisions[one.decision]) is None else made["time_s"],
                at_s=one.at_s,
                result=one.result,
                reason=(one.reason or "") if sees.shows(user) else "",
            )
            for one in actions
        ),
    )


def node_page(source: Source, name: str, sees: Visibility = EVERYTHING) -> NodePage:
    """Return the page of a node.

    Raises:
        UnknownNameError: The node does not exist.
    """
    source.update_schedule()
    with source.looking() as stands:
        number = {node: i for i, node in enumerate(stands.core.mirror.nodes)}
        if name not in number:
            raise UnknownNameError("node", name, list(number)[:MOST_PAST])
        expected = {
            one.job
            for one in source.course()
            if one.kind == "forecast" and number[name] in one.nodes
        }
        node = node_views(stands)[number[name]]
        views = _views(source, expected | set(node.jobs), sees)
        return NodePage(
            node=node,
            running=tuple(one for one in views if one.state == "running"),
            expected=tuple(one for one in views if one.state == "waiting")[:MOST_PAST],
            past=_pasts((one for one in source.history.ran if name in one.node_names), sees),
        )


def group_page(
    source: Source, kind: Literal["user", "partition"], name: str, sees: Visibility = EVERYTHING
) -> GroupPage:
    """Return the page of a user or a partition.

    Raises:
        UnknownNameError: There is no such partition; or no job of the user, or it is hidden.
    """
    if kind == "user":
        sees.check(name)
    source.update_starts()
    with source.looking() as stands:
        jobs = [j for j in stands.core.mirror.jobs.values() if getattr(j.spec, kind) == name]
        past = [
            one for one in source.history.ran
            if one.spec is not None and getattr(one.spec, kind) == name
        ]  # fmt: skip
        found = {one.name: one for one in stands.core.mirror.machine.partitions}
        partition = found.get(name) if kind == "partition" else None
        if not jobs and not past and partition is None:
            raise UnknownNameError(kind, name, list(found) if kind == "partition" else [])
        groups = stands.core.mirror.machine.nodes
        here = None if partition is None else partition.groups
        views = _views(source, {job.spec.id for job in jobs}, sees)
        return GroupPage(
            name=name,
            waiting=sum(job.start_s is None for job in jobs),
            running=sum(job.start_s is not None for job in jobs),
            nodes_in_use=len({node for job in jobs for node in job.node_names}),
            nodes=None
            if partition is None
            else sum(group.count for group in groups if here is None or group.name in here),
            max_nodes=None if partition is None else partition.max_nodes,
            max_walltime_s=None if partition is None else partition.max_walltime,
            accounts=_of(jobs, "account") if kind == "user" else (),
            partitions=_of(jobs, "partition") if kind == "user" else (),
            jobs=tuple(views[:MOST_JOBS]),
            past=_pasts(past, sees),
        )


def history(
    source: Source,
    step: Literal["minute", "hour"],
    from_s: float,
    to_s: float,
    limit: int,
    sees: Visibility = EVERYTHING,
) -> History:
    """Return a page of the history of weeks.

    Args:
        source: State of the cluster.
        step: Length of the periods; minutes are kept for 3 days, hours for 26 weeks.
        from_s: First begin, by the cluster's clock.
        to_s: Last begin.
        limit: Maximum number of periods.
        sees: Names that the visitor may see.
    """
    with closing(source.journal()) as journal:
        found = journal.read_history(STEPS[step], from_s, to_s, limit + 1)
    more = found[limit:]
    return History(
        step_s=STEPS[step],
        periods=tuple(_period(at_s, sums, sees) for at_s, sums in found[:limit]),
        next_s=more[0][0] if more else None,
    )


def _views(source: Source, ids: set[str], sees: Visibility) -> list[JobView]:
    return [one for one in source.current_views(sees) if one.id in ids]


def _of(jobs: Sequence[JobRecord], name: str) -> tuple[str, ...]:
    return tuple(sorted({getattr(job.spec, name) for job in jobs} - {""}))


def _user(ran: Ran | None) -> str | None:
    return None if ran is None or ran.spec is None else ran.spec.user


def _pasts(ran: Iterable[Ran], sees: Visibility) -> tuple[PastJob, ...]:
    return tuple(_past(one, sees) for one in [*ran][: -MOST_PAST - 1 : -1])


def _past(ran: Ran, sees: Visibility) -> PastJob:
    spec = ran.spec
    view = PastJob(
        id=ran.job,
        user="" if spec is None else spec.user,
        account="" if spec is None else spec.account,
        partition="" if spec is None else spec.partition,
        nodes=len(ran.node_names),
        submit_s=None if spec is None else spec.submit_s,
        start_s=ran.start_s,
        end_s=ran.end_s,
    )
    return sees.of(view, view.user)


def _period(at_s: float, sums: dict[str, Any], sees: Visibility) -> Period:
    users = sums.get("users", {})
    return Period(
        at_s=at_s,
        waiting=_mean(sums, "waiting", "n"),
        max_waiting=sums.get("waiting_max"),
        running=_mean(sums, "running", "n"),
        utilization=_mean(sums, "used_nodes", "up_nodes"),
        decisions=sums.get("decisions", 0),
        mean_decision_s=_seconds(_mean(sums, "took_ms", "decisions")),
        max_decision_s=_seconds(sums.get("took_max_ms")),
        policy_changes=sums.get("changes", 0),
        policies={name: one["decisions"] for name, one in sums.get("policies", {}).items()},
        forecasts=sums.get("forecasts", 0),
        mean_error_s=_mean(sums, "error_s", "forecasts"),
        covered=_mean(sums, "covered", "intervals"),
        partitions=_counts(sums.get("partitions", {}), sums),
        users=_counts(
            {name: one for name, one in users.items() if name != OTHERS and sees.shows(name)}
            if not sees.names
            else users,
            sums,
        ),
        **_waits(sums),
    )


def _counts(groups: dict[str, dict[str, Any]], sums: dict[str, Any]) -> dict[str, Counts]:
    looks = sums.get("looks", 0)
    return {
        name: Counts(
            waiting=one.get("waiting", 0) / looks if looks else None,
            running=one.get("running", 0) / looks if looks else None,
            **_waits(one),
        )
        for name, one in sorted(groups.items())
    }


def _waits(sums: dict[str, Any]) -> dict[str, Any]:
    return {
        "starts": sums.get("starts", 0),
        "mean_wait_s": _mean(sums, "wait_s", "starts"),
        "max_wait_s": sums.get("wait_max_s"),
    }


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


def _mean(sums: dict[str, Any], total: str, number: str) -> float | None:
    found: float = sums.get(number, 0)
    return sums.get(total, 0) / found if found else None
