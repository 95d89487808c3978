"""SimGrid's side of `simgrid_speed.py`.

/usr/bin/python3 benchmarks/simgrid_peer.py CASES.json --platforms FOLDER [--time]

It needs Debian's python3-simgrid, runs one case a process, and prints case, job, start and finish as CSV.
With `--time` it prints the processor time of SimGrid's run instead, in seconds: reading the platform and
making the actors is not counted.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path


def run(case, platforms, timed):
    sys.path.pop(0)  # this folder, which has a simgrid.py too
    from simgrid import Actor, Engine, Host, this_actor

    engine = Engine(["peer", "--log=root.thres:critical"])
    Engine.set_config("host/model:ptask_L07")
    engine.load_platform(str(Path(platforms) / f"{case['platform']}.xml"))
    rows = []

    def job(one):
        hosts = [Host.by_name(name) for name in one["hosts"]]
        ranks = len(hosts)
        if one["kind"] == "H":
            cpu = [one["cpu"]] * ranks
            com = [one["com"] if i != k else 0.0 for i in range(ranks) for k in range(ranks)]
        else:
            cpu, com = [0.0] * ranks, [0.0] * ranks * ranks
            for rank, flops in one["cpu"]:
                cpu[rank] += flops
            for source, target, amount in one["com"]:
                com[source * ranks + target] += amount
        this_actor.sleep_until(one["start"])
        begin = engine.clock
        this_actor.parallel_execute(hosts, cpu, com)
        rows.append((case["case"], one["id"], begin, engine.clock))

    anywhere = engine.all_hosts[0]
    for one in case["jobs"]:
        Actor.create(one["id"], anywhere, job, one)
    begin = time.process_time()
    engine.run()
    if timed:
        print(time.process_time() - begin)
        return
    for name, number, start, finish in rows:
        print(f"{name},{number},{start!r},{finish!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases")
    parser.add_argument("--platforms", required=True)
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--one", type=int, help="run this case alone, in this process")
    given = parser.parse_args()
    cases = json.loads(Path(given.cases).read_text())
    if given.one is not None:
        run(cases[given.one], given.platforms, given.time)
        return
    if not given.time:
        print("case,job,start,finish", flush=True)
    for number in range(len(cases)):
        subprocess.run([sys.executable, *sys.argv, "--one", str(number)], check=False)


if __name__ == "__main__":
    main()
