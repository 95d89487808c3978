"""The history of weeks in the journal: what it says, and that it stays small."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hpctwin.twin.core.core import Core
from hpctwin.twin.forecast.forecaster import Forecast
from hpctwin.twin.journal.history import HOUR_S, MINUTE_S, OTHERS, STEPS, Recorder, add
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.settings.config import CoreSettings
from tests.twin.test_runner import Setting


@pytest.fixture
def journal(tmp_path: Path) -> Any:
    with closing(Journal(tmp_path / "j.sqlite")) as one:
        yield one


def rows(journal: Journal, step_s: int = MINUTE_S) -> list[tuple[int, dict[str, Any]]]:
    return journal.read_history(step_s, 0, 1e12, 10**6)


def test_a_running_twin_leaves_queue_waits_and_decisions(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    for number in range(1, 8):
        setting.submit(number, nodes=4)
    setting.until(lambda: len(setting.running()) == 2)
    setting.cluster.advance(90)
    mirror = setting.twin.core.mirror
    setting.until(lambda: sum(job.start_s is not None for job in mirror.jobs.values()) == 2
                  and len(mirror.jobs) == 5)  # fmt: skip
    setting.twin.end()
    found = rows(setting.journal, HOUR_S)
    assert [at_s for at_s, _ in found] == [0]
    sums = found[0][1]
    decided = setting.journal.counts()["decisions"]
    assert sums["decisions"] == decided > 0
    starts = [a for n in range(1, 8) for a in setting.journal.read_actions(job=str(n))]
    assert sums["starts"] == len(starts) == 4
    assert sums["partitions"][""]["starts"] == sums["starts"]
    assert sums["waiting_max"] >= 5
    assert 0 < sums["used_nodes"] <= sums["up_nodes"]
    assert sums["policies"].keys() <= {one.name for one in setting.twin.core.pool}
    setting.journal.close()


def test_minutes_add_up_to_hours_over_restarts_within_a_minute(journal: Journal) -> None:
    core = Core(CoreSettings())
    for begin_s in (0, 30, 61, 3599, 3601):
        one = Recorder()  # a twin that has just started
        with journal.writing():
            one.turn(journal, core, begin_s, waiting=begin_s, running=1)
            one.write(journal, core)
    minutes, hours = rows(journal), rows(journal, HOUR_S)
    assert [at_s for at_s, _ in minutes] == [0, 60, 3540, 3600]
    assert minutes[0][1]["n"] == 2
    assert minutes[0][1]["waiting_max"] == 30
    assert [at_s for at_s, _ in hours] == [0, 3600]
    assert hours[0][1]["waiting"] == 0 + 30 + 61 + 3599
    total: dict[str, Any] = {}
    for _, sums in minutes[:3]:
        add(total, sums)
    assert total == hours[0][1]


def test_it_stays_bounded_in_rows_and_names_whatever_the_clock_does(journal: Journal) -> None:
    core = Core(CoreSettings())
    recorder = Recorder()
    times = [*range(0, 60 * 6000, 60), 1e9, 0, 3e9, *range(0, 3600 * 6000, 3600)]
    with journal.writing():
        for now_s in times:
            recorder.turn(journal, core, now_s, waiting=1, running=1)
    for step_s, most in STEPS.items():
        assert len(rows(journal, step_s)) == most
    crowd = {f"u{i}": {"starts": i} for i in range(1000)}
    for _ in range(3):
        add(recorder._sums, {"users": crowd, "partitions": crowd})
        with journal.writing():
            recorder.write(journal, core)
    ((_, last),) = journal.read_history(HOUR_S, times[-1], times[-1], 1)
    assert len(last["users"]) == 51
    assert len(last["partitions"]) == 17
    assert sum(one["starts"] for one in last["users"].values()) == 3 * sum(range(1000))
    assert "u999" in last["users"]
    assert last["users"][OTHERS]["starts"] > 0
    assert len(json.dumps(last)) < 20_000


def test_the_first_forecast_is_compared_with_the_start(journal: Journal) -> None:
    recorder = Recorder()
    recorder.came_true(Forecast("1", 0.0, 100.0, 50.0, 150.0, True, True, 1), 130.0)
    recorder.came_true(Forecast("2", 0.0, 100.0, 50.0, 150.0, True, True, 1), 170.0)
    recorder.came_true(Forecast("3", 0.0, None, None, None, False, False, 1), 170.0)
    sums = recorder._sums
    assert (sums["forecasts"], sums["error_s"]) == (2, 100.0)
    assert (sums["intervals"], sums["covered"]) == (2, 1)


def test_a_journal_of_a_version_without_history_opens_and_gains_it(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    Journal(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE history")
        db.commit()
    with closing(Journal(path, read_only=True)) as old:
        assert rows(old) == []
    with closing(Journal(path)) as again:
        with again.writing():
            again.history(MINUTE_S, 0, "{}", 5)
        assert rows(again) == [(0, {})]
