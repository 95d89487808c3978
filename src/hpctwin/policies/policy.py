"""A policy: ordering, backfill and placement together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.policies.lookup import OrderingLike, find_ordering, ordering_names
from hpctwin.policies.ordering import Ordering
from hpctwin.policies.settings import Pack, Pushdown, parse_settings

__all__ = ["Backfill", "Placement", "Policy", "make_policy", "parse_policy"]

Backfill = Literal["none", "first-fit", "easy", "conservative", "pack", "pushdown"]
Placement = Literal["first-fit", "best-fit", "contiguous", "random", "spread"]


_SETTINGS: dict[str, type[Pack] | type[Pushdown]] = {"pack": Pack, "pushdown": Pushdown}


@dataclass(frozen=True)
class Policy:
    """Which job comes first, who may pass it, and on which nodes.

    Args:
        order: the ordering.
        backfill: the kind of backfilling.
        reservations: jobs per partition that EASY protects.
        candidates: EASY's ordering of those that may pass; None for the same.
        placement: how nodes are chosen.
        pack: numbers of ``pack``.
        pushdown: numbers of ``pushdown``.
    """

    order: Ordering
    backfill: Backfill = "easy"
    reservations: int = 1
    candidates: Ordering | None = None
    placement: Placement = "first-fit"
    pack: Pack = field(default_factory=Pack)
    pushdown: Pushdown = field(default_factory=Pushdown)

    def compile(self) -> None:
        """Compile the orderings and what the engine runs them with now, rather than at first use.

        Raises:
            PolicyError: an ordering cannot be compiled.
        """
        from hpctwin.engine.kernel import kernels_of

        for order in (self.order, self.candidates):
            if order is not None:
                _ = order.compiled
        for kernel in kernels_of(self.backfill):
            kernel.compiled()

    def numbers(self) -> dict[str, int]:
        """The numbers of all backfills for the engine."""
        return {
            "reservations": self.reservations,
            **self.pack.numbers(),
            **self.pushdown.numbers(),
        }

    @property
    def name(self) -> str:
        """Short text such as ``wfp+easy``; `parse_policy` reads it."""
        text = f"{self.order.name}+{self.backfill}"
        if self.backfill == "easy":
            text += f":{self.reservations}" if self.reservations != 1 else ""
            text += f"/{self.candidates.name}" if self.candidates else ""
        if self.backfill in _SETTINGS:
            settings = str(getattr(self, self.backfill))
            text += f":{settings}" if settings else ""
        return text if self.placement == "first-fit" else f"{text}@{self.placement}"


def make_policy(
    order: OrderingLike = "fcfs",
    backfill: str = "easy",
    *,
    reservations: int = 1,
    candidates: OrderingLike | None = None,
    placement: str = "first-fit",
    pack: Pack | None = None,
    pushdown: Pushdown | None = None,
) -> Policy:
    """Make a policy of what a user writes.

    Args:
        order: see `find_ordering`.
        backfill: ``none``, ``first-fit``, ``easy``, ``conservative``, ``pack`` or ``pushdown``; the
            last two with their settings, if any, as in ``pack:patience=12h``.
        reservations: jobs per partition that EASY protects, at least 1.
        candidates: EASY's ordering of candidates, for example ``sjf`` for SJBF (Tsafrir et al. 2007).
        placement: ``first-fit``, ``best-fit``, ``contiguous``, ``random`` or ``spread``.
        pack: numbers of ``pack``; the defaults if left out.
        pushdown: numbers of ``pushdown``; the paper's if left out.

    Raises:
        UnknownNameError: a name is not known.
        ConfigError: a number is out of range, or an option does not go with the backfill.
    """
    head, colon, details = backfill.partition(":")
    if colon and head in _SETTINGS and (pack, pushdown, candidates, reservations) == (
        None, None, None, 1,
    ):  # fmt: skip
        settings = parse_settings(_SETTINGS[head], details)
        return make_policy(order, head, placement=placement, **{head: settings})  # type: ignore[arg-type]
    for kind, name, known in (
        ("backfill", backfill, get_args(Backfill)),
        ("placement", placement, get_args(Placement)),
    ):
        if name not in known:
            raise UnknownNameError(kind, name, known)
    if reservations < 1:
        raise ConfigError(f"reservations is {reservations}, it must be at least 1")
    if backfill != "easy" and (reservations != 1 or candidates is not None):
        raise ConfigError(f"reservations and candidates go with backfill 'easy', not {backfill!r}")
    for name, given in (("pack", pack), ("pushdown", pushdown)):
        if given is not None and backfill != name:
            raise ConfigError(f"settings of {name} go with backfill {name!r}, not {backfill!r}")
    first = find_ordering(order)
    if backfill == "pushdown" and (first.changes or first.chain):
        raise ConfigError(
            f"pushdown gives each job its priority once, when it enters the queue; the scores of "
            f"{first.name!r} change while jobs wait"
        )
    return Policy(
        order=first,
        backfill=backfill,  # type: ignore[arg-type]
        reservations=reservations,
        candidates=None if candidates is None else find_ordering(candidates),
        placement=placement,  # type: ignore[arg-type]
        pack=pack or Pack(),
        pushdown=pushdown or Pushdown(),
    )


def parse_policy(text: str) -> Policy:
    """Read ``ORDER``, ``ORDER+BACKFILL`` or ``ORDER+BACKFILL@PLACEMENT``.

    Details of a backfill follow a colon: ``ORDER+easy:2/sjf``, ``ORDER+pushdown:parallel=any``.

    Raises:
        UnknownNameError, ConfigError, PolicyError: see `make_policy`.
    """
    rest, at, placement = text.rpartition("@")
    if not at:
        rest, placement = text, "first-fit"
    # The ordering may be a formula with its own plus signs: what follows the last one is a backfill
    # if it is named so, or if it can only be a misspelt one.
    order, plus, tail = rest.rpartition("+")
    head = tail.partition("/")[0].partition(":")[0].strip()
    if not plus or (head not in get_args(Backfill) and order not in ordering_names()):
        return make_policy(rest, placement=placement)
    if head in _SETTINGS:
        return make_policy(order, tail.strip(), placement=placement)
    tail, _, candidates = tail.partition("/")
    backfill, _, count = tail.partition(":")
    if count and not count.isdigit():
        raise ConfigError(f"policy {text!r}: {count!r} is not a number of reservations")
    return make_policy(
        order,
        backfill.strip(),
        reservations=int(count or 1),
        candidates=candidates or None,
        placement=placement,
    )
