"""Answers and requests of the REST API; each field is documented in its schema."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import available_timezones

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from hpctwin.rms.records.records import JobId, Label

__all__ = [
    "AccuracyView",
    "Approval",
    "Bar",
    "BoxView",
    "CandidateView",
    "Change",
    "Clock",
    "DecisionView",
    "EnergyView",
    "Explanation",
    "FigureView",
    "Future",
    "Head",
    "JobExplanation",
    "JobForecast",
    "JobList",
    "JobView",
    "KillSwitch",
    "LaneGroup",
    "Line",
    "LinesView",
    "Me",
    "NodeView",
    "PretendJob",
    "Reserve",
    "RunGroup",
    "RunHead",
    "RunJob",
    "RunJobs",
    "ScheduleView",
    "Shown",
    "TimelineView",
    "WhatIfAnswer",
    "site_zone",
]


class View(BaseModel):
    """An answer: frozen, documented by its docstring."""

    model_config = ConfigDict(frozen=True)


class Asked(BaseModel):
    """A request: unknown fields are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def example(**values: Any) -> ConfigDict:
    """Return the configuration of a model with an example for its schema."""
    return ConfigDict(json_schema_extra={"examples": [values]})


class Clock(View):
    """Meaning of the times of a cluster or run."""

    unix_time: bool = Field(
        description="Whether times are seconds since 1970; if not, they count from the first one."
    )
    zone: str = Field(description="Time zone of the site, as in the IANA database.")


JobState = Literal["gone", "running", "starting", "waiting", "stuck", "never"]


class EnergyView(View):
    """The cluster's power by its power model, without cooling, and its energy so far.

    Jobs use their nodes fully. Price and emissions are included if the cluster has them.
    """

    power_w: float = Field(description="Current power draw, in W.")
    past_s: float = Field(
        description="Length of the past period that the totals cover, in seconds."
    )
    energy_j: float = Field(description="Energy of the past period, in J.")
    pue: float | None = Field(description="Power usage effectiveness; null without weather.")
    price: float | None = Field(None, description="Price of the energy so far, in `price_unit`.")
    price_per_h: float | None = Field(None, description="at present")
    price_unit: str = Field("", description="Currency of prices; empty if unknown.")
    carbon: float | None = Field(None, description="Emissions of the energy so far, in g.")
    carbon_per_h: float | None = Field(None, description="at present, g/h")


class MeterView(View):
    """State of the twin's power meter."""

    power_w: float | None = Field(description="Last reading; null while the meter is silent.")
    age_s: float | None = Field(description="Age of the last reading, in seconds.")
    expected_w: float | None = Field(description="Forecast power draw in `horizon_s`.")
    horizon_s: float = Field(description="Time ahead of the forecast, in seconds.")
    error_pct: dict[str, float] = Field(
        description="Mean absolute percentage error of power forecasts over the last day, by model."
    )
    omitted: dict[str, int] = Field(description="Number of ignored readings, by reason.")
    fault: str | None = Field(description="Why the power draw is currently unknown.")


class Head(View):
    """State of the cluster and its twin. ``version`` increases at each change."""

    version: int = Field(description="Number of the state; it increases at each change.")
    cluster: str = Field(description="Name of the cluster.")
    time_s: float = Field(description="Present time by the cluster's clock, in seconds.")
    clock: Clock = Field(description="Meaning of the times.")
    alive: bool = Field(description="Whether the twin is running.")
    age_s: float = Field(description="Age of the twin's last update, in seconds.")
    mode: str = Field(description="Mode of the twin: observe, approve or act.")
    is_active: bool = Field(description="Whether the twin controls scheduling.")
    policy: str = Field(description="Current policy.")
    policy_assumed: bool = Field(description="Whether the policy is an assumption.")
    trouble: tuple[str, ...] = Field(description="Errors and warnings, one sentence each.")
    nodes: int = Field(description="Number of nodes.")
    free_nodes: int = Field(description="Number of nodes that are up and without a job.")
    running: int = Field(description="Number of running jobs.")
    waiting: int = Field(description="Number of pending jobs.")
    decision: int | None = Field(description="Number of the last decision.")
    decided_s: float | None = Field(description="Time of the last decision.")
    awaiting: tuple[int, ...] = Field(
        description="Numbers of the decisions that await approval, newest first."
    )
    killed: bool = Field(description="Whether the kill switch is set.")
    cycle_s: float | None = Field(description="Duration of the last decision, in seconds.")
    energy: EnergyView | None = Field(description="Null if the cluster has no power model.")
    meter: MeterView | None = Field(description="Null if the twin has no meter.")
    not_read: tuple[str, ...] = Field(description="What the mirror does not include.")
    pool: tuple[str, ...] = Field(description="Policies of the pool.")


