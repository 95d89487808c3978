"""The engine's records: their fields, and how kernels read tables of them.

Rows are records: a kernel reads ``sim.job[j].nodes``, ``sim.state[j].start``, ``sim.clock.now``.
Times are in ms.
"""

from __future__ import annotations

from typing import Annotated, Protocol, TypeVar

Int = Annotated[int, "i8"]
# Settings of a policy have a unit: 1 or more; 1 or more, or 0 for any; ms; ms, at least 1; 0 or 1.
Count = Annotated[int, "i8", "count"]
Limit = Annotated[int, "i8", "limit"]
Millis = Annotated[int, "i8", "ms"]
Step = Annotated[int, "i8", "step"]
YesNo = Annotated[int, "i8", "flag"]
Small = Annotated[int, "i4"]
Short = Annotated[int, "i2"]
Flag = Annotated[int, "i1"]
Real = Annotated[float, "f8"]

R = TypeVar("R")


class Table(Protocol[R]):
    """Rows of one kind, as a kernel sees them."""

    def __getitem__(self, row: int) -> R:
        """Return one row."""
        ...

    def __setitem__(self, row: int, value: R) -> None:
        """Write a number; rows that are records are written field by field."""
        ...

    def __len__(self) -> int:
        """Return the number of rows."""
        ...


class Grid(Protocol[R]):
    """Numbers in rows and columns, as a kernel sees them."""

    width: int

    def __getitem__(self, place: tuple[int, int]) -> R:
        """Return one number."""
        ...

    def __setitem__(self, place: tuple[int, int], value: R) -> None:
        """Write one number."""
        ...

    def __len__(self) -> int:
        """Return the number of rows."""
        ...


class Job:
    """Known data of a job."""

    expected: Int  # runtime that the scheduler expects
    nodes: Int
    submit: Int
    limit: Int  # walltime
    runtime: Int  # read only by events, never by a pass
    rank: Small  # rank of its id
    kind: Small  # row of `Known.eligible` and `Known.shape`
    user: Small  # column of `State.user_running`; 0 if unknown
    share: Small  # row of `State.usage`
    rejected: Small  # 1: it can never run here
    fails: Short  # 1: it fails at the end of its runtime
    thinks: Short  # 1: its user submits it when it becomes eligible, not at ``submit``
    cancel: Int  # time of cancellation, not before submission; NEVER
    level: Small  # most dependencies in a chain of jobs that wait for it
    counts: Small  # weight of its usage for fair shares, in thousandths
    waits_from: Small  # rows of `Known.waits`: the jobs it waits for
    waits_to: Small
    tells_from: Small  # rows of `Known.tells`: the jobs that wait for it
    tells_to: Small


class Bound:
    """One of the limits that apply to jobs of a user, account and QOS; see `limits`."""

    ceiling: Int  # row of `Known.ceiling`
    measure: Int  # column of `Known.charge`
    holds: Int  # 0: these jobs count, but are not held back
    weight: Real  # factor from a job's charge to the limit's amount,
    own: Real  # … for a job about to start, whose walltime counts
    seen: Int  # 0: other jobs' usage, past or current, holds none of these jobs back


class Ceiling:
    """How much all jobs that count under a limit may have."""

    most: Int
    timed: Int  # 1: a limit on amounts times seconds, which are the sum of:
    left: Int  # … 1: the rest of the walltimes of running jobs,
    used: Int  # … 1: past usage,
    own: Int  # … 1: the walltime of the job about to start
    minute: Int  # for past usage: one minute of one unit, as `Used.amount` counts it
    decay: Real  # decay of past usage, per ms; 0: none


class Held:
    """The present amounts of the jobs that count under a limit."""

    amount: Int
    until: Int  # if the limit is timed: sum of amounts times `limits.counts_until`


class Used:
    """What jobs that count under a limit have used in the past."""

    amount: Real  # decayed, times ms
    at: Int  # time at which it was computed


