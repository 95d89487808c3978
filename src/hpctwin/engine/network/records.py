"""Records of a network of hosts and links, and of the jobs that run on it.

Times are in seconds. All rows have fields of 8 bytes, so that a network is a few arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpctwin.engine.compile.intrinsics import numbers_at, record_at, view
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import record_type
from hpctwin.engine.state.records import Int, Real, Table

__all__ = [
    "CHAIN", "DELAY", "DELAYED", "END", "FORK", "IDLE", "LATENT", "LOAD", "MEET", "MEETING", "NETWORK",
    "PAUSED", "REPEAT", "RESOURCE", "RUNNING", "STEP", "STRAND", "TASK", "USE", "WAITING", "Chain", "Load",
    "Network", "Resource", "Step", "Strand", "Use", "chains_of", "loads_of", "network_at",
    "numbers_of", "reals_of", "resources_of", "steps_of", "strands_of", "uses_of",
]  # fmt: skip


class Network:
    """A network: addresses of the descriptors of its arrays, and single numbers."""

    resources: Int
    uses: Int
    chains: Int
    loads: Int
    steps: Int
    strands: Int
    due: Int  # [strands] time of each strand's next event; infinity if it has none
    touched: Int  # [resources] resources whose tasks are to share again
    ready: Int  # [strands] stack of strands whose step is done
    ended: Int  # [strands] strands of jobs that have ended since the caller last looked,
    ended_at: Int  # … and when
    fresh: Int  # [strands] strands whose tasks began since the last sharing
    # The group: tasks that depend on each other, and the resources that they use, in the order in
    # which they were found. Rows of a round are then close together in memory.
    tasks: Int  # [strands] strand of each task,
    first: Int  # … its first row of ``places`` and ``amounts``,
    last: Int  # … the row after its last one,
    bound: Int  # … its largest rate,
    rate: Int  # … its rate so far,
    added: Int  # … what the present round adds to it,
    out: Int  # … whether one of its resources has nothing left
    live: Int  # [strands] tasks that may still get more
    places: Int  # [uses] row of each use among the resources that follow,
    amounts: Int  # … and its amount
    found: Int  # [resources] number of the resource,
    alone: Int  # … whether it limits each task alone,
    whole: Int  # … its capacity,
    left: Int  # … capacity that is not given to tasks yet,
    share: Int  # … what each use may take in this round,
    taken: Int  # … what uses have taken in this round,
    charged: Int  # … what each round charges for tasks that are out,
    count: Int  # … its uses,
    open: Int  # … and those by live tasks
    busy: Int  # [resources] those with live tasks
    computing: Int  # [resources] of a host: number of uses by tasks that compute on it now,
    busy_since: Int  # … since when there is one,
    busy_s: Int  # … how long there was one before,
    flops: Int  # … and what has been computed
    hosts: Int  # number of hosts whose computation is counted: the first resources
    now: Real
    strand_count: Int  # rows of strands that are in use, or were
    touched_count: Int
    fresh_count: Int
    found_count: Int
    task_count: Int
    most_tasks: Int  # largest ``task_count`` of the present group
    alone_count: Int  # resources of the group that limit each task alone
    ready_count: Int
    ended_count: Int
    stamp: Int  # number of the present sharing
    group: Int  # number of the present group
    quirks: Int  # whether capacities are shared exactly as SimGrid does
    # The meter: what links carry, if it is recorded. The arrays are empty otherwise.
    metered: Int  # whether loads of links are recorded
    first_link: Int  # first link among the resources
    carried: Int  # [links] bytes per second now,
    carried_since: Int  # … since when,
    bytes: Int  # … bytes before that,
    peak: Int  # … largest bytes per second,
    full: Int  # … and seconds at full bandwidth
    bins: Int  # [links * bins] bytes by time
    widths: Int  # widths that bins may have, in seconds, each a multiple of the one before
    width: Int  # number of the present width
    bin_count: Int
    bins_from: Real  # time at which the bins begin


class Resource:
    """A host or a link."""

    capacity: Real  # flop/s or B/s
    fatpipe: Int  # whether it limits each task alone
    first: Int  # first use in the chain of running tasks; -1 if there is none
    touched: Int  # number of the sharing for which it was last touched
    group: Int  # number of the group that it was last in,
    place: Int  # … and its row there


class Use:
    """The need of a task for a resource."""

    resource: Int
    amount: Real  # flops or bytes, positive


class Chain:
    """The place of a use among all uses of its resource by running tasks."""

    next: Int  # -1 at the end
    last: Int  # -1 at the beginning
    strand: Int


class Load:
    """A parallel task: computes and transfers that progress together."""

    first: Int  # its uses: first row,
    last: Int  # … and the row after the last
    latency: Real
    bound: Real  # largest progress per second; infinity without a bound
    limit: Real  # the same, whatever the speeds of hosts


class Step:
    """A step of a strand."""

    kind: Int
    seconds: Real  # DELAY: length
    row: Int  # TASK, MEETING: load; REPEAT, MEET: another step; FORK: first strand
    count: Int  # REPEAT: number of rounds; FORK, MEETING: number of strands
    left: Int  # REPEAT: rounds that are still to be done; MEETING: strands still to come
    waiting: Int  # MEETING: last strand that came, -1; its ``load`` is the one before it


class Strand:
    """Steps of a job one after the other; a job has one strand, which may fork others."""

    phase: Int
    step: Int
    begin: Int  # its first step
    parent: Int  # strand that waits for this one; -1 for the job's first strand
    open: Int  # strands for which it waits
    load: Int  # load of the present step
    rate: Real  # progress per second
    left: Real  # progress that is left at ``since``, of 1; while paused also seconds
    since: Real
    counted: Real  # progress whose computation is counted
    group: Int  # number of the group that its task is in; 0 if it is in none,
    row: Int  # … and its row there


DELAY, TASK, REPEAT, FORK, END, MEET, MEETING = np.array([0, 1, 2, 3, 4, 5, 6])
"""Kinds of steps: wait, run a task, go back, begin other strands, end, run a task with others.

