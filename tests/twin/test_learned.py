"""Run times that a trained predictor foretells, in the futures that a twin draws."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import errors
from hpctwin.cli import main
from hpctwin.formats import write_workload
from hpctwin.learn.prediction import FEATURES as TRAINED
from hpctwin.learn.prediction import Known, train
from hpctwin.learn.prediction.models import QuantileBoosting
from hpctwin.learn.prediction.saved import as_trees
from hpctwin.model import Category, Cluster, Workload
from hpctwin.policies import parse_policy
from hpctwin.rms.records.records import JobRecord, JobSpec
from hpctwin.twin.forecast.learned_runtimes import LearnedRuntimes, read_quantiles
from hpctwin.twin.forecast.submissions import FEATURES, Submissions
from hpctwin.twin.forecast.workload_model import Expectations
from hpctwin.twin.settings.config import CoreSettings, TwinConfig
from hpctwin.twin.start_times.hindcast import Lived, hindcast, lived_under

USERS = ("anna", "ben", "cleo")
RUNS_S = {"anna": 100.0, "ben": 1000.0, "cleo": 10_000.0}


def spec(job_id: str, submit_s: float = 0.0, **about: object) -> JobSpec:
    asks = {"nodes": 1, "walltime_s": 86_400.0, "user": "anna", **about}
    return JobSpec.model_validate({"id": job_id, "submit_s": submit_s, **asks})


def past(jobs: int = 600, seed: int = 1) -> Workload:
    """Jobs of three users, whose jobs run about as long as `RUNS_S` says times the root of their nodes."""
    rng = np.random.default_rng(seed)
    user = rng.choice(USERS, jobs)
    nodes = 2 ** rng.integers(0, 4, jobs)
    runtime = (
        np.array([RUNS_S[one] for one in user]) * np.sqrt(nodes) * np.exp2(rng.normal(0, 0.2, jobs))
    )
    submit = np.cumsum(rng.exponential(300.0, jobs))
    return Workload.build(
        submit_s=submit, runtime_s=runtime, walltime_s=np.full(jobs, 86_400.0), nodes=nodes,
        user=Category.of(user), recorded_start_s=submit, name="past",
    )  # fmt: skip


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("learned") / "site.predictor"
    train(Known.of(past())).write(path)
    return path


def told(workload: Workload) -> Iterator[tuple[float, str, int]]:
    """Ends and submissions in their order; of one instant first ends."""
    rows = range(len(workload))
    start, ran = workload.recorded_start_ms, workload.runtime_ms
    yield from sorted(
        [(int(start[row] + ran[row]), "end", row) for row in rows]
        + [(int(workload.submit_ms[row]), "submit", row) for row in rows]
    )


JOBS = st.lists(
    st.tuples(
        st.integers(0, 200), st.integers(1, 90), st.integers(0, 60), st.integers(0, 2),
        st.sampled_from([1, 2, 8]), st.sampled_from([50, 100]),
    ),
    min_size=1,
    max_size=30,
)  # fmt: skip


@given(JOBS)
def test_models_are_trained_on_what_a_twin_knows_at_each_submission(
    jobs: list[tuple[int, int, int, int, int, int]],
) -> None:
    submit, runtime, wait, user, nodes, walltime = (
        np.array(c) for c in zip(*sorted(jobs), strict=True)
    )
    workload = Workload.build(
        submit_s=submit, runtime_s=np.minimum(runtime, walltime), walltime_s=walltime, nodes=nodes,
        user=Category.of(np.array(USERS)[user]), recorded_start_s=submit + wait,
    )  # fmt: skip
    known = Submissions()
    found = np.zeros((len(workload), len(FEATURES)))
    for time_ms, what, row in told(workload):
        about = (USERS[user[row]], int(nodes[row]), float(walltime[row]))
        if what == "end":
            known.ended(*about, workload.runtime_ms[row] / 1000, time_ms / 1000)
        else:
            asked = spec(
                str(row), time_ms / 1000, user=about[0], nodes=about[1], walltime_s=about[2]
            )
            known = again(known)
            found[row] = known.submitted(asked)
    columns = [TRAINED.index(name) for name in FEATURES]
    expected = Known.of(workload).features("runtime_s")[:, columns]
    assert np.allclose(found, expected, rtol=0, atol=1e-5, equal_nan=True)


def again(known: Submissions) -> Submissions:
    other = Submissions()
    other.restore(json.loads(json.dumps(known.state())))
    return other


def test_simplified_trees_predict_like_the_trained_ones() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(3000, 6))
    features[rng.random(features.shape) < 0.2] = np.nan
    target = np.nan_to_num(features[:, 0]) * 3 + np.isnan(features[:, 1]) + rng.normal(size=3000)
    models = [
        QuantileBoosting(quantile=q).fit(features, features[:0], target) for q in (0.2, 0.5, 0.9)
    ]
    trees = as_trees((0.2, 0.5, 0.9), [model.trees for model in models])
    expected = np.sort(np.column_stack([model.predict(features) for model in models]), axis=1)
    assert np.allclose(trees.predict(features), expected, rtol=0, atol=1e-9)
    assert trees.predict(features[:0]).shape == (0, 3)


def live(predictor: Path) -> Expectations:
    return Expectations("walltime", read_quantiles(predictor))


def draws(known: Expectations, job: JobRecord, now_s: float = 0.0) -> np.ndarray:
    known.saw_all({job.spec.id: job})
    return known.runtimes([job], now_s, 2000, np.random.default_rng(1))[:, 0]


@pytest.mark.parametrize("user", USERS)
def test_a_twin_that_has_seen_nothing_yet_draws_what_the_users_jobs_ran_before(
    predictor: Path, user: str
) -> None:
    found = draws(live(predictor), JobRecord(spec=spec("1", user=user, nodes=4)))
    assert RUNS_S[user] < np.median(found) < 4 * RUNS_S[user]
    assert set(draws(Expectations(), JobRecord(spec=spec("1", user=user)))) == {86_400.0}


def test_jobs_of_unknown_users_are_drawn_up_to_their_walltimes(predictor: Path) -> None:
    found = draws(live(predictor), JobRecord(spec=spec("1", user="nora", nodes=3, walltime_s=70.0)))
    assert found.min() >= 1.0
    assert found.max() <= 70.0 + 1e-9


def test_a_job_that_runs_already_runs_longer_and_one_at_its_walltime_no_longer(
    predictor: Path,
) -> None:
    for so_far in (60.0, 500.0, 5000.0):
        running = JobRecord(spec=spec("x", nodes=2), start_s=0.0)
        assert draws(live(predictor), running, so_far).min() >= so_far * 0.99
    over = JobRecord(spec=spec("x"), start_s=0.0)
    assert set(np.round(draws(live(predictor), over, 90_000.0))) == {86_400.0}


def test_where_jobs_run_longer_than_predicted_what_is_drawn_comes_to_be_right(
    predictor: Path,
) -> None:
    quantiles = read_quantiles(predictor)
    learned, rng = LearnedRuntimes(quantiles), np.random.default_rng(3)
    ran: list[float] = []
    held = []
    for number in range(400):
        job = spec(str(number), submit_s=1e6 + 100.0 * number, user=f"new-{number}", nodes=1)
        learned.saw_submission(job)
        drawn = learned.runtimes([job], np.zeros(1), rng.random((200, 1)))[:, 0]
        ran.append(20_000.0 * 2 ** rng.normal(0, 0.5))
        low, high = np.quantile(drawn, [0.1, 0.9])
        held.append(low <= ran[-1] <= high)
        learned.saw_end(job, ran[-1], job.submit_s + ran[-1])
    assert 0.72 <= np.mean(held[100:]) <= 0.88


def test_learned_values_survive_saving_as_json_and_a_new_predictor_keeps_the_histories(
    predictor: Path, tmp_path: Path
) -> None:
    known = live(predictor)
    for number in range(60):
        one = spec(str(number), 10.0 * number, user="ben")
        known.saw_submission(one)
        if number % 2:
            known.saw_end(JobRecord(spec=one, start_s=one.submit_s), one.submit_s + 777.0)
    state = json.loads(json.dumps(known.state()))
    same = live(predictor)
    same.restore(state)
    job = JobRecord(spec=spec("x", 700.0, user="ben"))
    assert np.array_equal(draws(same, job, 800.0), draws(known, job, 800.0))
    assert json.loads(json.dumps(same.state())) == json.loads(json.dumps(known.state()))
    train(Known.of(past(seed=2))).write(tmp_path / "other")
    other = live(tmp_path / "other")
    other.restore(state)
    assert other.state()["learned"]["known"] == state["learned"]["known"]
    assert other.state()["learned"]["places"] == []
    without = Expectations()
    without.restore(state)
    other.restore(without.state())


def test_jobs_that_are_gone_are_forgotten(predictor: Path) -> None:
    learned = LearnedRuntimes(read_quantiles(predictor))
    for job_id in ("1", "2"):
        learned.saw_submission(spec(job_id))
    learned.runtimes([spec("2")], np.zeros(1), np.zeros((1, 1)))
    learned.saw_submission(spec("3"))
    learned.keep({"2"})
    state = learned.state()
    assert (list(state["foretold"]), list(state["arrived"])) == (["2"], [])


def test_a_query_changes_no_known_state(predictor: Path) -> None:
    known = live(predictor)
    job = JobRecord(spec=spec("there"))
    draws(known, job)
    before = json.dumps(known.state())
    asked = JobRecord(spec=spec("asked", user="nora"))
    known.runtimes([job, asked], 10.0, 4, np.random.default_rng(1))
    assert json.dumps(known.state()) == before


MACHINE = Cluster.uniform(nodes=12)


def lived(runtime_ms: np.ndarray | None = None) -> Lived:
    workload = past(150, seed=5)
    if runtime_ms is not None:
        workload = workload.replace(runtime_ms=runtime_ms)
    return lived_under(workload, MACHINE, parse_policy("fcfs+easy"))


def test_forecasts_by_a_predictor_are_others_and_what_ends_later_changes_none(
    predictor: Path,
) -> None:
    told_by = CoreSettings(pool=("fcfs+easy",), futures=4, learned=predictor)
    before = lived()
    said = hindcast(before, MACHINE, told_by)
    plain = hindcast(before, MACHINE, CoreSettings(pool=("fcfs+easy",), futures=4))
    assert not said.equals(plain)
    today = int(np.median(before.workload.submit_ms))
    later = before.end_ms > today
    changed = np.where(later, before.workload.runtime_ms * 2, before.workload.runtime_ms)
    after = hindcast(lived(changed), MACHINE, told_by)
    columns = ["job", "made_s", "forecast_s", "low_s", "high_s"]
    first, second = (
        table.filter(table["made_s"] <= today / 1000).select(columns) for table in (said, after)
    )
    # Of a job that does not start in the changed past nothing is told; here all do.
    assert len(first) > 10
    assert first.equals(second)


def test_a_twin_reads_the_file_next_to_its_configuration(predictor: Path, tmp_path: Path) -> None:
    config = predictor.parent / "hpctwin.yaml"
    config.write_text("manager: {kind: slurm}\ncore: {learned: site.predictor}\n")
    assert TwinConfig.from_yaml(config).core.learned == predictor


def changed(source: Path, target: Path, **files: bytes | None) -> Path:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = files.get(name.replace(".", "_"), old.read(name))
            if data is not None:
                new.writestr(name, data)
    return target


def test_a_predictor_that_a_twin_cannot_use_is_rejected_with_the_remedy(
    predictor: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(predictor) as archive:
        about = json.loads(archive.read("quantiles.json"))
    about["features"][0] = "moon"
    wrong: dict[str, tuple[Path, str]] = {
        "missing": (
            tmp_path / "none",
            "file does not exist; make it with hpctwin predictor train TRACE",
        ),
        "text": (tmp_path / "text", "is not a predictor"),
        "older": (
            changed(predictor, tmp_path / "older", quantiles_json=None),
            "contains no runtime quantiles; train it again",
        ),
        "other": (
            changed(predictor, tmp_path / "other", quantiles_json=json.dumps(about).encode()),
            "log_walltime, moon",
        ),
        "cut": (changed(predictor, tmp_path / "cut", quantiles_npz=b"PK"), "is not a predictor"),
        "history": (changed(predictor, tmp_path / "h", history_json=b"{}"), "is not a predictor"),
        "folder": (tmp_path, "is not a predictor"),
    }
    (tmp_path / "text").write_text("predictor")
    for path, why in wrong.values():
        with pytest.raises(errors.ConfigError, match=why):
            read_quantiles(path)


def run(capsys: pytest.CaptureFixture[str], *asked: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(asked))
    out, err = capsys.readouterr()
    return stop.value.code, out, err


def test_train_then_forecast_what_came_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, model = str(tmp_path / "t.parquet"), str(tmp_path / "site.predictor")
    write_workload(past(300, seed=7), trace)
    assert run(capsys, "predictor", "train", trace, model, "--until", "12h")[0] == 0
    command = ["predictor", "forecast", trace, "-n", "64", "--under", "fcfs+easy"]
    command += ["--predictor", model]
    code, _, why = run(capsys, *command)
    assert code
    assert "train it with --until" in why
    window = ["--from", "12h", "--until", "1d", "--futures", "4", "--json"]
    code, out, _ = run(capsys, *command, *window)
    assert code == 0
    assert json.loads(out)["all"][0]["forecasts"] > 10
