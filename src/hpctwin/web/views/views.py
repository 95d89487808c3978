"""Answers and requests of the REST API; each field is documented in its schema."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from hpctwin.rms.records.records import JobId, Label

__all__ = [
    "Approval",
    "Bar",
    "BoxView",
    "CandidateView",
    "Change",
    "DecisionView",
    "EnergyView",
    "FigureView",
    "Future",
    "Head",
    "JobView",
    "KillSwitch",
    "LaneGroup",
    "Line",
    "LinesView",
    "NodeView",
    "PretendJob",
    "Reserve",
    "RunHead",
    "RunJob",
    "RunJobs",
    "Session",
    "Shown",
    "TimelineView",
    "Told",
    "WhatIfAnswer",
]


class View(BaseModel):
    """An answer: frozen, documented by its docstring."""

    model_config = ConfigDict(frozen=True)


class Asked(BaseModel):
    """A request: unknown fields are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EnergyView(View):
    """The cluster's power by its power model, without cooling, and its energy so far.

    Jobs use their nodes fully. Price and emissions are included if the cluster has them.
    """

    power_w: float
    past_s: float = Field(
        description="Length of the past period that the totals cover, in seconds."
    )
    energy_j: float
    pue: float | None = Field(description="Power usage effectiveness; null without weather.")
    price: float | None = Field(None, description="Price of the energy so far, in `price_unit`.")
    price_per_h: float | None = Field(None, description="at present")
    price_unit: str = ""
    carbon: float | None = Field(None, description="Emissions of the energy so far, in g.")
    carbon_per_h: float | None = Field(None, description="at present, g/h")


class MeterView(View):
    """State of the twin's power meter."""

    power_w: float | None = Field(description="Last reading; null while the meter is silent.")
    age_s: float | None = Field(description="Age of the last reading, in seconds.")
    expected_w: float | None = Field(description="Forecast power draw in `horizon_s`.")
    horizon_s: float
    error_pct: dict[str, float] = Field(
        description="Mean absolute percentage error of power forecasts over the last day, by model."
    )
    omitted: dict[str, int] = Field(description="Number of ignored readings, by reason.")
    fault: str | None = Field(description="Why the power draw is currently unknown.")


class Head(View):
    """State of the cluster and its twin. ``version`` increases at each change."""

    version: int
    cluster: str
    time_s: float = Field(
        description="Present time by the cluster's clock, in seconds since the epoch."
    )
    alive: bool = Field(description="Whether the twin is running.")
    age_s: float = Field(description="Age of the twin's last update, in seconds.")
    mode: str
    is_active: bool
    policy: str = Field(description="Current policy.")
    policy_assumed: bool = Field(description="Whether the policy is an assumption.")
    trouble: tuple[str, ...] = Field(description="Errors and warnings, one sentence each.")
    nodes: int
    free_nodes: int
    running: int
    waiting: int
    decision: int | None = Field(description="Number of the last decision.")
    decided_s: float | None = Field(description="Time of the last decision.")
    awaiting: tuple[int, ...] = Field(
        description="Numbers of the decisions that await approval, newest first."
    )
    killed: bool = Field(description="Whether the kill switch is set.")
    cycle_ms: float | None = Field(description="Duration of the last decision, in ms.")
    energy: EnergyView | None = Field(description="Null if the cluster has no power model.")
    meter: MeterView | None = Field(description="Null if the twin has no meter.")
    not_read: tuple[str, ...] = Field(description="What the mirror does not include.")
    pool: tuple[str, ...] = Field(description="Policies of the pool.")


class JobView(View):
    """A pending or running job."""

    id: str
    user: str
    account: str
    partition: str
    qos: str
    nodes: int
    walltime_s: float
    submit_s: float
    state: Literal["waiting", "running"]
    start_s: float | None = Field(description="Start, or forecast start of a pending job.")
    end_s: float | None = Field(description="End at the walltime, if a start is known or forecast.")
    low_s: float | None = Field(None, description="Lower bound of the 80 % interval of the start.")
    high_s: float | None = None
    calibrated: bool = False
    why: str = Field("", description="Why the job does not start now.")
    reason: str = Field(
        "", description="Kind of this reason: hold, dependency, nodes, limit, …; turn if none."
    )
    node_list: str = Field("", description="Nodes of a running job, such as n[1-4,7].")


class NodeView(View):
    """A node."""

    name: str
    place: str = Field(description="Switch of the node, else its rack, else its node group.")
    state: str
    power: str = Field(description="Power state: on, asleep, or switching; empty if unknown.")
    jobs: tuple[str, ...]
    load: dict[str, float] = Field(description="Shares of cores, memory_gb and gpus in use.")
    until_s: float | None = Field(description="Latest end of its jobs at their walltimes.")


class Bar(View):
    """A job on nodes for some time, for a Gantt chart."""

    job: str
    kind: Literal["ran", "runs", "forecast"]
    start_s: float
    end_s: float
    rows: tuple[tuple[int, int], ...] = Field(
        description="Lanes of the timeline: first, count; tentative for forecast jobs."
    )


class LaneGroup(View):
    """Nodes with contiguous lanes."""

    name: str
    nodes: int
    lanes: int = Field(description="of each node")


