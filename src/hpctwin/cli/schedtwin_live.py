"""``hpctwin experiment schedtwin --on slurm|pbs`` and ``--stored``: the experiment on a real cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from hpctwin.experiments.schedtwin import Row
    from hpctwin.experiments.schedtwin_live import LiveRun

__all__ = ["collect", "on_cluster"]


def on_cluster(
    on: Literal["slurm", "pbs"],
    seeds: Sequence[int],
    *,
    compress: float,
    under: str,
    twin: Path | None,
    conf: Path | None,
    folder: str,
    options: Sequence[str],
    out: Path,
    json: bool,
) -> int:
    """Run seeds one after another on the cluster that is there, and store each."""
    from hpctwin.cli.output import print_json
    from hpctwin.errors import ConfigError
    from hpctwin.experiments.schedtwin import TWIN
    from hpctwin.experiments.schedtwin_live import clock_speed, run_live, twins_part
    from hpctwin.experiments.schedtwin_users import PbsUser, SlurmUser
    from hpctwin.generate.four_phase import four_phase
    from hpctwin.model import check_folder
    from hpctwin.model.progress import progress_bar
    from hpctwin.twin.config import TwinConfig

    if compress <= 0:
        raise ConfigError(f"--compress is {compress:g}, it must be above 0")
    clock = clock_speed()
    check_folder(out)
    of_manager: type[SlurmUser | PbsUser] = SlurmUser if on == "slurm" else PbsUser
    user = of_manager(conf=conf, folder=folder, options=options, clock=clock)
    journal = None if twin is None else TwinConfig.from_yaml(twin).journal.path
    rows: list[Row] = []
    for seed in seeds:
        with progress_bar(f"seed {seed} on {on}") as progress:
            run = run_live(
                user, four_phase(seed=seed), on=on, under=under if twin is None else TWIN,
                seed=seed, compress=compress, clock=clock, progress=progress,
            )  # fmt: skip
        if journal is not None:
            run.twin = twins_part(journal, run.jobs["id"], clock=run.clock)
        path = run.store(out)
        rows.append(run.row())
        if not json:
            print(f"{path}: {_told(run)}")
    if json:
        print_json([row.plain() for row in rows])
    return 0


def collect(folder: Path, *, late_s: float, plot: Path | None, json: bool) -> int:
    """Print the table of each manager beside the emulated one, and draw the figure.

    A run in which a submission came later than `late_s` (of the experiment's time) is left out.
    """
    from hpctwin.cli.objective_table import objective_table
    from hpctwin.cli.output import print_json, screen
    from hpctwin.experiments import schedtwin as experiment
    from hpctwin.experiments.schedtwin_live import collected, costs, stored

    everything = stored(folder)
    runs = [run for run in everything if run.late_s <= late_s]
    found = {on: part for on, part in collected(runs).items() if part.rows}
    seeds = sorted({row.seed for part in found.values() for row in part.rows})
    rows = {
        "emulated": [row for one in experiment.run_seeds(seeds) for row in one],
        **{on: part.rows for on, part in found.items()},
    }
    if plot is not None:
        _figure({on: experiment.means(mine) for on, mine in rows.items()}, plot)
    if json:
        print_json([{"on": on, **row.plain()} for on, mine in rows.items() for row in mine])
        return 0
    console = screen()
    spent = costs(runs)
    for on, mine in rows.items():
        title = f"{on}: mean over {len({row.seed for row in mine})} workloads"
        console.print(objective_table(experiment.means(mine), published=False, title=title))
        best = _wins(mine)
        console.print("best of all on: " + ", ".join(f"{m} {n}" for m, n in best.items()))
        if on in spent:
            cost = spent[on]
            console.print(
                f"first jobs started after {cost['start_s']:.1f} s; jobs held their nodes "
                f"{cost['run_s']:.1f} s longer than they ran; limits {cost['limit_s']:.1f} s longer "
                f"than asked; load {cost['load']:.1f}"
            )
        for seed in found[on].missing if on in found else ():
            console.print(f"seed {seed} left out: not all methods ran it")
    for run in everything:
        if run.late_s > late_s:
            console.print(
                f"{run.on}, {run.under}, seed {run.seed} left out: a submission was {run.late_s:.0f} s "
                "late, and that is another workload"
            )
    return 0


def _wins(rows: Sequence[Row]) -> dict[str, int]:
    """On how many seeds each method has the lowest objective."""
    won = dict.fromkeys((row.method for row in rows), 0)
    for seed in {row.seed for row in rows}:
        won[min((r for r in rows if r.seed == seed), key=lambda r: r.objective).method] += 1
    return won


def _told(run: LiveRun) -> str:
    row, cost = run.row(), run.costs()
    states = run.jobs["state"].value_counts(sort=True).rows()
    said = (
        f"{len(run.jobs)} jobs ({', '.join(f'{n} {state}' for state, n in states)}) on {run.version}; "
        f"mean wait {row.mean_wait_s / 60:.1f} min, max {row.max_wait_s / 3600:.2f} h, mean slowdown "
        f"{row.mean_slowdown:.2f}, max {row.max_slowdown:.1f}, utilization {row.utilization:.1%}; "
        f"start after {cost['start_s']:.1f} s, {cost['run_s']:.1f} s beyond the program, limits "
        f"{cost['limit_s']:.1f} s longer than asked"
    )
    if run.twin is not None:
        said += (
            f"; the twin chose {run.twin.chosen} jobs in {run.twin.decisions} decisions, "
            f"{run.twin.not_done} actions not done"
        )
    return said


def _figure(means: dict[str, list[Row]], path: Path) -> None:
    from hpctwin.experiments.schedtwin import TWIN
    from hpctwin.report import plot_radars
    from hpctwin.report.saving import save_figure

    # The twin first, so that it has the same colour in each chart.
    charts = {
        on: {row.method: row.plain() for row in sorted(rows, key=lambda row: row.method != TWIN)}
        for on, rows in means.items()
    }
    title = "SchedTwin's experiment, emulated and real (outer is better)"
    save_figure(plot_radars(charts, title=title), path)