class Branch:
    """A user in an account, or an account, in the tree of fair shares.

    Parents come before their children.
    """

    parent: Int  # -1: none
    label: Int  # row of `State.usage`; -1 for an account
    share: Real  # share among its siblings; -1: it is ignored, and ranks first
    first: Int  # first row below it,
    last: Int  # … row after the last


class Shape:
    """The request of a kind of job for shared nodes, except the amounts of a task."""

    tasks: Int
    nodes: Int  # minimum number of nodes
    most: Int  # maximum number of its tasks on a node
    exclusive: Int  # 1: it shares its nodes with no other job
    shared_with: Int  # 1: its nodes are shared only with jobs of its user; 2: of its account
    spread: Int  # 1: it uses as many nodes as possible
    user: Int  # number of its user, if any job has ``shared_with``
    account: Int
    charge: Real  # number of nodes for which it counts in fair shares
    popularity: Int  # number of jobs of this kind
    more: Int  # for a job with tasks of several kinds: the kind of the next tasks, -1
    among: Int  # if its nodes must be of one set: its kind on the first; there: on the next; -1
    of: Int  # the kind of job that this kind is made for, or itself
    parts: Int  # maximum number of parts of nodes that its tasks use
    gpus: Int  # GPUs of a node that it requests, if they are counted one by one; 0: none
    typed: Int  # 1: it requests types of GPUs
    part_on: Small  # kind that holds a task's fraction of the first GPU; others follow
    whole_on: Small  # … and a whole GPU


class Claim:
    """Which jobs a job may preempt, and what happens to it if it is preempted."""

    standing: Int  # row of `Known.yields`
    checkpoint: Int  # time it runs between checkpoints; 0: it writes none


class Yield:
    """A class of jobs; jobs of some classes may preempt jobs of others."""

    level: Int  # higher than that of all classes whose jobs they may preempt
    rank: Int  # jobs of lower rank are preempted first
    mode: Int  # how preemption ends them: PREEMPTED, SENT_BACK, …; 0: they are not preempted
    grace: Int  # time between preemption and when its nodes are free, after the cleanup
    exempt: Int  # time that they must have run before


class Cut:
    """Effects of preemption on a job, by it or for it."""

    times: Int  # number of times it was preempted
    lost: Int  # runtime lost by that
    done: Int  # part of its runtime that checkpoints keep
    leaves: Int  # time at which its nodes are free, as it was preempted; 0: it was not
    tried: Int  # 1: the pass tests whether it suffices that it leaves then, or is suspended
    waits: Int  # until then it preempts no job: jobs that it preempted are still leaving
    suspended: Int  # 1: it is; its start then assumes that it resumes when the jobs above it end
    covered: Int  # number of its nodes that other jobs have
    ran: Int  # time it had run when it was suspended,
    left: Int  # … and remaining time after that
    pauses: Int  # number of times it was suspended since it started
    paused: Int  # its suspended time, by which ``state.start`` is later than its actual start
    before: Int  # suspended time of earlier attempts
    since: Int  # time of its last resumption
    until: Int  # expected end of all jobs on its nodes


class Victim:
    """A job that may be preempted, while victims are chosen."""

    first: Int  # smallest first, …
    second: Int  # … then by this
    job: Int


class NodeSpan:
    """A span of time in a plan of particular nodes; see `node_reservations`."""

    begin: Int
    end: Int
    next: Int  # the next span; -1


class Fact:
    """Further data of a job that orderings see; see `policy_views.JobView`."""

    cores: Real
    gpus: Real
    memory_gb: Real
    user: Int
    account: Int
    partition: Int
    qos: Int
    partition_priority: Real
    qos_priority: Real
    priority: Real
    dominant: Real
    load: Real
    cpu: Real
    memory_mb: Real
    risk: Real
    predicted_runtime: Real
    predicted_power: Real
    communication: Real


class Edge:
    """A dependency of a job on another."""

    job: Int  # the job that waits
    kind: Int
    delay: Int


class Pool:
    """Nodes that are interchangeable and only counted."""

    speed: Real
    top: Int  # the speed as a fraction, see `node_speeds`
    bottom: Int
    first: Int  # places in `Known.by_pool`
    last: Int  # place after the last
    group: Int  # first pool of the same node group
    keep: Int  # number of idle nodes of the group that are never switched off


