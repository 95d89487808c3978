"""``hpctwin experiment schedtwin --on slurm|pbs``: the experiment on a real cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from hpctwin.twin.service.comparison import Row
    from hpctwin_papers.schedtwin.live import LiveRun


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
    """Run seeds one after another on the available cluster, and store each run."""
    from hpctwin.cli.output import print_json
    from hpctwin.errors import ConfigError
    from hpctwin.generate.four_phase import four_phase
    from hpctwin.model import check_folder
    from hpctwin.model.text import progress_bar
    from hpctwin.twin.service.comparison import TWIN
    from hpctwin.twin.settings.config import TwinConfig
    from hpctwin_papers.schedtwin.live import clock_speed, run_live, twins_part
    from hpctwin_papers.schedtwin.users import PbsUser, SlurmUser

    if compress <= 0:
        raise ConfigError(f"--compress is {compress:g}; it must be above 0")
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
