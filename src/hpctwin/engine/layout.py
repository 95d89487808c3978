"""The engine's data: one table of records for each kind of thing.

Rows are records: a kernel reads ``sim.job[j].nodes``, ``sim.state[j].start``, ``sim.clock.now``. The classes
here say what fields there are; the arrays behind them are made from these annotations. Times are ms.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Protocol, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

# Numbers handed to compiled functions are int64 values: a literal would compile them once more.
NEVER: Any = np.int64(2**62)
ZERO: Any = np.int64(0)
ONE: Any = np.int64(1)
TAKE, RETURN = np.int64(-1), np.int64(1)

# Phases of a job: states as in model.State, and one that only the engine knows.
PENDING, WAITING, RUNNING, COMPLETED, WALLTIME = np.array([0, 1, 2, 3, 4])
NODE_FAILURE, CANCELLED, REJECTED, DEPENDENCY, FAILED, UNSUBMITTED = np.array([5, 6, 7, 8, 9, 10])

AFTER, AFTERANY, AFTEROK = np.array([0, 1, 2])

FIRST_FIT, BEST_FIT, CONTIGUOUS, RANDOM, SPREAD, SCORED = np.arange(6)

# Which nodes of a pool first and best fit take; others than the lowest only where nodes have power states.
LOWEST, SOONEST, LEAST_DRAW, GIVEN = np.arange(4)

# Power states of a node. The last three once for each sleep depth.
IDLE, COMPUTING, SWITCHING_OFF, ASLEEP, SWITCHING_ON = np.arange(5)
DEPTH_STATES = np.int64(3)

# Sets of nodes, see `nodes`; those that sleep once for each depth. All but the first where there is power.
_SETS: Any = np.arange(6)
FREE_NODES, AWAKE_NODES, IDLE_NODES, IDLE_OVER, ASLEEP_OVER, ASLEEP_NODES = _SETS

# Which of the nodes that are not active jobs may be given.
ALL_NODES, NOT_SWITCHING_OFF, ONLY_ACTIVE = np.arange(3)

# What a node has that jobs share: cores, memory, GPUs, and to be alone on it.
AMOUNTS = 4

BLOCK = 32
"""Shared nodes whose free cores are bounded together."""

OVERDUE_STEP = 60_000
"""An overdue job is expected to end at the next whole multiple of this after its planned end, ms."""

GIVE_UP = 10 * 365 * 86_400_000
"""Jobs that wait so long with only node failures and timers left to happen are given up, ms."""

# What `advance` returns.
DONE, REACHED, STEPPED, NEED_OUTAGES, NEED_ROOM, NOT_A_NUMBER = np.array([0, 1, 2, 3, 4, 5])
PASS = np.int64(6)  # only within: a scheduling pass is due

RACE_SORTED, RACE_CHANGING, RACE_SHARED = 400, 60, 600
"""With so many jobs waiting a tournament pays (`race`): in an order that stays, that changes with time,
and with fair share."""

SIZES, BUCKETS = 64, 64
"""Shortest jobs that wait are known by so many sizes and, at most, times of their start; see `holes`."""

Int = Annotated[int, "i8"]
# Of what a policy may set, its unit besides: 1 or more; 1 or more, or 0 for any; ms; ms, at least 1.
Count = Annotated[int, "i8", "count"]
Limit = Annotated[int, "i8", "limit"]
Millis = Annotated[int, "i8", "ms"]
Step = Annotated[int, "i8", "step"]
Small = Annotated[int, "i4"]
Short = Annotated[int, "i2"]
Flag = Annotated[int, "i1"]
Real = Annotated[float, "f8"]

R = TypeVar("R")


class Table(Protocol[R]):
    """Rows of one kind, as a kernel sees them."""

    def __getitem__(self, row: int) -> R:
        """One row."""
        ...

    def __setitem__(self, row: int, value: R) -> None:
        """Write a number; rows that are records are written field by field."""
        ...

    def __len__(self) -> int:
        """How many rows."""
        ...


class Grid(Protocol[R]):
    """Numbers in rows and columns, as a kernel sees them."""

    width: int

    def __getitem__(self, place: tuple[int, int]) -> R:
        """One number."""
        ...

    def __setitem__(self, place: tuple[int, int], value: R) -> None:
        """Write one number."""
        ...

    def __len__(self) -> int:
        """How many rows."""
        ...


class Job:
    """What is known of a job."""

    expected: Int  # what the scheduler expects it to run
    nodes: Int
    submit: Int
    limit: Int  # walltime
    runtime: Int  # only events read it, never a pass
    rank: Small  # of its id
    kind: Small  # row of `Known.eligible`, and of `Known.shape`
    user: Small  # column of `State.user_running`; 0 where not known
    share: Small  # row of `State.usage`
    rejected: Small  # 1: it can never run here
    fails: Small  # 1: it fails when its runtime is over
    cancel: Int  # when it is cancelled, not before submission; NEVER
    level: Int  # most dependencies in a chain of jobs that wait for it
    waits_from: Small  # rows of `Known.waits`: what it waits for
    waits_to: Small
    tells_from: Small  # rows of `Known.tells`: what waits for it
    tells_to: Small


class Shape:
    """What a kind of job asks where nodes are shared, but for the amounts of a task."""

    tasks: Int
    nodes: Int  # it has so many nodes at least
    most: Int  # tasks of it on a node at most
    exclusive: Int  # 1: it shares its nodes with no other job
    charge: Real  # for fair share it counts as so many nodes
    popularity: Int  # so many jobs are of this kind


class Fact:
    """What orderings see of a job besides; see `abi.JobView`."""

    cores: Real
    gpus: Real
    memory_gb: Real
    user: Real
    account: Real
    partition: Real
    qos: Real
    partition_priority: Real
    qos_priority: Real
    priority: Real
    dominant: Real
    load: Real
    cpu: Real
    memory_mb: Real
    risk: Real


class Edge:
    """A dependency of a job on another."""

    job: Int  # who waits
    kind: Int
    delay: Int


class Pool:
    """Nodes that are only counted."""

    speed: Real
    top: Int  # the speed as a fraction, see `speeds`
    bottom: Int
    first: Int  # places in `Known.by_pool`
    last: Int  # the place after the last
    group: Int  # the first pool of the same node group
    keep: Int  # so many idle nodes of the group are never switched off


class Switch:
    """What nodes are connected to; all that is below one comes before it."""

    above: Int  # -1
    height: Int  # 0 for those that nodes are connected to


class PoolFact:
    """What placements see of a pool's nodes besides; see `abi.NodeView`."""

    group: Real
    cores: Real
    gpus: Real
    memory_gb: Real
    idle_w: Real
    active_w: Real
    weight: Real


