"""Accounting logs of PBS and Torque, one file a day.

A record is ``date;type;id;key=value …``. These types describe a run of a job:

- ``E`` (ended) or ``R`` (rerun) records a complete run.
- ``S`` without either means that the job still runs.
- ``Q`` without a start means that the job waits or was deleted (``D``, ``A``).

A run after a rerun counts as submitted when the run before it ended. Torque's ``R``, ``D``, ``A``
and ``C`` give no start: each ends the run that started last.

Source:
    PBS Professional 2022.1 Administrator's Guide, "Accounting"; logs of OpenPBS 23.06; Torque 6.1
    Administrator Guide, "Accounting records".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

import polars as pl

from hpctwin.errors import TraceError, WorkloadError
from hpctwin.formats.accounting.exec_host import with_exec_vnode
from hpctwin.formats.accounting.workload import job_table, workload_of
from hpctwin.formats.delimited import lines_in
from hpctwin.formats.fields import duration_s, gigabytes
from hpctwin.formats.files import stem
from hpctwin.formats.job_table import JobTable, Key, ranges
from hpctwin.formats.record import Machine, Running, Tally, empty_records
from hpctwin.model import Workload
from hpctwin.model.requests.chunks import GROUP, Tasks, more_tasks_text
from hpctwin.model.requests.pbs_requests import DEFAULT_PROJECT
from hpctwin.model.requests.requests import parse_request

Accounts = Literal["account", "group", "project"]
"""Meaning of a job's account.

- ``account``: the account string of the job, else its project.
- ``group``: its group.
- ``project``: always its project.
"""


class Meant(NamedTuple):
    """Facts about a site's jobs that its settings contain and logs do not.

    Args:
        accounts: Meaning of a job's account.
        sets: Resource by queue: the nodes of a job all have the same value of it. An empty name
            stands for all other queues.
    """

    accounts: Accounts = "account"
    sets: Mapping[str, str] = MappingProxyType({})


_NOTHING_SAID = Meant()

_LINE = r"^\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;([A-Za-z]);([^;]*);(.*)$"
_JOINED = r" ?(\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z];)"
_OF_JOBS = ("Q", "S", "E", "R", "D", "A", "C")
_STOPS = ("R", "D", "A", "C")
_UNKNOWN = ("", "0")
_NUMBER = Key("number", 1000)
_AT_ONCE = 200_000
"""Rows of a block.

