"""How running tasks share hosts and links: bottleneck fairness, in rounds.

In each round a resource offers the same part of what it has left to each use. A task adds to its
rate what the tightest of its offers allows. It is out once it reaches its bound, or once one of its
resources has nothing left. The rounds end when all tasks are out.

Only tasks that depend on a change, directly or through others, share again.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.network.meter import put_carried
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
from hpctwin.engine.state.layout import ZERO

__all__ = ["FOREVER", "share_again", "touch_resources"]

NOTHING_LEFT = 1e-5
"""Capacity below which a resource has nothing left, flop/s or B/s."""

MOST_ROUNDS = 100_000
"""Rounds in which no task leaves, after which the tasks left get no more.

With links that limit each task alone, SimGrid's rounds may never end.
"""

FOREVER = float("inf")


@jit
def touch_resources(s: int, net: Network) -> None:
    """Let the tasks of all resources of a strand share again."""
    resources, touched = resources_of(net), numbers_of(net.touched)
    load, uses = loads_of(net)[strands_of(net)[s].load], uses_of(net)
    for u in range(load.first, load.last):
        resource = resources[uses[u].resource]
        if resource.touched != net.stamp:
            resource.touched = net.stamp
            touched[net.touched_count] = uses[u].resource
            net.touched_count += 1


@jit
def add_resource(r: int, net: Network) -> int:
    """Add a resource to the group; return its row there."""
    resource = resources_of(net)[r]
    if resource.group == net.group:
        return resource.place
    place = net.found_count
    resource.group = net.group
    resource.place = place
    numbers_of(net.found)[place] = r
    numbers_of(net.alone)[place] = resource.fatpipe
    numbers_of(net.count)[place] = 0
    net.alone_count += resource.fatpipe
    reals_of(net.whole)[place] = resource.capacity
    net.found_count = place + 1
    return place


@jit
def add_task(s: int, net: Network) -> None:
    """Add a task to the group, with its resources."""
    uses, places, amounts = uses_of(net), numbers_of(net.places), reals_of(net.amounts)
    count, last = numbers_of(net.count), numbers_of(net.last)
    strand, i = strands_of(net)[s], net.task_count
    load = loads_of(net)[strand.load]
    used = last[i - 1] if i > 0 else 0
    strand.group, strand.row = net.group, i
    numbers_of(net.tasks)[i] = s
    numbers_of(net.first)[i] = used
    reals_of(net.bound)[i] = load.bound
    for u in range(load.first, load.last):
        place = add_resource(uses[u].resource, net)
        count[place] += 1
        places[used] = place
        amounts[used] = uses[u].amount
        used += 1
    last[i] = used
    net.task_count = i + 1


@jit
def add_neighbors(done: int, net: Network) -> None:
    """Add to the group all tasks on its resources, and their resources.

    Args:
        done: Number of resources whose tasks are in the group.
        net: Network.
    """
    resources, chains, strands = resources_of(net), chains_of(net), strands_of(net)
    found = numbers_of(net.found)
    while done < net.found_count:
        link = resources[found[done]].first
        while link >= 0:
            s = chains[link].strand
            link = chains[link].next
            if strands[s].group != net.group:
                add_task(s, net)
        done += 1
    net.most_tasks = max(net.most_tasks, net.task_count)


@jit
def begin_group(net: Network) -> None:
    """Begin a group without tasks."""
    net.group += 1
    net.found_count = 0
    net.task_count = 0
    net.most_tasks = 0
    net.alone_count = 0


@jit
def drop_done(net: Network) -> None:
    """Drop tasks that are done from the group; begin another if half of its tasks are done.

    The tasks left may no longer depend on each other.
    """
    tasks, first, last = numbers_of(net.tasks), numbers_of(net.first), numbers_of(net.last)
    places, amounts, bound = numbers_of(net.places), reals_of(net.amounts), reals_of(net.bound)
    strands, count = strands_of(net), numbers_of(net.count)
    kept = used = 0
    for i in range(net.task_count):
        begin, end = first[i], last[i]
        if strands[tasks[i]].group != net.group:
            for u in range(begin, end):
                count[places[u]] -= 1
            continue
        first[kept] = used
        if used == begin:
            used = end
        else:
            for u in range(begin, end):
                places[used], amounts[used] = places[u], amounts[u]
                used += 1
        tasks[kept], bound[kept], last[kept] = tasks[i], bound[i], used
        strands[tasks[i]].row = kept
        kept += 1
    net.task_count = kept
    if 2 * kept <= net.most_tasks:
        begin_group(net)


@jit
def add_fresh(net: Network) -> None:
    """Add tasks that have just begun to the group, if they depend on it."""
    resources, strands = resources_of(net), strands_of(net)
    loads, uses, fresh = loads_of(net), uses_of(net), numbers_of(net.fresh)
    done = net.found_count
    for k in range(net.fresh_count):
        s = fresh[k]
        if strands[s].phase != RUNNING or strands[s].group == net.group:
            continue
        for u in range(loads[strands[s].load].first, loads[strands[s].load].last):
            if resources[uses[u].resource].group == net.group:
                add_task(s, net)
                break
    add_neighbors(done, net)


@jit
def offer(busy: int, net: Network) -> int:
    """Set what each use may take in this round; return the number of resources with tasks."""
    listed, count, alone = numbers_of(net.busy), numbers_of(net.open), numbers_of(net.alone)
    left, share, taken = reals_of(net.left), reals_of(net.share), reals_of(net.taken)
    kept = 0
    for i in range(busy):
        place = listed[i]
        if count[place] == 0:
            continue
        if alone[place] == 1:
            share[place] = taken[place] = left[place]
        else:
            share[place] = left[place] / count[place]
            taken[place] = 0.0
        listed[kept] = place
        kept += 1
    return kept


@jit
def take(live: int, net: Network) -> None:
    """Add to each task's rate what its resources offer."""
    listed, first, last = numbers_of(net.live), numbers_of(net.first), numbers_of(net.last)
    places, amounts, alone = numbers_of(net.places), reals_of(net.amounts), numbers_of(net.alone)
    bound, rate, added = reals_of(net.bound), reals_of(net.rate), reals_of(net.added)
    share, taken = reals_of(net.share), reals_of(net.taken)
    for n in range(live):
        i = listed[n]
        more = bound[i] - rate[i]
        for u in range(first[i], last[i]):
            more = min(more, share[places[u]] / amounts[u])
        added[i] = more
        rate[i] += more
        if net.alone_count == 0:  # without a branch for each use
            for u in range(first[i], last[i]):
                taken[places[u]] += more * amounts[u]
            continue
        for u in range(first[i], last[i]):
            place = places[u]
            if alone[place] == 1:
                taken[place] = min(taken[place], more * amounts[u])
            else:
                taken[place] += more * amounts[u]


