"""Generated workloads: the same for the same seed, and like what they model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpctwin import Cluster, Workload, generate, read_workload, simulate
from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.generate import GENERATORS
from hpctwin.generate.pas import RESOURCES, pas_cluster
from hpctwin.model import DependencyKind


def offered_load(workload: Workload, nodes: int) -> float:
    work = float((workload.nodes * workload.runtime_ms).sum())
    return work / (nodes * float(np.ptp(workload.submit_ms)))


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_the_same_seed_gives_the_same_jobs_and_another_gives_others(name: str) -> None:
    one, same, other = (generate(name, seed=seed) for seed in (7, 7, 8))
    assert one.to_frame().equals(same.to_frame())
    assert not one.to_frame().equals(other.to_frame())


@pytest.mark.parametrize(
    ("name", "options", "fault", "told"),
    [
        ("poison", {}, UnknownNameError, "Did you mean 'poisson'"),
        ("poisson", {"jobz": 1}, UnknownNameError, "Did you mean 'jobs'"),
        ("poisson", {"jobs": 0}, ConfigError, "jobs is 0"),
        ("poisson", {"load": -1}, ConfigError, "load is -1"),
        ("poisson", {"power_of_two": 2}, ConfigError, "between 0 and 1"),
        ("poisson", {"runtimes": "normal"}, ConfigError, "exponential or lognormal"),
        ("poisson", {"seed": -1}, ConfigError, "seed is -1"),
        ("lublin", {"nodes": 4}, ConfigError, "at least 8"),
        ("four-phase", {"longest_run": 0.5}, ConfigError, "longest_run"),
        ("pas", {"most": 0}, ConfigError, "most is 0"),
        ("theta-year", {"days": "many"}, ConfigError, "days is 'many'"),
    ],
)
def test_wrong_options_are_rejected(
    name: str, options: dict[str, object], fault: type[Exception], told: str
) -> None:
    with pytest.raises(fault, match=told):
        generate(name, **options)


def test_poisson_has_the_load_and_the_overestimates_asked_for() -> None:
    workload = generate("poisson", jobs=50_000, nodes=256, load=0.7, overestimate=2, seed=1)
    assert offered_load(workload, 256) == pytest.approx(0.7, rel=0.05)
    assert (workload.walltime_ms >= workload.runtime_ms).all()
    gaps = np.diff(workload.submit_ms)
    assert np.std(gaps) == pytest.approx(np.mean(gaps), rel=0.05)
    exact = generate("poisson", overestimate=0)
    assert (exact.walltime_ms == exact.runtime_ms).all()


def test_four_phase_is_the_workload_of_the_schedtwin_paper() -> None:
    workload = generate("four-phase", seed=2)
    assert len(workload) == 150
    assert (np.diff(workload.submit_ms) == 5000).all()
    burst = slice(25, 60)
    assert set(workload.nodes[burst]) <= set(range(16, 21))
    assert workload.walltime_ms[burst].min() >= 500_000
    assert workload.walltime_ms[burst].max() <= 700_000
    shrunk = generate("four-phase", seed=2, time_scale=0.01, shortest_run=0.5)
    assert shrunk.walltime_ms[0] == round(workload.walltime_ms[0] / 100)
    assert (shrunk.runtime_ms <= shrunk.walltime_ms).all()


def test_pas_jobs_fit_their_cluster_and_keep_their_dependencies() -> None:
    workload = generate("pas", seed=3)
    assert len(workload) == 5000
    assert len(workload.dependencies) / 5000 == pytest.approx(0.2, abs=0.02)
    assert set(workload.dependencies.kind) == {DependencyKind.AFTEROK}
    assert (workload.dependencies.on < workload.dependencies.job).all()
    jobs = simulate(workload, pas_cluster()).jobs
    assert (jobs["state"] == "completed").all()
    start, end = jobs["start_s"].to_numpy(), jobs["end_s"].to_numpy()
    assert (start[workload.dependencies.job] >= end[workload.dependencies.on]).all()
    for name, amount in RESOURCES.items():
        order = np.argsort(np.concatenate([end, start]), kind="stable")
        asked = workload.resources[name]
        assert np.cumsum(np.concatenate([-asked, asked])[order]).max() <= amount


def test_theta_year_has_the_figures_of_theta_2022() -> None:
    workload = generate("theta-year")
    assert len(workload) == 23_911
    assert offered_load(workload, 4360) == pytest.approx(0.759, abs=0.01)
    assert workload.span_s == pytest.approx(363.7 * 86_400, rel=0.01)
    assert (workload.nodes == 128).mean() == pytest.approx(0.5602 / 0.9323, abs=0.02)
    assert 0.15 < (workload.runtime_ms > workload.walltime_ms).mean() < 0.35
    mean_wait = simulate(workload, Cluster.uniform(nodes=4360)).summary()["mean_wait_s"]
    assert 15_000 < mean_wait < 130_000


@pytest.mark.traces
def test_lublin_is_like_the_output_of_the_models_own_program(traces: Path) -> None:
    theirs = read_workload(traces / "swf" / "lublin_256.swf.gz")
    several = [generate("lublin", seed=seed) for seed in range(5)]

    def figures(workload: Workload) -> np.ndarray:
        width = workload.nodes
        hour = workload.submit_ms // 3_600_000 % 24
        return np.array([
            (width == 1).mean(),
            ((width & (width - 1)) == 0).mean(),
            np.log2(width).mean(),
            np.log(workload.runtime_ms / 1000).mean(),
            ((hour >= 10) & (hour < 18)).mean(),
        ])  # fmt: skip

    ours = np.mean([figures(workload) for workload in several], axis=0)
    np.testing.assert_allclose(ours, figures(theirs), atol=0.08)
    spans = [workload.span_s for workload in several]
    assert min(spans) * 0.9 < theirs.span_s < max(spans) * 1.1


def test_lublin_can_be_stretched_to_a_load() -> None:
    assert offered_load(generate("lublin", load=0.6), 256) == pytest.approx(0.6, rel=0.01)


def test_generate_is_a_function_even_if_its_package_was_imported_first() -> None:
    import subprocess
    import sys

    code = (
        "import hpctwin.generate.pas\nfrom hpctwin import generate\n"
        "assert len(generate('pas', jobs=5)) == 5\nassert hpctwin.generate.pas.pas_cluster(3)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
