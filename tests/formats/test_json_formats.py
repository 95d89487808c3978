from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from hpctwin.errors import TraceError
from hpctwin.formats import read_workload, write_workload
from hpctwin.formats.json.batsim import write_batsim
from hpctwin.formats.json.spars import write_spars
from hpctwin.model import Category, Workload
from tests.formats.format_strategies import assert_same_jobs, labels_of, workloads

OFTEN_LOST = ("account", "partition", "qos", "dependencies", "recorded_start_ms", "cancel_ms")
SPARS_JOB = {"job_id": 1, "res": 2, "subtime": 0, "reqtime": 9, "runtime": 5.5, "user_id": 4}
BATSIM_JOB = {"id": "w0!1", "res": 2, "subtime": 0, "walltime": 9, "profile": "p"}
PROFILES = {
    "p": {"type": "delay", "delay": 5.5},
    "h": {"type": "parallel_homogeneous", "cpu": 4e9, "com": 0},
    "c": {"type": "parallel_homogeneous", "cpu": 4e9, "com": -7},
    "m": {"type": "mpi"},
}


def spars(tmp_path: Path, *jobs: Any, **how: Any) -> Workload:
    path = tmp_path / "w.json"
    path.write_text(json.dumps({"nb_res": 8, "jobs": jobs}))
    return read_workload(path, **how)


def batsim(tmp_path: Path, *jobs: Any, **how: Any) -> Workload:
    path = tmp_path / "w.json"
    path.write_text(json.dumps({"nb_res": 8, "jobs": jobs, "profiles": PROFILES}))
    return read_workload(path, **how)


def test_spars_is_read(tmp_path: Path) -> None:
    w = spars(tmp_path, SPARS_JOB)
    assert (w.name, w.nodes_hint, w.job_id.tolist()) == ("w", 8, [1])
    assert (w.nodes[0], w.submit_ms[0], w.walltime_ms[0], w.runtime_ms[0]) == (2, 0, 9000, 5500)
    assert labels_of(w.user) == ["4"]
    assert w.notes.counts == {}


def test_the_user_distinguishes_the_older_spars_from_batsim(tmp_path: Path) -> None:
    old = {"id": 3, "res": 2, "subtime": 0, "walltime": 9, "profile": "h", "user_id": 0}
    w = batsim(tmp_path, old)
    assert w.runtime_ms.tolist() == [9000]
    assert w.job_id.tolist() == [3]
    assert w.notes.counts == {"job without run time, given its requested time": 1}


def test_batsim_is_read(tmp_path: Path) -> None:
    other = {**BATSIM_JOB, "id": "w0!2", "walltime": -1, "profile": "h"}
    w = batsim(tmp_path, BATSIM_JOB, other)
    assert w.job_id.tolist() == ["w0!1", "w0!2"]
    assert w.runtime_ms.tolist() == [5500, 10**12]
    assert w.walltime_ms.tolist() == [9000, 10**12]
    assert w.nodes_hint == 8
    assert w.notes.counts == {"job without walltime, given a walltime of 1e+09 s": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"runtime": None}, "job 2: runtime is missing, expected a number, 0 or more"),
        ({"runtime": "x"}, "job 2: runtime is 'x', expected a number"),
        ({"runtime": True}, "job 2: runtime is True, expected a number"),
        ({"reqtime": 0}, "job 2: reqtime is 0, expected a number, 0.001 or more"),
        ({"res": 2.5}, "job 2: res is 2.5, expected a whole number, 1 or more"),
        ({"subtime": 10**400}, "job 2: subtime is 1000"),
        ({"job_id": 1}, "job 1 occurs twice in the file"),
        (
            {"job_id": None},
            r"jobs\[1\]: job_id is missing, expected a whole number or printable text",
        ),
        ({"job_id": "\ud800"}, r"jobs\[1\]: job_id is '.ud800', expected"),
        ({"job_id": [2]}, r"jobs\[1\]: job_id is \[2\], expected"),
    ],
)
def test_an_invalid_spars_job_is_named_or_skipped(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    bad = {**SPARS_JOB, "job_id": 2, **change}
    with pytest.raises(TraceError, match=message):
        spars(tmp_path, SPARS_JOB, bad)
    w = spars(tmp_path, SPARS_JOB, bad, skip_invalid=True)
    assert w.job_id.tolist() == [1]
    assert len(w.notes.skipped) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"profile": "c"}, "job 2, profile 'c': com is -7, expected a number, 0 or more"),
        (
            {"profile": "m"},
            "profile 'm': type is 'mpi', supported are DelayProfile, ParallelTaskProfile",
        ),
        ({"profile": "z"}, "job 2: profile 'z' is not a profile of the file"),
        ({"profile": None}, "job 2: profile is missing"),
        ({"walltime": 0}, "job 2: walltime is 0, expected"),
    ],
)
def test_an_invalid_batsim_job_is_named_or_skipped(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    bad = {**BATSIM_JOB, "id": 2, **change}
    with pytest.raises(TraceError, match=message):
        batsim(tmp_path, BATSIM_JOB, bad)
    assert len(batsim(tmp_path, BATSIM_JOB, bad, skip_invalid=True)) == 1


@pytest.mark.parametrize(
    "document", [None, [], 3, {}, {"jobs": 3}, {"jobs": [3]}, {"jobs": [], "nb_res": "x"}]
)
@pytest.mark.parametrize("name", ["spars", "batsim", None])
def test_documents_that_are_no_workload_are_trace_errors(
    tmp_path: Path, document: Any, name: str | None
) -> None:
    (tmp_path / "w.json").write_text(json.dumps(document))
    with pytest.raises(TraceError):
        read_workload(tmp_path / "w.json", format=name)


@given(workload=workloads(min_size=1))
def test_spars_brings_back_what_it_can_carry(
    tmp_path_factory: pytest.TempPathFactory, workload: Workload
) -> None:
    path = tmp_path_factory.mktemp("json") / "w.json.gz"
    write_spars(workload, path)
    assert_same_jobs(read_workload(path, format="spars"), workload, besides=OFTEN_LOST)


@given(workload=workloads(min_size=1))
def test_batsim_brings_back_what_it_can_carry(
    tmp_path_factory: pytest.TempPathFactory, workload: Workload
) -> None:
    path = tmp_path_factory.mktemp("json") / "w.json"
    write_workload(workload, path, format="batsim")
    assert_same_jobs(read_workload(path, format="batsim"), workload, besides=("user", *OFTEN_LOST))
    assert_same_jobs(read_workload(path), workload, besides=("user", *OFTEN_LOST))


def test_fields_that_spars_and_batsim_cannot_hold_are_reported(tmp_path: Path) -> None:
    w = Workload.build(
        submit_s=[0, 1],
        runtime_s=[1, 1],
        nodes=[1, 1],
        job_id=np.array(["a", "b"]),
        user=Category.of(["ada", None]),
        start_epoch_s=5,
    )
    assert write_spars(w, tmp_path / "w.json") == (
        "SPARS cannot store start epoch s",
        "SPARS stores only integer ids: jobs are renumbered",
        "SPARS stores only integer users: users are renumbered",
    )
    assert labels_of(read_workload(tmp_path / "w.json", format="spars").user) == ["1", None]
    assert write_batsim(w, tmp_path / "w.json") == (
        "Batsim cannot store user",
        "Batsim cannot store start epoch s",
    )
