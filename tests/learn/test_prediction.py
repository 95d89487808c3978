"""Predictions know nothing that was not known at submission; models come back from files as they were."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, errors, generate, read_workload, simulate
from hpctwin.cli import main
from hpctwin.formats import write_workload
from hpctwin.formats.datasets import dataset, write_sample
from hpctwin.learn.prediction import (
    METHODS,
    Known,
    Training,
    drawing_as_predicted,
    load_predictor,
    predict,
    ranked,
    scores,
    scores_by,
    train,
    with_predictions,
)
from hpctwin.learn.prediction.known import History, group_of
from hpctwin.model import Category, Workload
from hpctwin.model.workload.jobs import Usage

NODES = 32
OFTEN = Training(every=150, first=80)


def users_jobs(jobs: int = 300, seed: int = 1) -> Workload:
    """Jobs of four users whose runtimes grow with the nodes they ask for, on a machine with a queue."""
    rng = np.random.default_rng(seed)
    made = generate("poisson", jobs=jobs, nodes=NODES, seed=seed)
    user = rng.integers(0, 4, jobs)
    runtime_s = np.exp2(5 + user + np.log2(made.nodes) + rng.normal(0, 0.2, jobs))
    made = made.replace(
        user=Category.of(user),
        runtime_ms=(1000 * runtime_s).astype(np.int64),
        walltime_ms=np.full(jobs, 20_000_000),
        usage={"node_w": Usage.averages(100.0 + 50 * user + rng.normal(0, 5, jobs))},
    )
    start_s = simulate(made, NODES).jobs["start_s"].to_numpy()
    return made.replace(recorded_start_ms=np.rint(1000 * start_s).astype(np.int64))


@pytest.fixture(scope="module")
def known() -> Known:
    """Of `users_jobs`."""
    return Known.of(users_jobs())


ROWS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 30), st.integers(0, 3), st.integers(-5, 50)),
    min_size=1,
    max_size=25,
)


@given(ROWS)
def test_histories_are_of_those_that_had_ended_at_each_submission(
    rows: list[tuple[int, int, int, int]],
) -> None:
    submit, waited, group, value = (np.array(c, np.int64) for c in zip(*rows, strict=True))
    end, values = submit + waited, value.astype(np.float64)
    history = History(group_of(group), submit, end)
    for job in range(len(rows)):
        before = sorted(
            (end[k], k)
            for k in range(len(rows))
            if group[k] == group[job] and end[k] <= submit[job]
        )
        ended = [values[k] for _, k in before]
        assert history.count[job] == len(ended)
        for back in (1, 2):
            expected = ended[-back] if len(ended) >= back else np.nan
            assert np.array_equal(history.last(values, back)[job], expected, equal_nan=True)
        assert history.sum(values)[job] == sum(ended)
        assert history.sum(values, 2)[job] == sum(ended[-2:])
        assert np.array_equal(
            history.mean(values, 3)[job], np.mean(ended[-3:]) if ended else np.nan, equal_nan=True
        )


@pytest.mark.parametrize("target", ["runtime_s", "node_w"])
def test_labels_shuffled_among_jobs_that_end_later_leave_predictions_as_they_are(
    known: Known, target: str
) -> None:
    today_ms = int(known.workload.submit_ms[200])
    later = np.flatnonzero(known.end_ms > today_ms)
    shuffled = np.arange(len(known.workload))
    shuffled[later] = np.random.default_rng(0).permutation(later)
    jobs = known.workload
    other = Known(
        jobs.replace(
            runtime_ms=jobs.runtime_ms[shuffled],
            usage={"node_w": jobs.usage["node_w"].take(shuffled)},
        ),
        known.end_ms,
    )
    until_today = jobs.submit_ms <= today_ms
    before, after = (predict(one, target, training=OFTEN) for one in (known, other))
    for name, foretold in before.items():
        assert np.array_equal(foretold[until_today], after[name][until_today], equal_nan=True), name
        if name != "walltime":
            assert not np.array_equal(foretold, after[name], equal_nan=True), name


@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 300), st.integers(1, 90), st.integers(0, 60), st.integers(0, 2)),
        min_size=2,
        max_size=40,
    ),
    today=st.integers(0, 300),
    factor=st.integers(2, 9),
)
def test_jobs_that_end_later_reveal_nothing_in_any_workload(
    jobs: list[tuple[int, int, int, int]], today: int, factor: int
) -> None:
    submit, runtime, wait, user = (np.array(c) for c in zip(*sorted(jobs), strict=True))
    workload = Workload.build(
        submit_s=submit, runtime_s=runtime, walltime_s=np.full(len(jobs), 1000.0),
        nodes=np.ones(len(jobs)), user=Category.of(user), recorded_start_s=submit + wait,
    )  # fmt: skip
    known = Known.of(workload)
    later = known.end_ms > 1000 * today
    changed = np.where(later, workload.runtime_ms * factor, workload.runtime_ms)
    other = Known(workload.replace(runtime_ms=changed), known.end_ms)
    seen = workload.submit_ms <= 1000 * today
    assert np.array_equal(
        known.features("runtime_s")[seen], other.features("runtime_s")[seen], equal_nan=True
    )
    without = ("walltime", "recent", "like")
    before, after = (predict(one, methods=without) for one in (known, other))
    assert all(np.array_equal(before[name][seen], after[name][seen]) for name in without)


def test_the_users_last_two_are_as_tsafrir_defines_them() -> None:
    workload = Workload.build(
        submit_s=[0, 0, 0, 100, 200, 200], runtime_s=[10, 30, 50, 7, 9, 9],
        walltime_s=[99, 99, 99, 25, 99, 99], nodes=[1] * 6, user=Category.of([1, 1, 1, 1, 1, 2]),
        recorded_start_s=[0, 0, 60, 100, 200, 200],
    )  # fmt: skip
    # At 100 jobs 1 and 2 have ended, at most the walltime; at 200 the last two are 4 (at 107) and 3 (at 110).
    assert Known.of(workload).recent("runtime_s").tolist() == [99, 99, 99, 20, 28.5, 99]


def test_learning_methods_are_better_if_runtimes_depend_on_more_than_the_user(
    known: Known,
) -> None:
    found = predict(known, training=OFTEN)
    assert tuple(found) == METHODS
    by = {row["method"]: row for row in scores(known, "runtime_s", found).iter_rows(named=True)}
    assert {row["jobs"] for row in by.values()} == {240}
    best = max(by["walltime"]["accuracy"], by["recent"]["accuracy"])
    assert min(by[name]["accuracy"] for name in ("boosting", "clusters", "ensemble")) > best + 0.03
    for foretold in found.values():
        assert ((foretold >= 1) & (foretold <= known.walltime_s)).all()
    users = scores_by(known, "runtime_s", found, "user")
    assert users.filter(users["method"] == "recent")["jobs"].sum() == 240
    assert set(scores_by(known, "runtime_s", found, "size")["method"]) == set(METHODS)


def test_one_seed_gives_one_prediction(known: Known) -> None:
    first, second = (predict(known, training=OFTEN) for _ in range(2))
    assert all(np.array_equal(first[name], second[name]) for name in METHODS)


@pytest.mark.parametrize("method", ["boosting", "clusters"])
def test_a_predictor_comes_back_from_its_file_as_it_was(
    known: Known, tmp_path: Path, method: str
) -> None:
    predictor = train(known, method)
    assert set(predictor.models) == {"runtime_s", "node_w"}
    predictor.write(tmp_path / "p.hpctwin")
    again = load_predictor(tmp_path / "p.hpctwin")
    assert (again.method, again.jobs, again.trained_on) == (method, 300, known.workload.name)
    other = Known.of(users_jobs(seed=2))
    found = again.predict(other)
    for target, foretold in predictor.predict(other).items():
        assert np.array_equal(foretold, found[target])
    unmeasured = Known(other.workload.replace(usage={}), other.end_ms)
    assert np.isfinite(again.predict(unmeasured)["node_w"]).all()


def _changed(source: Path, target: Path, **about: object) -> None:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "about.json":
                data = json.dumps(json.loads(data) | about).encode()
            new.writestr(name, data)


def test_a_file_that_is_no_predictor_of_this_version_is_rejected_by_name(
    known: Known, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    train(known).write(good)
    with pytest.raises(
        errors.ConfigError, match="file does not exist; make it with hpctwin predictor train"
    ):
        load_predictor(bad)
    bad.write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(errors.ConfigError, match="is not a predictor"):
        load_predictor(bad)
    for about, told in (
        ({"features": ["runtime"]}, "other job features; train it again"),
        (
            {"format": 99, "hpctwin": "9.9", "jobs": "?"},
            "format 99, written by hpctwin 9.9; this is",
        ),
        ({"sklearn": "0.1"}, "scikit-learn 0.1, but"),
        ({"method": "bosting"}, "boosting"),
        ({"targets": ["node_w"]}, "the file lists node_w"),
    ):
        _changed(good, bad, **about)
        with pytest.raises((errors.ConfigError, errors.UnknownNameError), match=told):
            load_predictor(bad)


def test_a_predictor_with_something_else_inside_is_not_read(known: Known, tmp_path: Path) -> None:
    import sklearn.linear_model
    import skops.io

    path = tmp_path / "p"
    train(known).write(path)
    strange = skops.io.dumps(
        {"runtime_s": {"trees": Path("/tmp")}, "node_w": sklearn.linear_model.Ridge()}
    )
    with zipfile.ZipFile(path) as old:
        about = old.read("about.json")
    with zipfile.ZipFile(path, "w") as new:
        new.writestr("about.json", about)
        new.writestr("models.skops", strange)
    with pytest.raises(errors.ConfigError, match="not part of a predictor"):
        load_predictor(path)


def test_data_that_cannot_be_learned_from_is_reported() -> None:
    plain = generate("poisson", jobs=60, nodes=NODES, seed=1)
    with pytest.raises(errors.WorkloadError, match="has no start times of 60 of 60 jobs"):
        Known.of(plain)
    with pytest.raises(errors.WorkloadError, match="no jobs"):
        Known.of(plain[:0])
    with pytest.raises(errors.ConfigError, match="ends before it is submitted"):
        Known.of(plain, np.full(60, -1.0))
    with pytest.raises(errors.ConfigError, match="one value per job"):
        Known.of(plain, [1.0])
    ends = simulate(plain, NODES).jobs["end_s"].to_numpy()
    with pytest.raises(errors.UnknownNameError, match="runtime_s"):
        predict(Known.of(plain, ends), "runtime")
    with pytest.raises(errors.UnknownNameError, match="boosting"):
        predict(Known.of(plain, ends), methods=["bosting"])
    with pytest.raises(errors.ConfigError, match="fewer than 50"):
        train(Known.of(plain[:20], ends[:20]))


def test_orderings_see_predictions_and_plans_stay_by_walltime(known: Known) -> None:
    jobs = known.workload
    predicted = np.random.default_rng(0).uniform(1, 10_000, len(jobs))
    predicted[:40] = np.nan  # nothing is foretold of them: their walltime stands
    told = with_predictions(jobs, {"runtime_s": predicted})
    own = simulate(told, NODES, "spf").jobs
    as_formula = simulate(told, NODES, "0 + predicted_runtime").jobs
    assert own["start_s"].equals(as_formula["start_s"])
    as_priority = simulate(jobs.replace(priority=-told.predicted_runtime_s), NODES, "priority").jobs
    assert own["start_s"].equals(as_priority["start_s"])
    by_walltime = simulate(jobs, NODES, "spf").jobs
    assert by_walltime["start_s"].equals(simulate(jobs, NODES, "sjf").jobs["start_s"])
    # Planned by too, it is what "expected" is.
    both = Simulation(told, NODES, "spf", expected_s=told.predicted_runtime_s).run().jobs
    expected = Simulation(jobs, NODES, "sjf", expected_s=told.predicted_runtime_s).run().jobs
    assert both["start_s"].equals(expected["start_s"])
    power = with_predictions(jobs, {"node_w": 1 + 9999 - predicted})
    assert simulate(power, NODES, "predicted_power", "none").jobs["start_s"].null_count() == 0


def test_predictions_pass_through_a_table_and_a_wrong_one_is_reported_by_job(
    tmp_path: Path,
) -> None:
    jobs = users_jobs(60)
    told = with_predictions(jobs, {"runtime_s": np.where(np.arange(60) % 2, 7.5, np.nan)})
    again = Workload.from_frame(told.to_frame())
    assert np.array_equal(again.predicted["runtime_s"], told.predicted["runtime_s"], equal_nan=True)
    assert len(told[:10].predicted["runtime_s"]) == 10
    wrong = told.to_frame().with_columns(predicted_runtime_s=0.0)
    with pytest.raises(
        errors.WorkloadError, match="job 1: predicted runtime_s is 0; it must be above 0"
    ):
        Workload.from_frame(wrong)
    with pytest.raises(errors.UnknownNameError, match="runtime_s"):
        Workload.build(submit_s=[0], runtime_s=[1], nodes=[1], predicted={"runtime": [1]})


def test_the_score_of_s_raps_is_as_its_formula_and_puts_the_small_first() -> None:
    jobs = Workload.build(
        submit_s=[0, 0, 0], runtime_s=[9, 9, 9], walltime_s=[99, 99, 99], nodes=[1, 3, 8],
        predicted={"runtime_s": [15, np.nan, 3], "node_w": [100.0, np.nan, 300.0]},
    )  # fmt: skip
    found = ranked(jobs, {"nodes": 2.0, "runtime_s": 1.0, "node_w": 0.5})

    def part(value: float) -> float:
        return float(np.exp(1 / np.sqrt(value + 1)))

    assert found.priority.tolist() == pytest.approx(
        [
            2 * part(1) + part(15) + 0.5 * part(100),
            2 * part(3) + part(99) + 0.5 * part(200),
            2 * part(8) + part(3) + 0.5 * part(300),
        ]
    )
    by_nodes = simulate(ranked(jobs, {"nodes": 1.0}), 8, "priority", "none").jobs
    assert by_nodes["start_s"].to_list() == [0, 0, 9]
    with pytest.raises(errors.UnknownNameError, match="runtime_s"):
        ranked(jobs, {"runtime": 1.0})
    with pytest.raises(errors.ConfigError, match="no column predicted_memory_gb"):
        ranked(jobs, {"memory_gb": 1.0})
    with pytest.raises(errors.ConfigError, match="needs coefficients"):
        ranked(jobs, {})


@pytest.mark.parametrize("name", ["fugaku", "marconi100"])
def test_measured_power_is_predicted_in_its_published_schema(name: str, tmp_path: Path) -> None:
    (path, *_) = write_sample(dataset(name), tmp_path, jobs=150, seed=0)
    known = Known.of(read_workload(path))
    assert {"runtime_s", "node_w"} <= set(known.truth)
    found = predict(known, "node_w", training=OFTEN)
    assert "walltime" not in found
    errors_w = scores(known, "node_w", found)
    assert errors_w["jobs"].min() > 0  # type: ignore[operator]
    assert errors_w["accuracy"].min() > 0.5  # type: ignore[operator]


def test_memory_is_predicted_from_logged_use_and_gaps_are_ignored(tmp_path: Path) -> None:
    jobs = users_jobs()
    rng = np.random.default_rng(2)
    used_kb = (1 + jobs.user.codes) * 2.0**20 * rng.uniform(0.95, 1.05, len(jobs))
    used_kb[::5] = -1
    write_workload(jobs.replace(carried={"used memory": used_kb}), tmp_path / "log.swf")
    known = Known.of(read_workload(tmp_path / "log.swf"))
    assert np.flatnonzero(np.isnan(known.truth["memory_gb"])).tolist() == list(range(0, 300, 5))
    found = predict(known, "memory_gb", training=OFTEN)
    assert set(found) == set(METHODS) - {"walltime"}
    errors_gb = scores(known, "memory_gb", found)
    assert errors_gb["jobs"].to_list() == [192] * len(found)
    assert errors_gb["mean_absolute_error"].max() < 0.3  # type: ignore[operator]


def test_memory_of_a_node_is_predicted_from_accounted_use() -> None:
    jobs = users_jobs()
    rng = np.random.default_rng(2)
    used = (1 + jobs.user.codes) * rng.uniform(0.95, 1.05, len(jobs))
    used[::5] = np.nan
    known = Known.of(jobs.replace(used_memory_gb=used, carried={"used memory": 7 + used}))
    assert np.array_equal(known.truth["memory_gb"], used, equal_nan=True)
    found = predict(known, "memory_gb", training=OFTEN)
    assert scores(known, "memory_gb", found)["mean_absolute_error"].max() < 0.3  # type: ignore[operator]
    told = with_predictions(known.workload, {"memory_gb": found["ensemble"]})
    assert ranked(told, {"memory_gb": 1.0}).priority.std() > 0


MACHINE = {
    "nodes": [
        {
            "name": "n",
            "count": NODES,
            "components": {"cpu": {"count": 1, "idle_w": 50, "max_w": 400}},
        }
    ]
}
PARTS = Cluster.checked(MACHINE, "machine")


def test_energy_is_computed_from_the_predicted_power(known: Known) -> None:
    jobs = known.workload
    foretold = predict(known, "node_w", ["recent"], OFTEN)["recent"]
    foretold[3] = np.nan
    seen = drawing_as_predicted(with_predictions(jobs, {"node_w": foretold}))
    ran = {name: simulate(one, PARTS) for name, one in (("measured", jobs), ("foretold", seen))}
    starts = [run.jobs["start_s"].to_list() for run in ran.values()]
    assert starts[0] == starts[1]
    energy = {name: run.energy.jobs["energy_j"].to_numpy() for name, run in ran.items()}
    told = ~np.isnan(foretold)
    node_s = jobs.nodes * jobs.runtime_ms / 1000
    np.testing.assert_allclose(energy["foretold"][told], (foretold * node_s)[told], rtol=1e-6)
    whole = {name: joules[told].sum() for name, joules in energy.items()}
    assert whole["foretold"] == pytest.approx(whole["measured"], rel=0.2)
    assert energy["foretold"][~told] == pytest.approx(400 * node_s[~told])


def test_the_command_draws_the_prediction(
    known: Known, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine, jobs = tmp_path / "machine.yaml", tmp_path / "jobs.parquet"
    machine.write_text(json.dumps(MACHINE))
    write_workload(with_predictions(known.workload, {"node_w": np.full(300, 111.0)}), jobs)
    joules = {}
    for use in ("measured", "predicted"):
        with pytest.raises(SystemExit) as stop:
            main(["simulate", str(jobs), "-M", str(machine), "--use", use, "--json"])
        assert not stop.value.code
        joules[use] = json.loads(capsys.readouterr().out)["total_energy_j"]
    assert joules["measured"] != joules["predicted"]
    write_workload(known.workload, jobs)
    with pytest.raises(SystemExit) as stop:
        main(["simulate", str(jobs), "-M", str(machine), "--use", "predicted"])
    assert stop.value.code
    assert "no predicted_node_w; add it with hpctwin predictor apply" in capsys.readouterr().err
