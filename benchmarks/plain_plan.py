"""Conservative backfilling against a plain C++ program of the same rule: `python benchmarks/plain_plan.py`.

The program keeps its plan too, as a table of times and free nodes, and after each early end looks through it
for each job in order. Its starts are the engine's, which is checked; least CPU time of two runs. Needs g++.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from cliffs import NODES, crowd
from hpctwin import Cluster, Simulation, parse_policy

SOURCE = r"""
#include <algorithm>
#include <map>
#include <vector>
typedef long long L;
static const L NEVER = 1LL << 62;
struct Plan {
  std::vector<L> time, free;
  size_t split(L at) {
    size_t i = std::lower_bound(time.begin(), time.end(), at) - time.begin();
    if (i < time.size() && time[i] == at) return i;
    time.insert(time.begin() + i, at);
    free.insert(free.begin() + i, free[i - 1]);
    return i;
  }
  void add(L from, L to, L nodes) {
    if (to <= from) return;
    size_t first = split(from), last = split(to);
    for (size_t i = first; i < last; i++) free[i] += nodes;
  }
  void begin(L now) {
    size_t kept = std::upper_bound(time.begin(), time.end(), now) - time.begin() - 1, last = 0;
    time[0] = now, free[0] = free[kept];
    for (size_t i = kept + 1; i < time.size(); i++)
      if (free[i] != free[last]) last++, time[last] = time[i], free[last] = free[i];
    time.resize(last + 1), free.resize(last + 1);
  }
  L earliest(L nodes, L length, L until) {
    size_t i = 0;
    L start = time[0];
    while (start < until) {
      bool fits = free[i] >= nodes;
      i++;
      if (!fits) {
        if (i == time.size()) return until;
        start = time[i];
      } else if (i == time.size() || time[i] >= std::min(start + length, until)) return start;
    }
    return until;
  }
};
extern "C" L simulate(L jobs, const L *submit, const L *nodes, const L *limit, const L *runtime, L machine,
                      L *start) {
  std::vector<L> planned(jobs, -1);
  std::vector<int> queue;
  std::multimap<L, int> ends;
  Plan plan{{0}, {machine}};
  L arrived = 0, timer = NEVER, moves = 0;
  while (true) {
    L now = timer;
    if (arrived < jobs) now = std::min(now, submit[arrived]);
    if (!ends.empty()) now = std::min(now, ends.begin()->first);
    if (now >= NEVER) return moves;
    bool early = false;
    for (; !ends.empty() && ends.begin()->first == now; ends.erase(ends.begin())) {
      int j = ends.begin()->second;
      early |= start[j] + limit[j] != now;
      plan.add(now, start[j] + limit[j], nodes[j]);
    }
    while (arrived < jobs && submit[arrived] == now) queue.push_back(arrived++);
    plan.begin(now);
    timer = NEVER;
    size_t kept = 0;
    for (int j : queue) {
      L before = planned[j], at = before;
      if (before < 0) {
        at = plan.earliest(nodes[j], limit[j], NEVER);
        plan.add(at, at + limit[j], -nodes[j]);
      } else if (early && (at = plan.earliest(nodes[j], limit[j], before)) < before) {
        moves++;
        plan.add(at, std::min(at + limit[j], before), -nodes[j]);
        plan.add(std::max(at + limit[j], before), before + limit[j], nodes[j]);
      }
      planned[j] = at;
      if (at == now) {
        start[j] = now;
        ends.insert({now + std::min(runtime[j], limit[j]), j});
      } else {
        timer = std::min(timer, at);
        queue[kept++] = j;
      }
    }
    queue.resize(kept);
  }
}
"""


def compiled(folder: str) -> Any:
    """The C++ program."""
    source, library = Path(folder) / "plan.cpp", Path(folder) / "plan.so"
    source.write_text(SOURCE)
    command = ["g++", "-O3", "-march=native", "-shared", "-fPIC", source, "-o", library]
    subprocess.run(command, check=True)
    function = ctypes.CDLL(str(library)).simulate
    function.restype = ctypes.c_longlong
    return function


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_000, 2_000])
    sizes = parser.parse_args().sizes
    policy = parse_policy("fcfs+conservative")
    policy.compile()
    print("| waiting | moves | engine, s | plain C++, s |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        plain = compiled(folder)
        for size in sizes:
            workload = crowd(size)
            columns = ("submit_ms", "nodes", "walltime_ms", "runtime_ms")
            given = [np.ascontiguousarray(getattr(workload, name), np.int64) for name in columns]
            start = np.full(size, -1, np.int64)
            pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*given, start)]
            least = [np.inf, np.inf]
            moves = 0
            for _ in range(2):
                simulation = Simulation(workload, Cluster.uniform(nodes=NODES), policy=policy)
                simulation.advance(0)
                begin = time.process_time()
                simulation.advance()
                middle = time.process_time()
                moves = plain(
                    ctypes.c_longlong(size),
                    *pointers[:4],
                    ctypes.c_longlong(NODES),
                    pointers[4],
                )
                took = middle - begin, time.process_time() - middle
                least = [min(pair) for pair in zip(least, took, strict=True)]
            assert (simulation.state["state"]["start"] == start).all(), "other starts"
            print(f"| {size:,} | {moves:,} | {least[0]:.2f} | {least[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
