"""The numbers of the passes ``pack`` and ``pushdown``, and how they are written."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.model.units import MS_PER_S, parse_duration_s, to_ms

__all__ = ["Pack", "Pushdown", "parse_settings"]

_ANY = ("any", "unlimited")


class _Settings:
    """Settings that are written ``name=value,name=value``; those left out have their default."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.name in _DURATIONS:
                value = parse_duration_s(value)
                object.__setattr__(self, field.name, value)
                fine = 0 <= value < 1e12 and (field.name not in _POSITIVE or to_ms(value) >= 1)
                must = "at least 1 ms" if field.name in _POSITIVE else "0 or more"
            elif field.name in _LIMITS:
                fine = value is None or (_is_whole(value) and value >= 1)
                must = "a whole number above 0, or any"
            else:
                least = 1 if field.name in _POSITIVE else 0
                fine = _is_whole(value) and value >= least
                must = f"a whole number, {least} or more"
            if not fine:
                name = type(self).__name__.lower()
                raise ConfigError(f"{name}: {field.name} is {value!r}, it must be {must}")

    def __str__(self) -> str:
        changed = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value != field.default:
                shown = value
                if value is None:
                    shown = _ANY[0]
                elif field.name in _DURATIONS:
                    ms = to_ms(value)
                    shown = f"{ms}ms" if ms % MS_PER_S else f"{ms // MS_PER_S}s"
                changed.append(f"{field.name}={shown}")
        return ",".join(changed)


@dataclass(frozen=True)
class Pack(_Settings):
    """Numbers of ``pack``.

    Args:
        depth: so many jobs, the first in order, are compared for what is free.
        patience: a job that has waited so long since it was eligible is protected; seconds, or text
            such as ``"12h"``.
    """

    depth: int = 1000
    patience: float = 86400.0

    __str__ = _Settings.__str__

    def numbers(self) -> dict[str, int]:
        """For the engine's `Rules`."""
        return {"depth": self.depth, "patience": to_ms(self.patience)}


@dataclass(frozen=True)
class Pushdown(_Settings):
    """Numbers of ``pushdown``; the defaults are those of the PAS paper (§III and §IV).

    Args:
        parallel: so many jobs run at once; None for any number.
        adjacent: jobs run at once only if they are at most so many places apart in the order of
            priority; None for any.
        places: a blocked job goes down so many.
        attempts: after more than so many times it goes into the waiting queue.
        every: the waiting queue is looked at in every so many-th cycle.
        interval: time from cycle to cycle; seconds, or text such as ``"1ms"``.
        promotion: runtime of a dependant that lifts a job by one place; 0 for no promotion.
    """

    parallel: int | None = 2
    adjacent: int | None = 1
    places: int = 4
    attempts: int = 3
    every: int = 4
    interval: float = 0.001
    promotion: float = 0.001

    __str__ = _Settings.__str__

    def numbers(self) -> dict[str, int]:
        """For the engine's `Rules`."""
        return {
            "parallel": self.parallel or 0,
            "adjacent": self.adjacent or 0,
            "places": self.places,
            "attempts": self.attempts,
            "every": self.every,
            "interval": to_ms(self.interval),
            "promotion": to_ms(self.promotion),
        }


_LIMITS = frozenset({"parallel", "adjacent"})
_DURATIONS = frozenset({"patience", "interval", "promotion"})
_POSITIVE = frozenset({"depth", "every", "interval"})


def parse_settings(kind: type[Pack] | type[Pushdown], text: str) -> Pack | Pushdown:
    """Read settings such as ``parallel=any,places=2``.

    Raises:
        UnknownNameError: there is no such setting.
        ConfigError: a value is not right.
    """
    name = kind.__name__.lower()
    known = [field.name for field in dataclasses.fields(kind)]
    given: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in known:
            raise UnknownNameError(f"setting of {name}", key, known)
        if key in _DURATIONS:
            given[key] = value
        elif key in _LIMITS and value in _ANY:
            given[key] = None
        elif value.isdigit():
            given[key] = int(value)
        else:
            raise ConfigError(f"{name}: {key}={value!r} is not a whole number")
    return kind(**given)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
