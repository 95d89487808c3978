"""Workloads and SWF lines for property tests, and what it means for two workloads to be equal."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from hpctwin.model import Category, Dependencies, DependencyKind, Workload

LABELS = ("user", "account", "partition", "qos")
MS = st.integers(0, 10**10)


def labels_of(category: Category) -> list[str | None]:
    return [None if code < 0 else category.labels[code] for code in category.codes]


def assert_same_jobs(found: Workload, expected: Workload, *, besides: tuple[str, ...] = ()) -> None:
    """Every column of jobs is equal, apart from those named."""
    for name in (
        "job_id",
        "submit_ms",
        "runtime_ms",
        "walltime_ms",
        "nodes",
        "priority",
        "recorded_start_ms",
        "cancel_ms",
    ):
        if name not in besides:
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
    for name in LABELS:
        if name not in besides:
            assert labels_of(getattr(found, name)) == labels_of(getattr(expected, name)), name
    if "dependencies" not in besides:
        assert edges(found) == edges(expected)


def edges(workload: Workload) -> set[tuple[int, ...]]:
    d = workload.dependencies
    return set(
        zip(d.job.tolist(), d.on.tolist(), d.kind.tolist(), d.delay_ms.tolist(), strict=True)
    )


SWF_KINDS = (DependencyKind.AFTERANY, DependencyKind.THINK)


@st.composite
def workloads(
    draw: st.DrawFn,
    *,
    min_size: int = 0,
    number_labels: bool = True,
    kinds: tuple[DependencyKind, ...] = SWF_KINDS,
    dependencies: bool = True,
) -> Workload:
    """A workload that SWF can carry, of up to eight jobs."""
    size = draw(st.integers(min_size, 8))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=size, max_size=size))

    number = st.integers(0, 50) if number_labels else st.text("abü 1,;\"'", min_size=1, max_size=4)
    some = st.one_of(st.none(), number)
    submit = np.array(column(MS), np.float64)
    waits = np.array(column(st.one_of(st.just(-1), MS)), np.float64)
    edges = []
    if dependencies and size > 1:
        for row in range(1, size):
            if draw(st.booleans()):
                on = draw(st.integers(0, row - 1))
                kind = draw(st.sampled_from(kinds))
                # SWF takes a delay for a think time.
                delay = 0 if kinds == SWF_KINDS and kind == DependencyKind.AFTERANY else draw(MS)
                edges.append((row, on, kind, delay % 999_000))
    categories: dict[str, Any] = {}
    for name in ("user", "account", "partition"):
        values = column(some)
        if any(value is not None for value in values):
            categories[name] = Category.of(values)
    return Workload.build(
        job_id=np.array(
            draw(st.lists(st.integers(0, 10**6), min_size=size, max_size=size, unique=True)),
            np.int64,
        ),
        submit_s=submit / 1000,
        runtime_s=np.array(column(MS), np.float64) / 1000,
        walltime_s=np.array(column(st.integers(1, 10**10)), np.float64) / 1000,
        nodes=column(st.integers(1, 10**6)),
        recorded_start_s=np.where(waits < 0, -1, submit + waits) / 1000,
        dependencies=Dependencies.of(edges),
        start_epoch_s=draw(st.one_of(st.none(), st.integers(1, 2 * 10**9))),
        nodes_hint=draw(st.one_of(st.none(), st.integers(1, 10**6))),
        header=draw(st.sampled_from([(), ("; Computer: X",), ("; Note: ü", ";", "; MaxJobs: 3")])),
        **categories,
    )


@st.composite
def swf_files(draw: st.DrawFn) -> bytes:
    """Valid SWF with odd blanks, fractions, comments and empty lines; the first submit is early."""
    lines = []
    blank = st.sampled_from([" ", "  ", "\t", " \t ", "      "])
    seconds = st.one_of(
        st.integers(0, 10**7).map(str),
        st.floats(0, 1e7).map(lambda x: f"{x:.3f}"),
        st.sampled_from(["0", "1.", ".5", "1e3", "+4", "007"]),
    )
    known = st.one_of(st.just("-1"), seconds)
    whole = st.sampled_from(["-1", "0", "3", "12", "5.0"])
    jobs = draw(st.lists(st.integers(0, 99), max_size=8, unique=True))
    for job in jobs:
        fields = [
            str(job), draw(seconds), draw(known), draw(known), draw(st.sampled_from("128")),
            draw(known), draw(known), draw(st.sampled_from(["-1", "4", "16"])), draw(known),
            draw(known), draw(st.sampled_from(["-1", "0", "1", "5", "2"])), draw(whole),
            draw(whole), draw(whole), draw(whole), draw(whole),
            draw(st.sampled_from(["-1", *(str(j) for j in jobs if j < job)])), draw(known),
        ]  # fmt: skip
        fields += draw(st.sampled_from([[], [], ["q"], ["{1,2}", "a;b", "x"]]))
        line = draw(st.sampled_from(["", " ", "\t"])) + fields[0]
        for field in fields[1:]:
            line += draw(blank) + field
        lines.append(line + draw(st.sampled_from(["", " ", "\t"])))
        lines += draw(st.sampled_from([[], [], [""], ["  "], ["; Note: between"], ["  ;x"]]))
    head = draw(
        st.sampled_from([[], ["; MaxProcs: 128"], ["; UnixStartTime: 1000", "; MaxNodes: 9"]])
    )
    end = draw(st.sampled_from(["\n", "\r\n"]))
    text = end.join([*head, *lines]) + draw(st.sampled_from(["", end]))
    return text.encode() if text.strip() else b";"