class Switch:
    """A network switch; all switches below it come before it."""

    above: Int  # the switch above; -1
    height: Int  # 0 if nodes are connected to it


class PoolFact:
    """Further data of a pool's nodes that placements see; see `policy_views.NodeView`."""

    group: Real
    cores: Real
    gpus: Real
    memory_gb: Real
    idle_w: Real
    active_w: Real
    weight: Real


class PartitionFact:
    """Further data of a partition that passes see."""

    priority: Real
    backfill_depth: Int  # number of its jobs with reservations under ``pbs``; -1: not set


class Window:
    """A maintenance window.

    With a negative amount, more of a resource is available for a time.
    """

    start: Int
    end: Int
    pool: Int  # or resource
    amount: Int  # amount that is unavailable


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
    off_w: Real  # power draw of a node on its way there,
    on_w: Real  # … on its way back,
    asleep_w: Real  # … and asleep
    timeout: Int  # time idle, or in the depth before, until it goes to this depth; NEVER


class Clock:
    """The simulation's single numbers."""

    now: Int
    ended: Int  # last end of a job that ran; -1
    instants: Int
    alive: Int  # jobs that have not ended
    arrived: Int  # number of jobs of `by_submit` that have been submitted
    arrival_end: Int  # … and that will be
    submitted: Int  # submitted jobs so far, including jobs that are no longer there
    queued: Int
    moves: Int  # number of times a job entered the queue, or left it without a start
    running: Int
    run_first: Int  # places of `run` in use, holes included,
    run_end: Int  # … up to here
    starts: Int
    ends: Int  # entries of heaps
    releases: Int
    switching: Int
    timeouts: Int
    begins: Int
    touched: Int  # first node that has changed since the last pass, + 1; 0 for none
    cancels_done: Int
    changes_done: Int
    resets_done: Int
    outages_done: Int
    lost: Int  # rows of records in use
    segments: Int
    logged: Int
    pass_due: Int
    timer: Int  # next time that is an event time even if nothing else happens then
    ranked: Int  # period in which the tree of fair shares was last ranked; -1
    timed: Int  # running jobs that count under a limit that only time can lift
    faults: Int  # node failures and repairs so far
    came_back: Int  # 1: capacity has returned other than planned since the last pass
    unpowered: Int  # nodes that are hidden
    wake_at: Int  # time at which to check whether nodes must be woken
    random: Int
    stop_job: Int  # stop when this job has started; -1
    bad_job: Int  # job whose score is not a number; -1
    bad_node: Int  # node with which it was scored; -1 for the score of its place in the queue
    only_outages_since: Int  # time since which only node failures and timers are left; -1


class JobState:
    """The state of a job; -1 for times that have not come."""

    eligible: Int
    start: Int
    end: Int  # its end; while it runs, the future one
    release: Int  # latest time at which one of its dependencies was satisfied
    chain: Int  # longest chain of expected runtimes of jobs that wait for it
    key: Real  # score, if the ordering does not change with time
    open: Small  # dependencies that are not satisfied yet
    requeues: Small
    first_node: Small
    phase: Flag
    outcome: Flag  # phase it will end in
    started: Flag  # 1: it has started at least once, for jobs that wait for its start
    dead: Flag  # 1: a dependency failed


class Event:
    """An entry of a heap: a time, and the job or node to which something happens."""

    time: Int
    job: Int


class Run:
    """A running job, by planned end; see `running_jobs`."""

    planned: Int
    job: Int  # -1: a hole


class Stock:
    """The present amount of a pool or resource."""

    free: Int  # negative in maintenance with overdue jobs
    down: Int  # failed nodes


class Usage:
    """The usage of a fair-share label."""

    used: Real  # node-ms
    at: Real  # time at which it was computed
    nodes: Real  # nodes in use


