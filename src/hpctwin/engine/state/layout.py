"""The engine's arrays: one table for each kind of record, and codes for states.

The arrays are made from the annotations in `records` and in the classes here. Times are ms.
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

# Numbers passed to compiled functions are int64 values: a literal would compile the function once
# more.
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
"""How a running job will end: it is preempted, and waits again."""
SUSPENDED: Any = np.int64(13)
"""How preemption stops a job: it keeps its nodes.

It resumes when other jobs have left them.
"""
STRETCH, PAUSES = np.array([1, 2])
"""Kinds of `records.Lost` if the job was suspended: a stretch of an attempt, an attempt."""

AFTER, AFTERANY, AFTEROK = np.array([0, 1, 2])

(
    FIRST_FIT, BEST_FIT, CONTIGUOUS, RANDOM, SPREAD, SCORED, WHOLE_BLOCKS, FEWEST_SWITCHES,
    COMMUNICATION_AWARE,
) = np.arange(9)  # fmt: skip

# If counting decides: which jobs may start once one job does not fit; see `counted_passes`.
NOBODY_PASSES, ANYONE_PASSES, HEAD_IS_PROTECTED, ALL_RESERVE = np.arange(4)

# Which nodes of a pool first and best fit take; others than the lowest only with power states.
LOWEST, SOONEST, LEAST_DRAW, GIVEN = np.arange(4)

# Power states of a node. Each sleep depth has its own last three states.
IDLE, COMPUTING, SWITCHING_OFF, ASLEEP, SWITCHING_ON = np.arange(5)
DEPTH_STATES = np.int64(3)

# Sets of nodes, see `node_sets`; the last one once for each depth. Without power states only the
# first.
_SETS: Any = np.arange(6)
FREE_NODES, AWAKE_NODES, IDLE_NODES, IDLE_OVER, ASLEEP_OVER, ASLEEP_NODES = _SETS

# By what label the state of an ordering is kept.
BY_USER, BY_ACCOUNT = np.arange(1, 3)

# Which of the nodes that are not active jobs may get.
ALL_NODES, NOT_SWITCHING_OFF, ONLY_ACTIVE = np.arange(3)

# Amounts of every shared node: cores, memory, GPUs, and being alone on it; consumables come after.
AMOUNTS = 4

BLOCK = 32
"""Number of shared nodes in a block.

For each block it is recorded which kinds of jobs may fit.
"""

WORDS, BITS = 8, 64
"""Limits of the bit sets that record which kinds of jobs do not fit on a node.

They cover ``WORDS`` times ``BITS`` kinds.
"""

SOON = 64
"""Number of kinds of jobs for which it is recorded when they fit on each node."""

LISTED = 256
"""Maximum number of jobs on a node that are listed by planned end."""

OVERDUE_STEP = 60_000
"""Step of the expected end of overdue jobs, ms.

Such a job is expected to end at the next multiple of this after its planned end.
"""

GIVE_UP = 10 * 365 * 86_400_000
"""Time after which pending jobs are given up, ms.

It counts while only node failures and timers are left to happen.
"""

# Return codes of `advance`.
DONE, REACHED, STEPPED, NEED_OUTAGES, NEED_ROOM, NEED_PASS, NEED_RACE, NOT_A_NUMBER = np.array(
    range(8)
)
PASS = np.int64(8)  # internal only: a scheduling pass is due

RACE_SORTED, RACE_CHANGING, RACE_SHARED, RACE_LIMITED = 400, 500, 600, 15_000
"""Numbers of pending jobs from which a tournament pays (`priority_tournament`).

They are for an order that stays, an order that changes with time, one with fair share, and an order
that stays if `limits` hold jobs back.
"""

LINES_FROM = 8
"""Number of pending jobs from which their lines are scanned (`score_line_scan`).