The last is no step but the place where strands meet.
"""
IDLE, DELAYED, LATENT, RUNNING, WAITING = np.array([0, 1, 2, 3, 4])
"""Phases of a strand: no step, a delay, the latency of a task, a task, waiting for others."""
PAUSED = 8
"""Added to the phase of a strand that stands still; ``left`` is then its time or progress left."""

RESOURCE, USE, CHAIN, LOAD, STEP, STRAND = (
    record_type(one) for one in (Resource, Use, Chain, Load, Step, Strand)
)
NETWORK = record_type(Network)

network_at = record_at(Network)
_numbers, _reals = numbers_at(np.dtype("i8")), numbers_at(np.dtype("f8"))
_resources, _uses, _chains = view(Resource), view(Use), view(Chain)
_loads, _steps, _strands = view(Load), view(Step), view(Strand)


@jit
def resources_of(net: Network) -> Table[Resource]:
    """Return the hosts and links."""
    return _resources(_numbers(net.resources))


@jit
def uses_of(net: Network) -> Table[Use]:
    """Return the uses of all loads."""
    return _uses(_numbers(net.uses))


@jit
def chains_of(net: Network) -> Table[Chain]:
    """Return the places of uses in the chains of their resources."""
    return _chains(_numbers(net.chains))


@jit
def loads_of(net: Network) -> Table[Load]:
    """Return the loads."""
    return _loads(_numbers(net.loads))


@jit
def steps_of(net: Network) -> Table[Step]:
    """Return the steps of all strands."""
    return _steps(_numbers(net.steps))


@jit
def strands_of(net: Network) -> Table[Strand]:
    """Return the strands of all jobs."""
    return _strands(_numbers(net.strands))


@jit
def numbers_of(descriptor: int) -> Table[Int]:
    """Return an array of integers."""
    found: Any = _numbers(descriptor)
    return found


@jit
def reals_of(descriptor: int) -> Table[Real]:
    """Return an array of real numbers."""
    found: Any = _reals(descriptor)
    return found