@jit
def charge(busy: int, net: Network) -> None:
    """Subtract what was taken in this round, and what tasks that are out are charged for."""
    listed, alone = numbers_of(net.busy), numbers_of(net.alone)
    left, taken, charged = reals_of(net.left), reals_of(net.taken), reals_of(net.charged)
    for i in range(busy):
        place = listed[i]
        if alone[place] == 1:
            left[place] -= min(taken[place], charged[place])
        else:
            left[place] -= taken[place] + charged[place]
        if left[place] < NOTHING_LEFT:
            left[place] = 0.0
            mark_users(place, net)


@jit
def mark_users(place: int, net: Network) -> None:
    """Mark the tasks of a resource as out."""
    chains, strands, out = chains_of(net), strands_of(net), numbers_of(net.out)
    link = resources_of(net)[numbers_of(net.found)[place]].first
    while link >= 0:
        out[strands[chains[link].strand].row] = 1
        link = chains[link].next


@jit
def leave(i: int, net: Network) -> None:
    """Take a task out of the rounds that follow.

    SimGrid still charges what the task has taken last, in each round.
    """
    places, amounts, count = numbers_of(net.places), reals_of(net.amounts), numbers_of(net.open)
    alone, charged, more = numbers_of(net.alone), reals_of(net.charged), reals_of(net.added)[i]
    for u in range(numbers_of(net.first)[i], numbers_of(net.last)[i]):
        place = places[u]
        count[place] -= 1
        if net.quirks == 0:
            continue
        if alone[place] == 1:
            charged[place] = min(charged[place], more * amounts[u])
        else:
            charged[place] += more * amounts[u]


