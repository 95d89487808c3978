"""What years of accounting cost to import.

    python benchmarks/long_accounting.py [LINES …] [--steps N] [--pbs]

A dump of so many lines (columns of `hpctwin import slurm live`; jobs of one to some nodes, one in ten of
an array, submitted through a year, some requeued) is written and imported as a user does it: CPU seconds,
and the most memory that the process had, of each size; the slope between sizes, bytes a line. With
`--steps N` each job has N lines of steps besides. With `--pbs` they are lines of PBS's logs, one a day, three
of each job (`Q`, `S`, `E`). `--json` prints the same as JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

CONF = (
    "ClusterName=c\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\n"
    "NodeName=n[0001-1000] CPUs=64 RealMemory=257000\nPartitionName=main Nodes=ALL MaxTime=7-0 Default=YES\n"
    "PartitionName=long Nodes=ALL\n"
)
NODE = (
    "n{0:04}\n     Mom = n{0:04}\n     state = free\n     resources_available.ncpus = 64\n"
    "     resources_available.mem = 257000000kb\n\n"
)
BEGIN_S, YEAR_S = 1_735_689_600, 365 * 86400
PIECE = 500_000


def write_dump(path: Path, lines: int, steps: int) -> None:
    """Write a dump of about so many lines."""
    with path.open("wb") as file:
        for number, piece in enumerate(sacct_lines(lines // (1 + steps), steps)):
            piece.write_csv(file, separator="|", include_header=number == 0, quote_style="never")


def pieces(jobs: int) -> Iterator[pl.DataFrame]:
    """What is to be told of jobs, some at a time."""
    draw = np.random.default_rng(1)
    for first in range(0, jobs, PIECE):
        count = min(PIECE, jobs - first)
        number = np.arange(first, first + count)
        submit = BEGIN_S + number * (YEAR_S / jobs) + draw.uniform(0, 60, count)
        start = submit + draw.exponential(3000, count)
        runtime = np.ceil(draw.lognormal(6, 2, count)).clip(1, 600_000)
        nodes = np.where(draw.random(count) < 0.9, 1, draw.integers(2, 16, count))
        cores = nodes * draw.choice([1, 4, 16, 64], count)
        host = draw.integers(1, 985, count)
        task = number % 10 == 0
        told = pl.DataFrame(
            {
                "number": number - np.where(number % 500 == 7, 1, 0),
                "task": np.where(task, number % 1000, -1),
                "Submit": submit, "Start": start, "End": start + runtime, "ElapsedRaw": runtime,
                "TimelimitRaw": np.ceil(runtime * draw.uniform(1, 4, count) / 60),
                "NNodes": nodes, "AllocCPUS": cores, "host": host, "last": host + nodes - 1,
                "User": draw.integers(0, 800, count), "Partition": draw.integers(0, 10, count),
            }
        )  # fmt: skip
        yield told


def sacct_lines(jobs: int, steps: int) -> Iterator[pl.DataFrame]:
    """The dump's lines, some at a time."""
    for told in pieces(jobs):
        count = len(told)
        made = told.select(
            JobID=pl.col("number").cast(pl.String)
            + pl.when(pl.col("task") >= 0).then(pl.format("_{}", "task")).otherwise(pl.lit("")),
            JobIDRaw=pl.col("number").cast(pl.String),
            **{
                name: pl.from_epoch(pl.col(name).cast(pl.Int64)).dt.strftime("%Y-%m-%dT%H:%M:%S")
                for name in ("Submit", "Start", "End")
            },
            ElapsedRaw=pl.col("ElapsedRaw").cast(pl.Int64),
            TimelimitRaw=pl.col("TimelimitRaw").cast(pl.Int64),
            NNodes="NNodes",
            AllocCPUS="AllocCPUS",
            AllocTRES=pl.format(
                "billing={},cpu={},mem={}G,node={}", "AllocCPUS", "AllocCPUS", "AllocCPUS", "NNodes"
            ),
            User=pl.format("user{}", "User"),
            Account=pl.format("group{}", pl.col("User") % 90),
            Partition=pl.when(pl.col("Partition") == 0)
            .then(pl.lit("long"))
            .otherwise(pl.lit("main")),
            QOS=pl.lit("normal"),
            Priority=pl.col("host") * 10,
            State=pl.lit("COMPLETED"),
            NodeList=pl.when(pl.col("NNodes") > 1)
            .then(
                pl.format(
                    "n[{}-{}]",
                    pl.col("host").cast(pl.String).str.zfill(4),
                    pl.col("last").cast(pl.String).str.zfill(4),
                )
            )
            .otherwise("n" + pl.col("host").cast(pl.String).str.zfill(4)),
            MaxRSS=pl.lit(None, pl.String),
            NTasks=pl.lit(None, pl.Int64),
        )
        for step in range(steps):
            word = ("batch", "extern")[step] if step < 2 else str(step - 2)
            of = made.filter(~pl.col("JobID").str.contains(".", literal=True))
            used = pl.format("{}K", pl.col("Priority") * (step + 1))
            of = of.with_columns(pl.col("JobID") + f".{word}", MaxRSS=used, NTasks=pl.col("NNodes"))
            made = pl.concat([made, of])
        # As sacct writes them: each job before its steps.
        row = pl.int_range(pl.len()) % count
        yield made.sort(row, maintain_order=True)


