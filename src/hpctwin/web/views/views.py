"""Answers and requests of the REST API; each field is documented in its schema."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from hpctwin.rms.records.records import JobId, Label, NodeName

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
    past_s: float = Field(description="so long is what was used of")
    energy_j: float
    pue: float | None = Field(description="power usage effectiveness; none without weather")
    price: float | None = Field(None, description="of what was used, in `price_unit`")
    price_per_h: float | None = Field(None, description="at present")
    price_unit: str = ""
    carbon: float | None = Field(None, description="emitted by what was used, g")
    carbon_per_h: float | None = Field(None, description="at present, g/h")


class MeterView(View):
    """State of the twin's power meter."""

    power_w: float | None = Field(description="measured last; none while the meter is silent")
    age_s: float | None = Field(description="how old that is")
    expected_w: float | None = Field(description="what will be drawn in `ahead_s`")
    ahead_s: float
    error_pct: dict[str, float] = Field(
        description="mean absolute percentage error of such forecasts over the last day, by model"
    )
    left_out: dict[str, int] = Field(description="readings that did not count, by why")
    fault: str | None = Field(description="why nothing is known of the power now")


class Head(View):
    """State of the cluster and its twin. ``version`` increases at each change."""

    version: int
    cluster: str
    time_s: float = Field(description="the present by the cluster's clock, seconds since the epoch")
    alive: bool = Field(description="whether the twin runs")
    age_s: float = Field(description="how old the twin's last word is, seconds")
    mode: str
    is_active: bool
    policy: str = Field(description="what jobs start by")
    policy_assumed: bool = Field(description="whether that is only taken for granted")
    trouble: tuple[str, ...] = Field(
        description="what is wrong, in plain words; empty if nothing is"
    )
    nodes: int
    free_nodes: int
    running: int
    waiting: int
    decision: int | None = Field(description="number of the last decision")
    cycle_ms: float | None = Field(description="how long the last decision took")
    energy: EnergyView | None = Field(
        description="none if the machine's description does not say what nodes draw"
    )
    meter: MeterView | None = Field(description="none if the twin has no meter")
    not_read: tuple[str, ...] = Field(description="what the mirror leaves out")
    pool: tuple[str, ...] = Field(description="policies that are compared")


class JobView(View):
    """A pending or running job."""

    id: str
    user: str
    account: str
    partition: str
    nodes: int
    walltime_s: float
    submit_s: float
    state: Literal["waiting", "running"]
    start_s: float | None = Field(description="when it started; the forecast while it waits")
    end_s: float | None = Field(
        description="when it ends at its limit, if a start is known or forecast"
    )
    low_s: float | None = Field(None, description="it starts between these, with a chance of 80 %")
    high_s: float | None = None
    calibrated: bool = False
    why: str = Field("", description="why it does not start now, in a few words")


class NodeView(View):
    """A node."""

    name: str
    place: str = Field(description="its switch, else its rack, else its node group")
    state: str
    power: str = Field(description="whether it is on, asleep, or switched; empty if not known")
    jobs: tuple[str, ...]
    load: dict[str, float] = Field(description="shares of cores, memory_gb and gpus that are held")
    until_s: float | None = Field(description="when its last job ends at its limit")


class Bar(View):
    """A job on nodes for some time, for a Gantt chart."""

    job: str
    kind: Literal["ran", "runs", "forecast"]
    start_s: float
    end_s: float
    rows: tuple[tuple[int, int], ...] = Field(
        description="lanes as of the timeline: first, count; where a job to come will lie is a guess"
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
        description="what a lane is: a node, or where nodes are shared a core"
    )
    lanes: int
    groups: tuple[LaneGroup, ...]
    from_s: float
    to_s: float
    now_s: float | None = Field(description="the present; none where all is over")
    placed: bool = Field(description="whether lanes are known; if not, they are made up")
    made: tuple[int, int] | None = Field(
        None, description="width and height of a picture of all of it that is at hand, if one is"
    )


class BoxView(View):
    """A job on contiguous lanes."""

    job: str
    kind: Literal["ran", "runs", "forecast"]
    start_s: float
    end_s: float
    first: int
    count: int
    lanes: int = Field(description="all that the job had then, also elsewhere")
    where: str = Field(description="name of the first node")


class CandidateView(View):
    """A policy that was compared."""

    policy: str
    score: float = Field(description="lower is better")
    metrics: dict[str, float]
    starts: int = Field(description="jobs that it would start now")
    never: int = Field(description="waiting jobs that it would never start")


class DecisionView(View):
    """A decision of the twin."""

    id: int
    time_s: float
    took_ms: float
    policy: str
    before: str = Field(description="the policy in force before")
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


class Reserve(Asked):
    """Nodes that are reserved for a while."""

    nodes: tuple[NodeName, ...] = Field(default=(), max_length=100_000, description="all if empty")
    in_s: float = Field(default=0.0, ge=0, le=1e9, allow_inf_nan=False, description="from now on")
    for_s: float = Field(gt=0, le=1e9, allow_inf_nan=False)


class Change(Asked):
    """Changes of a what-if."""

    policy: Annotated[str, Field(max_length=200)] | None = None
    drain: tuple[NodeName, ...] = Field(default=(), max_length=100_000)
    reserve: Reserve | None = None
    job: PretendJob | None = None
    add_nodes: int = Field(default=0, ge=0, le=1_000_000)
    cap_w: float | None = Field(
        default=None, gt=0, le=1e12, allow_inf_nan=False,
        description="nodes draw no more together, by the machine's description",
    )  # fmt: skip
    withdraw: tuple[JobId, ...] = Field(default=(), max_length=100_000, description="waiting jobs")


class Future(View):
    """The future without further submissions."""

    policy: str
    metrics: dict[str, float]
    units: dict[str, str]
    never: int = Field(description="waiting jobs that would never start")
    starts: dict[str, float] = Field(description="when waiting jobs start, seconds since the epoch")
    lanes: int = Field(description="of the bars: a node each, or where nodes are shared a core")
    bars: tuple[Bar, ...]


class WhatIfAnswer(View):
    """Both futures, and the duration of the simulation."""

    time_s: float
    nodes: tuple[int, int] = Field(description="of the machine as it is, and as changed")
    as_is: Future
    changed: Future
    pretend: str | None = Field(description="id of the pretended job")
    took_ms: float


class Approval(Asked):
    """Whether a decision that waits for a person is approved."""

    approved: bool


class KillSwitch(Asked):
    """State of the kill switch; while it is set, the twin does nothing."""

    thrown: bool


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
    finished: bool = Field(description="whether the simulation has come to its end")
    from_s: float = Field(
        description="the first moment, seconds; since the epoch, where that is known"
    )
    to_s: float = Field(description="the last moment so far")
    trouble: tuple[str, ...]
    figures: tuple[FigureView, ...]
    command: str = Field(description="that gives it; empty if not known")
    versions: dict[str, str]
    inputs: dict[str, str] = Field(description="files that it was made of, and their SHA-256")


class Line(View):
    """A metric over time, as its mean and its peak in each bin."""

    name: str
    unit: str
    mean: tuple[float, ...]
    peak: tuple[float, ...]
    most: float | None = Field(
        description="what there is of it, if that is known and does not change"
    )
    least: float = Field(0.0, description="an axis begins there")


class LinesView(View):
    """Metrics over time."""

    edges_s: tuple[float, ...] = Field(description="of the bins")
    now_s: float | None = Field(None, description="the present; after it is forecast")
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
