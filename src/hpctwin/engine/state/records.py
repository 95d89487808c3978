"""What there is of each kind of thing: the fields of the engine's records, and how tables of them are read.

Rows are records: a kernel reads ``sim.job[j].nodes``, ``sim.state[j].start``, ``sim.clock.now``. Times are
in ms.
"""

from __future__ import annotations

from typing import Annotated, Protocol, TypeVar

Int = Annotated[int, "i8"]
# Of what a policy may set, its unit besides: 1 or more; 1 or more, or 0 for any; ms; ms, at least 1; 0 or 1.
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
    fails: Short  # 1: it fails when its runtime is over
    thinks: Short  # 1: its user submits it when it becomes eligible, not at ``submit``
    cancel: Int  # when it is cancelled, not before submission; NEVER
    level: Small  # most dependencies in a chain of jobs that wait for it
    counts: Small  # for fair share its use counts so many times, in thousandths
    waits_from: Small  # rows of `Known.waits`: what it waits for
    waits_to: Small
    tells_from: Small  # rows of `Known.tells`: what waits for it
    tells_to: Small


class Bound:
    """One of the limits that jobs of some user, account and QOS are under; see `limits`."""

    ceiling: Int  # which of them
    measure: Int  # column of `Known.charge`
    holds: Int  # 0: these jobs are counted, and not kept back
    weight: Real  # each of what they count is so many of what the limit counts,
    own: Real  # … where a job is to start, whose walltime counts
    seen: Int  # 0: what others have used, and may, keeps none of these jobs back


class Ceiling:
    """How much all jobs that are counted under a limit may have."""

    most: Int
    timed: Int  # 1: of amounts times seconds, as `left`, `used` and `own` say
    left: Int  # 1: what is left of the walltimes of jobs that run counts,
    used: Int  # … 1: what has been used,
    own: Int  # … 1: the walltime of the job that is to start
    minute: Int  # where use counts: of a whole unit for a minute, as `Used.amount` has it
    decay: Real  # of use, per ms; 0: it does not


class Held:
    """What the jobs that are counted under a limit have at present."""

    amount: Int
    until: Int  # where the limit is timed: sum of amounts times the time of their walltimes, s


class Used:
    """What jobs that are counted under a limit of use have used."""

    amount: Real  # decayed, times ms
    at: Int  # when that was reckoned


class Branch:
    """A user in an account, or an account, in the tree of fair shares; parents come before what is below."""

    parent: Int  # -1
    label: Int  # row of `State.usage`; -1 of an account
    share: Real  # of what its siblings have together; -1: it is not looked at, and comes first
    first: Int  # rows below it,
    last: Int  # … up to here


class Shape:
    """What a kind of job asks where nodes are shared, but for the amounts of a task."""

    tasks: Int
    nodes: Int  # it has so many nodes at least
    most: Int  # tasks of it on a node at most
    exclusive: Int  # 1: it shares its nodes with no other job
    shared_with: Int  # 1: its nodes are shared with jobs of its user only; 2: of its account
    spread: Int  # 1: it lies on as many nodes as it can
    user: Int  # numbers, where any job asks so
    account: Int
    charge: Real  # for fair share it counts as so many nodes
    popularity: Int  # so many jobs are of this kind
    more: Int  # of a job with tasks of several kinds: the kind of those that come next, -1
    among: Int  # if its nodes are of one set: its kind on the first; that one's on the next, -1
    of: Int  # the kind of job that it is made for, or itself
    parts: Int  # so many parts of nodes, at most, its tasks of all kinds lie on
    gpus: Int  # it asks for some of so many GPUs of a node, counted one by one; 0: it does not
    typed: Int  # 1: it says of which types they are
    part_on: Small  # the kind of the part of a GPU that a task has, on the first; others follow
    whole_on: Small  # … and of each whole one


class Claim:
    """Which jobs a job may preempt, and what becomes of it if it is."""

    standing: Int  # row of `Known.yields`
    checkpoint: Int  # it writes one whenever it has run for so long again; 0: never


class Yield:
    """A class of jobs, of which some preempt others."""

    level: Int  # above those of all classes whose jobs they may preempt
    rank: Int  # those of a lower one are preempted first
    mode: Int  # how they end then: PREEMPTED, SENT_BACK; 0: they are not preempted
    grace: Int  # so much later
    exempt: Int  # only if they have run for so long


class Cut:
    """What preemption has done to a job, or for it."""

    times: Int  # it was sent back for another
    lost: Int  # so long it ran in vain then
    done: Int  # of its runtime, what checkpoints keep
    leaves: Int  # when its grace ends; 0: it has none
    tried: Int  # 1: it is tried whether it suffices that it leaves then, or is suspended
    waits: Int  # until then it preempts nobody, as those it preempted are leaving
    suspended: (
        Int  # 1: it is; its start is then as if it went on when all above it are expected to end
    )
    covered: Int  # so many of its nodes others have
    ran: Int  # so long it had run when it was suspended, …
    left: Int  # … and so long it goes on after that
    paused: (
        Int  # it started so much sooner than its state says, and was suspended for so long since
    )
    since: Int  # when it went on last
    until: Int  # when all who have its nodes are expected to end