class JobView(View):
    """A pending or running job."""

    model_config = example(
        id="4711", user="ana", account="physics", partition="batch", qos="normal", nodes=16,
        walltime_s=7200.0, submit_s=1795868400.0, wait_s=900.0, state="waiting",
        start_s=1795873800.0, end_s=1795881000.0, low_s=1795870200.0, high_s=1795877400.0,
        calibrated=True, why="needs 16 nodes, 4 free",
    )  # fmt: skip

    id: str = Field(description="Id of the job.")
    user: str = Field(description="User of the job.")
    account: str = Field(description="Account of the job.")
    partition: str = Field(description="Partition of the job.")
    qos: str = Field(description="Quality of service of the job; empty without one.")
    nodes: int = Field(description="Number of requested nodes.")
    walltime_s: float = Field(description="Requested walltime, in seconds.")
    submit_s: float = Field(description="Submission, in seconds since the epoch.")
    wait_s: float = Field(description="Wait until its start, or so far.")
    state: Literal["waiting", "running"] = Field(description="State of the job.")
    start_s: float | None = Field(description="Start, or forecast start of a pending job.")
    end_s: float | None = Field(description="End at the walltime, if a start is known or forecast.")
    low_s: float | None = Field(None, description="Lower bound of the 80 % interval of the start.")
    high_s: float | None = Field(None, description="Upper bound of the 80 % interval of the start.")
    calibrated: bool = Field(False, description="Whether enough starts were observed for it.")
    why: str = Field("", description="Why the job does not start now.")
    reason: str = Field(
        "", description="Kind of this reason: hold, dependency, nodes, limit, …; turn if none."
    )
    node_list: str = Field("", description="Nodes of a running job, such as n[1-4,7].")


class JobList(View):
    """A page of the jobs that match a filter."""

    version: int = Field(description="Version of the state; pages of one version fit together.")
    found: int = Field(description="Number of all matching jobs.")
    shown: tuple[JobView, ...] = Field(description="Jobs of this page.")


class NodeView(View):
    """A node."""

    name: str = Field(description="Name of the node.")
    place: str = Field(description="Switch of the node, else its rack, else its node group.")
    state: str = Field(description="State of the node: up, drained or down.")
    power: str = Field(description="Power state: on, asleep, or switching; empty if unknown.")
    jobs: tuple[str, ...] = Field(description="Ids of its jobs.")
    load: dict[str, float] = Field(description="Shares of cores, memory_gb and gpus in use.")
    until_s: float | None = Field(description="Latest end of its jobs at their walltimes.")


class Span(View):
    """A job for some time."""

    job: str = Field(description="Id of the job.")
    kind: Literal["ran", "runs", "forecast"] = Field(
        description="Whether the job has ended, runs, or is forecast."
    )
    start_s: float = Field(description="Start, in seconds since the epoch.")
    end_s: float = Field(description="End, in seconds since the epoch.")


class Bar(Span):
    """A job on nodes for some time, for a Gantt chart."""

    rows: tuple[tuple[int, int], ...] = Field(
        description="Lanes of the timeline: first, count; tentative for forecast jobs."
    )
    low_s: float | None = Field(None, description="Lower bound of the 80 % interval of the start.")
    high_s: float | None = Field(None, description="Upper bound of the 80 % interval, in seconds.")


class LaneGroup(View):
    """Nodes with contiguous lanes."""

    name: str = Field(description="Name of the node group.")
    nodes: int = Field(description="Number of its nodes.")
    lanes: int = Field(description="of each node")


class ScheduleView(View):
    """The simulated future that a timeline shows, without further submissions."""

    policy: str = Field(description="Policy.")
    runtimes: str = Field(description="How long jobs run in it, in words.")
    never: int = Field(description="Number of pending jobs that would never start.")


