"""What a reader says of what it read."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ReadNotes"]


@dataclass(frozen=True)
class ReadNotes:
    """What a reader did with what it found: nothing is changed or dropped in silence.

    Args:
        counts: how many jobs each fall-back rule touched, by a sentence saying what was done.
        skipped: one message for each record that was left out.
        remarks: what is to be said of the file as a whole, a sentence each.
        size_from: What of the file says the number of nodes (`Workload.nodes_hint`).
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    size_from: str = "the trace"

    def sentences(self) -> list[str]:
        """Return all that is to be said, a sentence each, with counts."""
        counted = (f"{count:,} × {what}" for what, count in self.counts.items())
        return [*self.remarks, *counted, *(f"skipped: {one}" for one in self.skipped)]

    def joined(self, later: ReadNotes) -> ReadNotes:
        """Return these notes and those on a later part of the same."""
        counts = Counter(self.counts) + Counter(later.counts)
        remarks = tuple(dict.fromkeys((*self.remarks, *later.remarks)))
        skipped = (*self.skipped, *later.skipped)
        return ReadNotes(dict(counts), skipped, remarks, self.size_from)

    def merged(self, **counts: int) -> ReadNotes:
        """These notes and further counts (those above zero)."""
        new = {name.replace("_", " "): n for name, n in counts.items() if n}
        return dataclasses.replace(self, counts={**self.counts, **new})
