"""A running twin answers when a job will start, and whoever asks loads neither journal nor engine."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpctwin.errors import HpctwinError
from hpctwin.model import Cluster
from hpctwin.rms.records.records import JobSpec
from hpctwin.twin.emulated import emulated_cluster
from hpctwin.twin.following.bus import LocalBus
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.service import query_socket
from hpctwin.twin.service.query_socket import QuerySocket, ask
from hpctwin.twin.service.runner import Twin
from hpctwin.twin.service.when import answered, picture_of
from hpctwin.twin.settings.config import TwinConfig
from hpctwin.twin.start_times.estimate import JobToCome, answer
from tests.twin.test_runner import Manager


class Setting:
    """A twin in this process with jobs 0 (runs), 1 and 2 (wait) on eight nodes."""

    def __init__(self, folder: Path) -> None:
        body = {
            "manager": {"kind": "emulated", "address": "nobody-answers-here"},
            "act": {"mode": "act"},
            "core": {"pool": ["fcfs+easy"], "objective": {"tie_break": ["fcfs+easy"]}},
            "journal": {"path": str(folder / "j.sqlite")},
        }
        self.path = folder / "twin.yaml"
        self.path.write_text(yaml.safe_dump(body))
        self.config = TwinConfig.from_yaml(self.path)
        bus = LocalBus()
        cluster = emulated_cluster(Cluster.uniform(8), publish=bus.publish)
        self.journal = Journal(self.config.journal.path)
        self.queries = QuerySocket(self.config.journal.path)
        self.twin = Twin(self.config, Manager(cluster), bus, self.journal, queries=self.queries)
        self.twin.begin()
        for number, nodes in enumerate((8, 8, 4)):
            cluster.submit(JobSpec(id=str(number), submit_s=0.0, nodes=nodes, walltime_s=100), 100)
        self.turn_until(lambda: cluster.snapshot().jobs[0].node_names)

    def turn_until(self, reached: Callable[[], Any]) -> None:
        until = time.monotonic() + 120
        while not reached():
            assert time.monotonic() < until
            self.twin.turn(0.02)

    def asked(self, asks: Callable[[], Any]) -> Any:
        """What somebody is told who asks while the twin turns; an error is raised."""
        said: list[Any] = []

        def run() -> None:
            try:
                said.append(asks())
            except HpctwinError as error:
                said.append(error)

        threading.Thread(target=run, daemon=True).start()
        self.turn_until(lambda: said)
        if isinstance(said[0], HpctwinError):
            raise said[0]
        return said[0]


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    made = Setting(tmp_path)
    with closing(made.journal), closing(made.queries):
        yield made
        made.twin.end()


@pytest.mark.parametrize("question", ["0", "1", "2", "99", JobToCome(4, 50.0), JobToCome(9, 50.0)])
def test_the_twin_itself_says_what_its_journal_says(
    setting: Setting, question: str | JobToCome
) -> None:
    setting.twin.status_writer.due = 0.0
    setting.twin.turn(0.01)
    digest, jobs = setting.twin.core.mirror.digest, dict(setting.twin.core.mirror.jobs)
    said = setting.asked(lambda: answered(setting.config, question))
    known = answer(picture_of(setting.config), question)
    assert (said.when, said.job, said.source) == (known.when, known.job, "the running twin")
    # A job to come leaves nothing behind in the picture that the twin decides by.
    assert setting.twin.core.mirror.jobs == jobs
    assert setting.twin.core.mirror.digest == digest


def test_a_query_loads_no_engine(setting: Setting) -> None:
    program = (
        "import sys; from hpctwin.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    print(*(m for m in sys.modules if m.startswith(('numba', 'hpctwin.simulation'))))\n"
    )
    words = ["when", "--nodes", "4", "--walltime", "1m", "-c", str(setting.path)]
    client = subprocess.Popen(
        [sys.executable, "-c", program, *words], stdout=subprocess.PIPE, text=True
    )
    setting.turn_until(lambda: client.poll() is not None)
    said, modules = client.communicate()[0].rsplit("\n", 2)[:2]
    assert "is pending; expected start" in said
    assert "from the running twin" in said
    assert modules == ""


def test_a_meaningless_question_is_rejected_and_harms_nothing(setting: Setting) -> None:
    for question, says in (
        (JobToCome(4, 50.0, partition="gpu"), "--partition gpu does not exist; known: none"),
        (JobToCome(4, 50.0, cores=-1), "cores -1"),
    ):
        with pytest.raises(HpctwinError, match=says):
            setting.asked(lambda question=question: answered(setting.config, question))
    for body in ({}, {"to_come": {"nodes": 4}}, {"to_come": {"no": 1}}, {"to_come": 3}):
        with pytest.raises(HpctwinError, match="invalid question"):
            setting.asked(lambda body=body: ask(setting.config.journal.path, body))
    assert setting.twin.fault is None
    assert setting.twin.is_active


def test_a_twin_that_does_not_answer_in_time_is_passed_over(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting.twin.status_writer.due = 0.0
    setting.twin.turn(0.01)
    monkeypatch.setattr(query_socket, "LONGEST_S", 0.2)
    assert answered(setting.config, "2").when.state == "waiting"  # nobody turns: by the journal


def test_only_its_user_may_query_and_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    journal = tmp_path / ("d" * 90) / ("e" * 90) / "j.sqlite"
    journal.parent.mkdir(parents=True)
    first = QuerySocket(journal)
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    first.shutdown()
    first.server_close()  # as one that was killed: the file is still there
    assert first.path.exists()
    assert ask(journal, {"job": "1"}) is None
    with closing(QuerySocket(journal)):
        assert first.path.exists()
    assert not first.path.exists()
    assert ask(journal, {"job": "1"}) is None
