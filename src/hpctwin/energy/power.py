"""The power policy: when nodes are switched off and on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpctwin.engine.layout import ALL_NODES, NOT_SWITCHING_OFF, ONLY_ACTIVE
from hpctwin.errors import ConfigError, UnknownNameError

__all__ = ["FAULTS", "KINDS", "PASS_FAULTS", "PowerPolicy", "Rule"]

Rule = Literal["sound", "as-published"]
KINDS = ("none", "psus", "psas-auto", "psas-ipm", "orders")

PASS_FAULTS = ("three-waiting", "lost-reservation", "stops-while-off")
"""Those of EASY itself."""
FAULTS = (*PASS_FAULTS, "sleepers-first", "hides-switching-off")
"""Faults of SPARS's schedulers: EASY backfills only with three jobs waiting; the head's reservation is
lost if a job before it started in the same pass; no backfilling while the head is wider than what is not
switching off; sleeping nodes are taken before idle ones as soon as one is needed; nodes that are
switching off are not counted as nodes a job could wait for."""


@dataclass(frozen=True)
class PowerPolicy:
    """When nodes are switched off and on.

    Args:
        kind: ``none`` leaves all nodes on. The others switch nodes off that have been idle for the
            timeout. ``psus`` gives jobs nodes whether these are on or not, and jobs wait for them;
            ``psas-auto`` does so with nodes that are there soonest; ``psas-ipm`` counts transitions in
            the plan, wakes nodes in time for it and leaves on what it needs soon. ``orders`` switches
            nodes on only when told from outside, by `PoweredSimulation.switch` or a `control` function.
        timeout_s: how long a node is idle before it is switched off, seconds; None for never.
        deeper_s: how long a node stays in each sleep state before it goes to the next, seconds.
        keep: so many idle nodes are left on in each node group.
        rule: ``sound``, or ``as-published`` for what SPARS does (without backfilling).
        fault: one of `FAULTS` on top of the sound rule, to see what it alone moves; None for none.

    Raises:
        UnknownNameError: there is no such kind.
        ConfigError: a number is out of range.
    """

    kind: str = "none"
    timeout_s: float | None = None
    deeper_s: tuple[float, ...] = ()
    keep: int = 0
    rule: Rule = "sound"
    fault: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownNameError("power policy", self.kind, list(KINDS))
        if self.fault is not None and self.fault not in FAULTS:
            raise UnknownNameError("fault", self.fault, list(FAULTS))
        for name, value in (("timeout", self.timeout_s), *(("deeper", s) for s in self.deeper_s)):
            if value is not None and not value >= 0:
                raise ConfigError(f"{name} of a power policy is {value!r}, it must be 0 s or more")
        if self.keep < 0:
            raise ConfigError(f"keep of a power policy is {self.keep}, it must be 0 or more")
        if self.rule not in ("sound", "as-published"):
            raise ConfigError(f"rule is {self.rule!r}, it must be sound or as-published")

    @property
    def shown(self) -> int:
        """Which of the nodes that are not active jobs may be given, in the engine's words."""
        if self.kind in ("psas-ipm", "orders"):
            return int(ONLY_ACTIVE)
        published = self.kind == "psas-auto" and self.rule == "as-published"
        return int(
            NOT_SWITCHING_OFF if published or self.fault == "hides-switching-off" else ALL_NODES
        )

    @property
    def by_node(self) -> bool:
        """Whether it plans by node, as SPARS's published power manager does, jobs and all."""
        return self.kind == "psas-ipm" and self.rule == "as-published"

    @property
    def name(self) -> str:
        """A short name."""
        if self.kind == "none" or self.timeout_s is None:
            return self.kind
        return f"{self.kind}@{self.timeout_s:g}s"
