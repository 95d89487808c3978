"""RLScheduler's experiment: the rows of its table, with hpctwin's agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpctwin.errors import UnknownNameError
from hpctwin.learn.training.trial import Plan
from hpctwin.model import check_folder
from hpctwin.policies.agents import Network
from hpctwin.report.columns import Cell, Table
from hpctwin_papers.experiment import Experiment, Progress
from hpctwin_papers.results import Finding, Results
from hpctwin_papers.rlscheduler import table

NOTE = (
    "mean bounded slowdown of ten sequences of 1,024 jobs; below each what was published. Agents: mean of "
    "seeds, and of each, and by how much that is above the best heuristic of its table, with the 95 % "
    "interval, paired by sequence; they are better where it ends below 0. than all: above the best of all, "
    "the smallest area too"
)


@dataclass(frozen=True)
class RLScheduler(Experiment[tuple[str, bool, tuple[Path, ...]], table.Row]):
    """Heuristics and agents on ten sequences of each trace, without and with backfilling.

    Args:
        traces: Some of the table's traces; empty for all.
        passing: Whether jobs may be backfilled: without, with, or both.
        seeds: Number of agents in each row; 0 for heuristics only.
        steps: Number of training decisions of an agent.
        out: Folder for agents; existing ones are not trained again.
    """

    traces: tuple[str, ...] = ()
    passing: tuple[bool, ...] = (False, True)
    seeds: int = 0
    steps: int = 12_000_000
    out: Path = Path("out/rlscheduler")
    title = "heuristics and agents"
    serial = True

    def points(self) -> Sequence[tuple[str, bool, tuple[Path, ...]]]:
        """See `Experiment`; trace, whether jobs may be backfilled, and files of agents."""
        known = list(dict.fromkeys(name for name, _ in table.ROWS))
        for name in self.traces:
            if name not in known:
                raise UnknownNameError("trace", name, known)
        if self.seeds:
            check_folder(self.out)
        wanted = [
            (name, passing, tuple(self._file(name, passing, seed) for seed in range(self.seeds)))
            for name, passing in table.ROWS
            if name in (self.traces or known) and passing in self.passing
        ]
        # Errors in these are reported before the work.
        for name, _, agents in wanted:
            for path in filter(Path.is_file, agents):
                Network.load(path)
            table.case(name)
        return wanted

    def _file(self, trace: str, passing: bool, seed: int) -> Path:
        with_backfilling = "-backfilling" if passing else ""
        return self.out / f"{trace.lower()}{with_backfilling}-{self.steps}-{seed}.safetensors"

    def run(self, point: tuple[str, bool, tuple[Path, ...]], progress: Progress) -> table.Row:
        """See `Experiment`; missing agents are trained."""
        name, passing, agents = point
        for seed, path in enumerate(agents):
            if not path.is_file():
                plan = Plan(
                    self.steps, seed, layers=(), trials=200, imitate=table.IMITATED,
                    learner="cma",
                )  # fmt: skip
                made = table.agent(name, passing, plan)
                self.out.mkdir(parents=True, exist_ok=True)
                made.save(path)
            progress((seed + 1) / (len(agents) + 1))
        return table.row(name, passing, agents)

    def results(self, found: Sequence[table.Row]) -> Results:
        """See `Experiment`."""
        rules = {False: "without backfilling", True: "with backfilling"}
        tables = [
            _table([row for row in found if row.passing == passing], title)
            for passing, title in rules.items()
            if any(row.passing == passing for row in found)
        ]
        findings = [one for row in found for one in compared(row)]
        return Results(findings, {}, tables, [NOTE], rows=[row.plain() for row in found])


def compared(row: table.Row) -> list[Finding]:
    """Compare a row of the table with the results."""
    entry = "rlscheduler-table-5"
    if row.trace == "HPC2N":
        entry += "-hpc2n"
    elif row.passing:
        entry += "-backfilling"
    more = ", with backfilling" if row.passing else ""
    return [
        # They are published with two digits after the point.
        Finding(
            f"{row.trace}, {name}{more}", row.published[name], float(here.mean()),
            0.005 / row.published[name], ",.2f", (entry,),
        )
        for name, here in row.heuristics.items()
    ]  # fmt: skip


def _table(rows: Sequence[table.Row], title: str) -> Table:
    heads = [*table.HEURISTICS, *table.OTHERS]
    lines: list[list[Cell]] = []
    trained = any(row.agents for row in rows)
    for row in rows:
        line: list[Cell] = [row.trace]
        for name, here in row.heuristics.items():
            line.append((f"{here.mean():,.2f}", f"{row.published[name]:,.2f}"))
        line += [f"{here.mean():,.2f}" for here in row.others.values()]
        if trained:
            mean = sum(float(one.mean()) for one in row.agents) / len(row.agents)
            more = row.more
            line.append((f"{mean:,.2f}", f"{row.published['RL']:,.2f}"))
            of_all = row.more_of_all
            line += [f"{more.mean:,.1f}", *_ends(more.low, more.high)]
            line += [f"{of_all.mean:,.1f}", *_ends(of_all.low, of_all.high)]
        lines.append(line)
        for seed, (mean, more) in enumerate(row.each):
            own = [f"{mean:,.2f}", f"{more.mean:,.1f}", *_ends(more.low, more.high)]
            lines.append([f"  seed {seed}", *[""] * len(heads), *own, *[""] * 3])
    added = ("agents", "more", "from", "to", "than all", "from", "to") if trained else ()
    return Table(["", *heads, *added], lines, title)


def _ends(low: float | None, high: float | None) -> list[str]:
    return ["" if end is None else f"{end:,.1f}" for end in (low, high)]