They are longer than those of `sacct`: each names all vnodes of a job.
"""


def is_pbs_accounting(head: bytes) -> bool:
    """Return whether a file that begins like this is a log of PBS or Torque.

    Its first line may be a comment or the end of a record, so later lines count too.
    """
    record = rb"^\s*\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z];[^;\n]*;"
    return re.search(record, head, re.MULTILINE) is not None


def read_pbs_accounting(
    path: str | Path, *, skip_invalid: bool = False, running: Running = "elapsed"
) -> Workload:
    """Read an accounting log, compressed or not.

    Its times are in seconds since the epoch, so no time zone is needed.

    Args:
        running: How to read jobs without a record of their end.
    """
    path = Path(path)
    tally = Tally()
    jobs = pbs_table([path], tally, Machine(running=running), skip_invalid=skip_invalid)
    return workload_of(jobs.frame(), stem(path), tally)


def pbs_table(
    paths: Sequence[Path],
    tally: Tally,
    machine: Machine | None = None,
    *,
    skip_invalid: bool = True,
    meant: Meant = _NOTHING_SAID,
    at_once: int = _AT_ONCE,
) -> JobTable:
    """Return the jobs of logs, given in any order, in hpctwin's columns.

    Records of one job stand in the logs of several days. They are joined by the job's number.

    Args:
        meant: Facts about the jobs from the site's settings.
        at_once: Number of log records, and of jobs, that are processed together.
    """

    def events() -> Iterator[pl.DataFrame]:
        for path in paths:
            number = 0
            for block in lines_in(path):
                lines = pl.Series("line", block.decode("utf-8", "replace").splitlines(), pl.String)
                yield _events(path, lines, number, tally, meant, strict=not skip_invalid)
                number += len(lines)
            tally.add("line read", number)

    runs = (_runs(some, tally) for some in ranges(events(), at_once, _NUMBER) if len(some))
    return job_table(runs, tally, machine, at_once=at_once)


def pbs_records(lines: pl.Series, tally: Tally) -> pl.DataFrame:
    """Return a record (`RECORD`) for each run of a job; other lines are counted."""
    events = _events(Path("log"), lines.alias("line"), 0, tally, _NOTHING_SAID, strict=False)
    return _runs(events, tally) if len(events) else empty_records()


def _events(
    path: Path, lines: pl.Series, before: int, tally: Tally, meant: Meant, *, strict: bool
) -> pl.DataFrame:
    """Return the job fields of each line."""
    frame = lines.to_frame().with_row_index("number", offset=before + 1)
    frame = frame.filter(pl.col("line").str.len_chars() > 0)
    joined = frame["line"].str.count_matches(_JOINED) > 1
    if joined.any():
        # A server that stops within a record continues in the same line.
        tally.add("line with several records, read one by one", int(joined.sum()))
        apart = pl.col("line").str.replace_all(_JOINED, "\n$1").str.strip_chars("\n")
        frame = frame.with_columns(apart.str.split("\n")).explode("line")
    frame = frame.with_columns(
        at=pl.col("line").str.slice(0, 19).str.to_datetime("%m/%d/%Y %H:%M:%S", strict=False)
        .dt.epoch("s").cast(pl.Float64),
        kind=pl.col("line").str.extract(_LINE, 1),
        job_id=pl.col("line").str.extract(_LINE, 2),
        about=pl.col("line").str.extract(_LINE, 3),
    )  # fmt: skip
    wrong = frame.filter(pl.col("kind").is_null())
    for number, line in wrong.select("number", "line").iter_rows():
        reason = f"found {line[:50]!r}, expected date;type;id;key=value …"
        error = TraceError(path, reason, line=number)
        if strict:
            raise error
        tally.add("line skipped: not a record (perhaps truncated)")
        tally.skip(str(error))
    frame = frame.filter(pl.col("kind").is_not_null())
    goes_on = (pl.col("kind") == "C") & ~pl.col("about").str.contains("held", literal=True)
    again = pl.col("kind") == "T"
    frame = tally.drop(
        frame, goes_on | again, "record of a checkpoint, after which the job continues"
    )
    other = ~pl.col("kind").is_in(_OF_JOBS)
    frame = tally.drop(
        frame, other, "record not about a job: licenses, reservations, alterations, the server"
    )
    parent = pl.col("job_id").str.contains("[]", literal=True)
    frame = tally.drop(frame, parent, "record of a whole array; its subjobs are the jobs")
    frame = with_exec_vnode(
        frame.with_columns(
            *(_value(name).alias(name) for name in ("exec_vnode", "exec_host")),
            *(_value(f"Resource_List.{name}").alias(name) for name in ("nodes", "place")),
            *(
                _value(f"Resource_List.{name}").cast(pl.Float64, strict=False).alias(name)
                for name in ("procs", "gpus")
            ),
            memory_gb=_value("Resource_List.mem").map_batches(_bytes, pl.Float64),
            memory_each_gb=_value("Resource_List.pmem").map_batches(_bytes, pl.Float64),
        )
    )
    tally.add(
        "record of a job that requests nodes with different properties, not modeled: any "
        "nodes used",
        frame.select((pl.col("mixed") & pl.col("kind").is_in(["E", "R"])).sum()).item(),
    )
    tally.add(
        "record whose nodes= cannot be parsed: other fields used",
        frame.select(
            (pl.col("nodes").is_not_null() & pl.col("asked_nodes").is_null()).sum()
        ).item(),
    )
    number = pl.col("job_id").str.extract(r"^(\d+)").cast(pl.Float64)
    return frame.select("kind", "at", *_values(meant), number.fill_null(math.inf).alias("number"))


def _value(key: str) -> pl.Expr:
    """Return the value of a key in each record."""
    return pl.col("about").str.extract(rf'(?:^| ){re.escape(key)}="?([^ "]+)')


def _values(meant: Meant) -> list[pl.Expr]:
    value = _value

    def moment(key: str) -> pl.Expr:
        text = value(key)
        return pl.when(~text.is_in(_UNKNOWN)).then(text).cast(pl.Float64, strict=False)

    project = value("project")
    named = pl.coalesce(value("account"), pl.when(project != DEFAULT_PROJECT).then(project))
    account = {"account": named, "group": value("group"), "project": project}[meant.accounts]
    group = pl.col("place").str.extract(rf"(?:^|:)group=({GROUP})(?::|$)")
    vnodes = (
        pl.col("exec_vnode")
        .str.extract_all(r"[(+][^():+]+")
        .list.eval(pl.element().str.slice(1))
        .list.unique(maintain_order=True)
    )
    told = vnodes.list.len() > 0
    count = value("unique_node_count").cast(pl.UInt32, strict=False)
    held = (
        pl.col("exec_vnode")
        .str.extract_all(r":ncpus=\d+")
        .list.eval(pl.element().str.slice(7).cast(pl.Float64))
        .list.sum()
    )
    asked = value("Resource_List.ncpus").cast(pl.Float64, strict=False)
    of_nodes = pl.when(value("Resource_List.select").is_null()).then("asked_cores")
    cores = (
        pl.when(pl.col("by_host") & (held > 0))
        .then(held)
        .otherwise(
            pl.coalesce(
                pl.when(told).then(asked),
                pl.when(told & (held > 0)).then(held),
                pl.col("procs"),
                of_nodes,
                asked,
            )
        )
    )
    gpus = pl.when(pl.col("asked_gpus") > 0).then("asked_gpus").otherwise("gpus")
    used = value("resources_used.walltime").map_batches(duration_s, pl.Float64)
    # The submit time of a pending job may be only in its Q line; such a record is only counted.
    came = pl.when(pl.col("kind") == "Q").then("at")
    got = pl.coalesce(
        pl.lit("select=") + pl.col("loose") + " place=free",
        _got(pl.col("exec_vnode"), pl.col("place")),
    )
    return [
        pl.col("job_id").str.replace(r"\..*$", ""),
        pl.coalesce(moment("qtime"), moment("ctime"), came).alias("submit"),
        moment("start").alias("start"),
        pl.coalesce(moment("end"), moment("start") + used).alias("end"),
        value("Resource_List.walltime").map_batches(duration_s, pl.Float64).alias("walltime"),
        pl.when(told).then(vnodes.list.len()).otherwise(count).cast(pl.Float64).alias("used"),
        pl.coalesce(
            value("Resource_List.nodect").cast(pl.Float64, strict=False), "asked_nodes"
        ).alias("chunks"),
        cores.alias("cores"),
        pl.coalesce(value("Resource_List.ngpus").cast(pl.Float64, strict=False), gpus).alias("gpus"),
        pl.col("memory_gb"),
        value("resources_used.mem").map_batches(_bytes, pl.Float64).alias("used_memory_gb"),
        value("user").alias("user"),
        account.alias("account"),
        value("queue").alias("partition"),
        value("Exit_status").cast(pl.Int64, strict=False).alias("exit"),
        vnodes.list.join(",").alias("recorded_nodes"),
        got.alias("request"),
        pl.coalesce(
            value("Resource_List.select"), pl.when("by_host").then(got.str.extract(r"^select=(\S+)"))
        ).alias("select"),
        pl.col("place"),
        pl.col("features").cast(pl.Categorical()),
        pl.when(~group.is_in(["host", "vnode"])).then(group)
        .when(group.is_null()).then(_of_queue(value("queue"), meant.sets)).alias("group_by"),
    ]  # fmt: skip


def _of_queue(queue: pl.Expr, sets: Mapping[str, str]) -> pl.Expr:
    """Return the resource whose value all nodes of a queue's jobs share, else null."""
    if not sets:
        return pl.lit(None, pl.String)
    named = {name: key for name, key in sets.items() if name}
    found = queue.replace_strict(named, default=sets.get(""), return_dtype=pl.String)
    return found.fill_null(sets.get("")) if "" in sets else found


