"""How running tasks share hosts and links: bottleneck fairness, in rounds.

In each round a resource offers the same part of what it has left to each use. A task adds to its
rate what the tightest of its offers allows. It is out once it reaches its bound, or once one of its
resources has nothing left. The rounds end when all tasks are out.

Only tasks that depend on a change, directly or through others, share again.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.network.records import (
    RUNNING,
    Network,
    chains_of,
    loads_of,
    numbers_of,
    reals_of,
    resources_of,
    strands_of,
    uses_of,
)

__all__ = ["share_again", "touch_resources"]

NOTHING_LEFT = 1e-5
"""Capacity below which a resource has nothing left, flop/s or B/s."""

FOREVER = float("inf")


@jit
def touch_resource(r: int, net: Network) -> None:
    """Let the tasks of a resource share again."""
    resource = resources_of(net)[r]
    if resource.seen == net.stamp:
        return
    resource.seen = net.stamp
    resource.left = resource.capacity
    resource.charged = FOREVER if resource.fatpipe == 1 else 0.0
    resource.live = 0
    numbers_of(net.touched)[net.touched_count] = r
    net.touched_count += 1


@jit
def touch_resources(s: int, net: Network) -> None:
    """Let the tasks of all resources of a strand share again."""
    load, uses = loads_of(net)[strands_of(net)[s].load], uses_of(net)
    for u in range(load.first, load.last):
        touch_resource(uses[u].resource, net)


@jit
def find_tasks(net: Network) -> int:
    """List all tasks that share again, and touch their resources; return the number of tasks."""
    resources, uses, chains = resources_of(net), uses_of(net), chains_of(net)
    loads, strands = loads_of(net), strands_of(net)
    touched, tasks = numbers_of(net.touched), numbers_of(net.tasks)
    found = 0
    i = 0
    while i < net.touched_count:
        link = resources[touched[i]].first
        while link >= 0:
            s = chains[link].strand
            link = chains[link].next
            strand = strands[s]
            if strand.seen == net.stamp:
                continue
            strand.seen = net.stamp
            strand.was = strand.rate
            strand.rate = 0.0
            strand.live = 1
            tasks[found] = s
            found += 1
            for u in range(loads[strand.load].first, loads[strand.load].last):
                touch_resource(uses[u].resource, net)
                resources[uses[u].resource].live += 1
        i += 1
    return found


@jit
def offer(busy: int, net: Network) -> int:
    """Set what each use may take in this round; return the number of resources with tasks."""
    resources, listed = resources_of(net), numbers_of(net.busy)
    kept = 0
    for i in range(busy):
        resource = resources[listed[i]]
        if resource.live == 0:
            continue
        if resource.fatpipe == 1:
            resource.share = resource.left
            resource.taken = resource.left
        else:
            resource.share = resource.left / resource.live
            resource.taken = 0.0
        listed[kept] = listed[i]
        kept += 1
    return kept


@jit
def take(s: int, net: Network) -> None:
    """Add to a task's rate what its resources offer."""
    resources, uses = resources_of(net), uses_of(net)
    strand = strands_of(net)[s]
    load = loads_of(net)[strand.load]
    added = strand.bound - strand.rate
    for u in range(load.first, load.last):
        added = min(added, resources[uses[u].resource].share / uses[u].amount)
    strand.added = added
    strand.rate += added
    for u in range(load.first, load.last):
        resource = resources[uses[u].resource]
        if resource.fatpipe == 1:
            resource.taken = min(resource.taken, added * uses[u].amount)
        else:
            resource.taken += added * uses[u].amount


@jit
def leave(s: int, net: Network) -> None:
    """Take a task out of the rounds that follow.

    SimGrid goes on to charge what the task has taken last, in each round.
    """
    resources, uses = resources_of(net), uses_of(net)
    strand = strands_of(net)[s]
    load = loads_of(net)[strand.load]
    strand.live = 0
    for u in range(load.first, load.last):
        resource = resources[uses[u].resource]
        resource.live -= 1
        if net.quirks == 0:
            continue
        if resource.fatpipe == 1:
            resource.charged = min(resource.charged, strand.added * uses[u].amount)
        else:
            resource.charged += strand.added * uses[u].amount


@jit
def charge(busy: int, net: Network) -> int:
    """Subtract what was taken in this round; list resources that have nothing left.

    Returns:
        The number of these resources.
    """
    resources, listed, full = resources_of(net), numbers_of(net.busy), numbers_of(net.full)
    found = 0
    for i in range(busy):
        resource = resources[listed[i]]
        if resource.fatpipe == 1:
            resource.left -= min(resource.taken, resource.charged)
        else:
            resource.left -= resource.taken + resource.charged
        if resource.left < NOTHING_LEFT:
            resource.left = 0.0
            full[found] = listed[i]
            found += 1
    return found


@jit
def share_in_rounds(live: int, net: Network) -> None:
    """Set the rates of listed tasks."""
    resources, chains, strands = resources_of(net), chains_of(net), strands_of(net)
    touched, listed = numbers_of(net.touched), numbers_of(net.busy)
    tasks, full = numbers_of(net.tasks), numbers_of(net.full)
    busy = net.touched_count
    for i in range(busy):
        listed[i] = touched[i]
    while live > 0:
        busy = offer(busy, net)
        for i in range(live):
            take(tasks[i], net)
        for i in range(charge(busy, net)):
            link = resources[full[i]].first
            while link >= 0:
                if strands[chains[link].strand].live == 1:
                    leave(chains[link].strand, net)
                link = chains[link].next
        kept = 0
        for i in range(live):
            strand = strands[tasks[i]]
            if strand.live == 1 and strand.rate == strand.bound:
                leave(tasks[i], net)
            elif strand.live == 1:
                # Tasks that are out stay in the list, behind those that are not.
                tasks[kept], tasks[i] = tasks[i], tasks[kept]
                kept += 1
        live = kept


@jit
def share_again(net: Network) -> None:
    """Set the rates of tasks that a change concerns, and when they end."""
    if net.touched_count == 0:
        return
    found = find_tasks(net)
    share_in_rounds(found, net)
    tasks, due, strands = numbers_of(net.tasks), reals_of(net.due), strands_of(net)
    for i in range(found):
        strand = strands[tasks[i]]
        if strand.rate == strand.was:
            continue
        strand.left -= strand.was * (net.now - strand.since)
        strand.since = net.now
        due[tasks[i]] = net.now + strand.left / strand.rate if strand.rate > 0 else FOREVER
    net.touched_count = 0
    net.stamp += 1