class TimelineView(View):
    """Range of a Gantt chart of jobs on nodes."""

    version: int = Field(description="Number of the state; it increases at each change.")
    of: Literal["node", "core"] = Field(
        description="Meaning of a lane: a node, or a core if nodes are shared."
    )
    lanes: int = Field(description="Number of lanes.")
    groups: tuple[LaneGroup, ...] = Field(description="Node groups, in the order of their lanes.")
    from_s: float = Field(description="Start of the time range, in seconds.")
    to_s: float = Field(description="End of the time range, in seconds.")
    now_s: float | None = Field(description="Present time; null for finished runs.")
    clock: Clock = Field(description="Meaning of the times.")
    schedule: ScheduleView | None = Field(None, description="Null for runs.")
    placed: bool = Field(description="Whether lanes are recorded; if not, they are invented.")
    made: tuple[int, int] | None = Field(
        None, description="Width and height of a picture of the whole timeline, if available."
    )


class BoxView(Span):
    """A job on contiguous lanes."""

    first: int = Field(description="First of the contiguous lanes.")
    count: int = Field(description="Number of the contiguous lanes.")
    lanes: int = Field(description="All lanes of the job at that time.")
    where: str = Field(description="Name of the first node.")


class AccuracyView(View):
    """Errors of the forecasts of one class."""

    label: str = Field(description="Name of the class.")
    forecasts: int = Field(description="Number of forecasts whose job has started.")
    median_error_s: float | None = Field(description="Median absolute error, in seconds.")
    p90_error_s: float | None = Field(
        description="90th percentile of the absolute error, in seconds."
    )
    bias_s: float | None = Field(description="Mean of actual minus forecast start, in seconds.")
    intervals: int = Field(description="Number of forecasts with a calibrated interval.")
    covered: float | None = Field(description="Share of these intervals that include the start.")
    width_s: float | None = Field(description="Median width of these intervals, in seconds.")
    within_1min: float | None = Field(
        description="Share of all forecasts with an error of at most a minute."
    )
    promised: float = Field(description="Share of intervals that should include the start.")


class CandidateView(View):
    """A policy that was compared."""

    policy: str = Field(description="Name of the policy.")
    score: float = Field(description="lower is better")
    metrics: dict[str, float] = Field(
        description="Metrics of its what-if, by name; names in _s are in seconds."
    )
    starts: int = Field(description="Number of jobs that it would start now.")
    never: int = Field(description="Number of pending jobs that it would never start.")


class DecisionView(View):
    """A decision of the twin."""

    id: int = Field(description="Number of the decision.")
    time_s: float = Field(description="Time of the decision, in seconds since the epoch.")
    took_s: float = Field(description="Duration of the decision, in seconds.")
    policy: str = Field(description="Chosen policy.")
    before: str = Field(description="Policy before the decision.")
    reason: str = Field(description="Reason of the choice.")
    waiting: int = Field(description="Number of pending jobs at that time.")
    free_nodes: int = Field(description="Number of free nodes at that time.")
    approval: str | None = Field(
        description="pending, approved, rejected, lapsed (not answered in time), superseded (its "
        "jobs are no longer pending, or a later decision starts others) or done; null if the decision "
        "needs no approval."
    )
    starts: tuple[str, ...] = Field(description="Ids of the jobs to start.")
    candidates: tuple[CandidateView, ...] = Field(description="Compared policies.")


class Explanation(View):
    """An explanation in plain words."""

    why: tuple[str, ...] = Field(description="Sentences of the explanation.")


class JobExplanation(Explanation):
    """An explanation of a job's start, with what the journal has about the job."""

    job: str = Field(description="Full id of the job.")
    state: JobState = Field(description="State of the job; gone if it has ended.")


class JobForecast(JobExplanation):
    """A forecast of a job's start, as `hpctwin when --json` prints it."""

    model_config = example(
        why=["Job 4711 (16 nodes for up to 2 h) has been pending for 15 min.", "4 nodes are free."],
        job="4711", state="waiting", start_s=1795873800.0, low_s=1795870200.0, high_s=1795877400.0,
        calibrated=True, quantiles_s={"0.1": 1795870200.0, "0.5": 1795873800.0},
        policy="fcfs+easy", as_of_s=1795869300.0,
    )  # fmt: skip

    start_s: float | None = Field(description="Start, or forecast start of a pending job.")
    low_s: float | None = Field(description="Lower bound of the 80 % interval of the start.")
    high_s: float | None = Field(description="Upper bound of the 80 % interval of the start.")
    calibrated: bool = Field(description="Whether enough starts were observed for the interval.")
    quantiles_s: dict[str, float] = Field(
        description="Times by which it has started, by probability; empty with too few starts."
    )
    policy: str = Field(description="Policy of the forecast; empty without a forecast.")
    as_of_s: float = Field(description="Present time by the cluster's clock.")


