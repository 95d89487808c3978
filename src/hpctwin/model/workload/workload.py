"""The workload: jobs as columns."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ArgumentError, ConfigError, UnknownNameError, WorkloadError, in_brief
from hpctwin.guesses import GuessedType
from hpctwin.model.arguments import check_arguments, column
from hpctwin.model.columns import (
    PER_NODE,
    PREDICTED,
    UNKNOWN,
    Category,
    alike,
    as_pandas,
    every,
    ms_of,
)
from hpctwin.model.requests.chunks import check_group_by, check_more_tasks, checked_chunks
from hpctwin.model.requests.features import check_features
from hpctwin.model.requests.resources import checked_consumables
from hpctwin.model.text import MS_PER_S, ReadNotes, Shown, count_text, format_duration, parse_moment
from hpctwin.model.workload.demands import Demands, checked_demands
from hpctwin.model.workload.dependencies import Dependencies, check_acyclic
from hpctwin.model.workload.jobs import (
    Usage,
    check_distinct,
    check_values,
    rows_drawn,
    rows_within,
    submit_for_load,
)
from hpctwin.model.workload.malleable import Malleable, checked_malleable

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from hpctwin.network.profiles import Profile

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

Labels = Category | Sequence[Any] | npt.NDArray[Any]
"""Labels of jobs: a `Category`, or a list with one label per job."""

_OF_ROWS = (
    "submit_s", "runtime_s", "nodes", "walltime_s", "job_id", "user", "account", "partition", "qos",
    "features", "more_tasks", "group_by", "profile", "priority", "recorded_start_s", "cancel_s", "fails",
    "checkpoint_s", "used_memory_gb", "start_epoch_s",
)  # fmt: skip
"""Arguments of `Workload.build` that it checks itself."""

_OF_ALL = ("name", "start_epoch_s", "header", "nodes_hint", "notes")
"""Fields of the whole workload, not of each job."""


@dataclass(frozen=True, eq=False, repr=False)
class Workload(Shown, metaclass=GuessedType):
    """Jobs as columns, sorted by submit time, then id.

    `Workload.build` and the readers make it.

    Args:
        job_id: int64, or strings; unique.
        submit_ms: Submit time, in ms from the workload's time zero.
        runtime_ms: Run time if nothing ends the job, in ms; schedulers never see it.
        walltime_ms: Requested limit, in ms, > 0.
        nodes: Requested nodes, > 0; the minimum for a job that requests tasks.
        user, account, partition, qos: Labels.
        features: Features that nodes must have, such as ``a100|v100``; see
            `hpctwin.model.requests.features`.
        more_tasks: Further kinds of tasks of jobs that have several, such as ``1:cores=32:gpus=4``;
            see `hpctwin.model.requests.chunks.read_more_tasks`.
        group_by: For jobs with tasks, name whose value is the same on all their nodes, such as
            ``rack`` for features of node groups such as ``rack=r1``.
        profile: Name of its profile in the file of the workload, for results.
        priority: The trace's own priority, larger is sooner; 0 if unknown.
        per_node: Minimum of each node, by name (`PER_NODE`); 0 if none is requested.
        chunks: Requests of jobs that share nodes, by the names of `CHUNKS` [jobs]; a job with 0
            ``tasks`` requests whole nodes. Empty if all jobs do.
        resources: Amounts of cluster-wide resources, by name; integers.
        consumables: Request of each task for node resources other than cores, memory and GPUs, by
            name; for a job of whole nodes, the minimum of each node.
        dependencies: Dependencies between the jobs.
        recorded_start_ms: Recorded start of the job, in ms; -1 if unknown.
        recorded_nodes: Recorded nodes of the job, as text; None if unknown.
        cancel_ms: Time at which its user cancelled it, in ms; -1 for never.
        fails: Whether it ends with an error at the end of its run time; None if no job does.
        checkpoint_ms: Interval of its checkpoints, in ms of run time; 0 for never, -1 if unknown;
            None if unknown for all jobs.
        used_memory_gb: Maximum memory used on one of its nodes, in GiB; NaN if unknown, None if
            unknown for all jobs. Schedulers do not see it.
        name: Name, for titles.
        start_epoch_s: Unix time of time zero, if known.
        header: Comment lines of its original file.
        nodes_hint: Size of the cluster as the file states it.
        notes: What the reader changed or skipped.
        carried: Fields of an SWF log that are unused here, or their values before unknown ones were
            filled in, by the format's names; SWF's writer restores them.
        usage: Use of each job's node components, by the component's name, and measured power of its
            nodes; schedulers do not see it.
        predicted: Predictions for each job at its submission, by the names of `PREDICTED` [jobs];
            NaN for none. Orderings see them.
        malleable: Other numbers of nodes on which jobs may run, and whether jobs may be suspended;
            None if all are rigid. It only matters if sizes are decided (`hpctwin.Simulation`,
            ``sizing``).
        profiles: What each job does; None for a job that runs for its run time. A profile
            replaces the run time, which is then an upper bound. None if no job has a profile.
        demands: Totals that each job computes, sends, reads and writes, by the names of
            `hpctwin.model.workload.demands.DEMANDS`; empty if no job has any. They only matter if
            jobs share the network (``sharing``), and for jobs without a profile.
    """

    job_id: npt.NDArray[Any]
    submit_ms: IntArray
    runtime_ms: IntArray
    walltime_ms: IntArray
    nodes: IntArray
    user: Category
    account: Category
    partition: Category
    qos: Category
    features: Category
    more_tasks: Category
    group_by: Category
    profile: Category
    priority: FloatArray
    per_node: Mapping[str, FloatArray]
    resources: Mapping[str, IntArray]
    dependencies: Dependencies
    recorded_start_ms: IntArray
    recorded_nodes: tuple[str | None, ...] | None
    cancel_ms: IntArray
    fails: npt.NDArray[np.bool_] | None = None
    checkpoint_ms: IntArray | None = None
    used_memory_gb: FloatArray | None = None
    name: str = "workload"
    start_epoch_s: float | None = None
    header: tuple[str, ...] = ()
    nodes_hint: int | None = None
    notes: ReadNotes = field(default_factory=ReadNotes)
    carried: Mapping[str, FloatArray] = field(default_factory=dict)
    usage: Mapping[str, Usage] = field(default_factory=dict)
    chunks: Mapping[str, FloatArray] = field(default_factory=dict)
    predicted: Mapping[str, FloatArray] = field(default_factory=dict)
    malleable: Malleable | None = None
    consumables: Mapping[str, FloatArray] = field(default_factory=dict)
    profiles: tuple[Profile | None, ...] | None = None
    demands: Demands = field(default_factory=dict)

    @classmethod
    @check_arguments(*_OF_ROWS)
    def build(
        cls,
        *,
        submit_s: npt.ArrayLike,
        runtime_s: npt.ArrayLike,
        nodes: npt.ArrayLike,
        walltime_s: npt.ArrayLike | None = None,
        job_id: npt.ArrayLike | None = None,
        user: Labels | None = None,
        account: Labels | None = None,
        partition: Labels | None = None,
        qos: Labels | None = None,
        features: Labels | None = None,
        more_tasks: Labels | None = None,
        group_by: Labels | None = None,
        profile: Labels | None = None,
        priority: npt.ArrayLike | None = None,
        per_node: Mapping[str, npt.ArrayLike] | None = None,
        resources: Mapping[str, npt.ArrayLike] | None = None,
        dependencies: Dependencies | None = None,
        recorded_start_s: npt.ArrayLike | None = None,
        recorded_nodes: Sequence[str | None] | None = None,
        cancel_s: npt.ArrayLike | None = None,
        fails: npt.ArrayLike | None = None,
        checkpoint_s: npt.ArrayLike | None = None,
        used_memory_gb: npt.ArrayLike | None = None,
        name: str = "workload",
        start_epoch_s: float | str | dt.date | None = None,
        header: Sequence[str] = (),
        nodes_hint: int | None = None,
        notes: ReadNotes | None = None,
        carried: Mapping[str, npt.ArrayLike] | None = None,
        usage: Mapping[str, Usage] | None = None,
        chunks: Mapping[str, npt.ArrayLike] | None = None,
        predicted: Mapping[str, npt.ArrayLike] | None = None,
        malleable: Mapping[str, Any] | None = None,
        consumables: Mapping[str, npt.ArrayLike] | None = None,
        profiles: Sequence[Profile | None] | None = None,
        demands: Mapping[str, Any] | None = None,
    ) -> Workload:
        """Validate columns (times in seconds), sort them, and make the workload.

        Numbers are lists, arrays or columns of tables; labels may be lists of text.
        ``start_epoch_s`` is a number or a date (UTC if it names no zone).

        Columns have the meaning of the fields of the same name. By default, ``walltime_s`` is the
        run time (at least 1 ms), and ``job_id`` is 1, 2, …. Negative ``recorded_start_s`` and
        ``cancel_s`` mean unknown and never. Dependencies refer to rows as given here. ``malleable``
        has columns by the names of `hpctwin.model.workload.malleable.MALLEABLE`, and ``demands``
        by those of `hpctwin.model.workload.demands.DEMANDS`, NaN for the default.

        Raises:
            WorkloadError: A column has the wrong length, a value is impossible, an id is not
                unique, or dependencies form a cycle; the message names the job.
        """
        nodes_f = column("nodes", nodes)
        size = len(nodes_f)
        ids = np.arange(1, size + 1) if job_id is None else _ids(job_id)
        if ids.dtype.kind in "iu":
            ids = ids.astype(np.int64, copy=job_id is not None)
        else:
            ids = ids.astype(np.str_)
        runtime = column("runtime_s", runtime_s)
        walltime = np.maximum(runtime, 1 / MS_PER_S) if walltime_s is None else walltime_s
        times = {
            "submit_s": column("submit_s", submit_s),
            "runtime_s": runtime,
            "walltime_s": column("walltime_s", walltime),
        }
        may_be_unknown = {
            "recorded_start_s": recorded_start_s, "cancel_s": cancel_s, "checkpoint_s": checkpoint_s,
        }  # fmt: skip
        times |= {k: column(k, v) for k, v in may_be_unknown.items() if v is not None}
        # Columns that are kept as given are copied: a workload is not changed from outside.
        amounts, per, further, foretold, used_up, parts = (
            {k: column(f"{name} {k}", v).copy() for k, v in (given or {}).items()}
            for name, given in (
                ("resources", resources), ("per_node", per_node), ("carried", carried),
                ("predicted", predicted), ("consumables", consumables), ("chunks", chunks),
            )
        )  # fmt: skip
        unknown = sorted(set(per) - set(PER_NODE))
        if unknown:
            raise WorkloadError(
                f"per-node resource {unknown[0]!r} is unknown; known: {', '.join(PER_NODE)}"
            )
        if set(foretold) - set(PREDICTED):
            raise UnknownNameError("prediction", min(set(foretold) - set(PREDICTED)), PREDICTED)
        prio = alike(0.0, size, float) if priority is None else column("priority", priority).copy()
        categories = {
            "user": user,
            "account": account,
            "partition": partition,
            "qos": qos,
            "features": features,
            "more_tasks": more_tasks,
            "group_by": group_by,
            "profile": profile,
        }
        labels = {k: Category.given(k, v, size) for k, v in categories.items()}
        columns: dict[str, npt.NDArray[Any]] = {
            "job_id": ids,
            "nodes": nodes_f,
            "priority": prio,
            **times,
            **{f"resource {k}": v for k, v in amounts.items()},
            **{f"per-node {k}": v for k, v in per.items()},
            **{f"carried {k}": v for k, v in further.items()},
            **{f"predicted {k}": v for k, v in foretold.items()},
            **{k: v.codes for k, v in labels.items()},
        }
        if fails is not None:
            columns["fails"] = column("fails", fails) != 0
        if used_memory_gb is not None:
            columns["used_memory_gb"] = column("used_memory_gb", used_memory_gb).copy()
        if recorded_nodes is not None:
            columns["recorded_nodes"] = np.array(recorded_nodes, object)
            if not _are(columns["recorded_nodes"], str):
                raise ArgumentError(
                    f"recorded_nodes is {in_brief(recorded_nodes)}; it must be a list of texts or None"
                )
        if profiles is not None:
            from hpctwin.network.profiles import Profile

            columns["profiles"] = np.array(profiles, object)
            if not _are(columns["profiles"], Profile):
                raise ArgumentError(
                    f"profiles is {in_brief(profiles)}; it must be a list of Profile or None"
                )
        if nodes_hint is not None and nodes_hint < 1:
            raise WorkloadError(f"nodes_hint is {nodes_hint}; it must be 1 or more, or None")
        for one, values in columns.items():
            if values.shape != (size,):
                raise WorkloadError(f"column {one} has shape {values.shape}, expected ({size},)")
        check_distinct(ids)
        check_values(ids, columns)
        check_features(labels["features"].labels)
        used = usage or {}
        for kind, found in used.items():
            if not isinstance(found, Usage):
                raise ArgumentError(f"usage {kind} is {in_brief(found)}; it must be a Usage")
            if len(found) != size:
                raise WorkloadError(
                    f"usage {kind} has {count_text(len(found), 'job')}, expected {size}"
                )
            found.check(kind, ids)
        used_up = checked_consumables(used_up, ids)
        asked = checked_chunks(parts, ids, nodes_f, used_up)
        check_more_tasks(labels["more_tasks"], asked, nodes_f, ids)
        check_group_by(labels["group_by"], asked, ids)
        sizes = checked_malleable(malleable, ids, nodes_f.astype(np.int64))
        depends = dependencies or Dependencies.none()
        for end in (depends.job, depends.on):
            if len(end) and not (end.min() >= 0 and end.max() < size):
                wrong = int(end[(end < 0) | (end >= size)][0])
                raise WorkloadError(f"dependencies name row {wrong}; rows are 0 to {size - 1}")
        check_acyclic(depends, ids)
        made = cls(
            job_id=ids,
            submit_ms=ms_of(times["submit_s"]),
            runtime_ms=ms_of(times["runtime_s"]),
            walltime_ms=_at_least_one(ms_of(times["walltime_s"])),
            nodes=nodes_f.astype(np.int64),
            priority=prio,
            per_node=per,
            resources={k: v.astype(np.int64) for k, v in amounts.items()},
            dependencies=depends,
            recorded_start_ms=_known_ms(times, "recorded_start_s", size),
            recorded_nodes=None if recorded_nodes is None else tuple(recorded_nodes),
            cancel_ms=_known_ms(times, "cancel_s", size),
            fails=columns["fails"] if fails is not None and columns["fails"].any() else None,
            checkpoint_ms=None if checkpoint_s is None else _known_ms(times, "checkpoint_s", size),
            used_memory_gb=columns.get("used_memory_gb"),
            name=name,
            start_epoch_s=_epoch_s(start_epoch_s),
            header=tuple(header),
            nodes_hint=nodes_hint,
            notes=notes or ReadNotes(),
            carried=further,
            usage=dict(used),
            chunks=asked,
            predicted=foretold,
            malleable=sizes,
            consumables=used_up,
            profiles=None if profiles is None else tuple(profiles),
            demands=checked_demands(demands, ids),
            **labels,
        )
        return (
            made
            if _in_order(ids, times["submit_s"])
            else made.in_order(np.lexsort((ids, times["submit_s"])))
        )

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, rows: slice | npt.NDArray[Any]) -> Workload:
        """Return some of the jobs, as by `take`.

        Examples are ``workload[:1000]`` and ``workload[workload.nodes > 8]``.
        """
        if isinstance(rows, slice):
            return self.take(np.arange(len(self))[rows])
        return self.take(np.atleast_1d(np.asarray(rows)))

    def shown(self) -> tuple[str, dict[str, str]]:
        """See `Shown`."""
        facts = {"jobs": f"{len(self):,}"}
        if len(self):
            facts["nodes each"] = f"{self.nodes.min():,} to {self.nodes.max():,}"
            facts["of submissions"] = format_duration(self.span_s)
        return self.name, facts

    def shown_more(self) -> dict[str, str]:
        """See `Shown`."""
        facts = {
            "users": f"{len(self.user.labels):,}",
            "partitions": ", ".join(self.partition.labels) or "–",
            "dependencies": f"{len(self.dependencies):,}",
            "nodes of its cluster": "–" if self.nodes_hint is None else f"{self.nodes_hint:,}",
        }
        if len(self):
            facts["median runtime"] = format_duration(float(np.median(self.runtime_ms)) / MS_PER_S)
            facts["median walltime"] = format_duration(
                float(np.median(self.walltime_ms)) / MS_PER_S
            )
        return facts

    @check_arguments()
    def scale(
        self, load: float, nodes: int | None = None, *, sizes: npt.ArrayLike | None = None
    ) -> Workload:
        """Return the same jobs, closer together or further apart, with a given load.

        Args:
            load: Node-seconds that jobs run, as a share of those available from the first
                submission to the last; 1.0 is the cluster's full capacity.
            nodes: Size of the cluster; by default from the trace.
            sizes: Nodes that each job counts with, such as 0.25 for a quarter of one
                [jobs]; by default its nodes.

        Returns:
            A workload with other submit times, and without recorded starts, which are no longer
            true.

        Raises:
            ConfigError: The load is not above 0, the cluster's size is unknown or not 1 or
                more, or a job has no valid size.
            WorkloadError: All jobs are submitted at once.
        """
        if nodes is not None and nodes < 1:
            raise ConfigError(f"nodes is {nodes}; it must be 1 or more")
        machine = nodes if nodes is not None else self.nodes_hint
        if machine is None:
            raise ConfigError(
                f"{self.name} has no cluster size; give nodes, as in scale(load=0.9, nodes=128)"
            )
        amounts = self.nodes if sizes is None else column("sizes", sizes)
        if len(amounts) != len(self) or not ((amounts >= 0) & np.isfinite(amounts)).all():
            raise ConfigError(
                f"sizes is {in_brief(sizes)}; give each of the {len(self)} jobs a number of 0 or more"
            )
        submit = submit_for_load(
            self.submit_ms,
            self.runtime_ms,
            amounts,
            load,
            machine,
        )
        cancel = np.where(self.cancel_ms < 0, UNKNOWN, self.cancel_ms + submit - self.submit_ms)
        moved = self.replace(
            submit_ms=submit,
            cancel_ms=cancel,
            recorded_start_ms=np.full(len(self), UNKNOWN),
            recorded_nodes=None,
        )
        return moved.in_order(np.lexsort((self.job_id, submit)))

    def window(
        self, begin: float | str | dt.date, end: float | str | dt.date | None = None
    ) -> Workload:
        """Return the jobs submitted in a period.

        See also `hpctwin.simulation.running.window`.

        Args:
            begin: Time since the first submission, in seconds or as text such as ``30d``; or a
                date, in UTC if it names no zone.
            end: End of the period, in the same form, exclusive; by default after the last job.

        Raises:
            ConfigError: It is no time, or a date and the workload has none.
        """
        rows = rows_within(self.submit_ms, begin, end, self.start_epoch_s, self.name)
        return self.take(rows)

    @check_arguments()
    def sample(self, jobs: int | float, seed: int = 0) -> Workload:
        """Return some of the jobs at random; dependencies on others are dropped.

        Args:
            jobs: Number of jobs, or a share from 0.0 to 1.0.
            seed: Seed of the random choice.

        Raises:
            ConfigError: There are fewer jobs.
        """
        return self.take(rows_drawn(len(self), jobs, seed))

    @property
    def shares_nodes(self) -> bool:
        """Whether any job requests tasks, so that nodes are shared."""
        return bool(self.chunks)

    @property
    def predicted_runtime_s(self) -> FloatArray:
        """Predicted run times in seconds, at most the walltimes; by default these [jobs]."""
        walltime = self.walltime_ms / MS_PER_S
        found = self.predicted.get("runtime_s")
        return walltime if found is None else np.fmin(found, walltime)

    @property
    def span_s(self) -> float:
        """Seconds from the first submission to the last."""
        return float(np.ptp(self.submit_ms)) / MS_PER_S if len(self) else 0.0

    def take(self, rows: npt.ArrayLike) -> Workload:
        """Return the jobs at ``rows`` (indices or a mask).

        Dependencies on others are dropped.

        Raises:
            ArgumentError: The rows are neither indices of jobs nor a mask with a value for each
                job.
        """
        given, size = np.asarray(rows), len(self)
        if given.ndim == 1 and not len(given):
            given = given.astype(np.int64)
        if given.dtype == bool and given.shape == (size,):
            return self.in_order(np.flatnonzero(given))
        if given.ndim != 1 or given.dtype.kind not in "iu" or not every(_within(given, size)):
            raise ArgumentError(
                f"rows is {in_brief(rows)}; it must be indices of the {size:,} jobs, or "
                "a boolean mask of that length"
            )
        return self.in_order(np.sort(given % size if size else given))

    def in_order(self, index: IntArray) -> Workload:
        """Return the jobs at ``index``, which must be sorted by submit time and id.

        Dependencies on others are dropped.
        """
        told = vars(self).items()
        return self.replace(**{k: _at(v, index) for k, v in told if k not in _OF_ALL})

    def replace(self, **columns: Any) -> Workload:
        """Return a copy with some columns replaced.

        An example is ``walltime_ms=w.runtime_ms``.

        Raises:
            ArgumentError: A value is no column, or has a different number of jobs than the others.
        """
        made = {name: self._as_column(name, given) for name, given in columns.items()}
        size = len(made.get("nodes", self.nodes))
        for name, given in made.items():
            if isinstance(given, (np.ndarray, Category)) and len(given) != size:
                raise ArgumentError(
                    f"{name} has {count_text(len(given), 'job')}; it must have {size:,}"
                )
        return dataclasses.replace(self, **made)

    def _as_column(self, name: str, given: Any) -> Any:
        """Return the value given for a field, converted to the field's type."""
        now = getattr(self, name, None)
        if isinstance(now, Category) and not isinstance(given, Category):
            return Category.given(name, given, None)
        if name == "job_id":
            return _ids(given)
        if isinstance(now, np.ndarray):
            fits = isinstance(given, np.ndarray) and given.ndim == 1 and given.dtype.kind in "iufb"
            found = given if fits else column(name, given)
            if now.dtype.kind == "i" and found.dtype.kind == "f" and not every(np.isfinite(found)):
                raise ArgumentError(
                    f"{name} is {in_brief(given)}; it must be whole numbers, one per job"
                )
            return found if fits else found.astype(now.dtype)
        if isinstance(now, str) and not isinstance(given, str):
            raise ArgumentError(f"{name} is {in_brief(given)}; it must be text")
        return _epoch_s(given) if name == "start_epoch_s" else given

    def to_frame(self) -> pl.DataFrame:
        """Return all columns as a Polars frame; `Workload.from_frame` reads it back."""
        from hpctwin.model.workload.frame import to_frame

        return to_frame(vars(self))

    def to_pandas(self) -> pd.DataFrame:
        """Return `to_frame` as a table of pandas.

        Raises:
            ConfigError: pandas is not installed.
        """
        return as_pandas(self.to_frame())

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        name: str = "workload",
        start_epoch_s: float | str | dt.date | None = None,
        header: Sequence[str] = (),
        nodes_hint: int | None = None,
        notes: ReadNotes | None = None,
    ) -> Workload:
        """Make a workload from a Polars frame in hpctwin's columns.

        See `hpctwin.model.workload.frame`. The other arguments are as the fields of the same name.
        The frame may also be a dict of columns, or a table of pandas or Arrow.

        Raises:
            WorkloadError: A required column is missing or a value is impossible.
            ArgumentError: It is no table.
        """
        from hpctwin.model.workload.frame import as_frame, columns_of

        counts: dict[str, int] = {}
        columns = columns_of(as_frame(frame), counts)
        if counts:
            notes = notes or ReadNotes()
            notes = dataclasses.replace(notes, counts={**notes.counts, **counts})
        return cls.build(
            **columns,
            name=name,
            start_epoch_s=start_epoch_s,
            header=header,
            nodes_hint=nodes_hint,
            notes=notes,
        )


