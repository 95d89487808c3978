"""A generated year with the statistics of Theta's 2022 (ALCF, 4,360 nodes).

The numbers below come from the public job records of that year (23,911 jobs). They are frequencies
of widths, deciles of walltimes and of runtime / walltime by class of width, and deciles of the gaps
between submissions.
"""

from __future__ import annotations

import numpy as np

from hpctwin.generate.draws import above_zero, count_of, generator, quantile_draw
from hpctwin.model import Workload

__all__ = ["theta_year"]

WIDTHS = {
    128: 0.5602, 144: 0.0032, 150: 0.0025, 192: 0.0144, 216: 0.0028, 256: 0.1825, 300: 0.0051,
    384: 0.0081, 400: 0.0056, 500: 0.0026, 504: 0.0030, 512: 0.0427, 540: 0.0035, 600: 0.0033,
    640: 0.0088, 768: 0.0033, 802: 0.0044, 804: 0.0089, 875: 0.0057, 957: 0.0021, 1024: 0.0501,
    1620: 0.0018, 2048: 0.0058, 2400: 0.0018,
}  # fmt: skip
"""The 24 most common widths (93 % of the jobs) and their frequencies.

Other widths are omitted.
"""

CLASSES = (
    (128, (1200, 1800, 2400, 3600, 3600, 7200, 10800, 10800, 10800, 10800, 10800),
     (0.001, 0.023, 0.080, 0.267, 0.545, 0.796, 0.940, 0.986, 1.004, 1.009, 1.05)),
    (256, (1800, 2400, 3600, 3600, 10800, 10800, 14400, 21600, 21600, 21600, 21600),
     (0.001, 0.016, 0.070, 0.315, 0.648, 0.857, 0.967, 0.987, 1.002, 1.004, 1.05)),
    (512, (1800, 3600, 3600, 7200, 14400, 21600, 21600, 28800, 32400, 32400, 32400),
     (0.001, 0.016, 0.043, 0.254, 0.581, 0.783, 0.979, 0.995, 1.002, 1.004, 1.05)),
    (1024, (1800, 1800, 3600, 9000, 10800, 21600, 28800, 36000, 43200, 86400, 86400),
     (0.001, 0.032, 0.238, 0.486, 0.680, 0.744, 0.911, 0.993, 1.001, 1.004, 1.05)),
    (4360, (1800, 3600, 7200, 10800, 14400, 21600, 28800, 57240, 86400, 86400, 86400),
     (0.001, 0.008, 0.043, 0.198, 0.516, 0.738, 0.916, 1.001, 1.002, 1.007, 1.05)),
)  # fmt: skip
"""Largest width of a class; deciles of walltimes (s) and of runtime / walltime."""

GAPS_S = (0.0, 3.0, 6.0, 16.0, 41.0, 156.0, 410.4, 821.0, 1560.0, 3442.1, 135_842.0)
"""Deciles of the gaps between submissions."""

WEEKLY_SIGMA = 0.2
"""Spread of the logarithm of the weekly load."""


def theta_year(
    *,
    jobs: int = 23_911,
    nodes: int = 4360,
    days: float = 363.7,
    load: float = 0.759,
    seed: int = 0,
) -> Workload:
    """Generate jobs like those of Theta in 2022.

    Args:
        jobs: Number of jobs.
        nodes: Number of nodes of the cluster; wider jobs get all of it.
        days: Time from the first submission to the last, in days.
        load: Offered load, sum(runtime · nodes) / (nodes · span); runtimes and walltimes are
            stretched to it.
        seed: Seed of all draws.

    Raises:
        ConfigError: The value of an option is not valid.
    """
    rng = generator(seed)
    size = count_of("jobs", jobs)
    span = above_zero("days", days) * 86_400
    common = np.array(list(WIDTHS.values()))
    width = rng.choice(np.array(list(WIDTHS)), size, p=common / common.sum())
    walltime = np.empty(size)
    ratio = np.empty(size)
    above = 0
    for largest, walltimes, ratios in CLASSES:
        mine = np.flatnonzero((width > above) & (width <= largest))
        # Walltimes are mostly round, so a decile is drawn and not a value between two.
        walltime[mine] = rng.choice(walltimes, len(mine))
        ratio[mine] = quantile_draw(rng, len(mine), ratios)
        above = largest
    runtime = np.maximum(walltime * ratio, 1.0)
    width = np.minimum(width, count_of("nodes", nodes))
    stretch = above_zero("load", load) * nodes * span / (width * runtime).sum()
    submit = _submissions(rng, size, span)
    return Workload.build(
        submit_s=submit,
        runtime_s=np.maximum(np.rint(runtime * stretch), 1),
        walltime_s=np.maximum(np.rint(walltime * stretch / 60) * 60, 60),
        nodes=width,
        name="theta-year",
        nodes_hint=nodes,
    )


def _submissions(rng: np.random.Generator, size: int, span: float) -> np.ndarray:
    """Return submit times in seconds, with recorded gaps and weeks of differing load."""
    gaps = quantile_draw(rng, size, GAPS_S, least=1.0)
    busy = rng.lognormal(0.0, WEEKLY_SIGMA, max(1, round(span / (7 * 86_400))))
    done = np.concatenate([[0.0], np.cumsum(busy)])
    progress = np.cumsum(gaps) - gaps[0]
    share = progress / max(progress[-1], 1e-9)
    times: np.ndarray = np.interp(share * done[-1], done, np.linspace(0, span, len(done)))
    whole: np.ndarray = np.floor(times)
    return whole