class Window:
    """A maintenance window; or more of a resource for a time, if the amount is negative."""

    start: Int
    end: Int
    pool: Int  # or resource
    amount: Int  # how much is away


class Change:
    """A window starts (sign -1) or ends (+1)."""

    time: Int
    pool: Int
    sign: Int
    amount: Int


class Sleep:
    """A sleep depth of a pool's nodes."""

    off_time: Int
    on_time: Int
    off_w: Real  # what a node draws on its way there,
    on_w: Real  # … back,
    asleep_w: Real  # … and between
    timeout: Int  # idle (or in the depth before) for so long: to this depth; NEVER for not at all


class Clock:
    """The simulation's single numbers."""

    now: Int
    instants: Int
    alive: Int  # jobs that have not come to their end
    arrived: Int  # so many of `by_submit` have been submitted
    arrival_end: Int  # … and so many will be
    queued: Int
    running: Int
    starts: Int
    ends: Int  # entries of heaps
    releases: Int
    switching: Int
    timeouts: Int
    begins: Int
    touched: Int  # the first node that has changed since the last pass, + 1; 0 for none
    cancels_done: Int
    changes_done: Int
    outages_done: Int
    lost: Int  # rows of records in use
    segments: Int
    logged: Int
    pass_due: Int
    timer: Int  # the next instant at which nothing else may happen
    faults: Int  # node failures and repairs so far
    came_back: Int  # 1: capacity came back other than planned since the last pass
    unpowered: Int  # nodes that are hidden
    wake_at: Int  # when to look whether nodes must be woken
    random: Int
    stop_job: Int  # stop when it has started; -1
    bad_job: Int  # whose score is not a number; -1
    bad_node: Int  # the node that it was scored with; -1 for its place in the queue
    only_outages_since: Int  # -1


