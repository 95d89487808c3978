"""Batsim's workloads: what jobs do, under the names of all versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Simulation
from hpctwin.errors import ConfigError, TraceError
from hpctwin.formats import read_workload, write_workload
from hpctwin.model import Workload
from hpctwin.network.profiles import (
    Delay,
    HomogeneousTask,
    ParallelTask,
    Profile,
    Sequence,
    SmpiTrace,
    SpreadTask,
    Staging,
    StorageTransfer,
    UsageTrace,
    per_rank,
)

JOB = {"id": "a", "res": 2, "subtime": 0, "walltime": 100, "profile": "p"}


def read(
    folder: Path, profile: dict[str, Any], job: dict[str, Any] | None = None, **others: Any
) -> Workload:
    document = {"nb_res": 4, "jobs": [JOB | (job or {})], "profiles": {"p": profile, **others}}
    (folder / "w.json").write_text(json.dumps(document))
    return read_workload(folder / "w.json")


def only(
    folder: Path, profile: dict[str, Any], job: dict[str, Any] | None = None, **others: Any
) -> Profile:
    workload = read(folder, profile, job, **others)
    assert workload.profiles is not None
    (found,) = workload.profiles
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["msg_par", "parallel", "ptask", "ParallelTaskProfile"])
def test_an_explicit_task_has_amounts_of_each_rank_and_pair(tmp_path: Path, name: str) -> None:
    task = only(tmp_path, {"type": name, "cpu": [1, 2e9], "com": [0, 1, 2, 3], "ret": 4})
    assert isinstance(task, ParallelTask)
    assert (task.ranks, task.exit_code) == (2, 4)
    assert task.cpu is not None
    assert task.cpu.tolist() == [1, 2e9]
    assert task.com is not None
    assert task.com.tolist() == [[0, 1], [2, 3]]
    only_com = only(tmp_path, {"type": name, "com": [0, 1, 2, 3]})
    assert isinstance(only_com, ParallelTask)
    assert (only_com.cpu, only_com.ranks) == (None, 2)


@pytest.mark.parametrize(
    ("profile", "cpu", "com"),
    [
        ({"type": "msg_par_hg"}, 12, 24),
        ({"type": "parallel_homogeneous"}, 12, 24),
        ({"type": "ptask_homogeneous"}, 12, 24),
        ({"type": "ParallelTaskHomogeneousProfile"}, 12, 24),
        ({"type": "msg_par_hg_tot"}, 4, 8),
        ({"type": "parallel_homogeneous_total"}, 4, 8),
        (
            {"type": "ptask_homogeneous", "generation_strategy": "defined_amount_spread_uniformly"},
            4,
            4,
        ),
        (
            {
                "type": "ParallelTaskHomogeneousProfile",
                "generation_strategy": "DefinedAmountsSpreadUniformly",
            },
            4,
            4,
        ),
    ],
)
def test_totals_are_spread_as_each_version_does(
    tmp_path: Path, profile: dict[str, Any], cpu: float, com: float
) -> None:
    task = only(tmp_path, {**profile, "cpu": 12, "com": 24}, {"res": 3})
    assert isinstance(task, HomogeneousTask)
    assert (task.on(3).cpu, task.on(3).com) == (cpu, com)
    alone = only(tmp_path, {**profile, "cpu": 12, "com": 24}, {"res": 1})
    assert isinstance(alone, HomogeneousTask)
    assert alone.on(1).cpu == 12


@pytest.mark.parametrize(
    ("profile", "transfer"),
    [
        ({"type": "parallel_homogeneous_pfs", "bytes_to_read": 6, "host": "x"}, (6, 0, "x")),
        ({"type": "ptask_on_storage_homogeneous", "bytes_to_write": 6}, (0, 6, "pfs")),
        (
            {
                "type": "ParallelTaskOnStorageHomogeneousProfile",
                "bytes_to_read": 6,
                "bytes_to_write": 8,
                "storage": "nvme",
                "generation_strategy": "DefinedAmountsSpreadUniformly",
            },
            (3, 4, "nvme"),
        ),
        ({"type": "msg_par_hg_pfs_tiers", "size": 6, "host": "LCST"}, (0, 6, "LCST")),
        ({"type": "msg_par_hg_pfs0", "size": 6, "direction": "from_storage"}, (6, 0, "pfs")),
    ],
)
def test_transfers_with_a_storage(
    tmp_path: Path, profile: dict[str, Any], transfer: tuple[float, float, str]
) -> None:
    found = per_rank(only(tmp_path, profile), 2)
    assert isinstance(found, StorageTransfer)
    assert (found.read, found.write, found.storage) == transfer


def test_staging_and_extra_data(tmp_path: Path) -> None:
    found = only(
        tmp_path, {"type": "data_staging", "nb_bytes": 9, "from": "a", "to": "b", "extra_data": [1]}
    )
    assert isinstance(found, Staging)
    assert (found.amount, found.source, found.target, found.extra_data) == (9, "a", "b", [1])


def test_sequences_are_nested_and_repeated_and_end_at_the_first_failure(tmp_path: Path) -> None:
    workload = read(
        tmp_path,
        {"type": "composed", "seq": ["q", "d"], "nb": 3},
        q={"type": "SequentialCompositionProfile", "seq": ["d", "d"], "repeat": 2},
        d={"type": "delay", "delay": 2},
    )
    (found,) = workload.profiles or ()
    assert isinstance(found, Sequence)
    assert isinstance(found.parts[0], Sequence)
    assert (found.repeat, found.length_s) == (3, 30)
    assert workload.runtime_ms.tolist() == [30_000]
    failing = read(
        tmp_path,
        {"type": "composed", "seq": ["d", "f", "d"], "repeat": 3},
        d={"type": "delay", "delay": 2},
        f={"type": "delay", "delay": 3, "ret": 1},
    )
    assert failing.runtime_ms.tolist() == [5_000]
    assert failing.fails is not None
    assert failing.fails.tolist() == [True]


def test_a_sequence_of_exponential_length_is_read_at_once(tmp_path: Path) -> None:
    levels = {f"s{n}": {"type": "composed", "seq": [f"s{n + 1}"] * 10} for n in range(40)}
    found = only(
        tmp_path,
        {"type": "composed", "seq": ["s0"]},
        **levels,
        s40={"type": "delay", "delay": 1e-30},
    )
    assert found.length_s == pytest.approx(1e10)


def test_traces_beside_the_workload(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "ranks.txt").write_text("0.txt\n1.txt\n")
    (tmp_path / "t" / "0.txt").write_text("0 init\n0 compute 1e9\n0 send 1 0 5\n0 finalize\n")
    (tmp_path / "t" / "1.txt").write_text("# rank 1\n1 recv 0 0 5\n")
    for kind in (
        {"type": "smpi", "trace": "t/ranks.txt"},
        {"type": "TraceReplayProfile", "trace_type": "SMPI", "filename": "t/ranks.txt"},
        {"type": "TraceReplayProfile", "trace_type": "SMPI", "trace": "t/ranks.txt"},
    ):
        found = only(tmp_path, kind, {"smpi_ranks_to_hosts_mapping": [1, 0]})
        assert isinstance(found, SmpiTrace)
        assert found.ranks == (
            (("init", ()), ("compute", (1e9,)), ("send", (1, 0, 5)), ("finalize", ())),
            (("recv", (0, 0, 5)),),
        )
        assert found.placement == (1, 0)
    (tmp_path / "t" / "ranks.txt").write_text("use.txt\n")
    (tmp_path / "t" / "use.txt").write_text("0 m_usage 0.5 100\n0 m_usage 1 7\n")
    for kind in (
        {"type": "usage_trace", "trace": "t/ranks.txt"},
        {
            "type": "TraceReplayProfile",
            "trace_type": "FractionalComputation",
            "filename": "t/ranks.txt",
        },
    ):
        used = only(tmp_path, kind, {"expected_execution_time": 12})
        assert isinstance(used, UsageTrace)
        assert used.expected_s == 12
        assert used.ranks[0].usage.tolist() == [0.5, 1]
        assert used.ranks[0].flops.tolist() == [100, 7]


@pytest.mark.parametrize(
    ("profile", "says"),
    [
        ({"type": "paralel"}, ["job a, profile 'p': type is 'paralel'", "Did you mean 'parallel'"]),
        ({"type": "send", "msg": 1}, ["messages to the scheduler"]),
        ({"type": "ForkJoinCompositionProfile"}, ["Batsim itself does not run it"]),
        ({"type": "delay"}, ["delay is missing"]),
        ({"type": "delay", "delay": "5"}, ["delay is '5'"]),
        ({"type": "ptask", "cpu": [1, 2, 3]}, ["cpu is for 3 ranks, but the job asks for 2"]),
        ({"type": "ptask", "cpu": [1, 2], "com": [1] * 9}, ["com has 9 numbers, expected 2 × 2"]),
        ({"type": "ptask", "com": [1] * 5}, ["com has 5 numbers, expected n × n"]),
        ({"type": "ptask", "cpu": [1, None]}, ["cpu has None"]),
        ({"type": "ptask", "cpu": [1, -1]}, ["cpu has -1"]),
        ({"type": "ptask", "cpu": 3}, ["cpu is 3, expected a list"]),
        ({"type": "ptask_homogeneous", "cpu": -1, "com": 0}, ["cpu is -1"]),
        (
            {"type": "ptask_homogeneous", "cpu": 1, "generation_strategy": "all"},
            ["generation_strategy is 'all', expected DefinedAmounts"],
        ),
        ({"type": "ptask_on_storage_homogeneous"}, ["bytes_to_read is missing"]),
        ({"type": "data_staging", "nb_bytes": 1, "from": "a"}, ["to is missing, expected a name"]),
        ({"type": "composed", "seq": []}, ["seq is []"]),
        ({"type": "composed", "seq": ["p"]}, ["'p' contains itself: p > p"]),
        ({"type": "composed", "seq": ["q"]}, ["'q' is not a profile of the file"]),
        ({"type": "composed", "seq": ["d"], "repeat": 0}, ["repeat is 0"]),
        ({"type": "smpi", "trace": "none.txt"}, ["none.txt", "No such file"]),
        ({"type": "smpi", "trace": "/etc/hostname"}, ["not in the workload's folder"]),
        (
            {"type": "smpi", "trace": "bad.txt"},
            ["bad.txt", "/etc/passwd", "not in the workload's folder"],
        ),
        ({"type": "smpi", "trace": "empty.txt"}, ["empty.txt", "lists no trace"]),
        (
            {"type": "smpi", "trace": "r1.txt"},
            ["0.txt, line 2", "'sendd' is not supported", "'send'"],
        ),
        ({"type": "usage_trace", "trace": "r2.txt"}, ["1.txt, line 1", "usage is 1.5"]),
        ({"type": "TraceReplayProfile", "trace_type": "x"}, ["trace_type is 'x', expected SMPI"]),
        ({"type": "TraceReplayProfile", "trace_type": {}}, ["trace_type is {}, expected SMPI"]),
        (
            {"type": "ptask_homogeneous", "generation_strategy": []},
            ["generation_strategy is [], expected DefinedAmounts"],
        ),
    ],
)
def test_a_wrong_profile_is_reported_with_job_and_field(
    tmp_path: Path, profile: dict[str, Any], says: list[str]
) -> None:
    (tmp_path / "bad.txt").write_text("../../../../../../../../../etc/passwd\n")
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "r1.txt").write_text("0.txt\n")
    (tmp_path / "r2.txt").write_text("1.txt\n")
    (tmp_path / "0.txt").write_text("0 init\n0 sendd 1 0 5\n")
    (tmp_path / "1.txt").write_text("0 m_usage 1.5 100\n")
    with pytest.raises(TraceError) as caught:
        read(tmp_path, profile, d={"type": "delay", "delay": 1})
    assert len(str(caught.value).splitlines()) == 1
    for part in says:
        assert part in str(caught.value)


@pytest.mark.traces
def test_every_workload_of_batsim_is_read_with_its_expected_times(batsim: Path) -> None:
    paths = sorted(batsim.glob("workloads/**/*.json"))
    assert len(paths) >= 30
    expected = 0
    for path in paths:
        document = json.loads(path.read_text())
        workload = read_workload(path)
        assert len(workload) == len(document["jobs"]), path
        jobs = {str(job["id"]): job for job in document["jobs"]}
        for job, profile in zip(workload.job_id.tolist(), workload.profiles or (), strict=True):
            stated = document["profiles"][jobs[str(job)]["profile"]] | jobs[str(job)]
            assert profile is not None
            assert profile.expected_s == stated.get("expected_execution_time"), (path, job)
            expected += profile.expected_s is not None
            if profile.expected_s is not None and profile.length_s is not None:
                assert (
                    profile.length_s == stated["expected_execution_time"]
                    or stated["walltime"] < profile.length_s
                )
    assert expected in (0, 105)


PLATFORM = """<platform version="4.1"><zone id="W" routing="Full">
 <host id="master_host" speed="1f"/>
 <host id="a" speed="100Mf"/><host id="b" speed="{speed}"/></zone></platform>"""


def run(folder: Path, workload: Workload, speed: str = "100Mf") -> dict[str, float]:
    (folder / "p.xml").write_text(PLATFORM.format(speed=speed))
    jobs = Simulation(workload, folder / "p.xml").run().jobs
    return dict(zip(jobs["job_id"], jobs["end_s"], strict=True))


def test_jobs_that_compute_take_the_speed_of_the_platform(tmp_path: Path) -> None:
    workload = read(tmp_path, {"type": "ParallelTaskHomogeneousProfile", "cpu": 1e9, "com": 0})
    assert run(tmp_path, workload) == {"a": 10}
    assert run(tmp_path, workload, "50Mf") == {"a": 20}
    with pytest.raises(
        ConfigError, match="job a computes or communicates, and cluster 'cluster' has no"
    ):
        Simulation(workload, 4)


def test_waiting_takes_the_same_time_on_each_node(tmp_path: Path) -> None:
    workload = read(tmp_path, {"type": "DelayProfile", "delay": 10})
    assert run(tmp_path, workload, "50Mf") == {"a": 10}
    mixed = read(
        tmp_path,
        {"type": "composed", "seq": ["d", "c"]},
        d={"type": "delay", "delay": 10},
        c={"type": "ptask", "cpu": [1e9, 5e8]},
    )
    assert run(tmp_path, mixed) == {"a": 20}
    with pytest.raises(ConfigError, match=r"job a does not only compute alike .* --sharing fair"):
        run(tmp_path, mixed, "50Mf")


def test_jobs_that_communicate_are_refused_rather_than_guessed(tmp_path: Path) -> None:
    workload = read(tmp_path, {"type": "ptask_homogeneous", "cpu": 1, "com": 1})
    with pytest.raises(ConfigError, match="job a uses the network"):
        run(tmp_path, workload)


def test_profiles_stay_with_their_jobs(tmp_path: Path) -> None:
    one = read(tmp_path, {"type": "ptask_homogeneous", "cpu": 1, "com": 1})
    assert one.take([0]).profiles == one.profiles
    assert write_workload(one, tmp_path / "w.csv") == (
        "CSV cannot store the machine size",
        "CSV cannot store profiles, so the length of 1 job is an upper bound",
    )
    assert write_workload(one, tmp_path / "again.json") == ()
    (back,) = read_workload(tmp_path / "again.json").profiles or ()
    assert isinstance(back, HomogeneousTask)
    with pytest.raises(ValueError, match="profiles is"):
        Workload.build(submit_s=[0], runtime_s=[1], nodes=[1], profiles=[3])  # type: ignore[list-item]
    mixed = Workload.build(
        submit_s=[1, 0], runtime_s=[1, 1], nodes=[1, 1], profiles=[Delay(3.0), None]
    )
    assert mixed.profiles is not None
    assert mixed.profiles[0] is None
    assert np.all(mixed.submit_ms == [0, 1000])


def profiles() -> st.SearchStrategy[Profile]:
    amount = st.floats(0, 1e15)
    common = {
        "exit_code": st.integers(-3, 3),
        "expected_s": st.none() | st.floats(0, 1e6),
        "extra_data": st.none() | st.dictionaries(st.text("ab"), st.integers(0, 9)),
    }

    def pair(values: list[float]) -> ParallelTask:
        return ParallelTask(np.array(values[:2]), np.array(values[2:]).reshape(2, 2))

    label = st.sampled_from(["pfs", "nvme"])
    leaves = st.one_of(
        st.builds(Delay, st.floats(0, 1e6), **common),
        st.lists(amount, min_size=6, max_size=6).map(pair),
        st.builds(HomogeneousTask, amount, amount, **common),
        st.builds(StorageTransfer, amount, amount, label, **common),
        st.builds(Staging, amount, label, label, **common),
    )
    return st.recursive(
        leaves,
        lambda parts: st.builds(
            Sequence,
            st.lists(parts, min_size=1, max_size=3).map(tuple),
            st.integers(1, 5),
            **common,
        ),
        max_leaves=6,
    )


def plain(profile: Profile | None) -> Any:
    """Return all of a profile as values that can be compared."""
    if not isinstance(profile, Profile):
        return profile.tolist() if isinstance(profile, np.ndarray) else profile
    values = {name: getattr(profile, name) for name in profile.__dataclass_fields__}
    values = {
        name: [plain(part) for part in value] if name == "parts" else plain(value)
        for name, value in values.items()
    }
    return type(profile).__name__, values


@given(found=st.lists(profiles(), min_size=1, max_size=4))
def test_profiles_that_are_written_are_read_again(
    tmp_path_factory: pytest.TempPathFactory, found: list[Profile]
) -> None:
    path = tmp_path_factory.mktemp("w") / "w.json"
    ones = [1] * len(found)
    workload = Workload.build(
        submit_s=ones, runtime_s=ones, nodes=[2] * len(found), walltime_s=ones, profiles=found
    )
    assert write_workload(workload, path, format="batsim") == ()
    again = read_workload(path, format="batsim")
    assert [plain(one) for one in again.profiles or ()] == [plain(one) for one in found]


def test_a_trace_cannot_be_written_and_is_reported(tmp_path: Path) -> None:
    (tmp_path / "ranks.txt").write_text("0.txt\n")
    (tmp_path / "0.txt").write_text("0 compute 1e9\n")
    workload = read(tmp_path, {"type": "smpi", "trace": "ranks.txt"})
    said = write_workload(workload, tmp_path / "v.json", format="batsim")
    assert said == (
        "Batsim cannot store recorded traces in a workload, so the length of these jobs is an upper bound",
    )
    assert read_workload(tmp_path / "v.json").runtime_ms.tolist() == [100_000]


def test_totals_are_written_as_amounts_of_each_rank(tmp_path: Path) -> None:
    spread = SpreadTask(flops=8, volume=4, exit_code=3)
    profiles = [spread, spread, HomogeneousTask(8, 4, "ranks")]
    workload = Workload.build(
        submit_s=[0] * 3, runtime_s=[1] * 3, nodes=[2, 4, 2], profiles=profiles
    )
    path = tmp_path / "w.json"
    assert write_workload(workload, path, format="batsim") == ()
    two, four, total = read_workload(path).profiles or ()
    assert isinstance(two, ParallelTask)
    assert isinstance(four, ParallelTask)
    assert isinstance(total, HomogeneousTask)
    assert (two.ranks, four.ranks, two.exit_code) == (2, 4, 3)
    assert (total.cpu, total.com) == (4, 2)
