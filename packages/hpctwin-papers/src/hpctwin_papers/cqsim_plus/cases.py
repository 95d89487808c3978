"""Studies of CQSim+ with their published results.

Source: Kurkure et al., SIGSIM-PADS 2025, doi 10.1145/3726301.3728404, tables 1 to 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpctwin.facility import Facility, Strategy, parse_strategy
from hpctwin.formats import SwfRules, read_workload
from hpctwin.model import Workload
from hpctwin_papers.theta_year import experiment as theta_year
from hpctwin_papers.traces import need_trace

SIZE_EDGES = (128.0, 256.0, 512.0, 1024.0, 2180.0)
WALLTIME_EDGES_S = tuple(60.0 * m for m in (10, 30, 60, 120, 250, 500, 1000, 1500))
TRIMMED = 1000
"""Number of jobs excluded at each end, by id, as in the authors' analysis."""


def oracle(strategy: str = "sgs-t", **options: Any) -> Strategy:
    """Return a strategy of CQSim+: it knows all runtimes, and draws among equals."""
    return parse_strategy(strategy, knows="oracle", tie_break="random", **options)


def _published() -> list[Strategy]:
    return [oracle(), parse_strategy("sgs-t"), parse_strategy("sgs-t", knows="like-jobs")]


def _more() -> list[Strategy]:
    return [
        parse_strategy("round-robin"),
        parse_strategy("least-loaded"),
        parse_strategy("peer"),
        parse_strategy("earliest-start"),
        parse_strategy("sgs(total)"),
        parse_strategy("sgs-t", samples=3),
        parse_strategy("sgs-t", batch=4, window_s=600),
        parse_strategy("sgs-t", move_every_s=3600),
    ]


MORE = _more
"""Further strategies; none knows more than walltimes."""


@dataclass(frozen=True)
class Published:
    """Published mean waits of one strategy, in minutes.

    Args:
        overall: Mean wait of all jobs.
        size: Mean waits by the upper edge of each bin, in nodes.
        walltime: Mean waits by the upper edge of each bin, in seconds.
    """

    overall: float
    size: Mapping[float, float]
    walltime: Mapping[float, float]


def _waits(overall: float, size: Sequence[float], walltime: Sequence[float]) -> Published:
    return Published(
        overall,
        dict(zip(SIZE_EDGES, size, strict=True)),
        # The first edge is the lower end of the first bin.
        dict(zip(WALLTIME_EDGES_S[1:], walltime, strict=True)),
    )


@dataclass(frozen=True)
class Case:
    """One of the published studies.

    Args:
        facility: The clusters.
        workload: Function that reads the trace and returns it with its description.
        strategies: Function that returns the strategies, the published ones first.
        trimmed: Number of jobs excluded at each end.
        published: Published mean waits by strategy.
        by_rule: Strategies that also run by CQSim+'s rule.
        ways: Whether jobs are grouped by origin and destination (table 5).
        sizes: Upper bounds of the size classes in the chart of waits, by cluster; empty for no
            chart.
    """

    facility: Facility
    workload: Callable[[], tuple[Workload, str]]
    strategies: Callable[[], list[Strategy]]
    trimmed: int = 0
    published: Mapping[str, Published] = field(default_factory=dict)
    by_rule: tuple[str, ...] = ()
    ways: bool = False
    sizes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def _theta_polaris() -> tuple[Workload, str]:
    path = need_trace("polaris_theta_23.swf")
    rules = SwfRules(partition_field="queue")
    return read_workload(path, rules=rules), "Polaris and Theta, September to December 2023"


def _two_halves(factor: float) -> Facility:
    return Facility.model_validate(
        {
            "name": "theta-halves",
            "clusters": [
                {"name": "system-1", "nodes": 2180},
                {"name": "system-2", "nodes": 2180, "factor": factor},
            ],
        }
    )


_ALCF = Facility.model_validate(
    {
        "name": "alcf",
        "kinds": [
            {"name": "polaris-gpu", "user": "0", "partition": "1"},
            {"name": "polaris-cpu", "user": "0"},
            {"name": "theta-cpu", "user": "1"},
        ],
        "origin": {"by": "user", "clusters": {"0": "polaris", "1": "theta"}},
        "clusters": [
            {"name": "polaris", "nodes": 552, "factor": {"theta-cpu": 0.25}},
            {
                "name": "theta",
                "nodes": 4360,
                "kinds": ["polaris-cpu", "theta-cpu"],
                "factor": {"polaris-cpu": 4},
            },
        ],
    }
)

CASES: dict[str, Case] = {
    "homogeneous": Case(
        _two_halves(1.0),
        theta_year.workload,
        lambda: [parse_strategy("random"), *_published()],
        TRIMMED,
        by_rule=("random", "sgs-t"),
        published={
            "random": _waits(
                551.1,
                (214.6, 558.1, 879.6, 1748.9, 1741.2),
                (534.1, 298.9, 403.1, 410.3, 902.8, 1528.4, 1843.3),
            ),
            "sgs-t": _waits(
                416.2,
                (131.4, 416.3, 691.6, 1465.1, 1301.6),
                (402.9, 218.0, 338.5, 285.6, 715.1, 1155.5, 1527.6),
            ),
        },
    ),
    "heterogeneous": Case(
        _two_halves(1.3),
        theta_year.workload,
        lambda: [parse_strategy("user(0.6)"), *_published()],
        TRIMMED,
        by_rule=("user(0.6)", "sgs-t"),
        published={
            "user(0.6)": _waits(
                928.6,
                (344.0, 952.2, 1456.0, 3006.6, 3073.3),
                (1099.9, 576.3, 570.7, 659.8, 1446.1, 2438.3, 4267.4),
            ),
            "sgs-t": _waits(
                681.7,
                (218.6, 676.2, 1185.8, 2351.5, 2142.2),
                (641.5, 443.1, 439.2, 469.7, 1057.2, 2021.1, 2310.0),
            ),
        },
    ),
    "theta-polaris": Case(
        _ALCF,
        _theta_polaris,
        lambda: [parse_strategy("siloed"), parse_strategy("user(0.6)"), *_published()],
        by_rule=("siloed", "sgs-t"),
        ways=True,
        sizes={
            "polaris": (1, 8, 32, 64, 128, 256, 560),
            "theta": (1, 128, 256, 512, 1024, 2180, 4360),
        },
    ),
}

PUBLISHED_WAYS = (
    # Table 5 as printed: origin, destination under SGS-T, jobs, mean wait siloed and under SGS-T,
    # s.
    ("polaris", "polaris", 18_439, 18_707, 16_898),
    ("theta", "polaris", 4_943, 10_363, 5_439),
    ("polaris", "theta", 7_827, 44_061, 2_107),
    ("theta", "theta", 3_338, 27_441, 29_510),
)
EXCHANGED = (
    "table 5 seems to have exchanged the waits of its first two rows. By CQSim+'s rule, jobs of Theta sent "
    "to Polaris have the waits that it prints for jobs of Polaris that stayed there, and the other way "
    "round. Its numbers of jobs are not reproduced."
)
"""Note on table 5."""
