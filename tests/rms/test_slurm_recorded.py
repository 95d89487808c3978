"""What each version of Slurm prints, as recorded: the same clusters are read the same."""

from __future__ import annotations

import json
import re
from datetime import datetime

import pytest

from hpctwin.model.hostlist import expand
from hpctwin.rms.slurm.manager import settings
from hpctwin.rms.slurm.parse import Found, cluster_snapshot
from tests.rms.record_slurm import ASKED, SITES
from tests.rms.recorded import NOW_S, slurm
from tests.rms.slurm_roots import VERSIONS

HOLDS = ("RUNNING", "CONFIGURING", "SUSPENDED")


def looked(version: str, site: str) -> Found:
    """What the twin reads of a recorded cluster."""
    said = slurm(version, site)
    # Slurm 22.05's scontrol has no JSON.
    nodes = said.get("scontrol show nodes --json") or said["sinfo --json"]
    config = settings(said["scontrol show config"])
    return cluster_snapshot(
        said["squeue --json"], nodes, said["scontrol show reservation -o"],
        said["scontrol show partition -o"], float(NOW_S), config["SelectType"], config["PreemptType"],
        b"", config.get("SelectTypeParameters", ""),
    )  # fmt: skip


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


def not_modeled(version: str, site: str) -> list[str]:
    """How many jobs are left to Slurm for what they ask for, by the note that counts them."""
    notes = looked(version, site).notes
    return [note.partition(" ")[0] for note in notes if "jobs ask for what is not model" in note]


def test_some_requests_on_shared_nodes_are_not_modeled() -> None:
    assert all(not_modeled(version, "shared") for version in VERSIONS)


@pytest.mark.parametrize("site", ["running", "tiers", "preempting"])
@pytest.mark.parametrize("version", VERSIONS)
def test_running_jobs_and_those_for_whole_nodes_are_all_modeled(version: str, site: str) -> None:
    assert not_modeled(version, site) == []


def test_squeue_lists_the_same_jobs_in_each_of_its_json_forms() -> None:
    forms = {k: v for k, v in slurm("26.05", "shared").items() if k.startswith("squeue --json")}
    assert len(forms) > 3
    jobs = [{row["job_id"] for row in json.loads(said)["jobs"]} for said in forms.values()]
    assert all(one == jobs[0] for one in jobs)
