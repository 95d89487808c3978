"""Limits and fair shares of a real Slurm 22.05 with slurmdbd: what it did with jobs, and what we do."""

from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from hpctwin import Simulation, Workload
from hpctwin.model import Category
from hpctwin.rms.site_folder import Imported, import_site
from hpctwin.simulation import explain
from tests.engine.test_fair_tree import factors

SITE = Path(__file__).parent / "recorded" / "slurm-limits"

# Second of submission, user, account, QOS, nodes, minutes asked for, seconds it sleeps, and its id; None if
# sbatch refused it. For which reason squeue said that it waits.
JOBS = [
    (0, "games", "lattice", "normal", 2, 5, 60, "1", ""),
    (1, "games", "lattice", "normal", 2, 5, 60, "2", ""),
    (2, "games", "lattice", "normal", 1, 5, 50, "3", "QOSMaxJobsPerUserLimit"),
    (3, "man", "lattice", "normal", 1, 5, 50, "4", "AssocGrpNodeLimit"),
    (4, "mail", "optics", "normal", 1, 5, 40, "5", "AssocGrpNodeLimit"),
    (6, "mail", "optics", "normal", 1, 5, 40, "6", "AssocGrpNodeLimit"),
    (7, "news", "chem", "small", 1, 5, 60, "7", ""),
    (8, "news", "chem", "small", 2, 5, 60, "8", "AssocGrpJobsLimit"),
    (8, "news", "chem", "small", 1, 5, 30, "9", ""),
    (9, "news", "chem", "small", 1, 5, 30, None, ""),  # MaxSubmitPU=3
    (10, "backup", "chem", "normal", 1, 5, 50, "10", "AssocGrpJobsLimit"),
    (11, "backup", "chem", "normal", 1, 5, 50, "11", "AssocGrpJobsLimit"),
    (12, "backup", "chem", "strict", 1, 5, 50, None, ""),  # MaxWall, DenyOnLimit
    (13, "backup", "chem", "strict", 1, 1, 20, "12", "AssocGrpJobsLimit"),
    (14, "man", "lattice", "small", 3, 5, 20, "13", "QOSMaxNodePerUserLimit"),  # for ever
    (15, "man", "lattice", "small", 2, 5, 30, "14", "AssocGrpNodeLimit"),
    (16, "games", "lattice", "small", 1, 5, 30, "15", "AssocGrpNodeLimit"),
]


@pytest.fixture(scope="module")
def made() -> Imported:
    return import_site("slurm", SITE)


def submitted() -> Workload:
    at, user, account, qos, nodes, minutes, runs, _, _ = zip(*JOBS, strict=True)
    return Workload.build(
        job_id=np.arange(len(JOBS)),
        submit_s=at,
        runtime_s=runs,
        walltime_s=[60 * one for one in minutes],
        nodes=nodes,
        user=Category.of(user),
        account=Category.of(account),
        qos=Category.of(qos),
        partition=Category.of(["main"] * len(JOBS)),
    )


def recorded() -> dict[str, float | None]:
    """When each job started, in seconds from the first submission."""
    rows = list(csv.DictReader((SITE / "sacct.txt").read_text().splitlines(), delimiter="|"))
    first = datetime.fromisoformat(rows[0]["Submit"])
    return {
        row["JobID"]: None
        if row["Start"] == "Unknown"
        else (datetime.fromisoformat(row["Start"]) - first).total_seconds()
        for row in rows
    }


def test_jobs_start_when_they_did_there_and_the_same_are_rejected(made: Imported) -> None:
    starts = recorded()
    result = Simulation(submitted(), made.site.cluster, policy=made.site.policy).run()
    for job, row in zip(JOBS, result.jobs.sort("job_id").iter_rows(named=True), strict=True):
        assert (row["state"] == "rejected") == (job[7] is None), job
        theirs = None if job[7] is None else starts[job[7]]
        if theirs is None:
            assert row["start_s"] is None, job
        else:
            # Slurm makes a pass each second, and takes one from an end to the next start.
            assert row["start_s"] == pytest.approx(theirs, abs=2.5), job


def test_the_reason_for_waiting_is_that_of_squeue(made: Imported) -> None:
    for row, job in enumerate(JOBS):
        if job[8]:
            simulation = Simulation(submitted(), made.site.cluster, policy=made.site.policy)
            simulation.advance(job[0] + 2)
            told = explain_reason(simulation, row)
            assert told == job[8], job


def explain_reason(simulation: Simulation, row: int) -> str:
    """The limit that keeps a job back at present."""
    from hpctwin.engine.queue.limits import reached
    from hpctwin.simulation.lowering.workload import limits_in

    limits = limits_in(simulation.workload, simulation.cluster)
    assert limits is not None
    number = reached(simulation.state, row)
    return (limits.names[number] or str(limits.why[row])) if number >= 0 else ""


def test_the_story_of_a_job_says_so_too(made: Imported) -> None:
    simulation = Simulation(submitted(), made.site.cluster, policy=made.site.policy)
    story = " ".join(moment.text for moment in explain(simulation, "3"))
    assert "limit reached: AssocGrpNodeLimit" in story


def test_factors_are_those_that_sshare_printed(made: Imported) -> None:
    """The shares of the site with the use that sshare told of: the same factors, to its six digits."""
    rows = list(csv.DictReader((SITE / "sshare.txt").read_text().splitlines(), delimiter="|"))
    users = {(r["Account"].strip(), r["User"]): r for r in rows if r["User"]}
    accounts = [one.model_dump() for one in made.site.cluster.accounts]
    used = {pair: int(row["RawUsage"]) for pair, row in users.items()}
    found = factors(accounts, used)
    theirs = {
        f"{account}/{user}": float(row["FairShare"]) for (account, user), row in users.items()
    }
    assert {name: round(value, 6) for name, value in found.items()} == theirs
    assert len(theirs) == 6


def test_sshare_alone_gives_the_tree(tmp_path: Path, made: Imported) -> None:
    for name in ("slurm.conf", "sshare.txt"):
        (tmp_path / name).write_text((SITE / name).read_text())
    by_sshare = import_site("slurm", tmp_path).site.cluster.accounts
    assert {one.name: one for one in by_sshare} == {
        one.name: one for one in made.site.cluster.accounts
    }
