"""Public functions given values of any kind: they work, or say in a line which argument is wrong."""

from __future__ import annotations

import datetime as dt
import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import hpctwin
from hpctwin import Cluster, Simulation, Workload, facility, metrics, report
from hpctwin.energy import Series, price_control
from hpctwin.errors import ArgumentError, ConfigError, HpctwinError, SimulationError
from hpctwin.model import Dependencies, DependencyKind, NodeGroup
from hpctwin.model.cluster.cluster import Partition, Reservation

COLUMNS: dict[str, Any] = {"submit_s": [0, 1, 2], "runtime_s": [5, 6, 7], "nodes": [1, 2, 1]}
JOBS = Workload.build(**COLUMNS, recorded_start_s=[0, 1, 2])
MACHINE = Cluster.uniform(nodes=4)
POWERED = hpctwin.simulate(
    JOBS,
    Cluster.uniform(4, active_w=2, idle_w=1, sleep_w=0, off_s=1, off_w=1, on_s=1, on_w=1),
    log=True,
)

VALUES: tuple[Callable[[], Any], ...] = (
    lambda: (i for i in range(3)),
    lambda: lambda x: x,
    *(functools.partial(lambda value: value, value) for value in (
        None, True, -1, 0, 1.5, float("nan"), float("inf"), 10**400, "x", "", b"x", 1j, [], [1],
        ["a", "b", "c"], [1, None, 3], ("a", 1, None), [[1], [2], [3]], {}, {"a": 1}, {1, 2}, object(),
        np.array(["a", "b", "c"]), np.array([1.5, np.nan, 2]), np.zeros((3, 2)), np.array(5),
        np.array([1, 2, 3], "m8[s]"), np.array([1, 2, 3], "M8[s]"), pl.Series([1, 2, 3]),
        pl.Series(["a", "b", "c"]), pl.DataFrame({"a": [1]}), dt.date(2023, 1, 1), JOBS, MACHINE,
    )),
)  # fmt: skip


def fields(model: Callable[..., Any], **good: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
    """A model of settings, as a function of its fields; the fields to try are those that are given."""

    def made(**changed: Any) -> Any:
        return model(**{**good, **changed})

    names = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in good]
    made.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    return made, {}


