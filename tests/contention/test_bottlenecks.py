"""What the explanation of a job says about the network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpctwin import Cluster, Simulation, Workload
from hpctwin.cli.app import main
from hpctwin.network.profiles import Delay, HomogeneousTask, Sequence, SmpiTrace
from hpctwin.simulation import Moment, explain
from tests.contention.test_network import SHARINGS, send


@pytest.fixture
def cluster() -> Cluster:
    network = {
        "topology": "star",
        "bandwidth": "1 GB/s",
        "backbone": "2 GB/s",
        "core_speed": "1 Gflop/s",
    }
    return Cluster(name="star", nodes=[{"name": "n", "count": 12}], network=network)


def jobs(*given: tuple[float, int, float, Any]) -> Workload:
    """Jobs by submission, nodes, walltime and profile."""
    submit, nodes, walltime, profiles = zip(*given, strict=True)
    return Workload.build(
        submit_s=submit, nodes=nodes, walltime_s=walltime, runtime_s=walltime, profiles=profiles
    )


def of(what: str, moments: list[Moment]) -> list[Moment]:
    return [one for one in moments if one.what == what]


def test_the_link_and_the_jobs_that_held_a_job_back(cluster: Cluster) -> None:
    """From 2 s on, three jobs share the backbone; each gets 2/3 GB/s instead of 1 GB/s."""
    first = Sequence(parts=(Delay(duration_s=2.0), send(2e9)))
    workload = jobs((0.0, 2, 60.0, first), (2.0, 2, 60.0, send(4e9)), (2.0, 2, 60.0, send(4e9)))
    moments = explain(Simulation(workload, cluster, sharing="fair"), 1)
    (ran,), (slowed,) = of("ran", moments), of("slowed", moments)
    assert ran.detail["contention_slowdown"] == pytest.approx(5 / 4)
    assert ran.detail["lost_s"] == pytest.approx(1.0)
    assert (slowed.time_s, slowed.until_s) == pytest.approx((2.0, 5.0))
    assert slowed.detail["phase"] == 2
    assert slowed.detail["bottlenecks_s"] == pytest.approx({"star_backbone": 1.0})
    assert slowed.detail["sharers_s"] == pytest.approx({"2": 0.5, "3": 0.5})
    assert slowed.text == (
        "phase 2 (parallel task) took 3,000 ms, of which 1,000 ms were lost at star_backbone "
        "(1,000 ms); shared with job 2 (500 ms), job 3 (500 ms)"
    )
    assert moments[-1].what == "ended"


def test_a_job_that_met_no_other(cluster: Cluster) -> None:
    workload = jobs((0.0, 2, 60.0, send(3e9)))
    moments = explain(Simulation(workload, cluster, sharing="fair"), 1)
    assert [one.text for one in of("ran", moments)] == ["ran 3,000 ms, 1 times as long as alone"]
    assert not of("slowed", moments)


def test_jobs_without_profile_have_nothing_to_tell(cluster: Cluster) -> None:
    workload = jobs((0.0, 2, 60.0, send(3e9)), (0.0, 2, 5.0, None))
    assert not of("ran", explain(Simulation(workload, cluster, sharing="fair"), 2))
    assert not of("ran", explain(Simulation(jobs((0.0, 2, 5.0, None)), cluster), 1))


def test_jobs_that_compute_are_not_held_back_by_links(cluster: Cluster) -> None:
    workload = jobs(*[(0.0, 2, 60.0, HomogeneousTask(cpu=5e9, com=1e9))] * 2)
    assert not of("slowed", explain(Simulation(workload, cluster, sharing="fair"), 1))


def test_recorded_calls_are_one_phase(cluster: Cluster) -> None:
    """Each rank sends 2 GB to the other; both messages of a job are on the backbone."""
    ranks = tuple(
        (("send", (peer, 0, 2e9)), ("recv", (1 - rank, 0, 2e9)))[:: 1 if rank == 0 else -1]
        for rank, peer in ((0, 1), (1, 0))
    )
    trace = SmpiTrace(ranks=ranks)
    moments = explain(Simulation(jobs(*[(0.0, 2, 60.0, trace)] * 4), cluster, sharing="fair"), 1)
    (slowed,) = of("slowed", moments)
    assert "phase 1 (separate ranks)" in slowed.text
    assert slowed.detail["bottlenecks_s"] == pytest.approx({"star_backbone": 4.0})


@pytest.mark.parametrize("sharing", SHARINGS)
def test_times_lost_add_up_to_the_slowdown(cluster: Cluster, sharing: Any) -> None:
    rng = np.random.default_rng(3)
    made: list[Any] = []
    for i in range(14):
        task = HomogeneousTask(cpu=float(rng.choice([0.0, 1e9])), com=float(rng.uniform(1e8, 2e9)))
        parts = (task, Delay(duration_s=0.5), send(float(rng.uniform(1e9, 4e9)), 1 + i % 4))
        made.append((0.3 * i, 1 + i % 4, 9.0, Sequence(parts=parts, repeat=1 + i % 2)))
    workload = jobs(*made)
    result = Simulation(workload, cluster, "fcfs+easy@random", sharing=sharing).run()
    lost = 0
    for row, job in enumerate(result.jobs.iter_rows(named=True)):
        moments = explain(
            Simulation(workload, cluster, "fcfs+easy@random", sharing=sharing), row + 1
        )
        assert moments[-1].time_s == job["end_s"]
        (ran,) = of("ran", moments)
        assert ran.until_s is not None
        run_s = ran.until_s - ran.time_s
        assert run_s == pytest.approx(job["end_s"] - job["start_s"], abs=0.0011)
        for one in of("slowed", moments):
            assert sum(one.detail["bottlenecks_s"].values()) == pytest.approx(one.detail["lost_s"])
            lost += 1
        if job["state"] == "completed":
            alone_s = run_s / job["contention_slowdown"]
            assert run_s - ran.detail["lost_s"] == pytest.approx(alone_s, rel=1e-6)
    assert lost > 10


def test_the_command(tmp_path: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "star.yaml"
    path.write_text(json.dumps(cluster.model_dump(mode="json", exclude_none=True)))
    profile = {"type": "parallel", "cpu": [0, 0], "com": [0, 2e9, 0, 0]}
    some = [
        {"id": f"j{i}", "profile": "p", "res": 2, "subtime": 0, "walltime": 99} for i in range(4)
    ]
    document = {"nb_res": 12, "profiles": {"p": profile}, "jobs": some}
    (tmp_path / "jobs.json").write_text(json.dumps(document))
    command = ["simulate", f"{tmp_path}/jobs.json", "--cluster", str(path), "--sharing", "fair"]
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--explain", "j2", "--json"])
    moments = json.loads(capsys.readouterr().out)["j2"]
    (slowed,) = [one for one in moments if one["what"] == "slowed"]
    assert slowed["detail"]["sharers_s"] == pytest.approx(dict.fromkeys(["j0", "j1", "j3"], 2 / 3))
