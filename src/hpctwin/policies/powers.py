"""Power policies: when nodes are switched off and on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from hpctwin.engine.powers import POWER_PASSES, PowerPass
from hpctwin.errors import ConfigError, PolicyError, in_brief
from hpctwin.policies.backfills import Entries, engine_numbers, parameter_of
from hpctwin.policies.registry import (
    Entry,
    Parameter,
    Registry,
    is_file,
    is_network,
    load_function,
    split_file,
)

__all__ = ["POWERS", "PowerPolicy", "find_power"]


@dataclass(frozen=True)
class PowerPolicy:
    """Rule that switches nodes off and on.

    Args:
        kind: ``none`` leaves all nodes on. The others switch nodes off that have been idle for the
            timeout. ``psus`` allocates nodes whether they are on or not, and jobs wait for them.
            ``psas-auto`` does so with the nodes that are ready soonest. ``psas-ipm`` includes
            transitions in the plan, wakes nodes in time for it and leaves on what it needs soon.
            ``orders`` switches nodes on only by orders from outside, of `Simulation.switch` or a
            control function. Registered kinds are possible too.
        timeout_s: Idle time before switch-off, in seconds; None for never.
        deeper_s: Time in each sleep state before the next one, in seconds.
        keep: Number of idle nodes left on in each node group.
        settings: Settings of the kind that differ from the default: name and value.
        control: For ``orders``: a function ``(view) -> Orders`` that is called after each event
            time.
        source: Origin of the control function, as in ``my.py:my_control``.

    Raises:
        UnknownNameError: There is no such kind.
        ConfigError: A number is out of range.
    """

    kind: str = "none"
    timeout_s: float | None = None
    deeper_s: tuple[float, ...] = ()
    keep: int = 0
    settings: tuple[tuple[str, Any], ...] = ()
    control: Callable[[Any], Any] | None = None
    source: str = ""

    def __post_init__(self) -> None:
        POWERS.find(self.kind)
        for name, value in (("timeout", self.timeout_s), *(("deeper", s) for s in self.deeper_s)):
            if value is not None and not value >= 0:
                raise ConfigError(f"{name} of a power policy is {value!r}; it must be 0 s or more")
        if self.keep < 0:
            raise ConfigError(f"keep of a power policy is {self.keep}; it must be 0 or more")
        if self.control is not None and self.kind != "orders":
            raise ConfigError(
                f"a control function needs power policy 'orders', not {self.kind!r}: two "
                "policies cannot switch the same nodes"
            )

    @property
    def power_pass(self) -> PowerPass:
        """The engine's description of its kind."""
        return POWER_PASSES.find(self.kind)

    @property
    def switches(self) -> bool:
        """Whether nodes are ever switched."""
        return self.kind != "none"

    def numbers(self) -> dict[str, int]:
        """Return the settings of its kind in the engine's form."""
        return engine_numbers(POWERS.find(self.kind), dict(self.settings))

    @property
    def name(self) -> str:
        """Short text such as ``psus:20m``; `find_power` reads it."""
        values = {"timeout": self.timeout_s, "deeper": self.deeper_s, "keep": self.keep}
        entry = POWERS.find(self.kind)
        if self.control is not None:
            called = self.source or getattr(self.control, "__name__", repr(self.control))
            entry = dataclasses.replace(entry, name=called)
        # Otherwise the timeout would look forgotten.
        always = ("timeout",) if needs_timeout(self.kind) else ()
        return entry.text({**values, **dict(self.settings)}, always=always)


_COMMON = (
    Parameter("timeout", "timeout", help="idle time before a node is switched off"),
    Parameter("deeper", "durations", (), help="time in each sleep state before the next deeper one: 1h/4h"),
    Parameter("keep", "whole", 0, help="idle nodes of each group that stay on"),
)  # fmt: skip


@lru_cache(maxsize=64)
def _entry(name: str) -> Entry[PowerPolicy]:
    told = POWER_PASSES.about(name)
    own = tuple(parameter_of(one) for one in told.numbers)
    parameters = (_COMMON if "TAKES_TIMEOUT" in told.marks else ()) + own
    first = parameters[0].name if parameters[:3] == _COMMON or len(parameters) == 1 else ""
    return Entry(name, told.help, partial(_made, name, own), parameters, first)


def _made(kind: str, own: tuple[Parameter, ...], **values: Any) -> PowerPolicy:
    settings = tuple(
        (one.name, values[one.name])
        for one in own
        if one.name in values and values[one.name] != one.default
    )
    return PowerPolicy(
        kind,
        values.get("timeout"),
        deeper_s=values.get("deeper", ()),
        keep=values.get("keep", 0),
        settings=settings,
    )


POWERS: Registry[PowerPolicy] = Registry("power policy", partial(Entries, POWER_PASSES, _entry))
"""Power policies by name."""


def needs_timeout(kind: str) -> bool:
    """Return whether a kind switches nothing without a timeout."""
    return "NEEDS_TIMEOUT" in POWER_PASSES.about(kind).marks


def find_power(what: str | PowerPolicy | Callable[[Any], Any] | None) -> PowerPolicy:
    """Return the power policy that a user asks for.

    Args:
        what: A `PowerPolicy`; a control function; or a text. Texts are a name with its parameters,
            the timeout first, as in ``psus:20m`` or ``psas-ipm:20m,deeper=1h,keep=4``; or a control
            function or `PowerPass` in a file, as in ``my.py:my_control``.

    Raises:
        UnknownNameError, ConfigError, PolicyError: There is no such power policy.
    """
    if what is None:
        return PowerPolicy()
    if isinstance(what, PowerPolicy):
        return what
    if callable(what):
        return PowerPolicy("orders", control=what)
    if not isinstance(what, str):
        raise PolicyError(f"a power policy is {in_brief(what)}; it must be a name or a function")
    text = what.strip()
    if is_file(text):
        return _in_file(text)
    if is_network(text):
        from hpctwin.policies.agents import agent_control

        return PowerPolicy("orders", control=agent_control(text), source=text)
    name, _, details = text.partition(":")
    made = _read(name.strip(), details)
    if made.timeout_s is None and needs_timeout(made.kind) and "never" not in details:
        raise ConfigError(
            f"power policy {name!r} needs a timeout to switch nodes off; write {name}:20m, or "
            "use none to leave all nodes on"
        )
    if made.timeout_s is None and (made.keep or made.deeper_s) and made.kind == "orders":
        raise ConfigError(
            f"{name}: keep and deeper need a timeout; without it no node is switched off"
        )
    return made


def _in_file(text: str) -> PowerPolicy:
    source, found = load_function(text, PowerPass, "power policy", default="control")
    details = split_file(text)[2]
    if isinstance(found, PowerPass):
        POWER_PASSES.register(source, found)
        return _read(source, details)
    if not callable(found):
        raise PolicyError(f"{source} is {type(found).__name__}, not a function or a PowerPass")
    return dataclasses.replace(_read("orders", details), control=found, source=source)


def _read(name: str, details: str) -> PowerPolicy:
    entry = POWERS.find(name)
    return entry.make(**entry.read(details))