CALLS: Mapping[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Workload.build": (Workload.build, COLUMNS),
    "Workload.from_frame": (Workload.from_frame, {"frame": JOBS.to_frame()}),
    "window": (JOBS.window, {"begin": 0}),
    "sample": (JOBS.sample, {"jobs": 2}),
    "scale": (JOBS.scale, {"load": 0.9, "nodes": 4}),
    "take": (JOBS.take, {"rows": [0]}),
    "replace": fields(JOBS.replace, nodes=[1, 1, 1], user=None, walltime_ms=[9, 9, 9], name="w"),
    "Cluster.uniform": (Cluster.uniform, {"nodes": 4}),
    "Cluster.from_yaml": (Cluster.from_yaml, {"path": "none.yaml"}),
    "Cluster": fields(
        Cluster, name="c", nodes=[{"name": "a", "count": 2}], partitions=(), reservations=(), resources={},
        cleanup=0, qos={}, limits=(), cap=None, price=None, switches=(),
    ),
    "NodeGroup": fields(NodeGroup, name="a", count=1, cores=1, speed=1.0, memory_gb=1, features=()),
    "Partition": fields(Partition, name="p", groups=None, min_nodes=1, max_nodes=2, max_walltime=9),
    "Reservation": fields(Reservation, start=0, end=5, nodes=None, groups=None),
    "Simulation": (Simulation, {"workload": JOBS, "cluster": MACHINE}),
    "advance": (Simulation(JOBS, MACHINE).advance, {}),
    "replay": (hpctwin.replay, {"workload": JOBS, "cluster": MACHINE}),
    "compare": (
        lambda policies=("fcfs",), threads=1, progress=None: hpctwin.compare(
            JOBS, MACHINE, policies, threads=threads, progress=progress
        ),
        {},
    ),
    "make_policy": (hpctwin.make_policy, {}),
    "parse_policy": (hpctwin.parse_policy, {}),
    "formula": (hpctwin.formula, {}),
    "multifactor": (hpctwin.multifactor, {}),
    "generate": (
        lambda name="poisson", jobs=5, nodes=4, seed=1: hpctwin.generate(
            name, jobs=jobs, nodes=nodes, seed=seed
        ),
        {},
    ),
    "read_workload": (hpctwin.read_workload, {"path": "none.swf"}),
    "write_workload": (hpctwin.write_workload, {"workload": JOBS, "path": "none/o.csv"}),
    "read_cluster": (hpctwin.read_cluster, {}),
    "sweep": (hpctwin.sweep, {}),
    "Simulation.switch": (
        lambda on=(), off=(): Simulation(JOBS, MACHINE, "fcfs").switch(on=on, off=off), {},
    ),
    "Simulation.set_mode": (Simulation(JOBS, MACHINE).set_mode, {"group": "node", "mode": "base"}),
    "Simulation.start_no_later": (Simulation(JOBS, MACHINE).start_no_later, {"time_s": 0}),
    "Simulation.save": (Simulation(JOBS, MACHINE).save, {"path": "none/saved"}),
    "Simulation.load": (Simulation.load, {"path": "none", "workload": JOBS, "cluster": MACHINE}),
    "Energy.by": (POWERED.energy.by, {"label": "user"}),
    "plot.queue": (POWERED.plot.queue, {}),
    "parse_strategy": (facility.parse_strategy, {"text": "random"}),
    "price_control": (price_control, {"series": Series.hourly([1, 2], "EUR"), "timeout_s": 9}),
    "Series": (Series, {"times_s": [0, 9], "values": [1, 2], "period_s": 20, "unit": "EUR"}),
    "Series.hourly": (Series.hourly, {"per_kwh": [1, 2], "unit": "EUR"}),
    "Series.read": (Series.read, {"path": "none.csv"}),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_value_of_any_kind_works_or_is_named_in_one_line(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    function, good = CALLS[call]
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in kinds:
            continue
        for make in VALUES:
            value = make()
            said = f"{call}({parameter.name}={value!r:.40})"
            named = {} if parameter.kind is parameter.POSITIONAL_ONLY else {parameter.name: value}
            error = raised(
                function, *(() if named else (value,)), **{**(good if named else {}), **named}
            )
            if isinstance(error, TypeError) and not isinstance(error, HpctwinError):
                assert parameter.name in str(error), f"{said}: {error}"
                assert "\n" not in str(error), said
            else:
                assert error is None or isinstance(error, HpctwinError), f"{said}: {error!r}"


def raised(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Exception | None:
    """What a call raises."""
    try:
        function(*args, **kwargs)
    except Exception as error:
        return error
    return None


def test_a_list_of_labels_is_a_column_of_labels() -> None:
    lists = {"partition": ["a", "b", "a"], "user": np.array(["u", "v", "u"]), "qos": [1, 2, None]}
    jobs = Workload.build(**COLUMNS, **lists, account=pl.Series(["x", None, "y"]))
    frame = jobs.to_frame()
    assert frame["partition"].to_list() == ["a", "b", "a"]
    assert frame["user"].to_list() == ["u", "v", "u"]
    assert frame["qos"].to_list() == ["1", "2", None]
    assert frame["account"].to_list() == ["x", None, "y"]
    assert jobs.replace(user=["a", "a", "b"]).user.labels == ("a", "b")


def test_durations_are_seconds_and_a_start_may_be_a_date() -> None:
    jobs = Workload.build(
        submit_s=np.array([0, 1], "m8[m]"),
        runtime_s=pl.Series([dt.timedelta(seconds=5), dt.timedelta(minutes=1)]),
        nodes=(n for n in (1, 2)),
        start_epoch_s="2023-01-01",
    )
    assert jobs.submit_ms.tolist() == [0, 60_000]
    assert jobs.runtime_ms.tolist() == [5_000, 60_000]
    assert jobs.start_epoch_s == 1672531200


def test_a_workload_is_made_of_a_dict_of_columns() -> None:
    assert len(Workload.from_frame(COLUMNS)) == 3
    assert len(Workload.from_frame(pl.DataFrame(COLUMNS).lazy())) == 3


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"partition": "gpu"}, "partition is 'gpu'; it must be a list of labels, one per job"),
        ({"partition": {"a": 1}}, "partition is {'a': 1}; it must be a list of labels"),
        ({"partition": ["a", "b"]}, "column partition has shape (2,), expected (3,)"),
        ({"nodes": 4}, "nodes is 4, of shape (); it must be a list or array of numbers"),
        ({"nodes": ["a", "b", "c"]}, "nodes is ['a', 'b', 'c']; it must be a list or array of numbers"),
        ({"submit_s": np.array([1, 2, 3], "M8[s]")}, "submit_s is array(['1970"),
        ({"recorded_nodes": ["n1"]}, "column recorded_nodes has shape (1,), expected (3,)"),
        ({"recorded_nodes": [1, 2, 3]}, "it must be a list of texts or None"),
        ({"header": "; Version: 2"}, "header is '; Version: 2'; it must be a list"),
        ({"nodes_hint": 0}, "nodes_hint is 0; it must be 1 or more"),
        ({"per_node": {"cores": "x"}}, "per_node cores is 'x'"),
        (
            {"dependencies": Dependencies.of([(0, 7, DependencyKind.AFTEROK, 0)])},
            "dependencies name row 7; rows are 0 to 2",
        ),
    ],
)  # fmt: skip
def test_a_column_that_cannot_be_names_argument_value_and_form(
    given: dict[str, Any], told: str
) -> None:
    with pytest.raises(HpctwinError) as caught:
        Workload.build(**{**COLUMNS, **given})
    assert told in str(caught.value)


