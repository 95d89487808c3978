"""What of nodes jobs held, and for how long."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.model import Cluster

__all__ = ["held_s"]

FloatArray = npt.NDArray[np.float64]


def held_s(
    jobs: pl.DataFrame,
    lost: pl.DataFrame,
    cluster: Cluster,
    what: Literal["cores", "gpus"],
    node_map: pl.DataFrame | None,
    placements: pl.DataFrame | None,
) -> FloatArray | None:
    """Core- or GPU-seconds that each job held, lost attempts included [jobs].

    Args:
        jobs: a result's.
        lost: its attempts that failed.
        cluster: the machine.
        what: of which; a job on whole nodes holds all that they have.
        node_map: where jobs ran, if nodes have identity.
        placements: who held what, where nodes are shared.

    Returns:
        None where it is not known: what nodes have, or, where they differ, on which ones jobs ran.
    """
    of_groups = [getattr(group, what) for group in cluster.nodes]
    if None in of_groups and (what == "cores" or set(of_groups) != {None}):
        return None
    each = np.repeat(
        np.array([value or 0.0 for value in of_groups]), [group.count for group in cluster.nodes]
    )
    if placements is not None:
        held = placements.select("job_id", "start_s", "end_s", held=pl.col(what))
    elif len(set(of_groups)) == 1:
        ran = jobs.filter(pl.col("start_s").is_not_null() & pl.col("end_s").is_not_null())
        columns = ("job_id", "start_s", "end_s", "nodes")
        both = pl.concat([ran.select(columns), lost.select(columns)], how="vertical_relaxed")
        held = both.with_columns(held=pl.col("nodes") * float(of_groups[0] or 0.0))
    elif node_map is not None:
        below = np.concatenate([[0.0], np.cumsum(each)])
        first = node_map["first_node"].to_numpy()
        held = node_map.with_columns(
            held=below[first + node_map["count"].to_numpy()] - below[first]
        )
    else:
        return None
    length = (pl.col("end_s") - pl.col("start_s")).cast(pl.Float64)
    sums = held.group_by("job_id").agg((length * pl.col("held")).sum().alias("held_s"))
    joined = jobs.select("job_id").join(sums, on="job_id", how="left", maintain_order="left")
    return joined["held_s"].fill_null(0.0).to_numpy()
