"""EASY with one of the faults of SPARS's schedulers, to show what each alone moves."""

from __future__ import annotations

from hpctwin.engine.abi import Order
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    NODE_POWER,
    NODES,
    QUEUE,
    QUEUED,
    STARTS,
    Jobs,
    Machine,
    Rules,
    Sim,
    Work,
)
from hpctwin.engine.passes import run_pass
from hpctwin.engine.power_layout import (
    LOST_RESERVATION,
    STOPS_WHILE_OFF,
    SWITCHING_OFF,
    THREE_WAITING,
    PowerRules,
)


@jit()
def head_cannot_be_planned(jobs: Jobs, sim: Sim) -> bool:
    """Whether the first waiting job is wider than all nodes that are not switching off."""
    there = 0
    for node in range(sim.node.shape[1]):
        if sim.node[NODE_POWER, node] != SWITCHING_OFF:
            there += 1
    return jobs.fixed[NODES, sim.number[QUEUE, 0]] > there


@jit()
def faulty_pass(
    order: Order,
    candidate_order: Order,
    jobs: Jobs,
    machine: Machine,
    sim: Sim,
    rules: Rules,
    in_order: Rules,
    unprotected: Rules,
    work: Work,
    prules: PowerRules,
) -> None:
    """A pass in order, then backfilling unless the fault forbids it or takes its reservation away.

    Args:
        order, candidate_order, jobs, machine, sim, rules, work, prules: as elsewhere.
        in_order: the rules without backfilling.
        unprotected: the rules with first-fit backfilling.
    """
    started = sim.count[STARTS]
    run_pass(order, candidate_order, jobs, machine, sim, in_order, work)
    if sim.count[QUEUED] == 0:
        return
    if prules.fault == THREE_WAITING and sim.count[QUEUED] <= 2:
        return
    if prules.fault == STOPS_WHILE_OFF and head_cannot_be_planned(jobs, sim):
        return
    if prules.fault == LOST_RESERVATION and sim.count[STARTS] > started:
        run_pass(order, candidate_order, jobs, machine, sim, unprotected, work)
    else:
        run_pass(order, candidate_order, jobs, machine, sim, rules, work)
