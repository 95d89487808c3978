"""What a candidate is judged by."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.errors import ConfigError, HpctwinError, UnknownNameError
from hpctwin.twin.core.core import Core
from hpctwin.twin.settings.config import CoreSettings
from hpctwin.twin.what_if.objective import METRICS, Objective, Outlook, normalized
from hpctwin.twin.what_if.run import Course, Past, outlooks_of

POSITIVE = st.lists(st.floats(0.01, 1e6), min_size=2, max_size=6)


def outlook(submit, start, end, nodes, **about) -> Outlook:
    columns = [np.array(values, float) for values in (submit, start, end, nodes)]
    about = {"now_s": 0.0, "machine_nodes": 10, "busy": float, "begin_s": 0.0, **about}
    return Outlook(*columns, **about)


def cost(view: Outlook) -> float:
    return float(view.wait_s.sum())


def failing(view: Outlook) -> float:
    return float("nan")


def test_every_metric_on_two_jobs_by_hand() -> None:
    view = outlook([0, 0], [0, 30], [10, 60], [1, 3], busy=lambda: 100.0, total_energy_j=5e6)
    expected = {
        "max_wait_s": 30, "mean_wait_s": 15, "p95_wait_s": 28.5, "max_slowdown": 2,
        "mean_slowdown": 1.5, "max_bounded_slowdown": 2, "mean_bounded_slowdown": 1.5,
        "mean_turnaround_s": 35, "node_weighted_wait_s": 22.5, "makespan_s": 60,
        "utilization": 100 / 600, "total_energy_j": 5e6,
    }  # fmt: skip
    assert {name: view.value(name) for name in expected} == pytest.approx(expected)


def test_zero_jobs_are_no_error() -> None:
    view = outlook([], [], [], [], total_energy_j=0.0)
    for name in METRICS:
        assert np.isfinite(view.value(name)), name


@pytest.mark.parametrize("how", ["mean", "best", "range"])
@given(values=POSITIVE, factor=st.floats(0.001, 1000))
def test_a_normalised_cost_does_not_depend_on_its_unit(how, values, factor) -> None:
    costs = np.array(values)
    assert normalized(costs * factor, how) == pytest.approx(normalized(costs, how), abs=1e-6)


@given(values=POSITIVE)
def test_equal_candidates_are_equal_and_a_better_one_has_the_lower_score(values) -> None:
    for how in ("mean", "best", "range", "none"):
        judged = Objective({"mean_wait_s": 0.5, "max_wait_s": 0.5}, normalize=how)
        metrics = [{"mean_wait_s": v, "max_wait_s": 2 * v} for v in values]
        scores = judged.scores(metrics)
        assert np.argsort(values, kind="stable").tolist() == pytest.approx(
            np.argsort(scores, kind="stable").tolist()
        ) or len(set(values)) < len(values)
        assert len({round(s, 9) for s in judged.scores([metrics[0]] * 3)}) == 1


def test_more_utilization_is_better() -> None:
    judged = Objective({"utilization": 1.0})
    low, high = judged.scores([{"utilization": 0.5}, {"utilization": 0.9}])
    assert high < low


def test_equal_waits_of_zero_are_a_tie_and_no_error() -> None:
    judged = Objective()
    nothing = dict.fromkeys(judged.weights, 0.0)
    assert len(set(judged.scores([nothing, nothing]))) == 1


def test_a_custom_function_is_the_cost() -> None:
    judged = Objective(function=f"{__name__}:cost")
    view = outlook([0, 0], [1, 3], [5, 5], [1, 1])
    assert judged.scores([judged.measure(view)]) == [4.0]


@pytest.mark.parametrize(
    ("arguments", "fault", "says"),
    [
        ({"weights": {"mean_weight": 1}}, UnknownNameError, "mean_wait_s"),
        ({"weights": {"mean_wait_s": -1}}, ConfigError, "0 or more"),
        ({"weights": {"mean_wait_s": 0}}, ConfigError, "all weights are 0"),
        ({"function": "no_such_module:f"}, ConfigError, "cannot be loaded"),
        ({"function": "math"}, ConfigError, "module:function"),
        ({"function": ":cost"}, ConfigError, "module:function"),
        ({"function": "math:"}, ConfigError, "module:function"),
        ({"function": "math:pi"}, ConfigError, "is not a function"),
    ],
)
def test_a_wrong_objective_is_reported_by_name(arguments, fault, says) -> None:
    with pytest.raises(fault, match=says):
        Objective(**arguments)


def test_a_function_that_gives_no_number_is_reported_by_name() -> None:
    with pytest.raises(HpctwinError, match="must return a finite number"):
        Objective(function=f"{__name__}:failing").measure(outlook([], [], [], []))


@pytest.mark.parametrize("text", ["import sys\nsys.exit(3)\n", "def cost(outlook:\n", "1 / 0\n"])
def test_a_module_that_cannot_be_loaded_is_reported_by_name(text, tmp_path, monkeypatch) -> None:
    (tmp_path / "broken_cost.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="'broken_cost:cost' cannot be loaded"):
        Objective(function="broken_cost:cost")


@pytest.mark.parametrize(
    "wrong", [lambda: 1.0, lambda view: "dear", lambda view: None, lambda view: sys.exit(3)]
)
def test_a_failing_function_is_reported_and_ends_nothing(wrong) -> None:
    judged = Objective(function=f"{__name__}:cost")
    judged.function = wrong
    with pytest.raises(HpctwinError, match="the objective's function failed"):
        judged.measure(outlook([], [], [], []))


async def later(view: Outlook) -> float:
    return 1.0


def test_an_async_function_is_reported() -> None:
    with pytest.raises(HpctwinError, match="use def"):
        Objective(function=f"{__name__}:later").measure(outlook([], [], [], []))


NOWHERE = Past.none()
EARLIER = Past(*(np.array(column, float) for column in ([1, 2], [3, 5], [9, 8], [2, 1])))


def courses(rng: np.random.Generator, several: int, jobs: int, past: Past) -> list[Course]:
    """What-ifs of one present, in which all jobs start."""
    submit_s, nodes = (
        rng.integers(0, 10, jobs).astype(float),
        rng.integers(1, 9, jobs).astype(float),
    )
    start_ms = 10_000 + rng.integers(0, 10**8, (several, jobs))
    end_ms = start_ms + rng.integers(1, 10**8, (several, jobs))
    running_end_ms = 10_000 + rng.integers(0, 10**6, (several, 3))
    own = zip(start_ms, end_ms, running_end_ms, rng.random(several).tolist(), strict=True)
    return [Course(submit_s, nodes, np.array([1.0, 4.0, 2.0]), 10.0, 40, past, *one) for one in own]


@given(
    seed=st.integers(0, 1000), several=st.integers(1, 13), jobs=st.integers(0, 300),
    past=st.sampled_from([NOWHERE, EARLIER]),
)  # fmt: skip
def test_what_ifs_measured_together_equal_each_alone_to_the_last_bit(
    seed, several, jobs, past
) -> None:
    found = courses(np.random.default_rng(seed), several, jobs, past)
    judged = Objective(dict.fromkeys(METRICS, 1.0))
    (together,) = outlooks_of(found)
    alone = [judged.measure(outlooks_of([one])[0].each()[0]) for one in found]
    assert judged.measure_all(together) == alone == [judged.measure(o) for o in together.each()]


def test_if_a_job_never_starts_each_what_if_is_judged_by_the_others() -> None:
    first, second = courses(np.random.default_rng(1), 2, 4, NOWHERE)
    second.start_ms[2] = -1
    whole, part = outlooks_of([first, second])
    assert whole.start_s.tolist() == [(first.start_ms / 1000).tolist()]
    rows = [0, 1, 3]
    assert part.start_s.tolist() == [(second.start_ms[rows] / 1000).tolist()]
    assert part.nodes.tolist() == second.nodes[rows].tolist()
    assert part.submit_s.tolist() == second.submit_s[rows].tolist()


def test_a_custom_function_is_called_for_each_what_if() -> None:
    (together,) = outlooks_of(courses(np.random.default_rng(2), 3, 5, NOWHERE))
    judged = Objective(function=f"{__name__}:cost")
    waits_s = (together.start_s - together.submit_s).sum(axis=1).tolist()
    assert judged.measure_all(together) == [{"cost": wait_s} for wait_s in waits_s]


@given(
    table=st.integers(1, 12).flatmap(
        lambda n: st.lists(
            st.lists(st.floats(-5, 1e6), min_size=n, max_size=n), min_size=1, max_size=12
        )
    ),
    how=st.sampled_from(["mean", "best", "range", "none"]),
)
def test_metrics_are_normalised_each_by_itself(table, how) -> None:
    found = normalized(np.array(table), how)
    assert found.tolist() == [normalized(np.array(row), how).tolist() for row in table]


def test_the_threshold_of_bounded_slowdowns_is_a_setting() -> None:
    weights = {"mean_bounded_slowdown": 1.0}
    core = Core(CoreSettings.model_validate({"objective": {"weights": weights, "tau": "60s"}}))
    found = courses(np.random.default_rng(2), 3, 5, NOWHERE)
    for objective, tau_s in ((core.objective, 60), (Objective(weights), 10)):
        (together,) = outlooks_of(found, objective.tau_s)
        measured = [one["mean_bounded_slowdown"] for one in objective.measure_all(together)]
        run_s = together.end_s - together.start_s
        slowdown = (together.end_s - together.submit_s) / np.maximum(run_s, tau_s)
        assert measured == pytest.approx(np.maximum(slowdown, 1).mean(axis=1))
    with pytest.raises(ConfigError, match="tau_s is 0; it must be above 0"):
        Objective(weights, tau_s=0)
    with pytest.raises(ValueError, match=r"objective\.tau: it must be more than 0"):
        CoreSettings.model_validate({"objective": {"tau": "0s"}})
