"""Energy of a run, and of what has happened so far."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl

from hpctwin.contention.link_loads import LinkLoads
from hpctwin.energy.accounts.accounting import Energy, NetworkPower
from hpctwin.energy.accounts.outputs import LoadEnergy
from hpctwin.energy.accounts.shared_energy import energy_of
from hpctwin.energy.power.states import split_log, time_by_mode
from hpctwin.engine.operations.power_control import past_states, spent_ms, spent_since_end_ms
from hpctwin.model import MS_PER_S, Cluster
from hpctwin.simulation.result.link_use import LinkUse
from hpctwin.simulation.state.base import SimulationBase

__all__ = ["energy_so_far"]


def energy_so_far(
    simulation: SimulationBase,
    jobs: pl.DataFrame,
    node_map: pl.DataFrame,
    *,
    settled: bool = False,
) -> Energy:
    """Account for time and energy of each node in each state, and of each job.

    The account covers the time from the first submission to the last end of a job; while the
    simulation continues, up to now.

    Args:
        simulation: The simulation.
        jobs: Table of its jobs.
        node_map: Nodes of the jobs; if jobs share nodes, with the shares they used and held.
        settled: Whether the account ends with the last end of a job even while the simulation
            continues, if a job has ended. Jobs to come change nothing of it.
    """
    sim, cluster, workload = simulation.state, simulation.cluster, simulation.workload
    spent = spent_ms(sim)
    end_ms = int(sim.clock.now)
    begin_ms = end_ms - int(spent[:, 0].sum())
    log = past_states(sim) if simulation.log else None
    changes = simulation.outside.changes
    if (settled or simulation.done or simulation.over) and 0 <= sim.clock.ended < end_ms:
        # Jobs that never run may be submitted, canceled, or pending forever after the last end.
        end_ms = int(sim.clock.ended)
        spent -= spent_since_end_ms(sim)
        changes = tuple(change for change in changes if change.time_ms <= end_ms)
        if log is not None:
            log = log[:, log[2] < end_ms]
            log[3] = np.minimum(log[3], end_ms)
    spent = spent[: 2 + 3 * cluster.depths]
    if changes:
        spent = time_by_mode(cluster, changes, spent)
        log = None if log is None else split_log(cluster, changes, log)
    energy = energy_of(
        workload, cluster, jobs, node_map, spent, log, changes, begin_s=begin_ms / MS_PER_S
    )
    network = simulation.network
    if network is None:
        return energy
    loads = None if energy.network is None else network.link_loads(end_ms)
    if loads is not None:
        energy = dataclasses.replace(energy, network=_loaded(cluster, energy.network, loads))
    spared = network.spared(int(sim.clock.now))
    if spared is None:
        return energy
    names = ["row", "start_ms", "end_ms", "spared_j"]
    runs = pl.DataFrame(
        spared.runs, dict(zip(names, [*[pl.Int64] * 3, pl.Float64], strict=True)), orient="row"
    )
    runs = runs.select(pl.Series("job_id", workload.job_id[runs["row"].to_numpy()]), *names[1:])
    own = {one.name: getattr(energy, one.name) for one in dataclasses.fields(energy)}
    return LoadEnergy(
        **own, runs=runs, node_spared_j=dict(zip(spared.modes, spared.of_nodes, strict=True))
    )


def _loaded(cluster: Cluster, idle: NetworkPower | None, loads: LinkLoads) -> NetworkPower:
    """Return the power draw of links and switches that carry loads."""
    platform = cluster.platform
    assert platform is not None
    assert idle is not None
    use = LinkUse(platform, loads)
    more_w = (platform.link_busy_w - platform.link_idle_w)[use.links] @ use.utilization
    return NetworkPower(idle.idle_w, np.append(use.times_s, loads.end_s), more_w)
