"""How near the engine comes to a loop that can do FCFS + EASY and nothing else: `python benchmarks/bare.py`.

The loop knows no ids, states, resources, dependencies or policies: jobs in rows by submit time, whole nodes
that are counted, a heap of ends, the running jobs by planned end. It is the limit for the year of Theta
(HPCTWIN_TRACES), in Numba and, where g++ is there, in C++. Its starts are the engine's; least CPU time of
several runs, by turns.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from hpctwin import Cluster, Simulation, parse_policy, read_workload

NODES, RUNS = 4360, 7
Ints = npt.NDArray[np.int64]


@njit(cache=False)
def bare(
    submit: Ints, nodes: Ints, limit: Ints, runtime: Ints, free: int, start: Ints, room: Ints
) -> int:
    """Run all jobs; ``start`` is written, ``room`` [4, jobs] is scratch. How many instants there were."""
    jobs = len(submit)
    queue, ends, who, running = room[0], room[1], room[2], room[3]
    queued = busy = arrived = instants = 0
    while arrived < jobs or busy > 0:
        now = submit[arrived] if arrived < jobs else ends[0]
        if busy > 0:
            now = min(now, ends[0])
        instants += 1
        while busy > 0 and ends[0] == now:
            j = who[0]
            busy -= 1
            end, last = ends[busy], who[busy]
            i = 0
            while 2 * i + 1 < busy:
                child = 2 * i + 1
                if child + 1 < busy and ends[child + 1] < ends[child]:
                    child += 1
                if end <= ends[child]:
                    break
                ends[i], who[i] = ends[child], who[child]
                i = child
            ends[i], who[i] = end, last
            free += nodes[j]
            i = 0
            while running[i] != j:
                i += 1
            for k in range(i, busy):
                running[k] = running[k + 1]
        while arrived < jobs and submit[arrived] == now:
            queue[queued] = arrived
            queued += 1
            arrived += 1
        kept = 0
        head = False
        shadow = spare = np.int64(2**62)
        for q in range(queued):
            j = queue[q]
            wide = nodes[j]
            if wide <= free and (wide <= spare or now + limit[j] <= shadow):
                if now + limit[j] > shadow:
                    spare -= wide
                free -= wide
                start[j] = now
                end = now + min(runtime[j], limit[j])
                i = busy
                while i > 0 and ends[(i - 1) // 2] > end:
                    ends[i], who[i] = ends[(i - 1) // 2], who[(i - 1) // 2]
                    i = (i - 1) // 2
                ends[i], who[i] = end, j
                i = busy
                while i > 0 and start[running[i - 1]] + limit[running[i - 1]] > now + limit[j]:
                    running[i] = running[i - 1]
                    i -= 1
                running[i] = j
                busy += 1
                continue
            if not head:
                head = True
                spare = free - wide
                i = 0
                while spare < 0:
                    shadow = start[running[i]] + limit[running[i]]
                    while i < busy and start[running[i]] + limit[running[i]] == shadow:
                        spare += nodes[running[i]]
                        i += 1
            queue[kept] = j
            kept += 1
        queued = kept
    return instants


SOURCE = r"""
#include <algorithm>
typedef long long L;
extern "C" L bare(L jobs, const L *submit, const L *nodes, const L *limit, const L *runtime, L free,
                  L *start, L *room) {
  L *queue = room, *ends = room + jobs, *who = room + 2 * jobs, *running = room + 3 * jobs;
  L queued = 0, busy = 0, arrived = 0, instants = 0;
  while (arrived < jobs || busy > 0) {
    L now = arrived < jobs ? submit[arrived] : ends[0];
    if (busy > 0) now = std::min(now, ends[0]);
    instants++;
    while (busy > 0 && ends[0] == now) {
      L j = who[0], end = ends[--busy], last = who[busy], i = 0;
      while (2 * i + 1 < busy) {
        L child = 2 * i + 1;
        if (child + 1 < busy && ends[child + 1] < ends[child]) child++;
        if (end <= ends[child]) break;
        ends[i] = ends[child], who[i] = who[child], i = child;
      }
      ends[i] = end, who[i] = last;
      free += nodes[j];
      for (i = 0; running[i] != j;) i++;
      for (; i < busy; i++) running[i] = running[i + 1];
    }
    while (arrived < jobs && submit[arrived] == now) queue[queued++] = arrived++;
    L kept = 0, shadow = 1LL << 62, spare = 1LL << 62;
    bool head = false;
    for (L q = 0; q < queued; q++) {
      L j = queue[q], wide = nodes[j], planned = now + limit[j];
      if (wide <= free && (wide <= spare || planned <= shadow)) {
        if (planned > shadow) spare -= wide;
        free -= wide;
        start[j] = now;
        L end = now + std::min(runtime[j], limit[j]), i = busy;
        for (; i > 0 && ends[(i - 1) / 2] > end; i = (i - 1) / 2)
          ends[i] = ends[(i - 1) / 2], who[i] = who[(i - 1) / 2];
        ends[i] = end, who[i] = j;
        for (i = busy; i > 0 && start[running[i - 1]] + limit[running[i - 1]] > planned; i--)
          running[i] = running[i - 1];
        running[i] = j;
        busy++;
        continue;
      }
      if (!head) {
        head = true;
        spare = free - wide;
        for (L i = 0; spare < 0;) {
          shadow = start[running[i]] + limit[running[i]];
          for (; i < busy && start[running[i]] + limit[running[i]] == shadow; i++)
            spare += nodes[running[i]];
        }
      }
      queue[kept++] = j;
    }
    queued = kept;
  }
  return instants;
}
"""


def in_cpp(folder: str) -> Any:
    """The same loop in C++; None without a compiler."""
    if shutil.which("g++") is None:
        return None
    source, library = Path(folder) / "bare.cpp", Path(folder) / "bare.so"
    source.write_text(SOURCE)
    command = ["g++", "-O3", "-march=native", "-shared", "-fPIC", source, "-o", library]
    subprocess.run(command, check=True)
    function = ctypes.CDLL(str(library)).bare
    function.restype = ctypes.c_longlong

    def run(
        submit: Ints, nodes: Ints, limit: Ints, runtime: Ints, free: int, start: Ints, room: Ints
    ) -> int:
        tables = [a.ctypes.data_as(ctypes.c_void_p) for a in (submit, nodes, limit, runtime)]
        written = [a.ctypes.data_as(ctypes.c_void_p) for a in (start, room)]
        return int(
            function(ctypes.c_longlong(len(submit)), *tables, ctypes.c_longlong(free), *written)
        )

    return run


def main() -> None:
    trace = Path(os.environ["HPCTWIN_TRACES"]) / "swf" / "theta_2022.swf.gz"
    workload = read_workload(trace)
    given = [
        np.ascontiguousarray(column, np.int64)
        for column in (
            workload.submit_ms,
            workload.nodes,
            workload.walltime_ms,
            workload.runtime_ms,
        )
    ]
    start = np.full(len(workload), -1, np.int64)
    room = np.zeros((4, len(workload) + 1), np.int64)

    def engine(policy: str) -> Callable[[], float]:
        chosen = parse_policy(policy)
        chosen.compile()

        def once() -> float:
            simulation = Simulation(workload, Cluster.uniform(nodes=NODES), policy=chosen)
            simulation.advance(0)
            begin = time.process_time()
            simulation.advance()
            took = time.process_time() - begin
            if policy == "fcfs+easy":
                assert (simulation.state["state"]["start"] == start).all(), "other starts"
            return took

        return once

    def loop(function: Callable[..., int]) -> Callable[[], float]:
        def once() -> float:
            begin = time.process_time()
            function(*given, NODES, start, room)
            return time.process_time() - begin

        once()
        return once

    with tempfile.TemporaryDirectory() as folder:
        cpp = in_cpp(folder)
        cases = {"bare loop, Numba": loop(bare)}
        if cpp is not None:
            cases["bare loop, C++"] = loop(cpp)
        cases |= {f"engine, {policy}": engine(policy) for policy in ("fcfs+easy", "wfp+easy")}
        least = dict.fromkeys(cases, np.inf)
        for _ in range(RUNS):
            for name, once in cases.items():
                least[name] = min(least[name], once())
    limit = min(seconds for name, seconds in least.items() if name.startswith("bare"))
    for name, seconds in least.items():
        print(f"{name:22} {1e3 * seconds:6.1f} ms  {seconds / limit:4.1f} x")


if __name__ == "__main__":
    main()
