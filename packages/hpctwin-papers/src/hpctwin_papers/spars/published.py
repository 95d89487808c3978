"""Published results of SPARS: six schedulers, twelve timeouts, and Batsim's EASY-PSUS.

Source: Amrizal et al., SoftwareX 34, 102693, 2026, and the results in the repository
    RakaSP/SPARS-Pub
(results_save, platform-nasa-128, nasa-20-back).
"""

from __future__ import annotations

from typing import NamedTuple

TIMEOUTS_S = tuple(300 * step for step in range(1, 13))
RUN_S = (16.21, 15.22, 14.56, 14.27, 13.90, 13.54, 14.02, 14.36, 12.66, 13.18, 12.67, 12.52)
"""Table 5: run time of EASY with PSUS by timeout, in seconds."""
NO_MANAGEMENT_J = 45.23e9
"""Energy with all nodes on from the first submission to the last end."""
COMPUTE_ALONE_J = 15.53e9
"""Energy if only nodes that compute draw power."""


class Cell(NamedTuple):
    """One published run.

    Args:
        total_j: Energy of the whole run, in J.
        wasted_j: Energy of nodes without a job, in J.
        mean_wait_s: Mean wait of the jobs, in s.
    """

    total_j: float
    wasted_j: float
    mean_wait_s: float


# fmt: off
PUBLISHED: dict[str, tuple[tuple[float, ...], ...]] = {
    # Total energy and wasted energy, GJ, and mean wait, s; by timeout.
    "fcfs-psus": (
        (27.174, 26.437, 25.933, 25.715, 25.918, 25.785, 25.905, 26.138, 26.078, 26.439, 26.724, 26.853),
        (10.892, 10.112, 9.569, 9.335, 9.540, 9.390, 9.508, 9.748, 9.679, 10.054, 10.353, 10.481),
        (30149.5, 14593.8, 9944.5, 5520.4, 3862.7, 3524.5, 3447.5, 1689.9, 1331.7, 1187.4, 1134.6, 1079.7),
    ),
    "easy-psus": (
        (24.885, 25.340, 24.856, 25.556, 25.574, 25.999, 26.029, 26.037, 26.099, 26.496, 26.632, 26.840),
        (8.483, 8.952, 8.432, 9.162, 9.170, 9.611, 9.638, 9.642, 9.706, 10.119, 10.260, 10.473),
        (3469.8, 3081.3, 2101.1, 1561.7, 1443.4, 1468.3, 1248.0, 1010.9, 936.8, 901.9, 809.2, 794.2),
    ),
    "fcfs-auto": (
        (24.074, 23.867, 24.253, 24.599, 24.841, 25.283, 25.572, 26.094, 26.464, 26.697, 26.850, 27.048),
        (7.670, 7.427, 7.814, 8.164, 8.400, 8.858, 9.151, 9.692, 10.079, 10.318, 10.477, 10.683),
        (12411.0, 4485.7, 2972.4, 2888.3, 1599.8, 1508.8, 1316.9, 927.4, 871.9, 863.7, 841.5, 808.0),
    ),
    "easy-auto": (
        (23.318, 23.644, 24.189, 24.324, 24.759, 25.272, 25.542, 26.046, 26.377, 26.677, 26.864, 27.112),
        (6.858, 7.184, 7.744, 7.870, 8.309, 8.845, 9.117, 9.641, 9.987, 10.297, 10.491, 10.749),
        (2613.1, 1994.2, 1574.1, 1431.4, 962.7, 802.4, 841.4, 628.4, 589.8, 556.2, 541.8, 515.1),
    ),
    "fcfs-ipm": (
        (22.827, 23.094, 23.382, 23.707, 24.021, 24.248, 24.533, 24.781, 25.042, 25.352, 25.477, 25.640),
        (6.320, 6.593, 6.886, 7.221, 7.540, 7.773, 8.068, 8.321, 8.594, 8.915, 9.041, 9.208),
        (1917.5, 1551.6, 1229.2, 1051.6, 1012.9, 920.7, 986.6, 870.0, 809.0, 785.1, 748.5, 617.1),
    ),
    "easy-ipm": (
        (22.794, 23.132, 23.364, 23.705, 23.885, 24.323, 24.492, 24.697, 24.897, 25.225, 25.435, 25.641),
        (6.294, 6.638, 6.871, 7.218, 7.398, 7.855, 8.027, 8.235, 8.441, 8.783, 9.000, 9.212),
        (1259.8, 1042.1, 967.8, 840.4, 778.1, 693.6, 687.8, 591.5, 561.1, 531.6, 523.0, 443.1),
    ),
    "batsim": (
        (25.374, 24.982, 25.031, 25.382, 25.706, 25.795, 25.850, 26.151, 26.213, 26.592, 26.670, 26.879),
        (9.006, 8.572, 8.621, 8.981, 9.313, 9.392, 9.446, 9.761, 9.824, 10.219, 10.296, 10.511),
        (5772.5, 2541.8, 2123.0, 1532.7, 1427.1, 1369.5, 1142.1, 1118.2, 948.7, 902.8, 800.2, 812.6),
    ),
}
# fmt: on


def published(scheduler: str, timeout_s: float) -> Cell | None:
    """Return a scheduler's (or ``batsim``'s) published run with a timeout, or None."""
    if scheduler not in PUBLISHED or timeout_s not in TIMEOUTS_S:
        return None
    total, wasted, wait = (row[TIMEOUTS_S.index(int(timeout_s))] for row in PUBLISHED[scheduler])
    return Cell(1e9 * total, 1e9 * wasted, wait)
