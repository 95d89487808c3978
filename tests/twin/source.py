"""A small cluster that does random but possible things, for streams of events with known truth."""

from __future__ import annotations

from hypothesis import strategies as st

from hpctwin.model import Cluster
from hpctwin.rms.records import events as ev
from hpctwin.rms.records.records import JobDependency, JobRecord, JobSpec, NodeRecord, Snapshot

NODES = 6


class Source:
    """Draws what happens next, and knows what is true then."""

    def __init__(self, draw: st.DrawFn, run: str = "r1", time_s: float = 1_700_000_000.0) -> None:
        self.draw = draw
        self.run = run
        self.time_s = time_s
        self.seq = 0
        self.next_id = 1
        self.jobs: dict[str, JobRecord] = {}
        self.nodes = {f"n{i}": NodeRecord(name=f"n{i}") for i in range(NODES)}
        self.events: list[ev.Event] = []

    def snapshot(self) -> Snapshot:
        return Snapshot(
            cluster="c",
            time_s=self.time_s,
            run=self.run,
            seq=self.seq,
            machine=Cluster.uniform(NODES),
            nodes=tuple(self.nodes.values()),
            jobs=tuple(self.jobs.values()),
        )

    def step(self) -> None:
        """One thing happens."""
        self.time_s += self.draw(st.sampled_from((0.0, 1.0, 7.5)))
        waiting = [i for i, job in self.jobs.items() if job.start_s is None]
        running = [i for i, job in self.jobs.items() if job.start_s is not None]
        can = ["submit", "node"]
        can += ["hold", "release", "modify", "delete", "start"] if waiting else []
        can += ["end", "requeue"] if running else []
        what = self.draw(st.sampled_from(can))
        if what == "submit":
            self._submit()
        elif what == "node":
            self._node()
        elif what in ("end", "requeue"):
            self._leave(self.draw(st.sampled_from(running)), what)
        else:
            self._change(self.draw(st.sampled_from(waiting)), what)

    def emit(self, kind: type, **fields: object) -> None:
        self.seq += 1
        event = kind(cluster="c", run=self.run, seq=self.seq, time_s=self.time_s, **fields)
        self.events.append(event)

    def _submit(self) -> None:
        others = list(self.jobs)
        on = self.draw(st.sampled_from([None, *others]))
        depends = (
            ()
            if on is None
            else (
                JobDependency(
                    on=on,
                    kind=self.draw(st.sampled_from(("after", "afterany", "afterok"))),
                    delay_s=self.draw(st.sampled_from((0.0, 30.0))),
                ),
            )
        )
        if depends and depends[0].kind == "after" and self.jobs[on].start_s is not None:
            depends = ()
        spec = JobSpec(
            id=str(self.next_id),
            submit_s=self.time_s,
            nodes=self.draw(st.integers(1, 3)),
            walltime_s=60,
            dependencies=depends,
        )
        self.next_id += 1
        self.jobs[spec.id] = JobRecord(spec=spec)
        self.emit(ev.JobSubmitted, job=spec)

    def _node(self) -> None:
        name = self.draw(st.sampled_from(sorted(self.nodes)))
        state = self.draw(st.sampled_from(("up", "down", "drained")))
        self.nodes[name] = NodeRecord(name=name, state=state)
        kind = {"up": ev.NodeUp, "down": ev.NodeDown, "drained": ev.NodeDrained}[state]
        self.emit(kind, node_name=name)

    def _change(self, job_id: str, what: str) -> None:
        job = self.jobs[job_id]
        if what in ("hold", "release"):
            self._spec(job_id, held=what == "hold")
            self.emit(ev.JobHeld if what == "hold" else ev.JobReleased, job_id=job_id)
        elif what == "modify":
            reason = self.draw(st.sampled_from(("", "limit: MaxJobs")))
            self._spec(job_id, walltime_s=self.draw(st.integers(1, 100)), reason=reason)
            self.emit(ev.JobModified, job=self.jobs[job_id].spec)
        elif what == "delete":
            del self.jobs[job_id]
            self.emit(ev.JobDeleted, job_id=job_id)
            self._fulfil(job_id, ("after", "afterany"))
        else:
            held = {name for other in self.jobs.values() for name in other.node_names}
            free = [n for n, node in self.nodes.items() if n not in held and node.state == "up"]
            if len(free) < job.spec.nodes:
                return
            names = tuple(free[: job.spec.nodes])
            self._spec(job_id, dependencies=(), held=False)
            job = self.jobs[job_id]
            changes = {"start_s": self.time_s, "node_names": names}
            self.jobs[job_id] = job.model_copy(update=changes)
            self.emit(ev.JobStarted, job_id=job_id, node_names=names)
            self._fulfil(job_id, ("after",))

    def _leave(self, job_id: str, what: str) -> None:
        job = self.jobs[job_id]
        if what == "requeue":
            changes = {"start_s": None, "node_names": (), "requeues": job.requeues + 1}
            self.jobs[job_id] = job.model_copy(update=changes)
            self.emit(ev.JobRequeued, job_id=job_id)
            return
        del self.jobs[job_id]
        code = self.draw(st.sampled_from((0, 1)))
        self.emit(ev.JobEnded, job_id=job_id, exit_code=code)
        self._fulfil(job_id, ("after", "afterany") + (("afterok",) if code == 0 else ()))

    def _spec(self, job_id: str, **changes: object) -> None:
        job = self.jobs[job_id]
        spec = job.spec.model_copy(update=changes)
        self.jobs[job_id] = job.model_copy(update={"spec": spec})

    def _fulfil(self, job_id: str, kinds: tuple[str, ...]) -> None:
        for other_id, other in list(self.jobs.items()):
            for edge in other.spec.dependencies:
                if edge.on == job_id and edge.kind in kinds:
                    self._spec(other_id, dependencies=())
                    if edge.delay_s:
                        self._spec(other_id, not_before_s=self.time_s + edge.delay_s)