class Victim:
    """A job that may be preempted, while some are chosen."""

    first: Int  # those with the least come first, …
    second: Int  # … of equal ones by this
    job: Int


class NodeSpan:
    """A span of time of a plan of particular nodes; see `node_spans`."""

    begin: Int
    end: Int
    next: Int  # the span that follows; -1


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
    predicted_runtime: Real
    predicted_power: Real


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


class PartitionFact:
    """What passes see of a partition besides."""

    priority: Real
    backfill_depth: Int  # so many of its jobs have reservations under ``pbs``; -1: it says nothing


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
    ended: Int  # the last end of a job that ran; -1 if there is none
    instants: Int
    alive: Int  # jobs that have not come to their end
    arrived: Int  # so many of `by_submit` have been submitted
    arrival_end: Int  # … and so many will be
    submitted: Int  # jobs so far, those that are not there any more included
    queued: Int
    moves: Int  # so often has a job come into the queue, or left it without having started
    running: Int
    run_first: Int  # places of `run` in use, holes among them,
    run_end: Int  # … up to here
    starts: Int
    ends: Int  # entries of heaps
    releases: Int
    switching: Int
    timeouts: Int
    begins: Int
    touched: Int  # the first node that has changed since the last pass, + 1; 0 for none
    cancels_done: Int
    changes_done: Int
    resets_done: Int
    outages_done: Int
    lost: Int  # rows of records in use
    segments: Int
    logged: Int
    pass_due: Int
    timer: Int  # the next instant at which nothing else may happen
    ranked: Int  # the period in which the tree of fair shares was last reckoned; -1
    timed: Int  # jobs that run and count under a limit that time alone may lift
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
    """A running job, by planned end; see `running`."""

    planned: Int
    job: Int  # -1: a hole


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
    promise: Int  # the first of its promises, which lie in the order in which they begin; -1
    since: Int  # while a time is sought: the first of them that is not over by then, -1


class Part:
    """Tasks of a job on a node, from when they started there. Rows of those that ended stay."""

    job: Int
    start: Int
    planned: Int  # its planned end
    node: Small
    tasks: Small
    next: Small  # of the same job, -1
    after: Small  # on the same node, -1
    before: Small
    kind: Small  # of the job, or of its tasks here, where these are of several


class Promise:
    """Tasks of a job that waits, on a node that is reserved for them."""

    job: Int
    start: Int
    end: Int
    node: Int  # -1: the row is free
    tasks: Int  # or all that the node has, -1
    kind: Int
    next: Int  # of the same job, or free, -1
    after: Int  # on the same node, -1
    ahead: Int  # while a time is sought: the same, but for those that are over by then
    first: Int  # 1: the first of its job


class Tried:
    """When a kind of job was last tried on what is free, and found not to fit."""

    at: Int  # of `Sharing.freed`
    short: Int  # so many tasks found no room; 0 if it may fit
    faults: Int  # of the clock, when it was last seen whether the nodes that are up could hold it
    held: Int  # 1: they could
    waiting: Int  # so many of the kind wait
    look: Int  # of `Sharing.looks`: in which …
    length: Int  # … one that is expected to run so long did not fit beside what is promised


class Sharing:
    """Single numbers of shared nodes."""

    parts: Int  # rows in use
    owners: Int  # 1: it matters whose jobs are on a node
    gpus: Int  # so many of a node, at most, are counted one by one, in the last columns of amounts
    types: Int  # of so many types, in the columns before these
    promises: Int
    spare: Int  # the first free row of promises, plus 1; 0: none
    freed: Int  # how often a node got something back
    faults: Int  # of the clock, in the last pass
    chosen: Int  # nodes that `placing` chose
    before: Int  # so many of these for kinds of the job's tasks that came before
    kind: Int  # of the tasks that nodes are chosen for
    laid: Int  # 1: the placement chose their GPUs, too
    looks: Int  # how often it was begun to start jobs; meanwhile nothing comes free
    turn: Int  # the node after the last that a job started on
    widest: Int  # nodes that a job may have at most
    counted: Int  # while a time is sought: 1: what is short is known
    tasks_short: Int  # of those that the job asks for; 0 or less: enough
    nodes_short: Int


class Outage:
    """A node fails (sign -1) or comes back (+1)."""

    time: Int
    node: Int
    sign: Int


class Lost:
    """An attempt cut off by a failure, or for another job."""

    job: Int
    start: Int
    end: Int
    kept: Int  # of this a checkpoint keeps so much
    nodes: Int


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
    """How a branch of the tree of fair shares stands."""

    used: Real  # node-ms, of all below it
    level: Real  # its share over its part of its parent's use


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
