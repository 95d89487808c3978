"""Both futures of a what-if, as the page asks for them: processor time for each kind of change.

python benchmarks/whatif.py [--nodes 4360] [--waiting 1000] [--rounds 5]

An emulated cluster under too much load is run until so many jobs wait; a twin's core has its snapshot. What
is measured is all that lies between question and answer: the changed cluster, both simulations until their
queues are empty, figures, the bars of both charts, and JSON.
"""

from __future__ import annotations

import argparse
import json
import time

from hpctwin import Cluster, generate
from hpctwin.model import MS_PER_S
from hpctwin.twin.core.core import Core
from hpctwin.twin.emulated import emulated_cluster
from hpctwin.twin.settings.config import CoreSettings
from hpctwin.web.views.views import Change
from hpctwin.web.views.whatif import MOST_WORK, Question


def main() -> None:
    """Print milliseconds for each kind of change as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=4360)
    parser.add_argument("--waiting", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    modes = {"base": {"power_w": 300.0, "idle_w": 100.0}}
    group = {"name": "n", "count": asked.nodes, "modes": modes}
    machine = Cluster.model_validate({"nodes": [group]})
    jobs = generate("poisson", jobs=20 * asked.waiting, nodes=asked.nodes, load=3.0, seed=1)
    cluster = emulated_cluster(machine, jobs)

    waiting, come = 0, asked.waiting
    while waiting < asked.waiting:
        cluster.advance(jobs.submit_ms[come] / MS_PER_S)
        snapshot = cluster.snapshot()
        waiting = sum(job.start_s is None for job in snapshot.jobs)
        come += max(1, asked.waiting - waiting)
    core = Core(CoreSettings())
    core.take_snapshot(snapshot)
    now_s = cluster.now_s
    names = [node.name for node in snapshot.nodes]
    changes = {
        "nothing": {},
        "policy": {"policy": "sjf+easy"},
        "drained nodes": {"drain": names[:100]},
        "reservation": {"reserve": {"for_s": 86_400, "in_s": 3600, "nodes": names[:1000]}},
        "job": {"job": {"nodes": 128, "walltime_s": 7200}},
        "power cap": {"cap_w": 200.0 * asked.nodes},
        "ten nodes more": {"add_nodes": 10},
        "as many nodes as allowed": {"add_nodes": min(10_000, MOST_WORK // len(snapshot.jobs))},
    }
    found = {
        "nodes": asked.nodes,
        "waiting": waiting,
        "running": len(snapshot.jobs) - waiting,
    }
    locked: list[float] = []
    for name, change in changes.items():
        spent = []
        for _ in range(asked.rounds):
            began = time.process_time()
            question = Question.of(core, now_s, "fcfs+easy", Change.model_validate(change))
            locked.append(1000 * (time.process_time() - began))
            question.answer().model_dump_json()
            spent.append(1000 * (time.process_time() - began))
        found[f"{name}, ms"] = round(min(spent), 1)
        found[f"{name}, first ms"] = round(spent[0], 1)
    found["longest time in the lock, ms"] = round(max(locked), 1)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
