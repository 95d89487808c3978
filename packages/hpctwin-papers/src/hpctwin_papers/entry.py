"""Reproduction of published tables and figures: comparison, verdict, and one report."""

from __future__ import annotations

import json
import re
import textwrap
import time
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal

from hpctwin.errors import HpctwinError
from hpctwin.model import write_atomically, write_folder
from hpctwin.report.columns import Table
from hpctwin_papers.experiment import Experiment, run_once
from hpctwin_papers.results import Results, comparison_table
from hpctwin_papers.traces import find_trace

NO_NUMBERS = "the paper prints no numbers for this figure"
"""Reason why a figure is drawn and not compared."""

Verdict = Literal["agrees", "differs", "drawn", "cannot be made"]


@dataclass(frozen=True)
class Entry:
    """A table or a figure of a paper.

    Args:
        name: Name of the entry.
        paper: Name of the paper.
        shows: Content of the table or figure.
        config: Simulated configuration, with seeds.
        because: Reason why numbers differ, or why it cannot be reproduced.
        other_data: Whether it uses other data, because the paper's are not available.
        experiment: Experiment for its numbers and drawing; None if it cannot be reproduced.
        more: Command for more results.
    """

    name: str
    _: KW_ONLY
    paper: str
    shows: str
    config: str = ""
    because: str = ""
    other_data: bool = False
    experiment: Experiment[Any, Any] | None = None
    more: str = ""

    @property
    def lacks(self) -> str:
        """Reason why it cannot be reproduced here; empty if it can."""
        if self.experiment is None:
            return self.because
        absent = [name for name in self.experiment.data if find_trace(name) is None]
        return f"{', '.join(absent)} not in the folder that HPCTWIN_TRACES names" if absent else ""

    def listed(self) -> dict[str, Any]:
        """Return the entry of a list, in a form for JSON."""
        return {
            "name": self.name,
            "paper": self.paper,
            "shows": self.shows,
            "makes": self.experiment is not None,
            "lacks": self.lacks,
        }


@dataclass(frozen=True)
class Outcome:
    """Result of reproducing an entry.

    Args:
        entry: The entry.
        verdict: ``agrees`` if all its numbers do; ``drawn`` if the paper prints none.
        because: Reason why it differs or cannot be reproduced.
        results: Numbers and figures.
        seconds: Processor time, in seconds.
    """

    entry: Entry
    verdict: Verdict
    because: str
    results: Results
    seconds: float

    def plain(self) -> dict[str, Any]:
        """Return the result in a form for JSON."""
        return {
            "name": self.entry.name,
            "paper": self.entry.paper,
            "shows": self.entry.shows,
            "config": self.entry.config,
            "other_data": self.entry.other_data,
            "verdict": self.verdict,
            "because": self.because,
            "findings": [
                {"what": one.what, "expected": one.expected, "obtained": one.obtained,
                 "within": one.within, "agrees": one.agrees} for one in self.results.findings
            ],
            "seconds": self.seconds,
        }  # fmt: skip


def reproduce(entry: Entry) -> Outcome:
    """Reproduce an entry; missing data give the verdict that it cannot be made."""
    if entry.experiment is None:
        return Outcome(entry, "cannot be made", entry.because, Results(), 0.0)
    begin = time.process_time()
    try:
        results = run_once(entry.experiment).part(entry.name)
    except HpctwinError as error:
        return Outcome(entry, "cannot be made", str(error), Results(), 0.0)
    verdict: Verdict = "drawn"
    if results.findings:
        verdict = "agrees" if all(one.agrees for one in results.findings) else "differs"
    because = entry.because if verdict != "agrees" else ""
    return Outcome(entry, verdict, because, results, time.process_time() - begin)


def write_report(folder: Path, outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Write ``report.md``, ``results.json`` and figures; return the outcomes."""
    from hpctwin.report.figures.style import save_figure

    done = list(outcomes)
    with write_folder(folder) as new:
        parts = []
        for one in done:
            for name, draw in one.results.figures.items():
                save_figure(draw(), new / f"{name}.png")
            parts.append(_part(one))
        text = "\n".join([*_head(done), *parts])
        with write_atomically(new / "report.md") as file:
            file.write(text.encode())
        with write_atomically(new / "results.json") as file:
            file.write(json.dumps([one.plain() for one in done], indent=2).encode())
    return done


def _head(done: Sequence[Outcome]) -> list[str]:
    counts: dict[str, int] = {}
    for one in done:
        counts[one.verdict] = counts.get(one.verdict, 0) + 1
    words = {"agrees": "agree", "differs": "differ", "drawn": "have no published numbers"}
    verdicts = ", ".join(f"{count} {words.get(name, name)}" for name, count in counts.items())
    lines = [
        "# Published tables and figures",
        "",
        "`hpctwin experiment all` makes this page, and `hpctwin experiment run NAME` one of its parts.",
        f"Verdicts: {verdicts}.",
        "",
        "| name | paper | what it shows | verdict |",
        "|---|---|---|---|",
    ]
    for one in done:
        within = (
            f"{sum(f.agrees for f in one.results.findings)} of {len(one.results.findings)} numbers"
        )
        verdict = one.verdict + (f" ({within})" if one.verdict == "differs" else "")
        verdict += ", with other data" if one.entry.other_data else ""
        lines.append(
            f"| [`{one.entry.name}`](#{one.entry.name}) | {one.entry.paper} | {one.entry.shows} | {verdict} |"
        )
    return [*lines, ""]


def _part(one: Outcome) -> str:
    entry = one.entry
    about = f"{entry.paper}: {entry.shows}."
    if entry.config:
        about += f" {entry.config}."
    lines = [f"## {entry.name}", "", *_wrapped(about)]
    if entry.more:
        lines.append(f"More: `{entry.more}`.")
    verdict = one.verdict[0].upper() + one.verdict[1:]
    because = f": {one.because}" if one.because else ""
    lines += ["", *_wrapped(f"**{verdict}**{because}.")]
    if one.results.findings:
        lines += ["", *_markdown(comparison_table(one.results.findings))]
    for name in one.results.figures:
        words = re.sub(r"-", " ", name)
        lines += ["", f"![{words}]({name}.png)"]
    return "\n".join([*lines, ""])


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 100, break_long_words=False, break_on_hyphens=False)


def _markdown(table: Table) -> list[str]:
    head, *rows = (
        f"| {' | '.join(map(str, cells))} |".replace("|  |", "| |")
        for cells in (table.heads, *table.rows)
    )
    return [head, "|" + "---|" * len(table.heads), *rows]
