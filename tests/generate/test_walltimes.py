"""Walltimes of a study: exact, random factors, the model of 2005, and a user's function."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpctwin import HpctwinError, Workload, generate
from hpctwin.errors import ConfigError, PolicyError, UnknownNameError, WorkloadError
from hpctwin.generate.user_estimates import user_estimates
from hpctwin.generate.walltimes import check_walltimes, with_walltimes

JOBS = generate("lublin", jobs=2000, nodes=64, seed=3)
HOUR = 3600


def accuracy(model: str, seed: int = 0) -> np.ndarray:
    found = with_walltimes(JOBS, model, seed)
    assert (found.runtime_ms == JOBS.runtime_ms).all()
    return found.walltime_ms / found.runtime_ms


@pytest.mark.parametrize("model", ["factor:1e30", "lognormal:2:1e6"])
def test_a_walltime_that_is_no_duration_is_reported(model: str) -> None:
    with pytest.raises(ConfigError, match="a walltime is longer than"):
        with_walltimes(JOBS, model)


@pytest.mark.parametrize("model", ["exact", "uniform:1:2", "tsafrir"])
def test_a_workload_without_jobs_stays_as_it_is(model: str) -> None:
    assert len(with_walltimes(JOBS[:0], model)) == 0


def test_recorded_exact_and_constant_walltimes() -> None:
    assert with_walltimes(JOBS, "recorded") is JOBS
    assert (accuracy("exact") == 1).all()
    assert accuracy("factor:2.5") == pytest.approx(2.5, rel=1e-3)


def test_random_factors_have_their_distribution_and_a_seed() -> None:
    uniform = accuracy("uniform:1:5")
    assert 1 <= uniform.min() < 1.02
    assert 4.98 < uniform.max() <= 5.001
    assert uniform.mean() == pytest.approx(3, abs=0.1)
    logs = np.log(accuracy("lognormal:3:0.5"))
    assert (np.median(logs), logs.std()) == pytest.approx((np.log(3), 0.5), abs=0.04)
    assert (uniform == accuracy("uniform:1:5")).all()
    assert (uniform != accuracy("uniform:1:5", seed=1)).mean() > 0.9


def test_estimates_of_the_model_have_the_properties_of_the_paper() -> None:
    """Distinct values, the share of the twenty most popular, and the maximum as the first."""
    for jobs, distinct in ((1000, 35), (10_000, 90), (70_000, 340)):
        found = user_estimates(jobs, 18 * HOUR, np.random.default_rng(1))
        assert len(found) == jobs
        times, counts = np.unique(found, return_counts=True)
        assert times.max() == 18 * HOUR == times[counts.argmax()]
        assert times.min() > 0
        assert distinct * 0.9 <= len(times) <= distinct
        assert np.sort(counts)[-20:].sum() / jobs == pytest.approx(0.89, abs=0.012)
        sizes = np.sort(counts)[::-1] / jobs * 100
        ranks = np.arange(2, 21)
        assert sizes[1:20] == pytest.approx(14.0491 * np.exp(-0.177531 * ranks) + 0.462513, abs=0.3)
        head = set(times[np.argsort(counts)[-20:]].tolist())
        assert {5 * 60, 15 * 60, HOUR, 2 * HOUR, 12 * HOUR} <= head


@pytest.mark.parametrize("jobs", [1, 2, 7, 30, 199, 500])
@pytest.mark.parametrize("hours", [1, 1.37, 4, 1000])
def test_the_model_has_an_estimate_for_each_of_any_number_of_jobs(jobs: int, hours: float) -> None:
    found = user_estimates(jobs, hours * HOUR, np.random.default_rng(jobs))
    assert len(found) == jobs
    assert ((found > 0) & (found <= hours * HOUR)).all()


def test_jobs_get_the_estimates_of_the_model_none_below_its_runtime() -> None:
    found = with_walltimes(JOBS, "tsafrir:200h", seed=2)
    assert (found.walltime_ms >= JOBS.runtime_ms).all()
    assert found.walltime_ms.max() == 200 * HOUR * 1000
    expected = user_estimates(len(JOBS), 200 * HOUR, np.random.default_rng(2)) * 1000
    assert np.sort(found.walltime_ms)[::-1].tolist() == expected.tolist()


def test_long_jobs_get_the_maximum_if_the_model_has_too_few_long_estimates() -> None:
    hours = [3] * 45 + [0.01] * 5
    long = Workload.build(submit_s=[0] * 50, runtime_s=np.array(hours) * HOUR, nodes=[1] * 50)
    found = with_walltimes(long, "tsafrir:4h")
    assert (found.walltime_ms >= long.runtime_ms).all()
    assert 20 < (found.walltime_ms[:45] == 4 * HOUR * 1000).sum() < 45
    with pytest.raises(WorkloadError, match=r"45 jobs run longer than the maximum of 2 h; .*3 h"):
        with_walltimes(long, "tsafrir:2h")


def test_a_function_of_the_user_is_checked_and_loaded_again_if_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def twice(jobs, rng):\n    return jobs.runtime_ms * 2 / 1000\n")
    assert accuracy(f"{file}:twice") == pytest.approx(2)
    before = check_walltimes(f"{file}:twice")
    # Python takes bytecode for current if time (in seconds) and size are equal.
    file.write_text("def twice(jobs, rng):\n    return 3.0 * jobs.runtime_ms / 1000\n")
    assert check_walltimes(f"{file}:twice") != before
    assert accuracy(f"{file}:twice") == pytest.approx(3)
    file.write_text(
        "def few(jobs, rng):\n    return [1.0]\n"
        "def never(jobs, rng):\n    return 0 * jobs.runtime_ms\n"
        "def texts(jobs, rng):\n    return ['1h'] * len(jobs)\n"
    )
    for name, said in (
        ("few", "each of the 2,000 jobs"),
        ("never", "above 0"),
        ("texts", "number"),
    ):
        with pytest.raises(ConfigError, match=said):
            with_walltimes(JOBS, f"{file}:{name}")


@pytest.mark.parametrize(
    ("model", "kind", "said"),
    [
        ("tsafir", UnknownNameError, "tsafrir"),
        ("uniform:1", ConfigError, "uniform:LOW:HIGH"),
        ("uniform:5:1", ConfigError, "low must be less"),
        ("factor:-1", ConfigError, "above 0"),
        ("factor:nan", ConfigError, "above 0"),
        ("lognormal:much:1", ConfigError, "'much' is not a number"),
        ("tsafrir:10m", ConfigError, "1 hour or more"),
        ("tsafrir:soon", ConfigError, "soon"),
        ("exact:1", ConfigError, "the form is exact"),
        ("", UnknownNameError, "exact"),
        ("nowhere.py:f", PolicyError, "no such file"),
        ("nowhere.py", ConfigError, "name the function"),
    ],
)
def test_wrong_models_are_reported(model: str, kind: type[HpctwinError], said: str) -> None:
    with pytest.raises(kind, match=said):
        check_walltimes(model)
