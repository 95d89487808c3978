"""``hpctwin experiment rlscheduler``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hpctwin.cli.numbers import AT_LEAST_0, AT_LEAST_1

if TYPE_CHECKING:
    from rich.table import Table

    from hpctwin.experiments.rlscheduler import Row

__all__ = ["rlscheduler"]

Count = Annotated[int, AT_LEAST_1]


def rlscheduler(
    *traces: str,
    seeds: Annotated[int, AT_LEAST_0] = 0,
    steps: Count = 200_000,
    out: Path = Path("out/rlscheduler"),
    json: bool = False,
) -> int:
    """RLScheduler (SC20): mean bounded slowdown of heuristics and agents, beside its table.

    Agents are trained on windows of 256 jobs that come before all that is tested, with seeds 0, 1, …; those
    that --out holds already are not trained again, so that it can be interrupted.

    Args:
        traces: Lublin-1, Lublin-2, HPC2N; all if left out.
        seeds: agents of each row; 0 for heuristics alone.
        steps: decisions that each is trained on.
        out: folder for agents.
        json: print a row of the table as one of JSON.
    """
    from hpctwin.cli.output import check_outputs, print_json, screen
    from hpctwin.errors import UnknownNameError
    from hpctwin.experiments import rlscheduler as experiment
    from hpctwin.learn.plan import Plan
    from hpctwin.model.progress import progress_bar
    from hpctwin.policies.network import Network

    known = list(dict.fromkeys(name for name, _ in experiment.ROWS))
    for name in traces:
        if name not in known:
            raise UnknownNameError("trace", name, known)
    check_outputs(folders=[out] if seeds else [])
    wanted = {
        (name, passing): [_file(out, name, passing, steps, seed) for seed in range(seeds)]
        for name, passing in experiment.ROWS
        if name in (traces or known)
    }
    # What is not right with these is told before the work.
    for agents in wanted.values():
        for path in filter(Path.is_file, agents):
            Network.load(path)
    for name, _ in wanted:
        experiment.case(name)
    rows = []
    with progress_bar("heuristics and agents") as progress:
        for (name, passing), agents in wanted.items():
            for seed, path in enumerate(agents):
                if not path.is_file():
                    plan = Plan(
                        steps, seed, environments=64, horizon=64, rate=3e-4, threads=1,
                        imitate=experiment.IMITATED,
                    )  # fmt: skip
                    made = experiment.agent(name, passing, plan)
                    out.mkdir(parents=True, exist_ok=True)
                    made.save(path)
            rows.append(experiment.row(name, passing, agents))
            progress(len(rows) / len(wanted))
    if json:
        print_json([row.plain() for row in rows])
        return 0
    console = screen()
    for passing in (False, True):
        own = [row for row in rows if row.passing == passing]
        console.print(_table(own, f"{'with' if passing else 'without'} backfilling"))
    console.print(
        "mean bounded slowdown of ten sequences of 1,024 jobs; below each what was published. Agents: mean "
        "of seeds, and of each, and by how much that is above the best heuristic, with the 95 % interval, "
        "paired by sequence; they are better where it ends below 0"
    )
    return 0


def _file(out: Path, trace: str, passing: bool, steps: int, seed: int) -> Path:
    """Where an agent is kept."""
    with_backfilling = "-backfilling" if passing else ""
    return out / f"{trace.lower()}{with_backfilling}-{steps}-{seed}.safetensors"


def _table(rows: list[Row], title: str) -> Table:
    from rich.table import Table

    from hpctwin.experiments.rlscheduler import HEURISTICS, OTHERS

    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    table.add_column("")
    for head in (*HEURISTICS, *OTHERS, "agents", "more", "from", "to"):
        table.add_column(head, justify="right")
    for row in rows:
        shown = [*row.heuristics.values(), *row.others.values()]
        cells = [f"{values.mean():,.2f}" for values in shown]
        if row.agents:
            more = row.more
            mean = sum(float(one.mean()) for one in row.agents) / len(row.agents)
            cells += [f"{mean:,.2f}", f"{more.mean:,.1f}"]
            cells += ["" if end is None else f"{end:,.1f}" for end in (more.low, more.high)]
        table.add_row(row.trace, *cells)
        for seed, (mean, more) in enumerate(row.each):
            ends = ["" if end is None else f"{end:,.1f}" for end in (more.low, more.high)]
            own = [f"{mean:,.2f}", f"{more.mean:,.1f}", *ends]
            table.add_row(f"  seed {seed}", *("" for _ in shown), *own, style="dim")
        *published, agent = (f"{x:,.2f}" for x in row.published.values())
        table.add_row("  published", *published, *("" for _ in OTHERS), agent, style="dim")
    return table
