"""Text and JSON of a Slurm's jobs are of two moments: no job is missing, doubled or kept too long."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from hpctwin.errors import CommandError, FormatError
from hpctwin.rms.slurm.listing import listing
from hpctwin.rms.slurm.listing.listing import FIELDS, Listing

END = "\x1f"


@dataclass
class Queue:
    """Jobs by number, as text and JSON show them; `between` happens after the text was written."""

    jobs: dict[int, dict[str, str]] = field(default_factory=dict)
    between: Any = None
    json_of: list[list[int]] = field(default_factory=list)

    def add(self, job: int, **about: str) -> None:
        self.jobs[job] = {
            "State": "PENDING",
            "PriorityLong": "10",
            "Nice": "0",
            "TimeLimit": "30:00",
        } | about

    def __call__(self, name: str, arguments: Sequence[str]) -> bytes:
        assert name == "squeue"
        if "-j" not in arguments:
            assert "-r" in arguments
            lines = [line for job in self.jobs for line in self._lines(job)]
            if self.between is not None:
                self.between()
                self.between = None
            return "".join(
                "".join(f"{cell}{END}" for cell in line) + "\n" for line in lines
            ).encode()
        asked = [int(one) for one in arguments[-1].split(",")]
        self.json_of.append(asked)
        there = [self._row(job) for job in self.jobs if {job, self._array(job)} & set(asked)]
        if not there and len(asked) == 1:
            raise CommandError("squeue: Invalid job id specified")
        return json.dumps({"jobs": there}).encode()

    def _array(self, job: int) -> int:
        return int(self.jobs[job].get("ArrayJobID", job))

    def _lines(self, job: int) -> list[list[str]]:
        """One for each pending task of an array."""
        cells, tasks = self._cells(job), list(FIELDS).index("ArrayTaskID")
        return [[*cells[:tasks], one, *cells[tasks + 1 :]] for one in cells[tasks].split(",")]

    def _cells(self, job: int) -> list[str]:
        about = {"JobID": str(job), "ArrayTaskID": "N/A", "ArrayJobID": str(job), **self.jobs[job]}
        return [about.get(name, "N/A") for name in FIELDS]

    def _row(self, job: int) -> dict[str, Any]:
        about = self.jobs[job]
        priority = {"set": True, "number": int(about["PriorityLong"])}
        return {
            "job_id": job, "job_state": [about["State"]], "priority": priority,
            "flags": ["SPREAD_JOB"], "name": "unread", "array_job_id": self._array(job),
            "array_task_string": about.get("ArrayTaskID", "") if about["State"] == "PENDING" else "",
        }  # fmt: skip


def found(listing: Listing) -> dict[int, tuple[str, float]]:
    rows, _ = listing.look()
    assert len({row["job_id"] for row in rows}) == len(rows)
    return {row["job_id"]: (row["job_state"][0], row["priority"]) for row in rows}


def test_json_is_queried_for_jobs_that_are_new_or_have_changed_alone() -> None:
    queue = Queue()
    queue.add(1)
    queue.add(2)
    jobs = Listing(queue)
    assert found(jobs) == {1: ("PENDING", 10), 2: ("PENDING", 10)}
    queue.jobs[1] |= {"PriorityLong": "99", "Reason": "Resources", "Nice": "-89"}
    assert found(jobs) == {1: ("PENDING", 99), 2: ("PENDING", 10)}
    assert queue.json_of == [[1, 2]]
    queue.jobs[2]["TimeLimit"] = "1:00:00"
    queue.jobs[1]["State"] = "RUNNING"
    found(jobs)
    assert sorted(queue.json_of[1]) == [1, 2]
    del queue.jobs[1]
    assert set(found(jobs)) == {2}
    assert len(queue.json_of) == 2


def test_pending_tasks_of_an_array_are_one_row_for_each_record_of_slurm() -> None:
    queue = Queue()
    queue.add(1, ArrayTaskID="1,3,4", Reason="BeginTime")
    queue.add(2, ArrayJobID="1", ArrayTaskID="2", Reason="Resources")
    jobs = Listing(queue)
    for _ in range(2):
        rows = {row["job_id"]: row for row in jobs.look()[0]}
        assert {job: row["array_task_string"] for job, row in rows.items()} == {1: "1,3,4", 2: "2"}
    assert {job: row["state_reason"] for job, row in rows.items()} == {
        1: "BeginTime",
        2: "Resources",
    }


def test_a_job_that_starts_between_text_and_json_runs() -> None:
    queue = Queue()
    queue.add(1)
    queue.between = lambda: queue.jobs[1].update(State="RUNNING")
    jobs = Listing(queue)
    assert found(jobs) == {1: ("RUNNING", 10)}
    assert found(jobs) == {1: ("RUNNING", 10)}


def test_a_job_that_ends_between_text_and_json_is_gone_with_the_next_text() -> None:
    queue = Queue()
    queue.add(1, State="RUNNING")
    jobs = Listing(queue)
    found(jobs)
    queue.jobs[1]["State"] = "COMPLETING"
    queue.between = lambda: queue.jobs.pop(1)
    assert set(found(jobs)) == {1}
    assert found(jobs) == {}


def test_a_job_that_is_requeued_between_text_and_json_stays() -> None:
    queue = Queue()
    queue.add(1, State="RUNNING")
    queue.between = lambda: queue.jobs[1].update(State="PENDING", RestartCnt="1")
    jobs = Listing(queue)
    assert found(jobs) == {1: ("PENDING", 10)}
    assert found(jobs) == {1: ("PENDING", 10)}


def test_a_task_that_starts_between_text_and_json_is_not_missing_of_its_array() -> None:
    queue = Queue()
    queue.add(5, ArrayTaskID="1-3")

    def start() -> None:
        queue.jobs[5]["ArrayTaskID"] = "2-3"
        queue.add(6, State="RUNNING", ArrayJobID="5", ArrayTaskID="1")

    queue.between = start
    jobs = Listing(queue)
    rows = {row["job_id"]: row for row in jobs.look()[0]}
    assert (rows[5]["array_task_string"], rows[6]["job_state"]) == ("2-3", ["RUNNING"])
    rows = {row["job_id"]: row for row in jobs.look()[0]}
    assert (rows[5]["array_task_string"], rows[6]["array_task_string"]) == ("2-3", "")


def test_the_highest_priorities_among_many_pending_jobs_are_read_whole_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing, "MOST_PENDING", 2)
    queue = Queue()
    for job in range(1, 6):
        queue.add(job, PriorityLong=str(job))
    queue.add(9, State="RUNNING")
    jobs = Listing(queue)
    rows, unread = jobs.look()
    assert (len(rows), unread, queue.json_of[0]) == (6, 3, [9, 5, 4])
    by_text = next(row for row in rows if row["job_id"] == 1)
    assert (by_text["time_limit"], by_text["array_job_id"]) == (30, 0)
    assert jobs.look()[1] == 1
    assert jobs.look()[1] == 0
    assert all(row["flags"] == ["SPREAD_JOB"] for row in jobs.look()[0])


def test_a_line_with_other_fields_is_an_error_that_shows_it() -> None:
    with pytest.raises(FormatError, match=r"squeue -O: expected \d+ fields in '7"):
        Listing(lambda name, arguments: b"7\n").look()