class Node:
    """The state of a node."""

    job: Small  # the job on it, -1
    down: Short  # present outages
    hidden: Short  # 1: jobs cannot get it because it is not active
    next: Small  # next node of the same job, -1
    power: Short
    depth: Short  # the sleep depth it is in, or in transition to or from
    ready: Int  # end of its transition
    boot: Int  # time from then until it is active
    since: Int  # time at which it entered its power state
    place: Small  # place in `Known.by_pool`
    touched: Small  # next node that has changed, + 2; 1 for none; 0 if this one has not


class Share:
    """The use of a node that jobs share."""

    jobs: Int
    part: Int  # the first of its parts, -1
    promise: Int  # the first of its reservations, which are sorted by start; -1
    since: Int  # in a search for a start: the first of them that has not ended by then, -1


class Part:
    """Tasks of a job on a node, from their start there.

    Rows of parts that have ended stay as a record.
    """

    job: Int
    start: Int
    planned: Int  # planned end
    node: Small
    tasks: Small
    next: Small  # next part of the same job, -1
    after: Small  # next part on the same node, -1
    before: Small
    kind: Small  # kind of the job, or of its tasks here if they are of several kinds


class Promise:
    """Tasks of a pending job, on a node that is reserved for them."""

    job: Int
    start: Int
    end: Int
    node: Int  # -1: the row is free
    tasks: Int  # or all that the node has, -1
    kind: Int
    next: Int  # next row of the same job, or next free row, -1
    after: Int  # next row on the same node, -1
    before: Int  # … and the row before, -1
    reach: Int  # the last end of it and of all rows before it on the node
    ahead: Int  # in a search for a start: the same, without rows that have ended by then
    first: Int  # 1: the first row of its job


class Tried:
    """When a kind of job was last tried on the free nodes, and did not fit."""

    at: Int  # value of `Sharing.freed`
    short: Int  # number of tasks that did not fit; 0 if it may fit
    faults: Int  # value of `Clock.faults` when ``held`` was determined
    held: Int  # 1: the nodes that are up could hold it
    waiting: Int  # number of pending jobs of the kind
    look: Int  # value of `Sharing.looks` when a job of the kind …
    length: Int  # … with this expected runtime did not fit next to the reservations
    below: Int  # in a tournament: only jobs with a shorter expected runtime are searched


class Sharing:
    """Single numbers of shared nodes."""

    parts: Int  # rows in use
    owners: Int  # 1: it matters whose jobs are on a node
    gpus: Int  # maximum number of GPUs of a node that are counted one by one, in the last columns
    types: Int  # number of their types, in the columns before these
    promises: Int
    spare: Int  # the first free row of reservations, plus 1; 0: none
    freed: Int  # number of times a node got something back
    faults: Int  # value of `Clock.faults` in the last pass
    chosen: Int  # number of nodes that the placement has chosen
    before: Int  # number of these for earlier kinds of the job's tasks
    kind: Int  # kind of the tasks that nodes are chosen for
    laid: Int  # 1: the placement has also chosen their GPUs
    looks: Int  # number of times that passes began to start jobs; in between nothing becomes free
    turn: Int  # the node after the last one on which a job started
    widest: Int  # maximum number of nodes of a job
    counted: Int  # 1: in a search for a start, the next two numbers are known
    tasks_short: Int  # number of the job's tasks that do not fit; 0 or less: all fit
    nodes_short: Int


class Outage:
    """A node fails (sign -1) or returns (+1)."""

    time: Int
    node: Int
    sign: Int


class Lost:
    """An attempt that ended by a failure, or for another job; or a stretch of an attempt."""

    job: Int
    start: Int
    end: Int
    kept: Int  # part of it that a checkpoint keeps; all of a stretch
    nodes: Int
    what: (
        Int  # 0: an attempt without suspensions; `STRETCH` of an attempt; an attempt with `PAUSES`
    )
    attempt: Int  # start of the attempt


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


class Level:
    """The level of a branch in the tree of fair shares."""

    used: Real  # node-ms, of all branches below it
    level: Real  # its share, over its part of its siblings' usage


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
    current: Real  # decayed usage, node-s
    shift: Real  # see `priority_tournament`
