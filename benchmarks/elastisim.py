"""ElastiSim's example project in hpctwin, and with an actor for each rank in SimGrid.

python benchmarks/elastisim.py FOLDER [--jobs 500] [--peer /usr/bin/python3]

FOLDER is data/input of https://github.com/elastisim/example-project. The peer needs Debian's
python3-simgrid; it gets nodes and start times from hpctwin. Prints how far ends are apart.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path


def plan(folder: Path, count: int) -> list:
    """Return start, end, nodes and arguments of the first jobs, as hpctwin runs them."""
    from hpctwin import Simulation, Workload, read_cluster, read_workload

    cluster, jobs = read_cluster(folder / "crossbar.xml"), read_workload(folder / "jobs.json")
    submitted = sorted(
        json.loads((folder / "jobs.json").read_text())["jobs"], key=lambda job: job["submit_time"]
    )
    first: Workload = jobs.take(range(count))
    result = Simulation(first, cluster, "fcfs+none", sharing="simgrid").run()
    nodes = {}
    for job, _, _, node, size in result.node_map.rows():
        nodes.setdefault(job, []).extend(range(node, node + size))
    return [
        {"job": job, "start": start, "end": end, "nodes": sorted(nodes[job])}
        | submitted[job]["arguments"]
        for job, start, end in result.jobs.select("job_id", "start_s", "end_s").rows()
    ]


def peer(platform: str) -> None:
    """Run a plan from standard input; print the end of each job."""
    sys.path.pop(0)  # this folder, which has a simgrid.py too
    from simgrid import Actor, Barrier, Engine, this_actor

    engine = Engine(["peer", "--log=root.thres:critical"])
    Engine.set_config("host/model:ptask_L07")
    engine.load_platform(platform)
    by_name = {host.name: host for host in engine.all_hosts}
    storage, jobs = by_name["PFS"], json.load(sys.stdin)

    def rank(job, number, hosts, barrier):
        ranks = len(hosts)
        others = ranks * (ranks - 1)
        between = job["communication_size"] / others if others else 0.0
        every = [between if i != k else 0.0 for i in range(ranks) for k in range(ranks)]
        scatter = [job["model_size"] / ranks if 0 < i < ranks else 0.0 for i in range(ranks**2)]

        def together(flops, amounts):
            barrier.wait()
            if number == 0:
                this_actor.parallel_execute(hosts, [flops] * ranks, amounts)
            barrier.wait()

        def access(read, write):
            this_actor.parallel_execute([hosts[number], storage], [0, 0], [0, write, read, 0])

        if number == 0:
            access(job["model_size"], 0.0)
        together(0.0, scatter)
        for _ in range(int(job["iterations"])):
            together(job["flops"] / ranks ** job["alpha"], every)
            access(0.0, job["checkpoint_size"] / ranks)
        barrier.wait()
        if number == 0:
            print(f"{job['job']},{engine.clock!r}")

    def submit():
        for job in sorted(jobs, key=lambda job: job["start"]):
            this_actor.sleep_until(job["start"])
            hosts = [by_name[f"DA_{100 + node}"] for node in job["nodes"]]
            barrier = Barrier(len(hosts))
            for number, host in enumerate(hosts):
                Actor.create(f"{job['job']}-{number}", host, rank, job, number, hosts, barrier)

    Actor.create("submit", by_name["Batch_system"], submit)
    engine.run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--peer", default="/usr/bin/python3")
    options = parser.parse_args()
    if options.peer == "here":
        peer(str(options.folder / "crossbar.xml"))
        return
    jobs = plan(options.folder, options.jobs)
    command = [options.peer, __file__, str(options.folder), "--peer", "here"]
    done = subprocess.run(
        command, input=json.dumps(jobs), capture_output=True, text=True, check=True
    )
    ends = {int(job): float(end) for job, end in (row.split(",") for row in done.stdout.split())}
    apart = [(abs(ends[job["job"]] - job["end"]), job["job"]) for job in jobs]
    total = sum(job["end"] - job["start"] for job in jobs)
    print(f"{len(jobs)} jobs; ends are at most {max(apart)[0]:.3g} s apart (job {max(apart)[1]})")
    print(
        f"sum of run times: {total:.0f} s, {sum(ends.values()) - sum(j['end'] for j in jobs):+.3f} s"
    )


if __name__ == "__main__":
    main()