class TimelineView(View):
    """Range of a Gantt chart of jobs on nodes."""

    version: int
    of: Literal["node", "core"] = Field(
        description="Meaning of a lane: a node, or a core if nodes are shared."
    )
    lanes: int
    groups: tuple[LaneGroup, ...]
    from_s: float
    to_s: float
    now_s: float | None = Field(description="Present time; null for finished runs.")
    placed: bool = Field(description="Whether lanes are recorded; if not, they are invented.")
    made: tuple[int, int] | None = Field(
        None, description="Width and height of a picture of the whole timeline, if available."
    )


class BoxView(View):
    """A job on contiguous lanes."""

    job: str
    kind: Literal["ran", "runs", "forecast"]
    start_s: float
    end_s: float
    first: int
    count: int
    lanes: int = Field(description="All lanes of the job at that time.")
    where: str = Field(description="Name of the first node.")


class CandidateView(View):
    """A policy that was compared."""

    policy: str
    score: float = Field(description="lower is better")
    metrics: dict[str, float]
    starts: int = Field(description="Number of jobs that it would start now.")
    never: int = Field(description="Number of pending jobs that it would never start.")


class DecisionView(View):
    """A decision of the twin."""

    id: int
    time_s: float
    took_ms: float
    policy: str
    before: str = Field(description="Policy before the decision.")
    reason: str
    waiting: int
    free_nodes: int
    approval: str | None
    starts: tuple[str, ...]
    candidates: tuple[CandidateView, ...]


class Told(View):
    """An answer in plain words."""

    lines: tuple[str, ...]
    state: str = ""
    start_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    calibrated: bool = False
    policy: str = ""


class PretendJob(Asked):
    """A job that is not submitted."""

    nodes: int = Field(ge=1, le=10_000_000)
    walltime_s: float = Field(gt=0, le=1e9, allow_inf_nan=False)
    partition: Label = ""
    user: Label = ""


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
    for_s: float = Field(gt=0, le=1e9, allow_inf_nan=False)


class Change(Asked):
    """Changes of a what-if."""

    policy: Annotated[str, Field(max_length=200)] | None = None
    drain: tuple[NodeList, ...] = Field(default=(), max_length=100_000)
    reserve: Reserve | None = None
    job: PretendJob | None = None
    add_nodes: int = Field(default=0, ge=0, le=1_000_000)
    cap_w: float | None = Field(
        default=None, gt=0, le=1e12, allow_inf_nan=False,
        description="Power cap of all nodes, by the cluster's power model.",
    )  # fmt: skip
    withdraw: tuple[JobId, ...] = Field(default=(), max_length=100_000, description="pending jobs")


class Future(View):
    """The future without further submissions."""

    policy: str
    metrics: dict[str, float]
    units: dict[str, str]
    never: int = Field(description="Number of pending jobs that would never start.")
    starts: dict[str, float] = Field(
        description="Start times of pending jobs, in seconds since the epoch."
    )
    lanes: int = Field(
        description="Number of lanes of the bars: one per node, or per core if nodes are shared."
    )
    bars: tuple[Bar, ...]


class WhatIfAnswer(View):
    """Both futures, and the duration of the simulation."""

    time_s: float
    nodes: tuple[int, int] = Field(description="Number of nodes without and with the change.")
    as_is: Future
    changed: Future
    pretend: str | None = Field(description="Id of the hypothetical job.")
    took_ms: float


class Approval(Asked):
    """Whether a decision that waits for a person is approved."""

    approved: bool


class KillSwitch(Asked):
    """State of the kill switch; while it is set, the twin does nothing."""

    thrown: bool


class Session(View):
    """Name and role of a client, and what its role can do here."""

    name: str
    role: Literal["read-only", "operator"]
    kill_switch: bool | None = Field(
        description="Whether the kill switch is set; null if this server does not know it."
    )


class FigureView(View):
    """A metric of a run."""

    key: str
    name: str
    text: str = Field(description="with its unit")


class RunHead(View):
    """A simulated run; ``version`` increases at each change of its files."""

    version: int
    kind: Literal["run"] = "run"
    workload: str
    cluster: str
    policy: str
    nodes: int
    jobs: int
    finished: bool = Field(description="Whether the simulation has ended.")
    from_s: float = Field(
        description="First time of the run, in seconds; since the epoch, if known."
    )
    to_s: float = Field(description="Last time so far.")
    trouble: tuple[str, ...]
    figures: tuple[FigureView, ...]
    command: str = Field(description="Command that reproduces the run; empty if unknown.")
    versions: dict[str, str]
    inputs: dict[str, str] = Field(description="Input files and their SHA-256.")


class Line(View):
    """A metric over time, as its mean and its peak in each bin."""

    name: str
    unit: str
    mean: tuple[float, ...]
    peak: tuple[float, ...]
    most: float | None = Field(description="Capacity, if it is known and constant.")
    least: float = Field(0.0, description="Start of the axis.")


class LinesView(View):
    """Metrics over time."""

    edges_s: tuple[float, ...] = Field(description="of the bins")
    now_s: float | None = Field(None, description="Present time; later values are forecasts.")
    lines: tuple[Line, ...]


class RunJob(View):
    """A job of a run."""

    id: str
    user: str | None
    account: str | None
    partition: str | None
    nodes: int
    walltime_s: float
    submit_s: float
    start_s: float | None
    end_s: float | None
    wait_s: float | None
    state: str


class RunJobs(View):
    """Jobs found by a search."""

    found: int
    shown: tuple[RunJob, ...]


class Shown(View):
    """One of several clusters and runs on a server."""

    name: str
    kind: Literal["twin", "run"]
    title: str
    trouble: tuple[str, ...]
    figures: tuple[FigureView, ...]