def test_a_function_as_a_sizing_is_rejected_with_what_to_install() -> None:
    with pytest.raises(ArgumentError, match=r"sizing is <function .*give hpctwin_sizing\.Sizing"):
        Simulation(JOBS, MACHINE, sizing=lambda view: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"times_s": [1, 9]}, "times_s must begin at 0"),
        ({"times_s": [0, 0]}, "each time must be after the one before"),
        ({"times_s": [0]}, "times_s has 1 values, and values has 2"),
        ({"values": [1, float("nan")]}, "values has a value that is not finite"),
        ({"period_s": 9}, "period_s is 9; it must be above the last time, 9 s"),
    ],
)
def test_a_series_that_cannot_be_integrated_is_rejected(given: dict[str, Any], told: str) -> None:
    good = {"times_s": [0, 9], "values": [1, 2], "period_s": 20, "unit": "EUR"}
    assert Series(**good).integral(20) == 9 + 2 * 11
    with pytest.raises(ArgumentError, match=told):
        Series(**{**good, **given})


def test_a_table_without_a_needed_column_names_the_column() -> None:
    jobs = POWERED.jobs
    for column, call in {
        "start_s": lambda: metrics.with_job_metrics(jobs.drop("start_s")),
        "nodes": lambda: metrics.breakdown(jobs.drop("nodes"), "size"),
        "end_s": lambda: metrics.collect_accounts(jobs.drop("end_s")),
        "time_s": lambda: metrics.resample(jobs, 60.0),
        "submit_s": lambda: report.plot_wait_cdf({"a": jobs.drop("submit_s")}),
        "metric": lambda: report.paired_table(jobs),
    }.items():
        with pytest.raises(ArgumentError, match=f"column '{column}' is missing in .*; give"):
            call()


def test_numbers_of_steps_and_times_of_any_size_are_rejected_or_work() -> None:
    simulation = Simulation(JOBS, MACHINE, "fcfs")
    with pytest.raises(ConfigError, match="instants is -1; it must be 0 or more"):
        simulation.advance(instants=-1)
    for late in (9.3e15, 1e300):
        assert Simulation(JOBS, MACHINE, "fcfs").advance(late) == "done"
        assert simulation.advance(-late) == "reached"
    for job in ([1], np.array([1, 2]), "none"):
        with pytest.raises(SimulationError, match="does not exist in workload"):
            simulation.row_of(job)
    with pytest.raises(ArgumentError, match="into is 'x'; it must be a simulation"):
        simulation.fork(into="x")  # type: ignore[arg-type]


def test_intervals_need_a_level_pairs_and_resamples() -> None:
    for level in (None, "x", np.array([0.5, 0.9])):
        with pytest.raises(ConfigError, match="level of an interval must be between 0 and 1"):
            metrics.mean_interval(range(7), level=level)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="before has 2 values, and after has 1"):
        metrics.paired_change([1, 2], [1])
    with pytest.raises(ConfigError, match="resamples is 0"):
        metrics.mean_interval(range(7), resamples=0)


def test_a_table_of_pandas_in_place_of_one_of_polars_is_named() -> None:
    table = POWERED.to_pandas()
    for call in (
        lambda: metrics.breakdown(table, "size"),
        lambda: metrics.with_job_metrics(table),
        lambda: report.plot_gantt(table, None),
        lambda: metrics.resample(table, 60.0),
    ):
        with pytest.raises(ArgumentError, match="it must be a DataFrame of Polars"):
            call()
