"""From lines of Slurm's accounting to records: the values of their columns."""

from __future__ import annotations

import re
from collections.abc import Callable

import polars as pl

from hpctwin.formats.fields import NOTHING, amount, duration_s, gigabytes, moments
from hpctwin.formats.record import RECORD, Tally, empty_records
from hpctwin.model.requests.features import read_constraint
from hpctwin.model.requests.resources import GPU_TYPE, NOT_CONSUMED, parse_gres

STATES = {
    **dict.fromkeys(("COMPLETED", "TIMEOUT", "DEADLINE"), "completed"),
    **dict.fromkeys(("FAILED", "OUT_OF_MEMORY"), "failed"),
    **dict.fromkeys(("NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED"), "node failure"),
    **dict.fromkeys(
        ("PREEMPTED", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"), "requeued"
    ),
    **dict.fromkeys(("CANCELLED", "REVOKED"), "cancelled"),
    **dict.fromkeys(
        ("RUNNING", "SUSPENDED", "COMPLETING", "RESIZING", "STAGE_OUT", "SIGNALING", "STOPPED"),
        "running",
    ),
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED_PENDING", "RESV_DEL_HOLD"), "waiting"),
}
Ways = list[tuple[str, Callable[[pl.Series], pl.Series]]]
_YEAR_S = 365 * 86400.0
_HOUR_S = 3600.0


def records_of(text: pl.DataFrame, zone: str | None, tally: Tally) -> pl.DataFrame:
    """Return the records of some jobs.

    Args:
        text: Columns of `sacct` as text, each job's lines folded into one.
        zone: Time zone of its times; None for UTC.
    """
    if not len(text):
        return empty_records()
    there = set(text.columns)
    used = text["used_memory_gb"]
    text = text.select(_nothing(name) for name in text.columns if name != used.name)
    times = [
        moments(text[name], zone, tally) for name in ("Submit", "Start", "End") if name in there
    ]
    times = [pl.select(pl.when(time > 0).then(time).alias(time.name))[time.name] for time in times]
    text = text.with_columns(times)
    frame = _fields(text, tally).with_columns(_state(text, tally), used)
    odd = ~frame["job_id"].str.contains(r"^\d+(?:_\d+|_\[.*\]|\+\d+)?$").fill_null(False)
    if odd.any():
        tally.add("record skipped: not a job id", int(odd.sum()))
        frame = frame.filter(~odd)
    return _told_by_elapsed(frame, zone, tally)


def _nothing(name: str) -> pl.Expr:
    """Return the cell, or null if it holds no value."""
    cell = pl.col(name)
    return pl.when(cell.str.to_lowercase().is_in(NOTHING)).then(None).otherwise(cell).alias(name)


def _fields(text: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return the fields of a record, without its state."""

    def first(*ways: tuple[str, Callable[[pl.Series], pl.Series]]) -> pl.Series | None:
        """Return the first column's value, else that of the next."""
        found: pl.Series | None = None
        for column, read in ways:
            if column in text.columns and (found is None or found.null_count()):
                value = read(text[column])
                found = value if found is None else found.zip_with(found.is_not_null(), value)
        return found

    def positive(column: pl.Series) -> pl.Series:
        number = amount(column)
        return number.set(number <= 0, None)

    def as_written(column: pl.Series) -> pl.Series:
        return column

    def tres(key: str, read: Callable[[pl.Series], pl.Series] = amount) -> Ways:
        return [
            (column, lambda said: read(said.str.extract(rf"(?:^|,){key}=([^,]+)")))
            for column in ("AllocTRES", "ReqTRES")
        ]

    columns: dict[str, pl.Series | None] = {
        "submit": text["Submit"],
        "start": first(("Start", as_written)),
        "end": first(("End", as_written)),
        "runtime": first(("ElapsedRaw", amount), ("Elapsed", duration_s)),
        "suspended": first(("Suspended", duration_s)),
        "walltime": first(
            ("TimelimitRaw", _minutes),
            ("TimelimitRaw", _no_limit),
            ("Timelimit", duration_s),
            ("Timelimit", _no_limit),
        ),
        "nodes": first(
            ("NNodes", positive), ("AllocNodes", positive), *tres("node"), ("ReqNodes", positive)
        ),
        "cores": first(
            ("AllocCPUS", positive), ("NCPUS", positive), ("ReqCPUS", positive), *tres("cpu")
        ),
        "gpus": first(("AllocTRES", _gpus), ("ReqTRES", _gpus)),
        "consumables": first(("AllocTRES", _consumables), ("ReqTRES", _consumables)),
        "licenses": first(("AllocTRES", _licenses), ("ReqTRES", _licenses)),
        "priority": first(("Priority", amount)),
        "user": first(("User", as_written)),
        "account": first(("Account", as_written)),
        "partition": first(("Partition", as_written)),
        "qos": first(("QOS", as_written)),
        "features": _features(text, tally),
        "recorded_nodes": first(("NodeList", as_written)),
        "memory_gb": first(*tres("mem", gigabytes)),
    }
    made = text.select("job_id").with_columns(
        pl.lit(None, RECORD[name]).alias(name) if column is None else column.alias(name)
        for name, column in columns.items()
    )
    return _asked_otherwise(text, made)


def _asked_otherwise(text: pl.DataFrame, made: pl.DataFrame) -> pl.DataFrame:
    """Return memory from ReqMem and GPUs from GRES, for jobs whose TRES lack them."""
    if "ReqMem" in text.columns and made["memory_gb"].null_count():
        said = text["ReqMem"]
        # Before 21.08: of each core (c) or node (n); since then of the whole job.
        times = (
            pl.when(pl.lit(said.str.ends_with("c"))).then("cores")
            .when(pl.lit(said.str.ends_with("n"))).then("nodes")
            .otherwise(1.0).fill_null(1.0)
        )  # fmt: skip
        asked = pl.lit(gigabytes(said.str.strip_chars_end("?"))) * times
        made = made.with_columns(pl.coalesce("memory_gb", asked))
    for column in ("AllocGRES", "ReqGRES"):
        if column in text.columns:
            each = _told_by("gpu", text[column], _gpus_of_node, pl.Float64)
            asked = pl.lit(each) * pl.col("nodes").fill_null(1.0)
            # TRES has no key for GPUs if the site does not account for them.
            told = pl.any_horizontal(
                pl.lit(False),
                *(
                    pl.lit(text[name].str.contains("gres/gpu").fill_null(False))
                    for name in ("AllocTRES", "ReqTRES")
                    if name in text.columns
                ),
            )
            made = made.with_columns(
                pl.when(told).then("gpus").otherwise(pl.coalesce(asked, "gpus"))
            )
    return made


def _features(text: pl.DataFrame, tally: Tally) -> pl.Series | None:
    """Return the node features that jobs request; other constraints are counted."""
    if "Constraints" not in text.columns:
        return None
    asked = text.select(
        "job_id",
        said=pl.col("Constraints"),
        nodes=amount(text["NNodes"]) if "NNodes" in text.columns else pl.lit(None, pl.Float64),
    )
    kinds = asked.drop_nulls("said").group_by("said", "nodes", maintain_order=True)
    rows = []
    for said, nodes, jobs, job in kinds.agg(pl.len(), pl.col("job_id").first()).iter_rows():
        features, lost = read_constraint(said, nodes)
        rows.append((said, nodes, features or None))
        if lost:
            tally.add(lost, jobs, f"job {job}: {said[:60]}")
    schema = {"said": pl.String, "nodes": pl.Float64, "features": pl.String}
    table = pl.DataFrame(rows, schema, orient="row")
    keys = ["said", "nodes"]
    return asked.join(table, on=keys, how="left", nulls_equal=True, maintain_order="left")[
        "features"
    ]


def _minutes(said: pl.Series) -> pl.Series:
    return said.cast(pl.Float64, strict=False) * 60


def _no_limit(said: pl.Series) -> pl.Series:
    """Return a year for jobs without a limit: this is what Slurm plans with."""
    none = said.str.to_uppercase() == "UNLIMITED"
    return pl.select(pl.when(none).then(pl.lit(_YEAR_S)))[:, 0]


def _gpus(said: pl.Series) -> pl.Series:
    """Return the number of GPUs of each job; 0 for a TRES text without any."""
    none = said.is_not_null().cast(pl.Float64).replace(1.0, 0.0).set(said.is_null(), None)
    counted = _told_by("gres/gpu", said, _gpus_of, pl.Float64)
    return none.zip_with(counted.is_null(), counted)


def _gpus_of(said: str) -> float | None:
    """Return the number of GPUs in a TRES text.

    Slurm counts typed GPUs under gres/gpu, too. The types are counted only if gres/gpu is missing.
    """
    gpus = [one for one in parse_gres(said) if one.tres and one.name == "gpu"]
    return sum(one.amount for one in gpus if not one.kind) or sum(one.amount for one in gpus)


def _gpus_of_node(said: str) -> float | None:
    return sum(one.amount for one in parse_gres(said) if one.name == "gpu") or None


def _consumables(said: pl.Series) -> pl.Series:
    """Return generic resources other than GPUs, as ``fpga=2,tmp=400``.

    Types count only if there is no sum. A GPU type, ``gpu/a100=2``, is included if all GPUs of the
    job are of that type.
    """
    return _told_by("gres/", said, _consumables_of)


def _licenses(said: pl.Series) -> pl.Series:
    """Return licenses, as ``matlab=2``; a license server's name is removed."""
    return _told_by("license/", said, _licenses_of)


def _told_by(
    kind: str,
    said: pl.Series,
    read: Callable[[str], str | float | None],
    dtype: type[pl.DataType] = pl.String,
) -> pl.Series:
    """Read each text that has a kind of TRES; null for the others."""
    texts = said.filter(said.str.contains(kind, literal=True).fill_null(False)).unique()
    found = {text: had for text in texts.to_list() if (had := read(text))}
    if not found:
        return pl.repeat(None, len(said), dtype=dtype, eager=True)
    return said.replace_strict(found, default=None, return_dtype=dtype)


def _licenses_of(said: str) -> str | None:
    held = re.findall(r"license/([\w.-]+)(?:@[^=,]*)?=(\d+)", said)
    return ",".join(f"{name}={count}" for name, count in held) or None


def _consumables_of(said: str) -> str | None:
    counted: dict[str, float] = {}
    typed: dict[str, float] = {}
    gpus: dict[str, float] = {}
    for one in parse_gres(said):
        if not one.tres:
            continue
        of = gpus if one.name == "gpu" else typed if one.kind else counted
        key = one.kind if one.name == "gpu" else one.name
        if of is gpus or one.name not in NOT_CONSUMED:
            of[key] = of.get(key, 0.0) + one.amount
    every = {**typed, **counted}
    of_all = gpus.pop("", sum(gpus.values()))
    if len(gpus) == 1 and sum(gpus.values()) == of_all:
        every |= {f"{GPU_TYPE}{kind}": count for kind, count in gpus.items()}
    return ",".join(f"{name}={count:.0f}" for name, count in every.items()) or None


def _state(text: pl.DataFrame, tally: Tally) -> pl.Series:
    """Return the state of each job, in the terms common to all managers."""
    if "State" not in text.columns:
        ended = pl.col("End").is_not_null() if "End" in text.columns else pl.lit(True)
        return text.with_columns(
            pl.when(ended).then(pl.lit("completed")).otherwise(pl.lit("running")).alias("state")
        )["state"]
    word = text["State"].str.extract(r"^([A-Za-z_]+\+?)").str.to_uppercase()
    told = {one: said for one in word.unique().drop_nulls() if (said := _state_of(one))}
    state = word.replace_strict(told, default=None, return_dtype=pl.String).alias("state")
    if "End" in text.columns:
        # Its nodes are being cleaned up, but it has ended.
        cleared = (word == "COMPLETING") & text["End"].is_not_null()
        state = state.set(cleared.fill_null(False), "completed")
    strange = state.is_null()
    if strange.any():
        for name, count in word.filter(strange).value_counts().iter_rows():
            tally.add(
                f"record of state {str(name)[:40]}, unknown: treated as ended",
                count,
            )
        state = state.fill_null("completed")
    return state


def _state_of(word: str) -> str | None:
    """Return a state in the common terms; None if unknown.

    A plus marks a truncated word, as in OUT_OF_ME+.
    """
    if word in STATES:
        return STATES[word]
    begin = word.removesuffix("+")
    found = {state for name, state in STATES.items() if name.startswith(begin)}
    return found.pop() if begin != word and len(found) == 1 else None


def _told_by_elapsed(frame: pl.DataFrame, zone: str | None, tally: Tally) -> pl.DataFrame:
    """Use run times to correct starts and ends in the hour that the clock repeats."""
    odd = pl.col("end") - pl.col("start") - pl.col("suspended").fill_null(0) - pl.col("runtime")
    odd = pl.when(pl.col("state") != "running").then(odd)
    late, early = (odd - _HOUR_S).abs() < 2, (odd + _HOUR_S).abs() < 2
    counts = frame.select((late | early).fill_null(False).sum()).item()
    if zone is None:
        tally.add(
            "job that ran across a clock change: without --timezone its wait may be an hour off",
            counts,
        )
        return frame
    tally.add("time in the repeated hour of a clock change, resolved by the run time", counts)
    return frame.with_columns(
        start=pl.when(late).then(pl.col("start") + _HOUR_S).otherwise("start"),
        end=pl.when(early).then(pl.col("end") + _HOUR_S).otherwise("end"),
    )