class PretendJob(Asked):
    """A job that is not submitted."""

    nodes: int = Field(ge=1, le=10_000_000, description="Number of nodes.")
    walltime_s: float = Field(
        gt=0, le=1e9, allow_inf_nan=False, description="Walltime, in seconds."
    )
    partition: Label = Field("", description="Partition; by default the default one.")
    user: Label = Field("", description="User; empty for none.")


NodeList = Annotated[
    str,
    Field(
        min_length=1, max_length=4096,
        description="Nodes: names, hostlists such as n[1-4,7], partition=NAME, group=NAME, "
        "rack=NUMBER, switch=NAME, separated by spaces or commas.",
    ),
]  # fmt: skip


class Reserve(Asked):
    """Nodes that are reserved for a while."""

    nodes: tuple[NodeList, ...] = Field(default=(), max_length=100_000, description="all if empty")
    in_s: float = Field(default=0.0, ge=0, le=1e9, allow_inf_nan=False, description="from now on")
    for_s: float = Field(
        gt=0, le=1e9, allow_inf_nan=False, description="Length of the reservation, in seconds."
    )


class Change(Asked):
    """Changes of a what-if."""

    model_config = example(add_nodes=8, job={"nodes": 4, "walltime_s": 3600})

    policy: Annotated[str, Field(max_length=200)] | None = Field(
        None, description="Policy that starts jobs; by default the current one."
    )
    drain: tuple[NodeList, ...] = Field(
        default=(), max_length=100_000, description="Nodes that start no more jobs."
    )
    reserve: Reserve | None = Field(None, description="Reservation to add.")
    job: PretendJob | None = Field(None, description="Job to add.")
    add_nodes: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="Number of nodes to add; times the number of jobs it must not exceed a limit.",
    )
    cap_w: float | None = Field(
        default=None, gt=0, le=1e12, allow_inf_nan=False,
        description="Power cap of all nodes, by the cluster's power model.",
    )  # fmt: skip
    withdraw: tuple[JobId, ...] = Field(default=(), max_length=100_000, description="pending jobs")


class Future(View):
    """The future without further submissions."""

    policy: str = Field(description="Policy of this future.")
    metrics: dict[str, float] = Field(description="Metrics of the pending jobs, by name.")
    units: dict[str, str] = Field(description="Unit of each metric.")
    never: int = Field(description="Number of pending jobs that would never start.")
    starts: dict[str, float] = Field(description="Start times of pending jobs, in seconds.")
    lanes: int = Field(
        description="Number of lanes of the bars: one per node, or per core if nodes are shared."
    )
    bars: tuple[Bar, ...] = Field(
        description="Running jobs up to their expected ends, then pending jobs."
    )


class WhatIfAnswer(View):
    """Both futures, and the duration of the simulation."""

    time_s: float = Field(description="Present time by the cluster's clock.")
    nodes: tuple[int, int] = Field(description="Number of nodes without and with the change.")
    as_is: Future = Field(description="Future without the change.")
    changed: Future = Field(description="Future with the change.")
    pretend: str | None = Field(description="Id of the hypothetical job.")
    took_s: float = Field(description="Duration of both simulations, in seconds.")


class Approval(Asked):
    """Whether a decision that waits for a person is approved."""

    model_config = example(approved=True)

    approved: StrictBool = Field(description="true to approve, false to reject.")


class KillSwitch(Asked):
    """State of the kill switch; while it is set, the twin does nothing."""

    model_config = example(thrown=True)

    thrown: StrictBool = Field(description="true to set the switch, false to release it.")


class FigureView(View):
    """A metric of a run."""

    key: str = Field(description="Key of the metric, as in summary.json.")
    name: str = Field(description="Name of the metric.")
    text: str = Field(description="with its unit")
    value: float | None = Field(None, description="Value in the unit of the key.")
    better: Literal["low", "high"] | None = Field(None, description="Better end of its scale.")


