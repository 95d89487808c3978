"""Notes of a reader on what it read."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ReadNotes"]


@dataclass(frozen=True)
class ReadNotes:
    """Notes of a reader: it changes or drops nothing silently.

    Args:
        counts: Number of jobs that each fallback rule changed, by a sentence on what was done.
        skipped: One message for each skipped record.
        remarks: Remarks on the whole file, a sentence each.
        size_from: Part of the file that gives the number of nodes (`Workload.nodes_hint`).
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    size_from: str = "the trace"

    def sentences(self) -> list[str]:
        """Return all notes, a sentence each, with counts."""
        counted = (f"{count:,} × {what}" for what, count in self.counts.items())
        return [*self.remarks, *counted, *(f"skipped: {one}" for one in self.skipped)]

    def joined(self, later: ReadNotes) -> ReadNotes:
        """Return these notes and those on a later part of the same file."""
        counts = Counter(self.counts) + Counter(later.counts)
        remarks = tuple(dict.fromkeys((*self.remarks, *later.remarks)))
        skipped = (*self.skipped, *later.skipped)
        return ReadNotes(dict(counts), skipped, remarks, self.size_from)

    def merged(self, **counts: int) -> ReadNotes:
        """Return these notes with further counts (those above zero)."""
        new = {name.replace("_", " "): n for name, n in counts.items() if n}
        return dataclasses.replace(self, counts={**self.counts, **new})
