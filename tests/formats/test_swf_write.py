from __future__ import annotations

import dataclasses
import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from hpctwin.errors import WorkloadError
from hpctwin.formats import SwfRules, read_workload, write_workload
from hpctwin.formats.swf.reader import read_swf
from hpctwin.formats.swf.writer import write_swf
from hpctwin.model import Category, Dependencies, DependencyKind, Workload
from tests.formats.format_strategies import assert_same_jobs, labels_of, workloads

AS_IT_IS = SwfRules(rebase=False, cancelled="keep")


def three_jobs(**columns: Any) -> Workload:
    return Workload.build(submit_s=[0, 1, 2], runtime_s=[5, 5, 5], nodes=[1, 1, 1], **columns)


@given(workload=workloads())
def test_fields_that_swf_can_hold_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, workload: Workload
) -> None:
    path = tmp_path_factory.mktemp("swf") / "w.swf"
    lost = write_swf(workload, path)
    back = read_swf(path, AS_IT_IS)
    assert lost == ()
    assert_same_jobs(back, workload)
    # A start in the future of 1e9 s is read off the submit times, which only their file can tell.
    if len(workload) and workload.submit_ms[0] <= 10**12:
        assert back.start_epoch_s == workload.start_epoch_s
    assert back.nodes_hint == workload.nodes_hint
    if workload.header:
        assert back.header[: len(workload.header)] == workload.header
    write_swf(back, path.with_name("again.swf"))
    assert path.with_name("again.swf").read_bytes() == path.read_bytes()


def test_a_cancelled_job_comes_back_with_its_time(tmp_path: Path) -> None:
    workload = three_jobs(cancel_s=[-1, 4, -1], walltime_s=[5, 5, 5])
    assert write_swf(workload, tmp_path / "w.swf") == ()
    back = read_swf(tmp_path / "w.swf", AS_IT_IS)
    assert_same_jobs(back, workload)


def test_cancellations_that_swf_cannot_carry_are_reported(tmp_path: Path) -> None:
    started = three_jobs(cancel_s=[-1, 4, -1], recorded_start_s=[-1, 2, -1])
    assert "cancel time of started" in write_swf(started, tmp_path / "w.swf")[0]
    longer = three_jobs(cancel_s=[-1, 4, -1], walltime_s=[9, 9, 9])
    assert "run time of cancelled jobs: 1 job" in write_swf(longer, tmp_path / "w.swf")[0]
    early = Workload.build(submit_s=[9], runtime_s=[1], nodes=[1], recorded_start_s=[3])
    assert "start before the submission" in write_swf(early, tmp_path / "w.swf")[0]


def test_columns_without_a_place_are_reported(tmp_path: Path) -> None:
    workload = three_jobs(
        priority=[1, 2, 3],
        qos=Category.of(["a", "b", "a"]),
        per_node={"cores": [1, 2, 3]},
        resources={"licence": [0, 1, 0]},
    )
    assert write_swf(workload, tmp_path / "w.swf") == (
        "SWF cannot store qos",
        "SWF cannot store priority",
        "SWF cannot store per node",
        "SWF cannot store resources",
    )


def test_labels_and_ids_of_text_are_numbered_and_listed(tmp_path: Path) -> None:
    workload = three_jobs(job_id=["w0!1", "w0!2", "w0!3"], user=Category.of(["ada", "bob\n", None]))
    write_swf(workload, tmp_path / "w.swf")
    back = read_swf(tmp_path / "w.swf")
    assert back.job_id.tolist() == [1, 2, 3]
    assert labels_of(back.user) == ["1", "2", None]
    assert "; Note: job 2 is w0!2" in back.header
    assert "; Note: user 2 is bob" in back.header


def test_comments_on_size_and_start_follow_the_workload(tmp_path: Path) -> None:
    header = ("; UnixStartTime: 0", "; Note: x", "; MaxNodes: 5", "; MaxProcs: 120", "no semicolon")
    workload = three_jobs(header=header, nodes_hint=5, start_epoch_s=1000.5)
    write_swf(workload, tmp_path / "w.swf")
    back = read_swf(tmp_path / "w.swf")
    assert back.header == (
        "; UnixStartTime: 1000.5",
        "; Note: x",
        "; MaxNodes: 5",
        "; MaxProcs: 5",
        "; no semicolon",
    )
    write_swf(
        dataclasses.replace(workload, nodes_hint=None, start_epoch_s=None), tmp_path / "w.swf"
    )
    assert read_swf(tmp_path / "w.swf").header == ("; Note: x", "; no semicolon")


def test_dependencies_that_swf_cannot_express_are_rejected(tmp_path: Path) -> None:
    ok = three_jobs(dependencies=Dependencies.of([(1, 0, DependencyKind.AFTEROK, 0)]))
    with pytest.raises(WorkloadError, match="job 2 has a dependency afterok"):
        write_swf(ok, tmp_path / "w.swf")
    any_of = DependencyKind.AFTERANY
    two = three_jobs(dependencies=Dependencies.of([(2, 0, any_of, 0), (2, 1, any_of, 0)]))
    with pytest.raises(WorkloadError, match="job 3 depends on 2 jobs"):
        write_swf(two, tmp_path / "w.swf")
    assert list(tmp_path.iterdir()) == []


def test_the_same_workload_gives_the_same_compressed_file(tmp_path: Path) -> None:
    write_workload(three_jobs(), tmp_path / "a.swf.gz")
    write_workload(three_jobs(), tmp_path / "b.swf.gz")
    assert (tmp_path / "a.swf.gz").read_bytes() == (tmp_path / "b.swf.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.swf.gz").read_bytes()).startswith(b"1 0 ")
    assert len(read_workload(tmp_path / "a.swf.gz")) == 3


def test_no_jobs_and_no_header_still_make_a_log(tmp_path: Path) -> None:
    write_workload(Workload.build(submit_s=[], runtime_s=[], nodes=[]), tmp_path / "w.swf")
    assert len(read_workload(tmp_path / "w.swf")) == 0


def test_a_delay_in_the_queue_is_reported_as_a_think_time(tmp_path: Path) -> None:
    depends = [(1, 0, DependencyKind.AFTERANY, 5_000), (2, 0, DependencyKind.AFTERANY, 0)]
    (said,) = write_swf(three_jobs(dependencies=Dependencies.of(depends)), tmp_path / "w.swf")
    assert "1 job with a delay" in said
    back = read_swf(tmp_path / "w.swf", AS_IT_IS).dependencies
    assert back.kind.tolist() == [DependencyKind.THINK, DependencyKind.AFTERANY]
