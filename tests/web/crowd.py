"""An invented cluster with a queue as long, and as restless, as a test wants, behind the real server."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import uvicorn
from pydantic import TypeAdapter

from hpctwin.model.text import compact
from hpctwin.web.server.api import application
from hpctwin.web.server.assembly import Live
from hpctwin.web.server.gate import Access, Gate
from hpctwin.web.server.serve import socket_at
from hpctwin.web.views.job_list import LiveJobFilter, job_table, selected
from hpctwin.web.views.timeline import Timeline
from hpctwin.web.views.views import (
    CandidateView,
    Clock,
    DecisionView,
    Explanation,
    Head,
    JobExplanation,
    JobList,
    JobView,
    LinesView,
    NodeView,
    ScheduleView,
    TimelineView,
)
from hpctwin.web.views.visibility import EVERYTHING, Visibility
from tests.web.page import ACTS, LOOKS

USERS = ("ann", "ben", "carla", "dmitri", "=cmd()", '<b>"x"</b>')
NODES = TypeAdapter(list[NodeView])
NONE = np.zeros(0)
CLOCK = Clock(unix_time=True, zone="UTC")
STAYS = "1000"
"""A job that keeps pending, while others come, go and change places."""


def running_job(node: int) -> str:
    """Return the id of the job on a node and the next."""
    return str(10_000_000 + node)


class Crowd:
    """A source of a page. At each turn some jobs start, others come, and most forecasts change.

    Args:
        pending: Number of pending jobs.
        nodes: Number of nodes; each runs a job.
        every_s: Time between two turns; 0 for none.
    """

    def __init__(self, pending: int, nodes: int = 64, every_s: float = 0.0, **head: Any) -> None:
        self.version, self.fault, self.path = 1, None, Path("none")
        self.every_s, self.time_s = every_s, 1.7e9
        self.listed: tuple[int, list[JobView], pl.DataFrame] = (0, [], pl.DataFrame())
        self.extra = head
        self.random = random.Random(7)
        self.next = int(STAYS)
        self.pending: list[dict[str, Any]] = []
        self.names = [f"n{i:05d}" for i in range(nodes)]
        for _ in range(pending):
            self.submit()

    def submit(self) -> None:
        pick, number = self.random, self.next
        self.next += 1
        soon = pick.random() * 1e5
        why = pick.choice([("turn", "nodes are reserved for earlier jobs"), ("hold", "held")])
        self.pending.append({
            "id": str(number), "user": USERS[number % len(USERS)], "account": pick.choice(["bio", "chem"]),
            "partition": pick.choice(["cpu", "gpu"]), "qos": pick.choice(["normal", "high"]),
            "nodes": pick.randint(1, 128), "walltime_s": pick.choice([600.0, 3600.0, 86400.0]),
            "submit_s": self.time_s - pick.random() * 1e5, "state": "waiting",
            "start_s": self.time_s + soon, "end_s": self.time_s + soon + 3600.0,
            "low_s": self.time_s + soon / 2, "high_s": self.time_s + soon * 2, "calibrated": True,
            "wait_s": pick.random() * 1e5, "why": why[1], "reason": why[0], "node_list": "",
        })  # fmt: skip

    def turn(self) -> None:
        """Let some jobs start, but never the first; as many come, and most forecasts change."""
        few = max(1, len(self.pending) // 100)
        self.time_s += 60.0
        for _ in range(few):
            if len(self.pending) > 1:
                self.pending.pop(self.random.randrange(1, len(self.pending)))
            self.submit()
        for job in self.pending:
            job["start_s"] = self.time_s + (job["start_s"] * 7919.0) % 1e5
        self.version += 1

    def follow(self, stop: threading.Event, told: Callable[[], None], every_s: float) -> None:
        while not stop.wait(self.every_s or 1.0):
            if self.every_s:
                self.turn()
                told()

    def job_views(self) -> list[JobView]:
        waits = [JobView.model_construct(**job) for job in list(self.pending)]
        return sorted(waits, key=lambda job: job.start_s or 0.0) + [
            JobView(
                id=running_job(i), user=USERS[i % 2], account="bio", partition="cpu", qos="normal", nodes=2,
                walltime_s=3600.0, submit_s=self.time_s - 900, wait_s=300.0, state="running",
                start_s=self.time_s - 600, end_s=self.time_s + 3000 + i,
                node_list=compact(self.names[i : i + 2]),
            )
            for i in range(0, len(self.names), 2)
        ]  # fmt: skip

    def jobs(self, asked: LiveJobFilter, sees: Visibility = EVERYTHING) -> JobList:
        if self.listed[0] != self.version:
            version, views = self.version, self.job_views()
            self.listed = (version, views, job_table(views))
        _, views, table = self.listed
        found, page = selected(table, asked)
        shown = tuple(views[i] for i in page["at"])
        return JobList.model_construct(version=self.version, found=found, shown=shown)

    def nodes(self) -> bytes:
        return NODES.dump_json([
            NodeView(
                name=name, place=f"rack {i // 32}", state="up", power="", jobs=(running_job(i - i % 2),),
                load={"cores": 1.0}, until_s=self.time_s + 3000,
            )
            for i, name in enumerate(self.names)
        ])  # fmt: skip

    def head(self, sees: Visibility = EVERYTHING) -> Head:
        told: dict[str, Any] = {
            "version": self.version, "cluster": "invented", "time_s": self.time_s, "alive": True,
            "clock": CLOCK, "age_s": 1.0, "mode": "observe", "is_active": False, "policy": "fcfs+easy",
            "policy_assumed": False, "trouble": (), "nodes": len(self.names), "free_nodes": 0,
            "running": len(self.names) // 2, "waiting": len(self.pending), "decision": 1,
            "decided_s": self.time_s - 5, "awaiting": (), "killed": False, "cycle_s": 0.002,
            "energy": None, "meter": None, "not_read": (), "pool": ("fcfs+easy", "sjf+easy"),
        }  # fmt: skip
        return Head(**told | self.extra)

    def decision(self, number: int) -> DecisionView:
        metrics = {"mean_wait_s": 3600.0, "max_wait_s": 9000.0}
        candidates = tuple(
            CandidateView(policy=name, score=score, metrics=metrics, starts=2, never=0)
            for name, score in (("fcfs+easy", 0.5), ("sjf+easy", 0.75))
        )
        return DecisionView(
            id=number, time_s=self.time_s - 5, took_s=0.002, policy="fcfs+easy", before="fcfs+easy",
            reason="lowest score", waiting=len(self.pending), free_nodes=0, approval=None,
            starts=(STAYS,), candidates=candidates,
        )  # fmt: skip

    def decisions(self, limit: int, before: int | None = None) -> list[DecisionView]:
        return [self.decision(1)]

    def explain_decision(self, number: int, sees: Visibility = EVERYTHING) -> Explanation:
        return Explanation(why=(f"Decision {number}.",))

    def explain_job(self, job: str, sees: Visibility = EVERYTHING) -> JobExplanation:
        return JobExplanation(job=job, state="waiting", why=(f"Job {job} waits.",))

    def not_ready(self) -> None:
        return None

    def accuracy(self) -> list[Any]:
        return []

    def lines(self, bins: int) -> LinesView:
        return LinesView(edges_s=(0.0, 1.0), now_s=None, lines=())

    def timeline(self) -> Timeline:
        return Timeline(
            job=np.array([], "S"), start_s=NONE, end_s=NONE, first=NONE.astype(np.int64),
            count=NONE.astype(np.int64), kind=NONE.astype(np.uint8), lanes=len(self.names),
        )  # fmt: skip

    def timeline_view(self) -> TimelineView:
        return TimelineView(
            version=self.version, of="node", lanes=len(self.names), groups=(),
            from_s=self.time_s - 60, to_s=self.time_s + 60, now_s=self.time_s, placed=True,
            clock=CLOCK, schedule=ScheduleView(policy="fcfs+easy", runtimes="walltimes", never=0),
        )  # fmt: skip

    @contextmanager
    def served(self, kill_switch: Path | None = None) -> Iterator[str]:
        """The address of the page."""
        live = Live(self)
        app = Gate(
            application(self, live=live, kill_switch=kill_switch),  # type: ignore[arg-type]
            Access((LOOKS, ACTS), frozenset({"127.0.0.1"})),
        )
        listens = socket_at("127.0.0.1", 0)
        config = uvicorn.Config(
            app, log_config=None, log_level="warning", access_log=False, timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listens],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listens.getsockname()[1]}/"
        finally:
            live.end()
            server.should_exit = True
            thread.join(30)
            listens.close()
