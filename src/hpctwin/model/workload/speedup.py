"""How much faster a job runs on more nodes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from hpctwin.errors import WorkloadError

__all__ = ["LINEAR", "Speedup", "parse_speedup"]

LINEAR = "linear"
_AMDAHL = "amdahl"


@dataclass(frozen=True)
class Speedup:
    """How many times as fast a job runs on n nodes as on one; exact, so that no work is lost in rounding.

    Args:
        name: its text, which `parse_speedup` reads.
        serial: share of the work on one node that no further node makes shorter (Amdahl, 1967).
        table: for 1, 2, … nodes; in the place of that where it is not empty.
    """

    name: str
    serial: Fraction = Fraction(0)
    table: tuple[Fraction, ...] = ()

    @property
    def most(self) -> int | None:
        """On so many nodes at most it is known; None for any number."""
        return len(self.table) or None

    def at(self, nodes: int) -> Fraction:
        """On so many nodes, 1 or more.

        Raises:
            WorkloadError: it is not known of so many.
        """
        if not self.table:
            return nodes / (1 + self.serial * (nodes - 1))
        if nodes > len(self.table):
            raise WorkloadError(
                f"speedup {self.name!r} is of {len(self.table)} nodes at most, not of {nodes}"
            )
        return self.table[nodes - 1]


@lru_cache(maxsize=1024)
def parse_speedup(text: str) -> Speedup:
    """Read ``linear``, ``amdahl:0.05`` (share that is serial), or numbers for 1, 2, … nodes: ``1/1.9/2.7``.

    Raises:
        WorkloadError: it is none of these; or a number is not above 0, or below the one before.
    """
    name = text.strip()
    if name == LINEAR:
        return Speedup(name)
    head, _, details = name.partition(":")
    numbers = [_number(part, text) for part in (details if head == _AMDAHL else name).split("/")]
    if head == _AMDAHL:
        if len(numbers) != 1 or not 0 <= numbers[0] <= 1:
            raise WorkloadError(
                f"speedup {text!r}: the serial share must be from 0 to 1, as in {_AMDAHL}:0.05"
            )
        return Speedup(name, serial=numbers[0])
    falls = any(after < before for before, after in pairwise(numbers))
    if numbers[0] <= 0 or falls:
        raise WorkloadError(
            f"speedup {text!r}: the numbers for 1, 2, … nodes must be above 0, none below the one before"
        )
    return Speedup(name, table=tuple(number / numbers[0] for number in numbers))


def _number(part: str, text: str) -> Fraction:
    try:
        return Fraction(part)
    except (ValueError, ZeroDivisionError) as error:
        raise WorkloadError(
            f"speedup {text!r} must be {LINEAR}, {_AMDAHL}:SHARE, or numbers for 1, 2, … nodes such as "
            "1/1.9/2.7"
        ) from error
