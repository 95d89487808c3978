"""What `compare` returns: a mapping of results with a table, charts and other packages' tables."""

from __future__ import annotations

import copy
import pickle
import sys
from types import ModuleType

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from hpctwin import Cluster, compare, generate, simulate
from hpctwin.errors import ConfigError, SimulationError
from hpctwin.sweep.compare import Comparison

JOBS = generate("lublin", jobs=200, nodes=32, seed=3)
POLICIES = ["fcfs+easy", "sjf+easy", "fcfs+none"]


@pytest.fixture(scope="module")
def results() -> Comparison:
    return compare(JOBS, 32, POLICIES)


def test_it_is_a_dict_of_results_by_policy(results: Comparison) -> None:
    assert list(results) == POLICIES
    assert isinstance(results, dict)
    assert results["sjf+easy"].jobs.equals(simulate(JOBS, 32, "sjf+easy").jobs)
    assert list(pickle.loads(pickle.dumps(results))) == list(copy.copy(results)) == POLICIES


def test_an_unknown_policy_is_a_key_error_with_the_nearest(results: Comparison) -> None:
    with pytest.raises(KeyError, match=r"^unknown policy 'sjf'\. Did you mean 'sjf\+easy'\?"):
        results["sjf"]
    assert results.get("sjf") is None


def test_its_summary_has_all_metrics_of_each_result(results: Comparison) -> None:
    frame = results.summary()
    assert frame["policy"].to_list() == POLICIES
    for name, row in zip(POLICIES, frame.iter_rows(named=True), strict=True):
        summary = results[name].summary()
        assert {key: row[key] for key in summary} == summary


def test_a_count_of_jobs_that_one_policy_lacks_is_zero() -> None:
    cluster = Cluster.model_validate(
        {
            "nodes": [{"name": "a", "count": 32}],
            "failures": {"mtbf": "2d", "mttr": "1h", "on_failure": "fail"},
        }
    )
    mixed = Comparison(compare(JOBS, 32, ["fcfs+easy"]) | compare(JOBS, cluster, ["sjf+easy"]))
    frame = mixed.summary()
    none, some = frame["jobs_node_failure"]
    assert (none, some) == (0, mixed["sjf+easy"].summary()["jobs_node_failure"])
    assert some > 0


@pytest.mark.parametrize(
    "name", ["bars", "radar", "wait_cdf", "wait_by_size", "wait_heat", "queue", "utilization"]
)
def test_each_chart_shows_all_policies(results: Comparison, name: str) -> None:
    figure = getattr(results.plot, name)(title="A title")
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()  # names on axes are made then
    words = " ".join(text.get_text() for text in figure.findobj(Text))
    assert all(policy in words for policy in POLICIES), name


def test_power_is_drawn_of_all_policies_if_it_is_known(results: Comparison) -> None:
    with pytest.raises(SimulationError, match="has no power model"):
        results.plot.power()
    powered = compare(JOBS, Cluster.uniform(32, active_w=200, idle_w=90), POLICIES, log=True)
    assert isinstance(powered.plot.power(), Figure)


@pytest.mark.parametrize("missing", ["pandas", "pyarrow"])
def test_without_pandas_the_error_names_the_extra(
    results: Comparison, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("pandas", "pyarrow"):
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
    monkeypatch.setitem(sys.modules, missing, None)  # as if it were not installed
    for table in (results, results["fcfs+easy"], JOBS):
        with pytest.raises(
            ConfigError, match=rf"needs {missing}.* pip install 'hpctwin\[pandas\]'"
        ):
            table.to_pandas()


def test_with_pandas_the_tables_have_the_same_columns(results: Comparison) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    result = results["fcfs+easy"]
    assert list(result.to_pandas().columns) == result.jobs.columns
    assert result.to_pandas()["wait_s"].to_list() == result.jobs["wait_s"].to_list()
    assert len(JOBS.to_pandas()) == len(JOBS)
    assert list(results.to_pandas()["policy"]) == POLICIES