def _at(column: Any, index: IntArray) -> Any:
    """Return a column's values at some rows; None if there is no such column."""
    match column:
        case None:
            return None
        case Mapping():
            return {name: _at(one, index) for name, one in column.items()}
        case Dependencies():
            return column.reindexed(index)
        case tuple():
            return tuple(column[row] for row in index)
        case np.ndarray():
            # A column with one value in all rows stays so.
            same = column.strides == (0,) and len(column) > 0
            return np.broadcast_to(column[0], len(index)) if same else column[index]
    return column.take(index)


def _in_order(ids: npt.NDArray[Any], submit_s: FloatArray) -> bool:
    """Return whether rows are sorted by submit time, then id, as in most logs."""
    later = submit_s[1:] > submit_s[:-1]
    return bool((later | ((submit_s[1:] == submit_s[:-1]) & (ids[1:] > ids[:-1]))).all())


def _ids(given: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return ids of jobs: whole numbers, or texts."""
    if isinstance(given, (str, bytes, Mapping, Set)):
        raise ArgumentError(f"job_id is {in_brief(given)}; it must be a list of numbers or texts")
    found = np.asarray(list(given) if isinstance(given, Iterator) else given)
    if found.ndim != 1 or found.dtype.kind not in "iufUO":
        raise ArgumentError(f"job_id is {in_brief(given)}; it must be a list of numbers or texts")
    return found


def _are(given: npt.NDArray[Any], kind: type) -> bool:
    """Return whether a list has only values of a kind, or None."""
    return given.ndim == 1 and all(one is None or isinstance(one, kind) for one in given)


def _epoch_s(given: float | str | dt.date | None) -> float | None:
    """Return the Unix time of time zero from a number or a date."""
    if given is None:
        return None
    found = parse_moment(given)
    return found.timestamp() if isinstance(found, dt.datetime) else found


def _within(rows: IntArray, size: int) -> npt.NDArray[np.bool_]:
    inside: npt.NDArray[np.bool_] = (rows >= -size) & (rows < size)
    return inside


def _at_least_one(ms: IntArray) -> IntArray:
    return np.maximum(ms, 1, out=ms)


def _known_ms(times: Mapping[str, FloatArray], name: str, size: int) -> IntArray:
    """Return a column of times, some or all of which are unknown."""
    if name not in times:
        return alike(UNKNOWN, size, np.int64)
    return np.where(times[name] < 0, UNKNOWN, ms_of(times[name]))
