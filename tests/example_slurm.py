"""The commands of an example Slurm cluster, for pages that import a site.

Its settings and nodes are what Slurm 26.05 printed, with 64 nodes in place of 8. Its accounting is
that of a simulation.
"""

from __future__ import annotations

import datetime
import gzip
import json
import re
import sys
from pathlib import Path

from hpctwin import generate, simulate

RECORDED = Path(__file__).parent / "rms/recorded/slurm-26.05-whole.json.gz"
START = datetime.datetime(2026, 10, 1, tzinfo=datetime.UTC)
HEADER = (
    "JobID|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|AllocCPUS|User|Account|Partition|State"
)
NODES = 64
SETTINGS = {
    "ClusterName": "example", "PriorityType": "priority/basic", "SchedulerParameters": "(null)",
    "Licenses": "(null)",
}  # fmt: skip


def write_commands(folder: Path) -> None:
    """Write the commands that `hpctwin import slurm live` runs."""
    recorded = json.loads(gzip.decompress(RECORDED.read_bytes()))
    config = recorded["scontrol show config"]
    for key, value in SETTINGS.items():
        config = re.sub(rf"(?m)^{key}( *)= .*$", rf"{key}\1= {value}", config)
    (node, *_) = recorded["scontrol show node"].split("\n\n")
    node = re.sub(r"Partitions=\S+", "Partitions=main", node).replace(
        "RealMemory=100", "RealMemory=256000"
    )
    node = (
        node.replace("IDLE+PLANNED", "IDLE")
        .replace("AvailableFeatures=a,ib", "AvailableFeatures=(null)")
        .replace("ActiveFeatures=a,ib", "ActiveFeatures=(null)")
    )
    (partition,) = (
        one for one in recorded["scontrol show partition"].split("\n\n") if "Name=main" in one
    )
    said = {
        "scontrol show config": config,
        "scontrol show node": "\n\n".join(
            re.sub(r"NodeName=n1 ", f"NodeName=n{i} ", node) for i in range(1, NODES + 1)
        ),
        "scontrol show partition": partition.replace("n[1-8]", f"n[1-{NODES}]"),
        "scontrol show topology": "",
        "scontrol show reservation": "No reservations in the system\n",
        "sacctmgr -P show associations": "Cluster|Account|ParentName|User|Share\nexample|root|||1\n"
        "example|physics|root||1\n",
        "sacctmgr -P show qos": "Name|Priority\nnormal|0\n",
        "sacct -a": _accounting(),
    }
    folder.mkdir()
    (folder / "said.json").write_text(json.dumps(said))
    for name in ("scontrol", "sacctmgr", "sacct"):
        script = folder / name
        script.write_text(
            f"#!{sys.executable}\nimport json, sys\n"
            f"said = json.load(open({str(folder / 'said.json')!r}))\n"
            f"asked = ' '.join(['{name}', *sys.argv[1:]])\n"
            "sys.stdout.write(next((t for c, t in said.items() if asked.startswith(c)), ''))\n"
        )
        script.chmod(0o755)


def _accounting() -> str:
    jobs = generate("poisson", jobs=1000, nodes=NODES, load=0.95, seed=1)
    rows = simulate(jobs, NODES, "fcfs+slurm").jobs
    lines = [HEADER]
    for row in rows.iter_rows(named=True):
        times = "|".join(
            f"{START + datetime.timedelta(seconds=row[name]):%Y-%m-%dT%H:%M:%S}"
            for name in ("submit_s", "start_s", "end_s")
        )
        lines.append(
            f"{row['job_id']}|{times}|{row['runtime_s']:.0f}|{row['walltime_s'] / 60:.0f}|{row['nodes']}"
            f"|{row['nodes']}|user{row['user']}|physics|main|COMPLETED"
        )
    return "\n".join(lines) + "\n"
