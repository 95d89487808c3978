"""Free cores of each shared node over time, for passes that search many starts.

The table has a row of cells for each row of ``sim.sums``, with one cell for each node. A cell is the
number of cores that running jobs and reservations leave free from then on. The minimum of a column
over the span of a job bounds how many of its tasks fit on that node.

The table has no other amounts, no maintenance, and counts switched-off nodes as free. If a job does
not fit the table, it does not fit the nodes. If it fits the table, the nodes must be checked.

Rows of cells do not move when a row is inserted: ``Sums.cells`` names the cells of each row.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.shared.fit import is_up
from hpctwin.engine.shared.node_resources import CORES, held
from hpctwin.engine.state.layout import MINUS_ONE, Arrays
from hpctwin.engine.state.records import Table

__all__ = [
    "add_job", "add_reservation", "begin_least", "copy_cells", "last_misfit", "least_with", "lower_least",
    "sum_up",
]  # fmt: skip


@jit
def copy_cells(cells: int, to: int, sim: Arrays) -> None:
    """Copy a row of cells over another."""
    for node in range(sim.free_cores.width):
        sim.free_cores[to, node] = sim.free_cores[cells, node]


@jit
def add_job(j: int, first: int, last: int, sign: int, sim: Arrays) -> None:
    """Add the cores of a running job to rows, times ``sign``; ``last`` is the row after these."""
    p = sim.state[j].first_node
    while p >= 0:
        part = sim.part[p]
        cores = sign * held(part.kind, part.node, part.tasks, CORES, sim)
        for row in range(first, last):
            sim.free_cores[sim.sums[row].cells, part.node] += cores
        p = part.next


@jit
def add_reservation(promise: int, first: int, last: int, sign: int, sim: Arrays) -> None:
    """Add the reserved cores of a job to rows, times ``sign``; ``last`` is the row after these."""
    p = promise
    while p >= 0:
        own = sim.promise[p]
        cores = sign * held(own.kind, own.node, own.tasks, CORES, sim)
        for row in range(first, last):
            sim.free_cores[sim.sums[row].cells, own.node] += cores
        p = own.next


@jit
def sum_up(rows: int, sim: Arrays) -> None:
    """Add to each row of cells all rows before it."""
    for row in range(1, rows):
        for node in range(sim.free_cores.width):
            sim.free_cores[row, node] += sim.free_cores[row - 1, node]


@jit
def begin_least(row: int, least: Table[int], sim: Arrays) -> None:
    """Set ``least`` [nodes] to the cells of a row."""
    cells = sim.sums[row].cells
    for node in range(sim.free_cores.width):
        least[node] = sim.free_cores[cells, node]


@jit
def lower_least(row: int, least: Table[int], sim: Arrays) -> int:
    """Lower ``least`` [nodes] to the cells of a row; return the sum of what is left."""
    cells = sim.sums[row].cells
    total = 0
    for node in range(sim.free_cores.width):
        fewer = min(least[node], sim.free_cores[cells, node])
        least[node] = fewer
        total += fewer
    return total


@jit
def least_with(promise: int, sim: Arrays) -> None:
    """Set ``sim.least_cores`` to ``sim.least_later`` and what is reserved for a job.

    ``promise`` is the first row of the reservation.
    """
    for node in range(sim.free_cores.width):
        sim.least_cores[node] = sim.least_later[node]
    p = promise
    while p >= 0:
        own = sim.promise[p]
        sim.least_cores[own.node] += held(own.kind, own.node, own.tasks, CORES, sim)
        p = own.next


@jit
def last_misfit(kind: int, first: int, last: int, sim: Arrays) -> int:
    """Return the last row from which on a kind of job does not fit up to another; -1 if it does.

    The rows are tried from the last one back. If a job does not fit from one of them on, it does not
    fit from any earlier one on either: its span then includes the same rows. All these starts are
    skipped at once. ``sim.least_cores`` holds the minima of the rows after these.

    Args:
        kind: Kind of job.
        first, last: The first of the rows, and the row after the last.
        sim: Simulation.
    """
    cores = sim.shape[kind].tasks * sim.needs[kind, CORES]
    for row in range(last - 1, first - 1, -1):
        if lower_least(row, sim.least_cores, sim) < cores:
            return row
    return MINUS_ONE if fits_table(kind, sim) else first


@jit
def fits_table(kind: int, sim: Arrays) -> bool:
    """Return whether the tasks of a kind of job may fit ``sim.least_cores``."""
    shape = sim.shape[kind]
    needs = sim.needs[kind, CORES]
    if needs == 0:
        return True
    total = nodes = 0
    for node in range(len(sim.least_cores)):
        if sim.least_cores[node] >= needs and is_up(kind, node, sim):
            total += min(sim.least_cores[node] // needs, shape.most)
            nodes += 1
            if total >= shape.tasks and nodes >= shape.nodes:
                return True
    return False
