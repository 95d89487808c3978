"""The engine's data: flat arrays, bundled in a few named tuples.

`Jobs` and `Machine` do not change during a run and are shared by forks; `Sim` is the state and
is copied by a fork; `Rules` are the numbers that choose the policy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["NEVER", "Jobs", "Machine", "Rules", "Sim", "Work"]

I64 = npt.NDArray[np.int64]
I8 = npt.NDArray[np.int8]
F64 = npt.NDArray[np.float64]
# The same with two dimensions; the compiled types of the bundles are made from these names.
I64x2 = npt.NDArray[np.int64]
I8x2 = npt.NDArray[np.int8]
F64x2 = npt.NDArray[np.float64]

# Numbers handed to compiled functions are int64 values: a literal would compile them once more.
NEVER = np.int64(2**62)
ZERO, ONE = np.int64(0), np.int64(1)
TAKE, RETURN = np.int64(-1), np.int64(1)

# States as in model.State, and one that only the engine knows.
PENDING, WAITING, RUNNING, COMPLETED, WALLTIME = np.array([0, 1, 2, 3, 4])
NODE_FAILURE, CANCELLED, REJECTED, DEPENDENCY, FAILED, UNSUBMITTED = np.array([5, 6, 7, 8, 9, 10])

AFTER, AFTERANY, AFTEROK = np.array([0, 1, 2])

BACKFILL_NONE, BACKFILL_FIRST_FIT, BACKFILL_EASY, BACKFILL_CONSERVATIVE = np.array([0, 1, 2, 3])
BACKFILL_PACK, BACKFILL_PUSHDOWN = np.array([4, 5])
FIRST_FIT, BEST_FIT, CONTIGUOUS, RANDOM, SPREAD = np.array([0, 1, 2, 3, 4])
SOONEST, LEAST_DRAW, GIVEN = np.array([5, 6, 7])  # only where nodes have power states

OVERDUE_STEP = 60_000
"""An overdue job is expected to end at the next whole multiple of this after its planned end, ms."""

GIVE_UP = 10 * 365 * 86_400_000
"""Jobs that wait so long with only node failures left to happen are given up, ms."""

# What `advance` returns.
DONE, REACHED, STEPPED, NEED_OUTAGES, NEED_ROOM, NOT_A_NUMBER = np.array([0, 1, 2, 3, 4, 5])
PASS = np.int64(6)  # only within: a scheduling pass is due

# Rows of tables: Jobs.fixed,
SUBMIT, RUNTIME, LIMIT, EXPECTED, NODES, RANK, KIND, USER, SHARE, REJECT = np.arange(10)
CANCEL, FAILS, LEVEL, WAITS_FROM, WAITS_TO = np.arange(10, 15)
FIXED = 15
# Jobs.edges,
EDGE_JOB, EDGE_KIND, EDGE_DELAY, WAITS_ON = np.arange(4)
# Machine.node, windows and maint,
NODE_ID, NODE_POOL = np.arange(2)
WINDOW_START, WINDOW_END, WINDOW_POOL, WINDOW_AMOUNT = np.arange(4)
MAINT_TIME, MAINT_POOL, MAINT_SIGN, MAINT_AMOUNT = np.arange(4)
# Sim.time (the last two rows only where needed), flag and number,
ELIGIBLE, START, END, HELD, RELEASE = np.arange(5)
STATE, OUTCOME, STARTED, DEAD = np.arange(4)
QUEUE, OPEN, REQUEUES, FIRST_NODE, CHAIN = np.arange(5)
# Sim.running: rows 0 and 1 are the heap of ends,
RUNS, PLANNED = np.array([2, 3])
# Sim.amount, usage, node, outage, lost and segment,
FREE, DOWN = np.arange(2)
USED, USED_AT, USED_NODES = np.arange(3)
NODE_JOB, NODE_DOWN, NODE_NEXT = np.arange(3)
# … of Sim.node where nodes have power states: when it will have switched, what comes on top of that to
# be active, since when it is in its state, the state, the sleep depth it is in or on its way to or
# from, and from POWER_SPENT on the time in each state.
NODE_READY, NODE_BOOT, NODE_SINCE, NODE_POWER, NODE_DEPTH, POWER_SPENT = np.arange(3, 9)
OUTAGE_TIME, OUTAGE_NODE, OUTAGE_SIGN = np.arange(3)
LOST_JOB, LOST_START, LOST_END = np.arange(3)
SEGMENT_JOB, SEGMENT_START, SEGMENT_FIRST, SEGMENT_NODES = np.arange(4)
# Work.job and share.
ORDER, LATER, STACK = np.arange(3)
FACTOR, CURRENT = np.arange(2)

# Rows of Sim.count.
NOW, ARRIVED, QUEUED, RUN, ENDS, RELEASES, CANCELS_DONE, MAINT_DONE, OUTAGES_DONE = np.arange(9)
ALIVE, COMPRESS, LOST, SEGMENTS, RNG, INSTANTS, ARRIVAL_END, STOP_JOB, BAD_JOB = np.arange(9, 18)
ONLY_OUTAGES_SINCE, STARTS, PASS_DUE, TIMER, OLDEST, CYCLE_AT, TOLD, LEVELS = np.arange(18, 26)
UNPOWERED = np.int64(26)  # nodes that jobs cannot have since they are not switched on
COUNTS = 27

# Columns of Jobs.facts, in the order of the fields of JobView they fill.
FACT_CORES, FACT_GPUS, FACT_MEMORY, FACT_USER, FACT_ACCOUNT, FACT_PARTITION = np.arange(6)
FACT_QOS, FACT_PARTITION_PRIORITY, FACT_QOS_PRIORITY, FACT_PRIORITY = np.arange(6, 10)
FACT_DOMINANT, FACT_LOAD, FACT_CPU, FACT_MEMORY_MB, FACT_RISK = np.arange(10, 15)
FACTS = 15

# Rows of Sim.push: two neighbours in a list, which list, how often pushed down and what was short
# then, places risen, when last looked at; slot of a job of the waiting queue, and the job in a slot. Three
# columns after the jobs' are the ends of the lists; that of the waiting queue counts slots and jobs.
NEXT, PREVIOUS, LIST, PUSHED, BLOCKED, RISEN, LOOKED, SLOT, SLOTTED = np.arange(9)
PUSH_ROWS, LISTS = 9, 3
FRESH, MAIN, ASIDE = np.arange(3)


class Jobs(NamedTuple):
    """What is known of the jobs (J jobs, C cluster-wide resources, E dependencies)."""

    # submit, runtime (only events read it, never a pass), walltime and expected runtime in ms; nodes;
    # rank of the id; row of Machine.eligible; column of Sim.user_running; label of Sim.usage; whether
    # it can never run here; when it is cancelled (ms, not before submission; NEVER); whether it
    # fails when its runtime is over; most dependencies in a chain of jobs that wait for it; the columns
    # of edges that tell, in row WAITS_ON, what it waits for.
    fixed: I64x2  # [FIXED, J]
    resources: I64x2  # [J, C]
    facts: F64x2  # [J, FACTS]
    by_submit: I64  # [J] jobs by submit time
    by_cancel: I64  # jobs with a cancel time, by it
    edge_first: I64  # [J + 1] dependencies by the job waited for
    # Who waits, kind, delay in ms; and, by the job that waits, the job it waits for.
    edges: I64x2  # [4, E]


class Machine(NamedTuple):
    """The cluster (P pools, N nodes, K kinds of job, Q partitions, M maintenance windows)."""

    amount: I64  # [P + C] nodes of the pools, then amounts of the resources
    speed: F64  # [P]
    pool_first: I64  # [P + 1] columns of node, row NODE_ID
    node: (
        I64x2  # [2, N] node numbers by pool; pool of each node. [2, 0] where nodes are only counted
    )
    eligible: I8x2  # [K, P] kinds of job by the pools they may use
    partition: I64  # [K] partition of a kind of job
    user_limit: I64  # [Q] running jobs per user; 0 for no limit
    # Start and end in ms, pool (or column of a resource), how much is away; more is there if negative.
    windows: I64x2  # [4, M]
    # Time in ms, pool, -1 goes away or +1 comes back, how much; in the order applied.
    maint: I64x2  # [4, 2 M]
    share: F64  # [L] promised share of each fair-share label, sums to 1


class Sim(NamedTuple):
    """The state of a simulation."""

    count: I64  # type: ignore[assignment]  # [COUNTS] numbers, see the names of the rows above
    # When the job became eligible, started, ended (or will, while it runs); start of its reservation
    # (conservative only); latest time one of its dependencies came true. ms, -1 for not yet.
    time: I64x2  # [3 to 5, J]
    flag: I8x2  # [4, J] state; state it will end in; has ever started; a dependency failed
    # The waiting jobs; dependencies not true yet; how often thrown back; first of its nodes, -1; longest
    # chain of expected runtimes of jobs that wait for it, ms.
    number: I64x2  # [5, J]
    key: F64  # [J] score, where the ordering does not change with time
    take: I64x2  # [J, P] nodes from each pool; [0, P] with one pool
    running: I64x2  # [4, R] heap of ends (time, job); running jobs by planned end, and that end
    releases: I64x2  # [2, J] heap of releases (time, job); [2, 0] without dependencies
    amount: I64x2  # [2, P + C] free, negative in maintenance with overdue jobs; failed nodes
    user_running: I64x2  # [Q, users]; [Q, 0] without limits
    usage: F64x2  # [3, L + 1] node-ms used, when that was reckoned, nodes in use; the last for all
    # Who has it, -1; outages that last; next node of the same job, -1; more with power states.
    node: I64x2  # [3, N], [POWER_SPENT + states, N] with power states
    outage: I64x2  # [3, …] time in ms, node, -1 fails or +1 comes back
    lost: I64x2  # [3, …] attempts cut off by failures: job, start, end
    segment: I64x2  # [4, …] where jobs ran: job, start, first node, nodes
    push: I64x2  # [PUSH_ROWS, J + LISTS] the lists of pushdown; [PUSH_ROWS, 0] without


class Work(NamedTuple):
    """Scratch memory of a run; holds nothing between two passes."""

    size: I64  # [1] rows of the plan
    time: I64  # [rows] of the plan
    amount: I64x2  # [rows, P + C] of the plan
    low: I64  # [P + C] least free over a span
    take: I64  # [P] nodes from each pool
    blocked: I8  # [P + C]
    handed_out: I64  # [Q] reservations
    job: I64x2  # [3, J + E] heap of jobs in order; candidates; stack
    score: F64  # [J] of the heap
    share: F64x2  # [2, L + 1] fair-share factor, decayed use


class Rules(NamedTuple):
    """Numbers that choose the policy."""

    backfill: int
    reservations: int
    placement: int
    terminate: int  # 1: walltimes end jobs
    hold_dependents: int  # 1: a job whose dependency failed waits for ever
    requeue: int  # 1: a job whose node failed waits again
    order_changes: int  # 1: the ordering depends on time
    own_candidate_order: int
    fairshare: int  # 1: an ordering asks for fairshare or usage
    chains: int  # 1: the ordering asks for the chain
    outage_horizon: int  # ms; outages are known up to here
    machine_nodes: int
    depth: int  # pack: so many jobs are compared
    patience: int  # pack: ms; who has waited so long is protected
    parallel: int  # pushdown: jobs that run at once; 0 for any number
    adjacent: int  # pushdown: places between two that run at once; 0 for any
    places: int  # pushdown: down so many
    attempts: int  # pushdown: after more of them into the waiting queue
    every: int  # pushdown: cycles from one look at the waiting queue to the next
    interval: int  # pushdown: ms from cycle to cycle
    promotion: int  # pushdown: ms of a dependant's runtime for one place up; 0 for none
    decay: float  # of fair-share usage, per ms