class JobState:
    """How it goes with a job; -1 for what has not happened."""

    eligible: Int
    start: Int
    end: Int  # while it runs: when it will
    release: Int  # latest time one of its dependencies came true
    chain: Int  # longest chain of expected runtimes of jobs that wait for it
    key: Real  # score, where the ordering does not change with time
    open: Small  # dependencies not true yet
    requeues: Small
    first_node: Small
    phase: Flag
    outcome: Flag  # phase it will end in
    started: Flag  # ever began, as those know that wait for its start
    dead: Flag  # a dependency failed


class Event:
    """An entry of a heap: something happens to a job, or node, at a time."""

    time: Int
    job: Int


class Run:
    """A running job, by planned end."""

    planned: Int
    job: Int


class Stock:
    """What there is of a pool or resource at present."""

    free: Int  # negative in maintenance with overdue jobs
    down: Int  # failed nodes


class Usage:
    """What a fair-share label has used."""

    used: Real  # node-ms
    at: Real  # when that was reckoned
    nodes: Real  # in use


class Node:
    """How it goes with a node."""

    job: Small  # who has it, -1
    down: Short  # outages that last
    hidden: Short  # 1: jobs cannot have it since it is not active
    next: Small  # next node of the same job, -1
    power: Short
    depth: Short  # the sleep depth it is in, or on its way to or from
    ready: Int  # when it will have switched
    boot: Int  # what comes on top of that to be active
    since: Int  # since when it is in its power state
    place: Small  # in `Known.by_pool`
    touched: Small  # the next node that has changed, + 2; 1 for none; 0 if this one has not


class Share:
    """What is on a node that jobs share."""

    jobs: Int
    part: Int  # the first of its parts, -1
    promise: Int  # the first of its promises, -1


class Part:
    """Tasks of a job on a node, from when they started there. Rows of those that ended stay."""

    job: Int
    start: Int
    node: Small
    tasks: Small
    next: Small  # of the same job, -1
    after: Small  # on the same node, -1
    before: Small
    kind: Small  # of the job


class Promise:
    """Tasks of a job that waits, on a node that is reserved for them."""

    job: Int
    start: Int
    end: Int
    node: Int  # -1: the row is free
    tasks: Int
    next: Int  # of the same job, or free, -1
    after: Int  # on the same node, -1
    first: Int  # 1: the first of its job


class Tried:
    """When a kind of job was last tried on what is free, and found not to fit."""

    at: Int  # of `Sharing.freed`
    short: Int  # so many tasks found no room; 0 if it may fit
    faults: Int  # of the clock, when it was last seen whether the nodes that are up could hold it
    held: Int  # 1: they could


class Sharing:
    """Single numbers of shared nodes."""

    parts: Int  # rows in use
    promises: Int
    spare: Int  # the first free row of promises, plus 1; 0: none
    freed: Int  # how often a node got something back
    faults: Int  # of the clock, in the last pass
    chosen: Int  # nodes that `placing` chose
    turn: Int  # the node after the last that a job started on
    widest: Int  # nodes that a job may have at most


class Outage:
    """A node fails (sign -1) or comes back (+1)."""

    time: Int
    node: Int
    sign: Int


class Lost:
    """An attempt cut off by a failure."""

    job: Int
    start: Int
    end: Int