This is for an order that changes with time.
"""

UNRACED, RACED, LINED = np.array([0, 1, 2])
"""Index of the pending jobs: none, a tournament, or a list of their lines."""

SIZES, BUCKETS = 64, 64
"""Maximum numbers of sizes and times in the index of holes (`gap_index`)."""

HOLES = 16_384
"""Maximum number of holes."""


class Racer:
    """A node of the tournament: a pending job, or the summary of its subtree."""

    nodes: Small  # minimum in the subtree
    job: Small  # the first job in order; -1 if there is none
    leaf: Small  # leaf of that job
    label: Small  # fair-share label of all jobs; 0 if fair share is not used, -1 for several
    group: Int  # limit group of all jobs; 0 if no limit applies, -1 for several
    expected: Int  # minimum expected runtime
    until: Int  # time at which the first job must be determined again
    slope: Real  # line of the first job: score per ms,
    level: Real  # … and score at time 0


class Group:
    """Pending jobs under the same limits; see `priority_tournament`."""

    first: Int  # its leaves in the tournament as built; 0 if it has none
    last: Int
    end: Int  # end of its rows of `Known.bound`, which begin at its number - 1
    room: Int  # maximum number of nodes of its jobs; 0: none may start


class Lightest:
    """The smallest charge of pending jobs under one of their limits; see `limits`."""

    charge: Int
    each: Int  # … per node


class Returned:
    """A job whose nodes became free for a span, other than planned."""

    job: Int
    start: Int
    end: Int


class Row:
    """A row of a kept plan: from a time on, a number of nodes is free."""

    time: Int
    free: Small
    row: Small  # row number, see `Stay`; 0: the present


class Hole:
    """A span of a kept plan in which nodes became free; see `gap_index`."""

    start: Int
    end: Int
    fresh: Int  # 1: it arose since the last pass in which jobs may have moved


class Stay:
    """A job in a kept plan; it begins in row ``2 i + 1`` and ends in row ``2 i + 2``."""

    job: Int  # if there is none: the next free place, plus 1; 0: none
    expected: Int
    start: Int  # start of its reservation; -1 if it runs
    nodes: Small
    size: Small  # half octave of the nodes


class Standing:
    """The state of a plan that is kept from pass to pass."""

    valid: Int  # 1: it holds all running jobs and all reservations
    returned: Int  # jobs that returned nodes other than planned since the last pass
    slots: Int  # places of jobs in use
    spare: Int  # the first free place, plus 1; 0: none
    first: Int  # first row of `Scratch.profile` in use
    last: Int
    sizes: Int  # number of possible sizes of jobs
    holes: Int  # number of holes
    since: Int  # buckets of jobs and holes by start: begin of the first,
    shift: Int  # … length of each, as a power of two,
    buckets: Int  # … their number


class Race:
    """The state of the tournament, or of the list of lines that replaces it."""

    done: Int  # 1: it has done this pass
    valid: Int  # RACED or LINED: all pending jobs are in it, or among the fresh ones
    failed: Int  # 1: it cannot be built
    leaves: Int
    built: Int  # leaves used when it was built
    seated: Int  # leaves used now
    steps: Int  # nodes visited since
    fresh: Int  # jobs that have arrived since
    gone: Int  # jobs of the queue that are no longer pending
    unsorted: Int  # jobs at the end of the queue that are not sorted yet
    back: Int  # number of groups in which jobs may start again since the last pass
    fewest: Int  # list of lines: minimum number of nodes,
    until: Int  # … and time until which all lines are valid


class Ahead:
    """The fields of a job that a walk along the queue reads first."""

    nodes: Int
    expected: Int


class Walk:
    """The last walk along a sorted queue; see `counted_passes`."""

    valid: Int  # 1: since then the queue has only grown, at its end
    known: Int  # number of jobs, from the first, that are in `Scratch.ahead`
    fewest: Int  # minimum number of nodes of these
    settled: Int  # 1: as long as nothing becomes free,
    seen: Int  # … this number of jobs, from the first, cannot start
    head: Int  # 1: one of them is the head job,
    shadow: Int  # … which starts then,
    spare: Int  # … with this number of nodes to spare
    free: Int  # state at that time: free nodes,
    down: Int
    running: Int  # … running jobs,
    starts: Int
    tight: Int  # row of the plan at which a candidate did not fit


class Rooms:
    """Data derived from the use of shared nodes."""

    valid: Int  # 1: it is valid
    first: Int  # the first node on which a job was found to fit
    sought: Int  # the job whose earliest start was searched last, plus 1,
    times: Int  # … and how often since another job's was
    later: Int  # time from which a job must fit if others leave; see `preempting.held_parts`
    found: Int  # 1: it does
    spans: Int  # rows of `Scratch.node_span` in use, if whole nodes are reserved for jobs
    ends: Int  # rows of `Scratch.by_end` in use; -1 if they must be listed first
    sums: Int  # rows of `Scratch.sums` in use; 0: they are not valid, nor is …
    promised: Int  # … the number of jobs with reserved nodes, in `Scratch.promise_end`
    searches: Int  # number of searches for an earliest start in a pass
    table: Int  # 1: `Scratch.free_cores` is valid, like the sums
    bounded: Int  # 1: `Scratch.least_cores` is valid for the job and span that are tried next
    pruned: Int  # 1: `Share.since` and `Promise.ahead` leave out what has ended before a span
    spanned: Int  # row before which `Scratch.least_later` holds what is least; -1: none
    linked: Int  # 1: reservations are on their nodes, and know what is left when they begin


class Sums:
    """Sum of free amounts of all shared nodes from a time on; see `shared.total_free`."""

    cores: Int
    memory: Int
    gpus: Int
    cells: Int  # its row of `Scratch.free_cores`


class Scarce:
    """The last time in a span at which each amount of a shared node is at its minimum."""

    cores: Int
    memory: Int
    gpus: Int
    alone: Int
    until: Int  # time until which that leaves no more of a job's tasks fit


class Windows:
    """Maintenance under way, and how far the plan knows maintenance to come.

    See `maintenance_windows` and `plan`.
    """

    valid: Int  # 1: the numbers of windows are valid
    at: Int  # … at this time
    begun: Int  # number of windows, from the first, that have begun
    under_way: Int  # number of these that are not over
    planned: Int  # number of changes, from the first, in the plan,
    known: Int  # … and last time before the next change


class Spare:
    """Idle nodes: how many of a group may be switched off, and how many of a pool."""

    idle: Int  # idle nodes of the group, at its first pool
    allowed: Int


class Rules:
    """Numbers that define the policy."""

    pools: Int
    placement: Int
    preferred: Int  # LOWEST …
    terminate: Int  # 1: walltimes end jobs
    hold_dependents: Int  # 1: a job whose dependency failed waits forever
    requeue: Int  # 1: a job whose node failed waits again
    order_changes: Int  # 1: the ordering depends on time
    order_power: Real  # scores are lines over time, maybe with bends, to this power; 0 if unknown
    order_exact: Int  # 1: equal lines without a slope are equal scores
    race_from: Int  # pending jobs from which a tournament pays off; NEVER if it could differ
    lines_from: Int  # number of pending jobs from which their lines are scanned
    others: Int  # if counting decides: NOBODY_PASSES …; -1 if it never does
    own_candidates: Int  # 1: candidates have a separate ordering
    fairshare: Int  # 1: an ordering uses fairshare or usage
    chains: Int  # 1: the ordering uses the chain
    facts: Int  # 1: an ordering or placement uses `Known.fact`
    user_state: Int  # BY_USER or BY_ACCOUNT: the ordering has state; 0: it has none
    in_order: Int  # 1: no job starts ahead of its turn
    outage_horizon: Int  # time up to which outages are known
    cleanup: Int  # time after a job's end until its nodes are free, ms
    machine_nodes: Int
    decay: Real  # decay of fair-share usage, per ms
    fair_every: Int  # period of ranking the tree of fair shares, ms
    shown: Int  # ALL_NODES …: which nodes that are not active jobs may get
    depths: Int  # number of sleep depths; 0 if nodes have no power states
    log: Int  # 1: past power states are recorded
    promises: Int  # maximum number of rows of `State.promise` in use
    by_node: Int  # maximum number of jobs that reserve particular nodes in a pass
    stepped: Int  # 1: after the last of limited event times, stop before the clock advances
    youngest_first: Int  # 1: of jobs that may be preempted, the last started is first
    sent_back_for: Int  # time until a requeued job may start again, ms


class Hooks:
    """Addresses of compiled functions; 0 for none."""

    order: Int
    candidates: Int
    score: Int  # scores a job if the ordering has state
    started: Int  # the ordering's functions for jobs that start and end,
    ended: Int
    note_start: Int  # … and kernels that call them on shared nodes
    note_end: Int
    place: Int
    advance: Int  # the event loop itself
    run_pass: Int  # 0: not compiled, as counting may always decide
    run_race: Int  # replaces it if the queue is long and counting decides
    run_lined: Int  # replaces it in shorter queues whose order changes with time
    run_counted: Int  # replaces it if counting decides
    start: Int  # starts a job on the chosen nodes
    place_nodes: Int  # if nodes have identity
    place_by_score: Int
    build_plan: Int
    reach_plan: Int  # extends maintenance in the plan up to a time
    entered: Int
    left: Int
    reserved: Int
    gave_back: Int  # returns the nodes of a job: on shared nodes, or if the ordering has state
    choose: Int  # chooses shared nodes for a job
    fits_later: Int  # whether a job fits on shared nodes if others leave
    wake: Int  # resumes suspended jobs before a pass
    before_pass: Int
    after_pass: Int


class Known:
    """Jobs and cluster, shared by forks.

    P is the number of pools, C of resources, K of kinds of job, Q of partitions.
    """

    job: Table[Job]
    fact: Table[Fact]
    asks: Grid[Int]  # [jobs, C]
    by_submit: Table[Int]  # jobs by submit time
    by_cancel: Table[Int]  # jobs with a cancel time, by it
    tells: Table[Edge]  # by the job that others wait for
    waits: Table[Int]  # jobs that are waited for, by the waiting job
    amount: Table[Int]  # [P + C] nodes of the pools, then amounts of the resources
    pool: Table[Pool]
    pool_fact: Table[PoolFact]
    by_pool: Table[Int]  # node numbers by pool; empty if nodes are only counted
    pool_of: Table[Int]  # [nodes]
    eligible: Grid[Flag]  # [K, P] pools that a kind of job may use
    partition: Table[Int]  # [K]
    user_limit: Table[Int]  # [Q] running jobs per user; 0 for no limit
    partition_fact: Table[PartitionFact]  # [Q]
    bound: Table[Bound]  # of all users, accounts and QOS; empty without limits, like the next three
    bounds: Grid[Int]  # [jobs, 3] rows of ``bound``: first, end for running, end for submitted jobs
    charge: Grid[Int]  # [jobs, measures] what a job counts
    ceiling: Table[Ceiling]
    window: Table[Window]  # by begin
    change: Table[Change]  # in the order of application
    reset: Table[Int]  # times at which past usage is reset
    promised: Table[Real]  # share of each fair-share label; the sum is 1
    tree: Table[Branch]  # tree of fair shares, the root first; empty if they are classic
    sleep: Table[Sleep]  # [P * depths]
    shape: Table[Shape]  # [K]; empty if all jobs request whole nodes, like the next four
    needs: Grid[Int]  # [K, amounts] request of a task: cores, memory, GPUs, 1, consumables
    whole: Grid[Int]  # [nodes, amounts] a node's amounts; alone: `shared.node_resources.ALL`
    typical: Table[Int]  # the most frequent kinds of jobs
    type_at: Table[Int]  # [types + 2] begin of a type's single GPUs, of untyped ones; the end
    switch: Table[Switch]
    switch_of: Table[Int]  # [nodes]; empty if the network is unknown
    claim: Table[Claim]  # [jobs]; empty if no job preempts another, like the next two
    yields: Table[Yield]  # classes of jobs
    preempts: Grid[Flag]  # [classes, classes] 1: jobs of the first may preempt jobs of the second


class State:
    """Data that change; a fork copies them."""

    clock: Clock
    state: Table[JobState]
    queue: Table[Int]
    taken: Grid[Int]  # [jobs, P] nodes of each pool; [0, P] with one pool and without suspension
    ends: Table[Event]  # heap
    run: Table[Run]
    releases: Table[Event]  # heap; job -1 - j: job j begins. Empty without dependencies
    stock: Table[Stock]  # [P + C]
    user_running: Grid[Int]  # [Q, users]; [Q, 0] without limits
    user_state: Grid[Real]  # [users or accounts + 1, numbers] the ordering's; unknown ones first
    held: Table[Held]  # [ceilings]
    used: Table[Used]  # [ceilings on past usage], which come first
    rank: Table[Real]  # [labels] fair-share factors; empty if fair shares are classic
    usage: Table[Usage]  # [labels + 1], the last for all
    node: Table[Node]
    spent: Grid[Int]  # [nodes, states] time in each power state; [nodes, 0] without power states
    tail: Grid[Int]  # [nodes, states + 1] … since the last job end; the last column is that end
    switching: Table[Event]  # nodes by the end of their transition; rows for one more of each
    timeouts: Table[Event]  # heap of nodes; an entry is valid if the node's timeout still ends then
    begins: Table[Event]  # heap of jobs that wait for their nodes
    index: Grid[Int]  # a bit for each node [sets, words], see `node_sets`
    summary: Grid[Int]  # a bit for each of these words that is not 0 [sets, words / 64]
    tally: Grid[Int]  # [P, sets + 2 * states] members of sets; see `node_states.standing_in`
    outage: Table[Outage]
    lost: Table[Lost]
    segment: Table[Segment]
    log: Table[Span]
    sharing: Sharing
    share: Table[Share]  # [nodes]
    left: Grid[Int]  # [nodes, amounts] what is free
    part: Table[Part]
    promise: Table[Promise]
    promise_left: Grid[Int]  # [promises, amounts] free at the start of each, after all reservations
    tried: Table[Tried]  # [K]
    freed: Table[Int]  # ring of the nodes that last got something back
    own: Table[Int]  # data of the pass: single numbers,
    kept: Grid[Int]  # … and rows
    power_kept: Grid[Int]  # data of the power policy for each node
    cut: Table[Cut]  # [jobs]; empty if no job preempts another
    beneath: Grid[Int]  # [nodes, levels (shared: 0)]; empty without suspension


class Scratch:
    """Scratch memory; most of it holds nothing between two passes.

    Only the first arrays do: they hold data derived from the present state. Zeros mean that nothing
    is derived yet. These arrays are contiguous, so that they can be reset in one step.
    """

    race: Race
    walk: Walk
    standing: Standing
    rooms: Rooms
    windows: Windows
    moves: Table[Int]  # [nodes] how often the use of each node has changed
    near: Table[Int]  # [nodes] reservation that was visited last, plus 1; see `reservation_list`
    soon_of: Grid[Int]  # [kinds, nodes] stamps, see `shared.earliest_start`
    aligned_at: Table[Int]  # [K] stamps, see `shared.passes.pack`
    plan_time: Table[Int]  # see `plan`
    plan_amount: Grid[Int]  # [rows, P + C]
    plan_rows: Table[Int]  # [1]
    shift: Table[Int]  # [P + C] see `plan`
    low: Table[Int]  # [P + C] minimum of free amounts over a span
    take: Table[Int]  # [P] nodes from each pool
    blocked: Table[Int]  # [P + C]
    not_before: Table[Int]  # [P + C]
    reservations_made: Table[Int]  # [Q] reservations
    order: Table[Scored]  # heap of jobs in order
    ranked: Table[Ranked]  # heap of nodes; empty if no placement scores nodes
    later: Table[Int]
    stack: Table[Int]
    owed: Table[Int]  # jobs whose reservations are still to be made, in order
    levels: Table[Event]  # heap
    fair: Table[Fair]
    standings: Table[Level]  # [branches]
    line: Table[Int]  # [branches] branches to be ranked,
    merged: Table[Int]  # [branches] … and accounts that are merged
    spare: Table[Spare]
    free_at: Grid[Int]  # [nodes, amounts] what running jobs leave free at a time
    min_free: Grid[Int]  # [nodes, amounts] minimum of free amounts over a span
    fits: Table[Int]  # [nodes] number of tasks that fit
    chosen_nodes: Table[Int]  # [maximum number of parts of a job] nodes of a job,
    chosen_tasks: Table[Int]  # … its tasks on each,
    of_kind: Table[Int]  # … and the kind of these
    seats: Grid[Int]  # [nodes, 2] what a placement counts for each node
    seated: Table[Int]  # [nodes] tasks of a job placed so far, one kind after the other,
    remains: Grid[Int]  # [nodes, amounts] … free amounts after these,
    stays: Grid[Int]  # [nodes, amounts] … and before these
    under_way: Table[Int]  # rows of ``window``
    open_to: Grid[Int]  # [nodes, words] a bit for each kind of job; see `shared.fit_cache`
    open_block: Grid[Int]  # [blocks of nodes, words]
    most: Grid[Int]  # [blocks of nodes, 3] no node of a block has more free
    aligned: Table[Real]  # [K] see `shared.passes.pack`
    listed: Table[Int]  # [nodes] see `shared.release_schedule`
    leaves_at: Grid[Int]  # [nodes, parts]
    leaves_kind: Grid[Int]
    leaves_tasks: Grid[Int]
    soon: Grid[Int]  # [kinds, nodes] see `shared.earliest_start`
    below: Grid[Int]  # [switches, 2] tasks and nodes that fit below each
    scarce: Table[Scarce]
    sum_time: Table[Int]  # when each row of ``sums`` begins
    sums: Table[Sums]
    free_cores: Grid[Small]  # [rows, nodes] see `shared.free_table`
    least_cores: Table[Small]  # [nodes]
    least_later: Table[Small]  # [nodes]
    promise_end: Table[Event]  # ends of reservations, sorted, and their first rows
    times: Table[Event]  # heap
    racer: Table[Racer]
    fresh: Table[Int]  # jobs that have no leaf yet
    path: Table[Int]
    group: Table[Group]  # by user, or one more than the first row of ``bound``
    lightest: Table[Lightest]  # [rows of ``bound``]
    back: Table[Int]  # groups in which jobs may start again
    ahead: Table[Ahead]
    profile: Table[Row]  # see `availability_profile`; empty if reservations do not outlive a pass
    where: Table[Small]  # [2 * stay + 1] place of each row in `profile`
    stay: Table[Stay]
    slot: Table[Small]  # [jobs] row of `stay`
    hole: Table[Hole]
    room: Grid[Int]  # [sizes, holes] length of a hole for jobs of a size; 0: none fits
    shortest: Grid[Int]  # [buckets, sizes] see `gap_index`
    least_of: Grid[Int]  # [buckets, sizes] … of a size and larger ones
    reach: Grid[Int]  # [sizes, buckets]
    returned: Table[Returned]
    victim: Table[Victim]  # [jobs] heap, and behind it jobs taken off it; see `preempting.victims`
    node_span: Table[NodeSpan]  # empty if nodes are only counted
    span_nodes: Grid[Int]  # [spans, words] a bit for each node that is not reserved
    sets: Grid[Int]  # [4 + P, words] sets of nodes
    by_end: Table[Event]  # [nodes] nodes of running jobs, by planned end
    number_run: Grid[Int]  # [nodes / 2 + 1, 2] runs of numbers: the first, and the length
    clear_until: Table[Int]  # [nodes] first time at which each is reserved


class Numbers:
    """The policy."""

    rules: Rules
    hooks: Hooks
    numbers: Table[Int]  # settings of the pass
    power_numbers: Table[Int]  # settings of the power policy


class Arrays(Known, State, Scratch, Numbers):
    """All arrays of a simulation, as its kernels see them."""


def fields(record: type) -> dict[str, str]:
    """Return the fields of a record and their NumPy types."""
    hints = get_type_hints(record, include_extras=True)
    return {name: get_args(hint)[1] for name, hint in hints.items()}


@lru_cache(maxsize=64)
def record_type(record: type) -> np.dtype[Any]:
    """Return the NumPy type of a record.

    It must have no gaps: copying a record would leave their bytes undefined.
    """
    found = np.dtype(list(fields(record).items()))
    assert found.itemsize == np.dtype(list(fields(record).items()), align=True).itemsize, record
    return found


def kind_of(hint: Any) -> tuple[np.dtype[Any], type | None, int]:
    """Return NumPy type, record and number of dimensions of an annotation.

    The record is None for numbers; a single record has 0 dimensions.
    """
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