class RunHead(View):
    """A simulated run; ``version`` increases at each change of its files."""

    version: int = Field(description="Number of the state; it increases at each change.")
    kind: Literal["run"] = Field("run", description="Always run.")
    workload: str = Field(description="Name of the workload.")
    cluster: str = Field(description="Name of the cluster.")
    policy: str = Field(description="Policy of the run.")
    nodes: int = Field(description="Number of nodes.")
    jobs: int = Field(description="Number of jobs.")
    finished: bool = Field(description="Whether the simulation has ended.")
    clock: Clock = Field(description="Meaning of the times.")
    from_s: float = Field(description="First time of the run, in seconds.")
    to_s: float = Field(description="Last time so far.")
    trouble: tuple[str, ...] = Field(description="Errors, one sentence each.")
    figures: tuple[FigureView, ...] = Field(description="Metrics of the run.")
    command: str = Field(description="Command that reproduces the run; empty if unknown.")
    versions: dict[str, str] = Field(description="Versions of the programs that made it, by name.")
    inputs: dict[str, str] = Field(description="Input files and their SHA-256.")


class Line(View):
    """A metric over time, as its mean and its peak in each bin."""

    name: str = Field(description="Name of the metric.")
    unit: str = Field(description="Unit of the metric.")
    mean: tuple[float, ...] = Field(description="Mean in each bin.")
    peak: tuple[float, ...] = Field(description="Maximum in each bin.")
    most: float | None = Field(description="Capacity, if it is known and constant.")
    least: float = Field(0.0, description="Start of the axis.")


class LinesView(View):
    """Metrics over time."""

    edges_s: tuple[float, ...] = Field(description="of the bins")
    now_s: float | None = Field(None, description="Present time; later values are forecasts.")
    lines: tuple[Line, ...] = Field(description="Metrics.")


class RunJob(View):
    """A job of a run."""

    id: str = Field(description="Id of the job.")
    user: str | None = Field(description="User of the job.")
    account: str | None = Field(description="Account of the job.")
    partition: str | None = Field(description="Partition of the job.")
    nodes: int = Field(description="Number of requested nodes.")
    walltime_s: float = Field(description="Requested walltime, in seconds.")
    submit_s: float = Field(description="Submission, in seconds.")
    start_s: float | None = Field(description="Start, in seconds.")
    end_s: float | None = Field(description="End, in seconds.")
    wait_s: float | None = Field(description="Wait, in seconds; null if the job has not started.")
    state: str = Field(description="State of the job; see the reference of states.")


class RunJobs(View):
    """A page of the jobs that match a filter."""

    version: int = Field(description="Version of the run; pages of one version fit together.")
    found: int = Field(description="Number of all matching jobs.")
    shown: tuple[RunJob, ...] = Field(description="Jobs of this page.")


class RunGroup(View):
    """The jobs of a user or a partition in a run."""

    name: str = Field(description="Name.")
    found: int = Field(description="Number of jobs.")
    states: dict[str, int] = Field(description="Number of jobs by state.")
    mean_wait_s: float | None = Field(description="Mean wait of started jobs, in seconds.")
    max_wait_s: float | None = Field(description="Maximum wait of started jobs, in seconds.")
    shown: tuple[RunJob, ...] = Field(description="The first jobs by submission.")


class Me(View):
    """A visitor of the page."""

    name: str = Field(description="Name of the visitor; empty without sign-in and token.")
    role: Literal["viewer", "user", "operator"] = Field(description="Role.")
    names_hidden: bool = Field(description="Whether names of other users are hidden.")
    sign_in: str | None = Field(description="Path to sign in with a browser; null without one.")
    kill_switch: bool | None = Field(
        None, description="Whether the kill switch is set; null if this server does not know it."
    )
    listed: bool = Field(description="Whether a page of all clusters and runs exists at ``/``.")


class Shown(View):
    """One of several clusters and runs on a server."""

    name: str = Field(description="Name in the address of its page.")
    kind: Literal["twin", "run"] = Field(description="Kind of the page.")
    title: str = Field(description="Title of the page.")
    trouble: tuple[str, ...] = Field(description="Errors and warnings, one sentence each.")
    figures: tuple[FigureView, ...] = Field(description="Main metrics.")


_HOST = Path("/etc/localtime")


@cache
def site_zone() -> str:
    """Return the time zone of this host, such as ``Europe/Berlin``; ``UTC`` if unknown.

    The environment variable TZ comes before the host's setting.
    """
    named = os.environ.get("TZ", "").lstrip(":")
    if not named and _HOST.is_symlink():
        named = _HOST.resolve().as_posix().partition("zoneinfo/")[2]
    return named if named in available_timezones() else "UTC"