class Segment:
    """Where a job ran: a run of node numbers."""

    job: Int
    start: Int
    first: Int
    nodes: Int  # 0 if it never began there


class Span:
    """A past power state of a node."""

    node: Int
    state: Int
    start: Int
    end: Int


class Scored:
    """A job and its score."""

    score: Real
    job: Int


class Ranked:
    """A node and its score."""

    score: Real
    node: Int


class Fair:
    """What an ordering sees of a fair-share label."""

    factor: Real
    current: Real  # decayed use, node-s
    shift: Real  # see `race`


class Racer:
    """A node of the tournament of those that wait: a job, or what is known of all below it; see `race`."""

    nodes: Small  # fewest
    job: Small  # who comes first; -1 where nobody is
    leaf: Small  # where that job is
    label: Small  # fair-share label of all; 0 where none is asked for, -1 for several
    user: Int  # of all; 0 where no limit needs it, -1 for several
    expected: Int  # shortest
    until: Int  # then who comes first must be found out anew
    slope: Real  # the first one's line: score per ms,
    level: Real  # … and at time 0


class Opening:
    """A span of the plan, and how many nodes are free in it at least; see `standing` and `holes`."""

    start: Int
    end: Int
    nodes: Int


class Row:
    """From a time on so many nodes are free, in a plan that stands."""

    time: Int
    free: Int
    before: Small  # row, -1
    after: Small


class Stay:
    """A job in a plan that stands; it begins in row ``2 i + 1`` and ends in row ``2 i + 2``."""

    job: Int  # or, where there is none, the next such place, plus 1; 0: none
    nodes: Int
    expected: Int
    size: Int  # half octave of the nodes
    start: Int  # of its reservation; -1 if it runs
    low: Int  # holes between these times may be for it
    high: Int  # 0: none


class Standing:
    """The state of a plan that is kept from pass to pass."""

    valid: Int  # 1: it holds all that runs and all reservations
    returned: Int  # jobs that gave nodes back since the last pass, other than planned
    slots: Int  # places of jobs in use
    spare: Int  # the first that is free again, plus 1; 0: none
    since: Int  # buckets of jobs by start: from when,
    width: Int  # … how long each,
    buckets: Int  # … how many


class Race:
    """The state of the tournament."""

    done: Int  # 1: the pass was done by it
    valid: Int  # 1: all that wait are in it, or among the fresh
    failed: Int  # 1: it cannot be made
    leaves: Int
    built: Int  # so many leaves were used when it was built
    seated: Int  # so many are used
    steps: Int  # so many nodes have been looked at since
    fresh: Int  # so many have arrived since
    gone: Int  # so many of the queue wait no more
    unsorted: Int  # so many of the queue, the last, are in no order
    back: Int  # so many users may start jobs again since the last pass


class Spare:
    """Idle nodes: how many of a group there are to switch off, and how many of a pool may be."""

    idle: Int  # of the group that the pool is the first of
    allowed: Int


class Rules:
    """Numbers that choose the policy."""

    pools: Int
    placement: Int
    preferred: Int  # LOWEST …
    terminate: Int  # 1: walltimes end jobs
    hold_dependents: Int  # 1: a job whose dependency failed waits for ever
    requeue: Int  # 1: a job whose node failed waits again
    order_changes: Int  # 1: the ordering depends on time
    order_power: (
        Real  # scores are lines over time to that power, or bent lines; 0 where that is not known
    )
    order_exact: Int  # 1: equal lines that do not rise or fall are equal scores
    race_from: Int  # with so many jobs waiting a tournament pays
    others: Int  # where counting decides: NOBODY_PASSES …, see `counting`
    own_candidates: Int  # 1: candidates have an ordering of their own
    fairshare: Int  # 1: an ordering asks for fairshare or usage
    chains: Int  # 1: the ordering asks for the chain
    in_order: Int  # 1: nobody passes
    outage_horizon: Int  # outages are known up to here
    machine_nodes: Int
    decay: Real  # of fair-share usage, per ms
    shown: Int  # ALL_NODES …: which nodes that are not active jobs may be given
    depths: Int  # sleep depths; 0 where nodes have no power states
    log: Int  # 1: past power states are kept
    promises: Int  # so many rows of `State.promise` are in use at most, whatever waits
    stepped: Int  # 1: stop at each instant before the clock goes on, if so many are asked for


