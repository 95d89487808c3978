"""What each version of Slurm prints, as recorded: the same clusters are read the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime

import pytest

from hpctwin.errors import CommandError
from hpctwin.model.hostlist import expand
from hpctwin.rms.slurm.jobs import MARK
from hpctwin.rms.slurm.listing import FIELDS
from hpctwin.rms.slurm.manager import SlurmManager
from hpctwin.rms.slurm.parse import Found, settings
from tests.rms.record_slurm import ASKED, SITES
from tests.rms.recorded import NOW_S, slurm
from tests.rms.slurm_roots import VERSIONS

HOLDS = ("RUNNING", "CONFIGURING", "SUSPENDED")
WAITS = ("PENDING",)


def answers(version: str, site: str, **changed: object) -> Callable[[str, Sequence[str]], bytes]:
    """What a recorded Slurm answers to commands; all its jobs are the twin's.

    Args:
        version: Of Slurm.
        site: What was recorded.
        changed: Fields of all jobs that are otherwise than recorded.
    """
    said = slurm(version, site)
    jobs = json.loads(said["squeue --json"])
    for row in jobs["jobs"]:
        row |= {"admin_comment": MARK, **changed}
    listed = {"squeue --json": json.dumps(jobs).encode()}
    for command in said:
        if command.startswith("squeue -a -t all -O "):
            names = [name.rstrip(":|").lower() for name in command.split()[-1].split(",")]
            lines = [line.split("|") for line in said[command].decode().splitlines()[1:]]
            cells = [dict(zip(names, line, strict=False)) for line in lines]
            cells = [
                {**one, "admin_comment": MARK} for one in cells if one["state"] in HOLDS + WAITS
            ]
            asked = [name.lower() for name in FIELDS]
            listed["squeue -O"] = "".join(
                "".join(one.get(name, "") + "\x1f" for name in asked) + "\n" for one in cells
            ).encode()

    def run(name: str, arguments: Sequence[str]) -> bytes:
        command = " ".join((name, *arguments))
        if name == "squeue":
            return listed["squeue --json" if "--json" in arguments else "squeue -O"]
        if command not in said:
            raise CommandError(f"{command}: not recorded")
        return said[command]

    return run


def looked(version: str, site: str, **changed: object) -> Found:
    """What the twin reads of a recorded cluster."""
    manager = SlurmManager("emul")
    manager.commands.run = answers(version, site, **changed)  # type: ignore[method-assign]
    manager._listing.run = manager.commands.run
    manager.snapshot()
    assert manager.found is not None
    return manager.found


def rows(said: bytes) -> list[dict[str, str]]:
    """What scontrol prints with ``-o``."""
    lines = said.decode().splitlines()
    return [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_recorded_whole_and_tells_nothing_of_the_machine(
    version: str, site: str
) -> None:
    said = slurm(version, site)
    text = [name for name in ASKED if "--json" not in name and name != "scontrol show topology"]
    assert said.keys() >= {*text, "squeue --json", "sinfo --json"}
    assert version == "22.05" or said.keys() >= {name for name in ASKED if "topology" not in name}
    config = settings(said["scontrol show config"])
    assert config["SLURM_VERSION"].startswith(version)
    whole = b"\n".join(said.values()).decode()
    assert not re.search(r"/(?:var/cache|tmp/|root\b|home|work)", whole)
    recorded = [
        datetime.fromisoformat(one) for one in re.findall(r"\b20\d\d-\d\d-\d\dT[\d:]{8}", whole)
    ]
    moment = datetime.fromtimestamp(NOW_S)
    # Unlimited jobs end a year later.
    assert recorded
    assert all(-2 < (one - moment).days < 400 for one in recorded)


@pytest.mark.parametrize("site", [site for site in SITES if site != "accounts"])
@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_jobs_that_run_have_the_nodes_that_scontrol_prints(
    version: str, site: str
) -> None:
    jobs = rows(slurm(version, site)["scontrol show job -d -o"])
    shown = [row["NodeList"] for row in jobs if row["JobState"] in HOLDS]
    found = looked(version, site).snapshot
    held = [job.node_names for job in found.jobs if job.start_s is not None]
    assert held
    assert sorted(held) == sorted(tuple(expand(nodes)) for nodes in shown)
    nodes = rows(slurm(version, site)["scontrol show node -o"])
    assert [node.name for node in found.nodes] == [row["NodeName"] for row in nodes]


@pytest.mark.parametrize("site", ["whole", "shared", "running", "tiers", "power"])
@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_jobs_hold_as_many_cpus_of_each_node_as_slurm_counts(
    version: str, site: str
) -> None:
    assert looked(version, site).unequal == {}


@pytest.mark.parametrize("site", ["running", "tiers", "preempting"])
def test_each_version_leaves_the_same_jobs_to_slurm(site: str) -> None:
    """By the note that counts jobs which are not modeled; their names say what they ask for."""
    left = {}
    for version in VERSIONS:
        notes = [note for note in looked(version, site).notes if "ask for what is not mod" in note]
        left[version] = [note.partition(" ")[0] for note in notes]
    assert left == dict.fromkeys(VERSIONS, left["22.05"])


def test_squeue_lists_the_same_jobs_in_each_of_its_json_forms() -> None:
    forms = {k: v for k, v in slurm("26.05", "shared").items() if k.startswith("squeue --json")}
    assert len(forms) > 3
    jobs = [{row["job_id"] for row in json.loads(said)["jobs"]} for said in forms.values()]
    assert all(one == jobs[0] for one in jobs)