@jit
def begin_rounds(net: Network) -> None:
    """Take back all capacities and rates of the group."""
    listed, busy, alone = numbers_of(net.live), numbers_of(net.busy), numbers_of(net.alone)
    count, open, whole = numbers_of(net.count), numbers_of(net.open), reals_of(net.whole)
    left, charged, rate = reals_of(net.left), reals_of(net.charged), reals_of(net.rate)
    out = numbers_of(net.out)
    for place in range(net.found_count):
        busy[place] = place
        open[place] = count[place]
        left[place] = whole[place]
        charged[place] = FOREVER if alone[place] == 1 else 0.0
    for i in range(net.task_count):
        listed[i] = i
        rate[i] = 0.0
        out[i] = 0


@jit
def share_in_group(net: Network) -> None:
    """Set the rates of all tasks of the group."""
    begin_rounds(net)
    listed, out = numbers_of(net.live), numbers_of(net.out)
    bound, rate = reals_of(net.bound), reals_of(net.rate)
    busy, live = net.found_count, net.task_count
    rounds = 0
    while live > 0 and rounds < MOST_ROUNDS:
        busy = offer(busy, net)
        take(live, net)
        charge(busy, net)
        kept = 0
        for n in range(live):
            i = listed[n]
            if out[i] == 1 or rate[i] == bound[i]:
                leave(i, net)
            else:
                listed[kept] = i
                kept += 1
        rounds = rounds + 1 if kept == live else 0
        live = kept
    tasks = numbers_of(net.tasks)
    for i in range(net.task_count):
        put_rate(tasks[i], rate[i], net)
    if net.metered == 1:
        meter_group(net)


@jit
def meter_group(net: Network) -> None:
    """Let the meter know what each link of the group carries from now on."""
    places, amounts, found = numbers_of(net.places), reals_of(net.amounts), numbers_of(net.found)
    first, last = numbers_of(net.first), numbers_of(net.last)
    rate, taken = reals_of(net.rate), reals_of(net.taken)
    for place in range(net.found_count):
        taken[place] = 0.0
    for i in range(net.task_count):
        for u in range(first[i], last[i]):
            taken[places[u]] += rate[i] * amounts[u]
    for place in range(net.found_count):
        put_carried(found[place], taken[place], net)


@jit
def put_rate(s: int, rate: float, net: Network) -> None:
    """Set the rate of a task from now on, and when it is done."""
    strand = strands_of(net)[s]
    if rate == strand.rate:
        return
    strand.left -= strand.rate * (net.now - strand.since)
    strand.since = net.now
    strand.rate = rate
    reals_of(net.due)[s] = net.now + strand.left / rate if rate > 0 else FOREVER


@jit
def share_again(net: Network) -> None:
    """Set the rates of tasks that a change concerns, and when they are done.

    The group of the last change is kept, as the next change often concerns it again.
    """
    resources, touched = resources_of(net), numbers_of(net.touched)
    drop_done(net)
    add_fresh(net)
    group = net.group
    for k in range(net.touched_count):
        if resources[touched[k]].group == group:
            share_in_group(net)
            break
    for k in range(net.touched_count):
        if resources[touched[k]].group < group and resources[touched[k]].first >= 0:
            begin_group(net)
            add_resource(touched[k], net)
            add_neighbors(ZERO, net)
            share_in_group(net)
    if net.metered == 1:
        for k in range(net.touched_count):
            if resources[touched[k]].first < 0:
                put_carried(touched[k], 0.0, net)
    net.touched_count = 0
    net.fresh_count = 0
    net.stamp += 1