def _got(exec_vnode: pl.Expr, place: pl.Expr) -> pl.Expr:
    """Return the resources of each chunk, as ``select=2:ncpus=8 place=scatter``.

    They include the defaults of queue and server. Null if a chunk is on several vnodes or none is
    recorded.
    """
    chunks = exec_vnode.str.extract_all(r"\([^)]*\)")
    alike = chunks.list.eval(pl.element().str.extract(r"^\([^:+]+(:[^+]+)\)$").rle())
    select = alike.list.eval(
        pl.element().struct.field("len").cast(pl.String) + pl.element().struct.field("value")
    )
    whole = (chunks.list.len() > 0) & ~select.list.eval(pl.element().is_null()).list.any()
    # If each vnode is a node, vscatter and scatter are the same.
    words = place.fill_null("free").str.replace("vscatter", "scatter", literal=True)
    words = words.str.replace(r"^group=[^:]*:?|:group=[^:]*", "").replace("", "free")
    return pl.when(whole).then(pl.lit("select=") + select.list.join("+") + " place=" + words)


def _bytes(said: pl.Series) -> pl.Series:
    return gigabytes(said, "")


def _runs(events: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return a record for each run of a job, and for each job without a run."""
    ended = events.filter(
        (pl.col("kind") == "E") | ((pl.col("kind") == "R") & pl.col("start").is_not_null())
    ).unique(["job_id", "start"], keep="last", maintain_order=True)
    nowhere = pl.col("start").is_null()
    gone = events.filter(pl.col("kind").is_in(["D", "A"]))["job_id"].unique()
    still = (
        events.filter(pl.col("kind") == "S")
        .unique(["job_id", "start"], keep="last", maintain_order=True)
        .join(ended, on=["job_id", "start"], how="anti", nulls_equal=True)
    )
    still = _stopped(still, events, tally)
    begun = pl.concat([ended["job_id"], still["job_id"]]).unique()
    queued = events.filter((pl.col("kind") == "Q") & ~pl.col("job_id").is_in(begun.implode()))
    queued = queued.unique("job_id", keep="last", maintain_order=True)
    deleted = pl.col("job_id").is_in(gone.implode())
    state = (
        pl.when(pl.col("kind").is_in(["R", "C"])).then(pl.lit("requeued"))
        .when((pl.col("kind") == "E") & nowhere).then(pl.lit("cancelled"))
        .when((pl.col("kind") == "E") & pl.col("exit").is_between(1, 255)).then(pl.lit("failed"))
        .when(pl.col("kind").is_in(["E", "D", "A"])).then(pl.lit("completed"))
        .when((pl.col("kind") == "Q") & deleted).then(pl.lit("cancelled"))
        .when(pl.col("kind") == "Q").then(pl.lit("waiting"))
        .otherwise(pl.lit("running"))
    )  # fmt: skip
    runs = (
        pl.concat([ended, still, queued]).with_columns(state=state).sort("start", nulls_last=True)
    )
    earlier = pl.col("end").shift(1).over("job_id", "submit")
    tally.add(
        "run after a rerun, treated as submitted when the previous run ended",
        runs.select(earlier.count()).item(),
    )
    unknown = runs.select(((pl.col("used").fill_null(0) < 1) & ~nowhere).sum()).item()
    tally.add("job without recorded nodes, treated as one node per chunk", unknown)
    nodes = pl.when(pl.col("used") >= 1).then("used").otherwise("chunks")
    runs = _with_kinds(runs, tally)
    used = pl.col("used_memory_gb") / nodes  # the record has the sum over all nodes
    measured = pl.when(used > 0).then(used).alias("used_memory_gb")
    # Of jobs submitted in the same second, the one with the lower number came first.
    subjob = pl.col("job_id").str.extract(r"\[(\d+)\]").cast(pl.Int64, strict=False)
    return (
        runs.with_columns(measured, submit=pl.coalesce(earlier, "submit"), nodes=nodes)
        .sort("number", subjob, nulls_last=True, maintain_order=True)
        .drop("number", "kind", "at", "used", "chunks", "exit", "select", "place")
    )


def _stopped(started: pl.DataFrame, events: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return starts without an end; a later record without a start gives end and kind.

    A line's time is local. The difference between the times of two lines of a job is the difference
    between their events.
    """
    if not len(started):
        return started
    runs = started.with_row_index("run")
    about = runs.select("run", "job_id", "at", "start")
    stops = events.filter(pl.col("kind").is_in(_STOPS) & pl.col("start").is_null())
    stop = (
        about.join(stops.select("job_id", stop="kind", then="at"), on="job_id")
        .filter(pl.col("then") >= pl.col("at"))
        .sort("then", maintain_order=True)
        .unique("run", keep="first", maintain_order=True)
        .select("run", "stop", stop_s=pl.col("start") + pl.col("then") - pl.col("at"))
    )
    later = events.filter(pl.col("kind").is_in(["S", "E"])).select("job_id", later="start")
    again = (
        about.join(later, on="job_id").filter(pl.col("later") > pl.col("start"))
        .group_by("run").agg(pl.col("later").min())
    )  # fmt: skip
    runs = runs.join(stop, on="run", how="left", maintain_order="left")
    runs = runs.join(again, on="run", how="left", maintain_order="left")
    ends = pl.col("stop_s").is_not_null() & (
        pl.col("later").is_null() | (pl.col("stop_s") <= pl.col("later"))
    )
    runs = tally.drop(
        runs,
        pl.col("later").is_not_null() & ~ends,
        "record skipped: failed start (the job started again without a rerun)",
    )
    return runs.with_columns(
        end=pl.when(ends).then("stop_s").otherwise("end"),
        kind=pl.when(ends).then("stop").otherwise("kind"),
    ).select(started.columns)


def _with_kinds(runs: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return the runs, with the kinds of chunks of jobs that select several."""
    keys = ["select", "place"]
    several = runs.filter(pl.col("select").str.contains("+", literal=True))
    found = []
    for select, place, jobs in several.group_by(keys, maintain_order=True).len().iter_rows():
        try:
            # The column `group_by` already holds this part.
            lie = [word for word in (place or "").split(":") if not word.startswith("group=")]
            request = parse_request(f"select={select} place={':'.join(lie) or 'free'}")
        except WorkloadError:
            tally.add("job whose select cannot be parsed, treated as equal chunks", jobs)
            continue
        first = (request.tasks, request.cores, request.memory_gb, request.gpus)
        kinds = (Tasks(*first, request.consumables), *request.more)
        if len({(kind.each, kind.consumables) for kind in kinds}) > 1:
            found.append((select, place, more_tasks_text(kinds), request.tasks_per_node))
    schema = {
        "select": pl.String,
        "place": pl.String,
        "kinds": pl.String,
        "tasks_per_node": pl.Float64,
    }
    table = pl.DataFrame(found, schema, orient="row")
    return runs.join(table, on=keys, how="left", nulls_equal=True, maintain_order="left")
