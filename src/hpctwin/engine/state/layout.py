"""The engine's data: one table of records for each kind of thing, and the numbers that stand for states.

What fields records have, `records` and the classes here say; the arrays behind them are made from these
annotations. Times are ms.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from hpctwin.engine.state.records import (
    Bound,
    Branch,
    Ceiling,
    Change,
    Claim,
    Clock,
    Cut,
    Edge,
    Event,
    Fact,
    Fair,
    Flag,
    Grid,
    Held,
    Int,
    Job,
    JobState,
    Level,
    Lost,
    Node,
    NodeSpan,
    Outage,
    Part,
    PartitionFact,
    Pool,
    PoolFact,
    Promise,
    Ranked,
    Real,
    Run,
    Scored,
    Segment,
    Shape,
    Share,
    Sharing,
    Sleep,
    Small,
    Span,
    Stock,
    Switch,
    Table,
    Tried,
    Usage,
    Used,
    Victim,
    Window,
    Yield,
)

# Numbers handed to compiled functions are int64 values: a literal would compile them once more.
NEVER: Any = np.int64(2**62)
ZERO: Any = np.int64(0)
ONE: Any = np.int64(1)
MINUS_ONE: Any = np.int64(-1)
THOUSANDTH = 0.001
TAKE, RETURN = np.int64(-1), np.int64(1)

# Phases of a job: states as in model.State, and one that only the engine knows.
PENDING, WAITING, RUNNING, COMPLETED, WALLTIME = np.array([0, 1, 2, 3, 4])
NODE_FAILURE, CANCELLED, REJECTED, DEPENDENCY, FAILED, PREEMPTED = np.array([5, 6, 7, 8, 9, 10])
UNSUBMITTED: Any = np.int64(11)
SENT_BACK: Any = np.int64(12)
"""Of a job that runs, how it will end: it is preempted, and waits again."""
SUSPENDED: Any = np.int64(13)
"""What becomes of a job that is preempted: it keeps its nodes, and goes on when others have left them."""

AFTER, AFTERANY, AFTEROK = np.array([0, 1, 2])

FIRST_FIT, BEST_FIT, CONTIGUOUS, RANDOM, SPREAD, SCORED, WHOLE_BLOCKS = np.arange(7)

# Where counting decides, what becomes of the others once one job does not fit; see `counting`.
NOBODY_PASSES, ANYONE_PASSES, HEAD_IS_PROTECTED, ALL_RESERVE = np.arange(4)

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

# What every node has that jobs share: cores, memory, GPUs, and to be alone on it; consumables come after.
AMOUNTS = 4

BLOCK = 32
"""Shared nodes of which it is known together whether a kind of job may find room."""

WORDS, BITS = 8, 64
"""Of so many times so many kinds of jobs it is known which nodes have no room for them."""

SOON = 64
"""Of so many kinds of jobs it is kept when each node has room for them."""

LISTED = 256
"""So many jobs on a node, at most, are listed by when they leave it."""

OVERDUE_STEP = 60_000
"""An overdue job is expected to end at the next whole multiple of this after its planned end, ms."""

GIVE_UP = 10 * 365 * 86_400_000
"""Jobs that wait so long with only node failures and timers left to happen are given up, ms."""

# What `advance` returns.
DONE, REACHED, STEPPED, NEED_OUTAGES, NEED_ROOM, NEED_PASS, NEED_RACE, NOT_A_NUMBER = np.array(
    range(8)
)
PASS = np.int64(8)  # only within: a scheduling pass is due

RACE_SORTED, RACE_CHANGING, RACE_SHARED, RACE_LIMITED = 400, 500, 600, 15_000
"""With so many jobs waiting a tournament pays (`race`): in an order that stays, that changes with time,
with fair share, and in an order that stays where `limits` keep jobs back."""

LINES_FROM = 8
"""With so many jobs waiting, in an order that changes with time, their lines are gone through (`lined`)."""

UNRACED, RACED, LINED = np.array([0, 1, 2])
"""Of those that wait there is nothing, a tournament, or a list of their lines."""

SIZES, BUCKETS = 64, 64
"""Shortest jobs that wait, and holes, are known by so many sizes and, at most, times; see `holes`."""

HOLES = 16_384
"""So many, at most, are known."""


class Racer:
    """A node of the tournament of those that wait: a job, or what is known of all below it; see `race`."""

    nodes: Small  # fewest
    job: Small  # who comes first; -1 where nobody is
    leaf: Small  # where that job is
    label: Small  # fair-share label of all; 0 where none is asked for, -1 for several
    group: Int  # of all; 0 where no limit keeps them back, -1 for several
    expected: Int  # shortest
    until: Int  # then who comes first must be found out anew
    slope: Real  # the first one's line: score per ms,
    level: Real  # … and at time 0


class Group:
    """Waiting jobs that the same limits keep back; see `race`."""

    first: Int  # its leaves in the tournament as it was built; 0 if it has none
    last: Int
    end: Int  # of its rows of `Known.bound`, which begin at its number - 1
    room: Int  # its jobs may have so many nodes at most; 0: nobody may start


class Lightest:
    """The least that waiting jobs count under one of the limits that they are under; see `limits`."""

    charge: Int
    each: Int  # … for each of their nodes


class Returned:
    """A job whose nodes came free for a span, other than planned."""

    job: Int
    start: Int
    end: Int


class Row:
    """From a time on so many nodes are free, in a plan that stands."""

    time: Int
    free: Small
    row: Small  # whose, see `Stay`; 0: of the present


class Hole:
    """A span of a plan that stands, in which nodes came free; see `holes`."""

    start: Int
    end: Int
    fresh: Int  # 1: since the last pass in which jobs may have moved


class Stay:
    """A job in a plan that stands; it begins in row ``2 i + 1`` and ends in row ``2 i + 2``."""

    job: Int  # or, where there is none, the next such place, plus 1; 0: none
    expected: Int
    start: Int  # of its reservation; -1 if it runs
    nodes: Small
    size: Small  # half octave of the nodes


class Standing:
    """The state of a plan that is kept from pass to pass."""

    valid: Int  # 1: it holds all that runs and all reservations
    returned: Int  # jobs that gave nodes back since the last pass, other than planned
    slots: Int  # places of jobs in use
    spare: Int  # the first that is free again, plus 1; 0: none
    first: Int  # of the rows of `Scratch.profile` that are used
    last: Int
    sizes: Int  # of jobs that may be
    holes: Int  # how many there are
    since: Int  # buckets of jobs and holes by start: from when,
    shift: Int  # … how long each, as a power of two,
    buckets: Int  # … how many


class Race:
    """The state of the tournament, or of the list of lines in its place; see `lined`."""

    done: Int  # 1: the pass was done by it
    valid: Int  # RACED, or LINED: all that wait are in it, or among the fresh
    failed: Int  # 1: it cannot be made
    leaves: Int
    built: Int  # so many leaves were used when it was built
    seated: Int  # so many are used
    steps: Int  # so many nodes have been looked at since
    fresh: Int  # so many have arrived since
    gone: Int  # so many of the queue wait no more
    unsorted: Int  # so many of the queue, the last, are in no order
    back: Int  # of so many groups some may start again since the last pass
    fewest: Int  # of a list of lines: none asks for fewer nodes,
    until: Int  # … and until then no line must be drawn anew


class Ahead:
    """What a walk along the queue looks at of a job first."""

    nodes: Int
    expected: Int


class Walk:
    """The last walk along a sorted queue; see `counting`."""

    valid: Int  # 1: the queue has only grown since, at its end
    known: Int  # so many of the queue, the first, are in `Scratch.ahead`
    fewest: Int  # none of them asks for fewer nodes
    settled: Int  # 1: as long as nothing comes free,
    seen: Int  # … so many of the queue, the first, cannot start
    head: Int  # 1: one of them is the head job,
    shadow: Int  # … which starts then,
    spare: Int  # … with so many nodes to spare
    free: Int  # what there was then: nodes,
    down: Int
    running: Int  # … jobs
    starts: Int
    tight: Int  # row of the plan at which a candidate did not fit


class Rooms:
    """What is derived from what is on shared nodes."""

    valid: Int  # 1: it holds
    first: Int  # the first node that was found to have room for a job
    sought: Int  # the job whose earliest start was sought last, plus 1,
    times: Int  # … and how often since another's was
    later: Int  # from when on a job is to find room if others leave; see `preempting.held_parts`
    found: Int  # 1: it does
    spans: Int  # rows of `Scratch.node_span` in use, where jobs are promised nodes as wholes
    ends: Int  # rows of `Scratch.by_end` in use; -1 if they are to be listed
    sums: Int  # rows of `Scratch.sums` in use; 0: they do not hold, nor does …
    promised: Int  # … how many jobs are promised nodes, by `Scratch.promise_end`


class Sums:
    """What all shared nodes have left together from a time on; see `shared.total_free`."""

    time: Int
    cores: Int
    memory: Int
    gpus: Int


class Scarce:
    """When last, in a span that was looked at, a shared node has as little of an amount as ever in it."""

    cores: Int
    memory: Int
    gpus: Int
    alone: Int
    until: Int  # until when that leaves room for no more of a job's tasks


class Windows:
    """Which maintenance is under way, and how far the plan knows what comes; see `windows`, `plan`."""

    valid: Int  # 1: what follows holds,
    at: Int  # … of a time
    begun: Int  # so many windows, the first, have begun
    under_way: Int  # so many of these are not over
    planned: Int  # so many changes, the first, are in the plan,
    known: Int  # … and no other comes by then


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
    race_from: Int  # with so many jobs waiting a tournament pays; never if it is not the same
    lines_from: Int  # with so many jobs waiting their lines are gone through
    others: Int  # where counting decides: NOBODY_PASSES …; -1 where it never does
    own_candidates: Int  # 1: candidates have an ordering of their own
    fairshare: Int  # 1: an ordering asks for fairshare or usage
    chains: Int  # 1: the ordering asks for the chain
    facts: Int  # 1: an ordering or placement asks for what is in `Known.fact`
    in_order: Int  # 1: nobody passes
    outage_horizon: Int  # outages are known up to here
    cleanup: Int  # a job's nodes are free so long after it has ended, ms
    machine_nodes: Int
    decay: Real  # of fair-share usage, per ms
    fair_every: Int  # the tree of fair shares is reckoned once in so long, ms
    shown: Int  # ALL_NODES …: which nodes that are not active jobs may be given
    depths: Int  # sleep depths; 0 where nodes have no power states
    log: Int  # 1: past power states are kept
    promises: Int  # so many rows of `State.promise` at most are in use
    by_node: Int  # so many jobs at most have reservations in a pass that are sets of nodes
    stepped: Int  # 1: stop at each instant before the clock goes on, if so many are asked for
    youngest_first: Int  # 1: of jobs that may be preempted, those that started last come first
    sent_back_for: Int  # a job that is sent back does not start again for so long


class Hooks:
    """Addresses of compiled functions, 0 for none."""

    order: Int
    candidates: Int
    place: Int
    advance: Int  # the loop itself
    run_pass: Int  # 0: not compiled, as counting may always decide
    run_race: Int  # in its place where many wait and counting decides
    run_lined: Int  # in its place where fewer wait, in an order that changes with time
    run_counted: Int  # in its place where counting decides
    start: Int  # a job on the nodes that were chosen
    place_nodes: Int  # where nodes have identity
    place_by_score: Int
    build_plan: Int
    reach_plan: Int  # have it know of maintenance up to a time
    entered: Int
    left: Int
    reserved: Int
    gave_back: Int
    choose: Int  # nodes for a job, where nodes are shared
    fits_later: Int  # whether a job does if others leave, where nodes are shared
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
    partition_fact: Table[PartitionFact]  # [Q]
    bound: Table[Bound]  # of all users, accounts and QOS; empty without limits, as all that follows
    bounds: Grid[Int]  # [jobs, 3] from where, to where on running jobs, to where on submitted ones
    charge: Grid[Int]  # [jobs, measures] what a job counts
    ceiling: Table[Ceiling]
    window: Table[Window]  # as they begin
    change: Table[Change]  # in the order applied
    reset: Table[Int]  # when past use is forgotten
    promised: Table[Real]  # share of each fair-share label, sums to 1
    tree: Table[Branch]  # of fair shares, the root first; empty where they are classic
    sleep: Table[Sleep]  # [P * depths]
    shape: Table[Shape]  # [K]; empty where all jobs ask for whole nodes, as all that follows
    needs: Grid[Int]  # [K, amounts] what a task asks: cores, memory, GPUs, 1, consumables
    whole: Grid[Int]  # [nodes, amounts] what a node has, and `shared.node_resources.ALL`
    typical: Table[Int]  # the most frequent kinds of jobs
    type_at: Table[Int]  # where single GPUs of each type begin, those of none; and where all end
    switch: Table[Switch]
    switch_of: Table[Int]  # [nodes]; empty where it is not known how nodes are connected
    claim: Table[Claim]  # [jobs]; empty where no job preempts another, as all that follows
    yields: Table[Yield]  # classes of jobs
    preempts: Grid[Flag]  # [classes, classes] whose jobs may preempt whose


class State:
    """What changes: a fork copies it."""

    clock: Clock
    state: Table[JobState]
    queue: Table[Int]
    taken: Grid[Int]  # [jobs, P] nodes from each pool; [0, P] with one pool, if nobody is suspended
    ends: Table[Event]  # heap
    run: Table[Run]
    releases: Table[Event]  # heap; job -1 - j: j begins. Empty without dependencies
    stock: Table[Stock]  # [P + C]
    user_running: Grid[Int]  # [Q, users]; [Q, 0] without limits
    held: Table[Held]  # [ceilings]
    used: Table[Used]  # [ceilings of use], which come first
    rank: Table[Real]  # [labels] fair-share factors; empty where fair shares are classic
    usage: Table[Usage]  # [labels + 1], the last for all
    node: Table[Node]
    spent: Grid[Int]  # [nodes, states] time in each power state; [nodes, 0] without
    tail: Grid[Int]  # [nodes, states + 1] … since the last end of a job; the last is that end
    switching: Table[Event]  # nodes by the end of their transition; room for who begins again
    timeouts: Table[Event]  # heap of nodes; an entry holds if the node is still due then
    begins: Table[Event]  # heap of jobs that wait for their nodes
    index: Grid[Int]  # a bit for each node [sets, words], see `nodes`
    summary: Grid[Int]  # a bit for each of these words that is not 0 [sets, words / 64]
    tally: Grid[Int]  # [P, sets + 2 * states] members of each set; see `node_states.standing_in`
    outage: Table[Outage]
    lost: Table[Lost]
    segment: Table[Segment]
    log: Table[Span]
    sharing: Sharing
    share: Table[Share]  # [nodes]
    left: Grid[Int]  # [nodes, amounts] what is free
    part: Table[Part]
    promise: Table[Promise]
    promise_left: Grid[
        Int
    ]  # [promises, amounts] what is free when each starts, all that are promised then taken
    tried: Table[Tried]  # [K]
    freed: Table[Int]  # the nodes that got something back last, a ring
    own: Table[Int]  # what the pass keeps: single numbers,
    kept: Grid[Int]  # … and rows
    power_kept: Grid[Int]  # what the power policy keeps of each node
    cut: Table[Cut]  # [jobs]; empty where no job preempts another
    beneath: Grid[Int]  # [nodes, levels (shared: 0)]; empty where nobody is suspended


class Scratch:
    """Holds nothing between two passes, but for what comes first, which is of things as they are.

    Of that zeros say that nothing is known; it lies together, to be forgotten in one piece.
    """

    race: Race
    walk: Walk
    standing: Standing
    rooms: Rooms
    windows: Windows
    moves: Table[Int]  # [nodes] how often what is on each has changed
    soon_of: Grid[Int]  # [kinds, nodes] stamps, see `shared.earliest_start`
    aligned_at: Table[Int]  # [K] stamps, see `shared.pass_pack`
    plan_time: Table[Int]  # see `plan`
    plan_amount: Grid[Int]  # [rows, P + C]
    plan_rows: Table[Int]  # [1]
    shift: Table[Int]  # [P + C] see `plan`
    low: Table[Int]  # [P + C] least free over a span
    take: Table[Int]  # [P] nodes from each pool
    blocked: Table[Int]  # [P + C]
    not_before: Table[Int]  # [P + C]
    reservations_made: Table[Int]  # [Q] reservations
    order: Table[Scored]  # heap of jobs in order
    ranked: Table[Ranked]  # heap of nodes; empty where a placement scores none
    later: Table[Int]
    stack: Table[Int]
    owed: Table[Int]  # jobs whose reservations are still to be made, in order
    levels: Table[Event]  # heap
    fair: Table[Fair]
    standings: Table[Level]  # [branches]
    line: Table[Int]  # [branches] those to be ranked,
    merged: Table[Int]  # [branches] … and accounts that are one
    spare: Table[Spare]
    free_at: Grid[Int]  # [nodes, amounts] what running jobs leave free at a time
    min_free: Grid[Int]  # [nodes, amounts] least free over a span
    fits: Table[Int]  # [nodes] so many tasks have room
    chosen_nodes: Table[Int]  # [parts of a job, at most] nodes of a job,
    chosen_tasks: Table[Int]  # … its tasks on each,
    of_kind: Table[Int]  # … and of which kind these are
    seats: Grid[Int]  # [nodes, 2] what a placement counts of each node
    seated: Table[
        Int
    ]  # [nodes] tasks of a job whose kinds of tasks are placed one after the other,
    remains: Grid[Int]  # [nodes, amounts] … and what these leave
    stays: Grid[Int]  # [nodes, amounts] … of this
    under_way: Table[Int]  # rows of ``window``
    open_to: Grid[Int]  # [nodes, words] a bit for each kind of job; see `shared.fit_cache`
    open_block: Grid[Int]  # [blocks of nodes, words]
    most: Grid[Int]  # [blocks of nodes, 3] no node of a block has more left
    aligned: Table[Real]  # [K] see `shared.pass_pack`
    listed: Table[Int]  # [nodes] see `shared.release_schedule`
    leaves_at: Grid[Int]  # [nodes, parts]
    leaves_kind: Grid[Int]
    leaves_tasks: Grid[Int]
    soon: Grid[Int]  # [kinds, nodes] see `shared.earliest_start`
    below: Grid[Int]  # [switches, 2] tasks and nodes that have room below each
    scarce: Table[Scarce]
    sums: Table[Sums]
    promise_end: Table[Event]  # when promises end, in order of that, and their first rows
    times: Table[Event]  # heap
    racer: Table[Racer]
    fresh: Table[Int]  # jobs that have no leaf yet
    path: Table[Int]
    group: Table[Group]  # by user, or one more than the first row of ``bound``
    lightest: Table[Lightest]  # [rows of ``bound``]
    back: Table[Int]  # groups of which some may start again
    ahead: Table[Ahead]
    profile: Table[Row]  # see `profile`; empty where reservations do not outlive a pass
    where: Table[Small]  # [2 * stay + 1] place of each row in `profile`
    stay: Table[Stay]
    slot: Table[Small]  # [jobs] row of `stay`
    hole: Table[Hole]
    room: Grid[Int]  # [sizes, holes] how long a hole is for jobs of a size; 0: none fits
    shortest: Grid[Int]  # [buckets, sizes] see `holes`
    least_of: Grid[Int]  # [buckets, sizes] … of a size and those above it
    reach: Grid[Int]  # [sizes, buckets]
    returned: Table[Returned]
    victim: Table[
        Victim
    ]  # [jobs] heap, and behind it those that came off; see `preempting.victims`
    node_span: Table[NodeSpan]  # empty where numbers of nodes are planned
    span_nodes: Grid[Int]  # [spans, words] a bit for each node that is not reserved
    sets: Grid[Int]  # [4 + P, words] sets of nodes
    by_end: Table[Event]  # [nodes] those of running jobs, by planned end
    number_run: Grid[Int]  # [nodes / 2 + 1, 2] runs of numbers: the first, and how many
    clear_until: Table[Int]  # [nodes] when each is reserved for the first time


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

KNOWN, STATE, SCRATCH, NUMBERS = (
    tuple(part.__annotations__) for part in (Known, State, Scratch, Numbers)
)
