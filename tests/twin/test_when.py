"""`hpctwin when`: what a user is told of a start, from a real PBS's recorded queue and a live twin."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from hpctwin.cli import main
from hpctwin.formats import write_workload
from hpctwin.model import Category, Cluster, Workload
from hpctwin.rms.records.records import JobSpec
from hpctwin.twin.emulated import emulated_cluster
from hpctwin.twin.following.bus import LocalBus
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.service.runner import Twin
from hpctwin.twin.service.when import picture_of
from hpctwin.twin.settings.config import TwinConfig
from hpctwin.twin.start_times.estimate import JobToCome, when_job, when_request
from tests.rms.fake_pbs import FakePbs
from tests.twin.test_runner import Manager


@pytest.fixture
def config(tmp_path: Path) -> Path:
    pbs = FakePbs(tmp_path)
    path = tmp_path / "twin.yaml"
    path.write_text(
        f"manager: {{kind: pbs, cluster: theta, folder: {pbs.bin}}}\n"
        "core: {site_policy: fcfs+none}\n"
        "journal: {path: j.sqlite}\n"
    )
    return path


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    return int(stop.value.code or 0)


def test_each_state_of_a_job_is_reported_first_in_plain_words(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for job_id, first, then, code in (
        ("926.pbsvm", "Job 926.pbsvm is already running.", "has been running since", 0),
        ("930", "Job 930.pbsvm is pending; expected start 20", "6 nodes are free.", 0),
        ("937", "is pending; no estimate of its start is possible.", "It is held", 0),
        ("939", "is pending; expected start", "It waits for job 927.pbsvm to end well.", 0),
        ("941", "is pending; expected start", "It was submitted to start no earlier than", 0),
        ("99999", "Job 99999 is not in the queue.", "it has ended or never existed", 1),
    ):
        assert run("when", job_id, "-c", config) == code
        said = capsys.readouterr().out
        assert first in said.splitlines()[0]
        assert then in said
        assert "from one query of the resource manager" in said


def test_a_chart_that_cannot_be_drawn_is_rejected_in_words_and_none_is_left(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That it is drawn where a twin has seen starts, is in tests/report/test_start.py."""
    for job_id, name, code, why in (
        ("930", "waits.svg", 1, "too few starts were observed"),
        ("926.pbsvm", "runs.svg", 1, "no distribution to draw"),
        ("937", "held.svg", 1, "no distribution to draw"),
        ("930", "start.txt", 2, "start.txt"),
    ):
        assert run("when", job_id, "-c", config, "--chart", tmp_path / name) == code
        assert why in capsys.readouterr().err
        assert not (tmp_path / name).exists()


def test_a_job_to_come_starts_now_queues_or_never_starts(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for nodes, state in ((4, "waiting"), (33, "never")):
        assert run("when", "--nodes", nodes, "--walltime", "1h", "-c", config, "--json") == 0
        said = json.loads(capsys.readouterr().out)
        assert said["state"] == state
        assert said["policy"] == "fcfs+none"
    # First come, first served without backfilling: it comes after all that wait and are free to.
    content = json.loads((config.parent / "qstat.json").read_text())
    running = {i: job for i, job in content["Jobs"].items() if job["job_state"] == "R"}
    (config.parent / "qstat.json").write_text(json.dumps({**content, "Jobs": running}))
    assert run("when", "--nodes", 4, "--walltime", "1h", "-c", config) == 0
    assert "A job of 4 nodes for 1h, submitted now, starts now." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "give a job's id, or --nodes and --walltime"),
        (("930", "--nodes", "4"), "give a job's id, or --nodes and --walltime"),
        (("--nodes", "4"), "together with --walltime"),
        (("--nodes", "0", "--walltime", "1h"), "--nodes is '0'; it must be 1 or more"),
        (("--nodes", "4", "--walltime", "soon"), "soon"),
        (("--nodes", "4", "--walltime", "0s"), "give a positive duration"),
        (("--nodes", "4", "--walltime", "1h", "--partition", "gpu"), "known: workq"),
    ],
)
def test_a_wrong_question_is_reported_by_name(
    config: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    assert run("when", *words, "-c", config) in (1, 2)
    assert says in capsys.readouterr().err


def test_an_unknown_policy_is_reported_as_assumed(config: Path) -> None:
    about = {"manager": {"kind": "pbs", "cluster": "c", "folder": str(config.parent / "bin")}}
    picture = picture_of(TwinConfig.of(about))
    assert picture.policy == "wfp+easy"
    assert "site_policy is not set" in picture.not_read[0]


def test_a_running_twin_answers_without_a_call_to_the_resource_manager(tmp_path: Path) -> None:
    bus = LocalBus()
    cluster = emulated_cluster(Cluster.uniform(8), publish=bus.publish)
    body = {
        "manager": {"kind": "emulated", "address": "nobody-answers-here"},
        "act": {"mode": "act"},
        "core": {"pool": ["fcfs+easy"], "objective": {"tie_break": ["fcfs+easy"]}},
        "journal": {"path": str(tmp_path / "j.sqlite")},
    }
    settings = TwinConfig.of(body)
    journal = Journal(tmp_path / "j.sqlite")
    twin = Twin(settings, Manager(cluster), bus, journal)
    twin.begin()
    for number, nodes in enumerate((8, 8, 4)):
        spec = JobSpec(id=str(number), submit_s=0.0, nodes=nodes, walltime_s=100)
        cluster.submit(spec, 100)
    until = time.monotonic() + 120
    while time.monotonic() < until and not cluster.snapshot().jobs[0].node_names:
        twin.turn(0.05)
    twin.status_writer.due = 0.0
    twin.turn(0.01)
    picture = picture_of(settings)
    assert picture.source == "the running twin"
    found = when_job(picture, "2")
    assert (found.state, found.start_s) == ("waiting", 200.0)
    assert when_job(picture, "0").state == "running"
    later = when_request(picture, JobToCome(4, 50.0))
    assert (later.state, later.start_s) == ("waiting", 200.0)
    twin.end()
    journal.close()


def test_a_predictor_of_the_site_reports_by_what_jobs_ran_and_a_wrong_one_is_rejected(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("when", "936", "-c", config, "--json") == 0
    by_walltime = json.loads(capsys.readouterr().out)
    rng = np.random.default_rng(1)
    submit = np.sort(rng.uniform(0, 1e6, 400))
    past = Workload.build(
        submit_s=submit, runtime_s=np.full(400, 8.0), walltime_s=np.full(400, 60.0),
        nodes=rng.integers(1, 12, 400), user=Category.of(["tuser"] * 400), recorded_start_s=submit,
    )  # fmt: skip
    write_workload(past, config.parent / "past.parquet")
    predictor = config.parent / "site.predictor"
    assert run("predictor", "train", config.parent / "past.parquet", predictor) == 0
    capsys.readouterr()
    config.write_text(config.read_text().replace("fcfs+none", "fcfs+none, learned: site.predictor"))
    assert run("when", "936", "-c", config, "--json") == 0
    by_predictor = json.loads(capsys.readouterr().out)
    waits = [one["start_s"] - one["as_of_s"] for one in (by_walltime, by_predictor)]
    assert 0.0 < waits[1] < waits[0] / 2
    predictor.write_text("none of it")
    assert run("when", "936", "-c", config) != 0
    assert "is not a predictor, or is truncated" in capsys.readouterr().err