class Hooks:
    """Addresses of compiled functions, 0 for none."""

    order: Int
    candidates: Int
    place: Int
    advance: Int  # the loop itself
    run_pass: Int
    run_race: Int  # in its place where many wait and counting decides
    run_counted: Int  # where counting decides; called by the pass
    start: Int  # a job on the nodes that were chosen
    place_nodes: Int  # where nodes have identity
    place_by_score: Int
    build_plan: Int
    entered: Int
    left: Int
    reserved: Int
    gave_back: Int
    choose: Int  # nodes for a job, where nodes are shared
    before_pass: Int
    after_pass: Int


class Known:
    """The jobs and the machine: forks share it (P pools, C resources, K kinds of job, Q partitions)."""

    job: Table[Job]
    fact: Table[Fact]
    asks: Grid[Int]  # [jobs, C]
    by_submit: Table[Int]  # jobs by submit time
    by_cancel: Table[Int]  # jobs with a cancel time, by it
    tells: Table[Edge]  # by the job waited for
    waits: Table[Int]  # jobs waited for, by the job that waits
    amount: Table[Int]  # [P + C] nodes of the pools, then amounts of the resources
    pool: Table[Pool]
    pool_fact: Table[PoolFact]
    by_pool: Table[Int]  # node numbers by pool; empty where nodes are only counted
    pool_of: Table[Int]  # [nodes]
    eligible: Grid[Flag]  # [K, P] pools that a kind of job may use
    partition: Table[Int]  # [K]
    user_limit: Table[Int]  # [Q] running jobs per user; 0 for no limit
    window: Table[Window]
    change: Table[Change]  # in the order applied
    promised: Table[Real]  # share of each fair-share label, sums to 1
    sleep: Table[Sleep]  # [P * depths]
    shape: Table[Shape]  # [K]; empty where all jobs ask for whole nodes, as all that follows
    needs: Grid[Int]  # [K, 4] what a task asks: cores, memory, GPUs, 1
    whole: Grid[Int]  # [nodes, 4] what a node has, and `shared.room.ALL`
    typical: Table[Int]  # the most frequent kinds of jobs
    switch: Table[Switch]
    switch_of: Table[Int]  # [nodes]; empty where it is not known how nodes are connected


class State:
    """What changes: a fork copies it."""

    clock: Clock
    state: Table[JobState]
    queue: Table[Int]
    taken: Grid[Int]  # [jobs, P] nodes from each pool; [0, P] with one pool
    ends: Table[Event]  # heap
    run: Table[Run]
    releases: Table[Event]  # heap; job -1 - j: j begins. Empty without dependencies
    stock: Table[Stock]  # [P + C]
    user_running: Grid[Int]  # [Q, users]; [Q, 0] without limits
    usage: Table[Usage]  # [labels + 1], the last for all
    node: Table[Node]
    spent: Grid[Int]  # [nodes, states] time in each power state; [nodes, 0] without
    switching: Table[Event]  # heap of nodes
    timeouts: Table[Event]  # heap of nodes; an entry holds if the node is still due then
    begins: Table[Event]  # heap of jobs that wait for their nodes
    index: Grid[Flag]  # [sets, 2 * 2^k], see `nodes`
    tally: Grid[Int]  # [P, sets]
    outage: Table[Outage]
    lost: Table[Lost]
    segment: Table[Segment]
    log: Table[Span]
    sharing: Sharing
    share: Table[Share]  # [nodes]
    left: Grid[Int]  # [nodes, 4] what is free
    most_cores: Table[Int]  # [blocks of nodes] at most so many cores are free on any of a block
    part: Table[Part]
    promise: Table[Promise]
    promise_left: Grid[
        Int
    ]  # [promises, 4] what is free when each starts, all that are promised then taken
    tried: Table[Tried]  # [K]
    freed: Table[Int]  # the nodes that got something back last, a ring
    own: Table[Int]  # what the pass keeps: single numbers,
    kept: Grid[Int]  # … and rows
    power_kept: Grid[Int]  # what the power policy keeps of each node


