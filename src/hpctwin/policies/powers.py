"""Power policies: which nodes are on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from hpctwin.engine.layout import ALL_NODES, NOT_SWITCHING_OFF, ONLY_ACTIVE
from hpctwin.errors import ConfigError, PolicyError, UnknownNameError
from hpctwin.policies.files import is_file, load_function, split_file
from hpctwin.policies.registry import Entry, Parameter, Registry

__all__ = ["FAULTS", "PASS_FAULTS", "POWERS", "PowerPolicy", "Rule", "find_power"]

Rule = Literal["sound", "as-published"]

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
            nodes on only when told from outside, by `Simulation.switch` or a control function.
        timeout_s: how long a node is idle before it is switched off, seconds; None for never.
        deeper_s: how long a node stays in each sleep state before it goes to the next, seconds.
        keep: so many idle nodes are left on in each node group.
        rule: ``sound``, or ``as-published`` for what SPARS does (without backfilling).
        fault: one of `FAULTS` on top of the sound rule, to see what it alone moves; None for none.
        control: of ``orders``: a function ``(view) -> Orders`` that is asked after each instant.
        source: where the control function was found, as in ``my.py:my_control``.

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
    control: Callable[[Any], Any] | None = None
    source: str = ""

    def __post_init__(self) -> None:
        POWERS.find(self.kind)
        if self.fault is not None and self.fault not in FAULTS:
            raise UnknownNameError("fault", self.fault, list(FAULTS))
        for name, value in (("timeout", self.timeout_s), *(("deeper", s) for s in self.deeper_s)):
            if value is not None and not value >= 0:
                raise ConfigError(f"{name} of a power policy is {value!r}, it must be 0 s or more")
        if self.keep < 0:
            raise ConfigError(f"keep of a power policy is {self.keep}, it must be 0 or more")
        if self.rule not in ("sound", "as-published"):
            raise ConfigError(f"rule is {self.rule!r}, it must be sound or as-published")
        if self.control is not None and self.kind != "orders":
            raise ConfigError(
                f"a control function needs power policy 'orders', not {self.kind!r}: else two would "
                "switch the same nodes"
            )

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
    def switches(self) -> bool:
        """Whether nodes are ever switched."""
        return self.kind != "none"

    @property
    def name(self) -> str:
        """Short text such as ``psus:20m``; `find_power` reads it."""
        values = {
            "timeout": self.timeout_s,
            "deeper": self.deeper_s,
            "keep": self.keep,
            "rule": self.rule,
            "fault": self.fault,
        }
        entry = POWERS.find(self.kind)
        if self.control is not None:
            called = self.source or getattr(self.control, "__name__", repr(self.control))
            entry = dataclasses.replace(entry, name=called)
        # Else it could be taken for one that was forgotten.
        return entry.text(values, always=("timeout",) if self.kind in NEED_TIMEOUT else ())


_PARAMETERS = (
    Parameter("timeout", "timeout", help="idle so long, a node is switched off"),
    Parameter("deeper", "durations", (), help="so long in each sleep state, then to the next: 1h/4h"),
    Parameter("keep", "whole", 0, help="so many idle nodes of each group stay on"),
    Parameter("rule", "word", "sound", known=("sound", "as-published"), help="as-published: as SPARS"),
    Parameter("fault", "word", known=FAULTS, help="one fault of SPARS's schedulers"),
)  # fmt: skip

POWERS: Registry[PowerPolicy] = Registry("power policy")
"""By name."""

NEED_TIMEOUT = ("psus", "psas-auto", "psas-ipm")
"""Without one they would switch nothing."""

for _name, _help in (
    ("none", "all nodes stay on"),
    ("psus", "idle nodes go off; jobs get the first free nodes, on or not, and wait for them"),
    ("psas-auto", "idle nodes go off; jobs get those of the free nodes that are on soonest"),
    ("psas-ipm", "idle nodes go off; nodes are woken as late as the plan of the waiting jobs allows"),
    ("orders", "nodes are switched from outside, or by a function of one's own"),
):  # fmt: skip

    def _make(kind: str = _name, **values: Any) -> PowerPolicy:
        return PowerPolicy(
            kind,
            values.get("timeout"),
            deeper_s=values.get("deeper", ()),
            keep=values.get("keep", 0),
            rule=values.get("rule", "sound"),
            fault=values.get("fault"),
        )

    _none = _name == "none"
    POWERS.register(Entry(_name, _help, _make, () if _none else _PARAMETERS, "timeout"))


def find_power(what: str | PowerPolicy | Callable[[Any], Any] | None) -> PowerPolicy:
    """The power policy a user means.

    Args:
        what: a `PowerPolicy`; a control function; or text: a name with its parameters, the timeout first,
            as in ``psus:20m`` or ``psas-ipm:20m,deeper=1h,keep=4``; or a control function in a file, as in
            ``my.py:my_control``.

    Raises:
        UnknownNameError, ConfigError, PolicyError: there is none such.
    """
    if what is None:
        return PowerPolicy()
    if isinstance(what, PowerPolicy):
        return what
    if callable(what):
        return PowerPolicy("orders", control=what)
    if not isinstance(what, str):
        raise PolicyError(f"a power policy is {what!r}; it must be a name or a function")
    text = what.strip()
    if is_file(text):
        source, function = load_function(text, PowerPolicy, "control function", default="control")
        if not callable(function):
            raise PolicyError(f"{source} is {type(function).__name__}, not a function")
        made = _read("orders", split_file(text)[2])
        return dataclasses.replace(made, control=function, source=source)
    name, _, details = text.partition(":")
    made = _read(name.strip(), details)
    if made.timeout_s is None and made.kind in NEED_TIMEOUT and "never" not in details:
        raise ConfigError(
            f"power policy {name!r} switches no node off without a timeout: give one, such as "
            f"{name}:20m, or take none to leave all nodes on"
        )
    if made.timeout_s is None and (made.keep or made.deeper_s) and made.kind == "orders":
        raise ConfigError(
            f"{name}: keep and deeper need a timeout: without one no node is switched off"
        )
    return made


def _read(name: str, details: str) -> PowerPolicy:
    entry = POWERS.find(name)
    return entry.make(**entry.read(details))
