"""Settings that change between two runs on one journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpctwin import Cluster
from hpctwin.learn.prediction import Known, train
from hpctwin.rms.records.records import JobSpec
from hpctwin.twin.emulated import emulated_cluster
from hpctwin.twin.following.bus import LocalBus
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.journal.restore import decide_again, restored_core
from hpctwin.twin.service.runner import Twin
from hpctwin.twin.settings.config import TwinConfig
from tests.twin.test_learned import past
from tests.twin.test_runner import Manager


def run(path: Path, turns: int, end: bool, **core: Any) -> Twin:
    bus = LocalBus()
    cluster = emulated_cluster(Cluster.uniform(4), publish=bus.publish)
    for number in range(6):
        cluster.submit(
            JobSpec(id=f"j{number}", submit_s=0.0, nodes=3, walltime_s=60.0 * (number + 1))
        )
    body = {"manager": {"kind": "emulated", "address": "none"}, "core": core, "threads": 1}
    journal = Journal(path)
    twin = Twin(TwinConfig.of(body), Manager(cluster), bus, journal)
    twin.begin()
    for _ in range(turns):
        twin.core.opportunity = True
        twin.turn(0.0)
    if end:
        twin.end()
    journal.close()
    return twin


@pytest.mark.parametrize("end", [True, False], ids=["ended", "killed"])
def test_a_pool_that_lacks_the_policy_in_force_begins_with_its_first(
    tmp_path: Path, end: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "j.sqlite"
    first = run(path, 4, end, pool=["sjf+easy", "wfp+easy"])
    decided = first.counts["decisions"]
    assert decided >= 2
    again = run(path, 4, end, pool=["fcfs+easy"], site_policy="sjf+easy")
    assert "cannot be used" not in caplog.text
    assert again.core.policy == "fcfs+easy"
    assert again.counts["decisions"] >= 2
    journal = Journal(path, read_only=True)
    # Those of both runs come about again, bit for bit, each by its own settings.
    last = journal.read_decision()
    assert last is not None
    for number in range(1, last["id"] + 1):
        assert decide_again(journal, number).differences == ()
    assert restored_core(journal).policy == "fcfs+easy"
    journal.close()


def test_learned_values_outlive_a_change_of_settings(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    first = run(path, 4, True, pool=["sjf+easy", "wfp+easy"])
    again = run(path, 0, True, pool=["fcfs+easy"])
    assert again.core.mirror.digest == first.core.mirror.digest
    assert again.core.forecaster.state() == first.core.forecaster.state()


def test_a_decision_made_again_with_another_predictor_says_so(tmp_path: Path) -> None:
    predictor, path = tmp_path / "site.predictor", tmp_path / "j.sqlite"
    train(Known.of(past())).write(predictor)
    # The second run begins with a state that is in the journal.
    for _ in range(2):
        run(path, 4, True, pool=["sjf+easy", "wfp+easy"], learned=str(predictor))
    journal = Journal(path, read_only=True)
    again = decide_again(journal)
    assert (again.differences, again.notes) == ((), ())
    train(Known.of(past(seed=2))).write(predictor)
    (note,) = decide_again(journal).notes
    assert note.startswith(f"{predictor} now holds another predictor")
    journal.close()