class Scratch:
    """Holds nothing between two passes."""

    plan_time: Table[Int]  # see `plan`
    plan_amount: Grid[Int]  # [rows, P + C]
    plan_rows: Table[Int]  # [1]
    low: Table[Int]  # [P + C] least free over a span
    take: Table[Int]  # [P] nodes from each pool
    blocked: Table[Int]  # [P + C]
    not_before: Table[Int]  # [P + C]
    handed_out: Table[Int]  # [Q] reservations
    order: Table[Scored]  # heap of jobs in order
    ranked: Table[Ranked]  # heap of nodes; empty where a placement scores none
    later: Table[Int]
    stack: Table[Int]
    levels: Table[Event]  # heap
    fair: Table[Fair]
    spare: Table[Spare]
    base: Grid[Int]  # [nodes, 4] what running jobs leave free at a time
    least: Grid[Int]  # [nodes, 4] least free over a span
    fits: Table[Int]  # [nodes] so many tasks have room
    chosen: Table[Int]  # [nodes] nodes of a job,
    given: Table[Int]  # … and its tasks on each
    below: Grid[Int]  # [switches, 2] tasks and nodes that have room below each
    times: Table[Event]  # heap
    race: Race
    racer: Table[Racer]
    fresh: Table[Int]  # jobs that have no leaf yet
    path: Table[Int]
    user_leaves: Grid[Int]  # [users, 2] the first and the last in the tournament as it was built
    back: Table[Int]  # users who may start jobs again
    standing: Standing
    chain: Table[Row]  # see `standing`; empty where reservations do not outlive a pass
    stay: Table[Stay]
    slot: Table[Small]  # [jobs] row of `stay`
    shortest: Table[Int]  # see `holes`
    returned: Table[Opening]  # from when to when, and by which job
    openings: Table[Opening]


class Numbers:
    """The policy."""

    rules: Rules
    hooks: Hooks
    numbers: Table[Int]  # the pass's own
    power_numbers: Table[Int]  # the power policy's


class Arrays(Known, State, Scratch, Numbers):
    """All arrays of a simulation, as its kernels see them."""


def fields(record: type) -> dict[str, str]:
    """The fields of a record and their NumPy types."""
    hints = get_type_hints(record, include_extras=True)
    return {name: get_args(hint)[1] for name, hint in hints.items()}


@lru_cache(maxsize=64)
def record_type(record: type) -> np.dtype[Any]:
    """The NumPy type of a record, which has no gaps: a copy of one would leave them as they come."""
    found = np.dtype(list(fields(record).items()))
    assert found.itemsize == np.dtype(list(fields(record).items()), align=True).itemsize, record
    return found


def kind_of(hint: Any) -> tuple[np.dtype[Any], type | None, int]:
    """NumPy type, record (None for numbers) and dimensions of an annotation; 0 for a single record."""
    origin = get_origin(hint)
    if origin not in (Table, Grid):
        return record_type(hint), hint, 0
    (row,) = get_args(hint)
    dimensions = 1 if origin is Table else 2
    if isinstance(row, type):
        return record_type(row), row, dimensions
    return np.dtype(get_args(row)[1]), None, dimensions


LAYOUT = {name: kind_of(hint) for name, hint in get_type_hints(Arrays, include_extras=True).items()}
"""All arrays: NumPy type, record, dimensions."""

KNOWN, STATE, SCRATCH = (tuple(part.__annotations__) for part in (Known, State, Scratch))