def write_logs(folder: Path, lines: int) -> None:
    """Write logs of about so many lines, of three lines for each job."""
    for told in pieces(lines // 3):
        day = pl.from_epoch(pl.col("at")).dt.strftime("%Y%m%d")
        records = pl.concat([record(told, *of) for of in RECORDS]).sort("at", maintain_order=True)
        for (name,), rows in records.group_by(day.alias("day"), maintain_order=True):
            with (folder / str(name)).open("a") as file:
                file.writelines(line + "\n" for line in rows["line"])


RECORDS = (("Q", "Submit"), ("S", "Start"), ("E", "End"))


def record(told: pl.DataFrame, kind: str, when: str) -> pl.DataFrame:
    """The record of one kind of each job, and when it was written."""
    seconds = {name: pl.col(name).cast(pl.Int64) for name in ("Submit", "Start", "End")}
    host = pl.int_ranges("host", pl.col("last") + 1).list.eval(
        pl.format("(n{}:ncpus=64:mem=257000000kb)", pl.element().cast(pl.String).str.zfill(4))
    )
    asked = pl.format(
        "user=user{} group=group{} project=_pbs_project_default jobname=STDIN queue={} ctime={} qtime={} "
        "etime={} ",
        "User",
        pl.col("User") % 90,
        pl.when(pl.col("Partition") == 0).then(pl.lit("long")).otherwise(pl.lit("main")),
        *[seconds["Submit"]] * 3,
    )
    wants = pl.format(
        "Resource_List.ncpus={} Resource_List.nodect={} Resource_List.place=scatter "
        "Resource_List.select={}:ncpus=64 Resource_List.walltime={}:{}:00 ",
        "AllocCPUS",
        "NNodes",
        "NNodes",
        *(
            part.cast(pl.Int64).cast(pl.String).str.zfill(2)
            for part in (pl.col("TimelimitRaw") // 60, pl.col("TimelimitRaw") % 60)
        ),
    )
    where = pl.format("start={} exec_vnode={} ", seconds["Start"], host.list.join("+"))
    done = pl.format(
        "end={} Exit_status=0 resources_used.mem={}kb", seconds["End"], 1000 * pl.col("host")
    )
    about = {
        "Q": pl.format("queue={}", pl.lit("main")),
        "S": pl.concat_str(asked, where, wants),
        "E": pl.concat_str(asked, where, wants, done),
    }[kind]
    number = pl.col("number").cast(pl.String) + pl.when(pl.col("task") >= 0).then(
        pl.format("[{}]", "task")
    ).otherwise(pl.lit(""))
    moment = pl.from_epoch(seconds[when]).dt.strftime("%m/%d/%Y %H:%M:%S")
    return told.select(
        at=seconds[when], line=pl.format("{};{};{}.head;{}", moment, pl.lit(kind), number, about)
    )


def imported(folder: Path, manager: str) -> dict[str, float]:
    """A process that imports the folder: seconds of CPU, MiB at its peak, jobs."""
    # ru_maxrss would be that of the process which wrote the dump, if that is more: exec keeps it.
    script = (
        "import sys\nfrom hpctwin.cli import main\ntry:\n    main(sys.argv[1:])\nfinally:\n"
        "    status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "    print('peak', status['VmHWM'].split()[0], file=sys.stderr)\n"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    asked = ["import", manager, "--from", str(folder), "--out", str(folder / "out"), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", script, *asked], capture_output=True, text=True, env=dict(os.environ)
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = int(done.stderr.rpartition("peak ")[2])
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_s": cpu, "peak_mib": peak / 1024, "jobs": json.loads(done.stdout)["jobs"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lines", nargs="*", type=int, default=[500_000, 1_000_000, 2_000_000])
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--pbs", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = []
    for lines in asked.lines:
        with tempfile.TemporaryDirectory(prefix="accounting-") as name:
            folder = Path(name)
            if asked.pbs:
                (folder / "pbsnodes.txt").write_text("".join(map(NODE.format, range(1, 1001))))
                write_logs(folder, lines)
            else:
                (folder / "slurm.conf").write_text(CONF)
                write_dump(folder / "sacct.txt", lines, asked.steps)
            found.append({"lines": lines, **imported(folder, "pbs" if asked.pbs else "slurm")})
        if not asked.json:
            print(", ".join(f"{key} {value:,.1f}" for key, value in found[-1].items()), flush=True)
    slopes = [
        (two["peak_mib"] - one["peak_mib"]) * 2**20 / (two["lines"] - one["lines"])
        for one, two in itertools.pairwise(found)
    ]
    if asked.json:
        print(json.dumps({"runs": found, "bytes_a_line": slopes}))
    else:
        print("bytes a line between sizes: " + ", ".join(f"{slope:,.0f}" for slope in slopes))


if __name__ == "__main__":
    main()
