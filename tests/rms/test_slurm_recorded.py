"""What each version of Slurm prints, as recorded: the same clusters are read the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from hpctwin.errors import CommandError
from hpctwin.model.text import expand
from hpctwin.rms.slurm.listing import listing
from hpctwin.rms.slurm.listing.jobs import MARK
from hpctwin.rms.slurm.listing.listing import FIELDS, READ
from hpctwin.rms.slurm.listing.parse import Found, cluster_snapshot, settings
from hpctwin.rms.slurm.listing.values import fields_of
from hpctwin.rms.slurm.manager import SlurmManager
from tests.rms.record_slurm import ASKED, NOT_MODELED, SITES
from tests.rms.recorded import NOW_S, slurm
from tests.rms.slurm_roots import VERSIONS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "slurm-versions.md").read_text()
FORMS = {
    "{set: false}": '{"set": false, "infinite": false, "number": 0}',
    "{infinite: true}": '{"set": false, "infinite": true, "number": 0}',
}
"""How the page writes objects."""
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
def test_every_version_is_recorded_completely_and_reveals_nothing_about_the_machine(
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


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_jobs_hold_as_much_of_each_node_as_slurm_counts(version: str, site: str) -> None:
    assert looked(version, site).unequal == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_leaves_the_requests_to_slurm_that_are_not_modeled_and_no_others(
    version: str,
) -> None:
    """Each job's name is what it asks for. All are pending, whatever they were when they were recorded."""
    names = {
        f"{row['job_id']}": row["name"]
        for row in json.loads(slurm(version, "shared")["squeue --json"])["jobs"]
    }
    found = looked(version, "shared", job_state="PENDING", nodes="", state_reason="Priority")
    assert {names[job] for job in found.left} == set(NOT_MODELED)
    assert len(found.left) + len(found.mine) == len(found.snapshot.jobs) > 40
    page = re.findall(r"^\| `(.*?)` \|", PAGE.partition("## Requests")[2].partition("## ")[0], re.M)
    assert {asked for asked in NOT_MODELED for option in page if option in asked} == set(
        NOT_MODELED
    )
    assert len(page) == len(NOT_MODELED)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_page_on_versions_shows_how_each_writes_what_is_not_set(version: str) -> None:
    place = VERSIONS.index(version)
    rows = [
        row for site in SITES for row in json.loads(slurm(version, site)["squeue --json"])["jobs"]
    ]
    jobs = PAGE.partition("## Fields of jobs")[2].partition("## Fields of nodes")[0]
    empty, always, _, ignored = re.split(r"These are set|The table|These fields are ignored", jobs)
    written = {key: {'""'} for key in re.findall(r"`(\w+)`", empty)}
    written |= {key: set() for key in re.findall(r"`(\w+)`", always)}
    for line in re.findall(r"^\| (`.*) \|$", jobs, re.M):
        keys, *cells = line.split(" | ")
        form = FORMS.get(cells[place].strip("`"), cells[place].strip("`"))
        written |= {key: {form} - {"–"} for key in re.findall(r"`(\w+)`", keys)}
    assert written.keys() | {"exclusive"} == READ
    assert set(re.findall(r"`(\w+)`", ignored)) >= set().union(*rows) - READ
    assert not set(re.findall(r"`(\w+)`", ignored)) & READ
    for key, forms in written.items():
        unset = [row for row in rows if key in row and fields_of(row)[key] in (None, "", [])]
        assert {json.dumps(row[key]) for row in unset} == forms, key


@pytest.mark.parametrize("version", VERSIONS)
def test_the_page_on_versions_names_the_commands_that_are_run(version: str) -> None:
    ran = []
    answer = answers(version, "shared")

    def run(name: str, arguments: Sequence[str]) -> bytes:
        said = answer(name, arguments)
        ran.append(" ".join((name, *arguments)))
        return said

    manager = SlurmManager("emul")
    manager.commands.run = manager._listing.run = run  # type: ignore[method-assign]
    manager.snapshot()
    table = PAGE.partition("## Commands")[2].partition("## ")[0]
    cells = [
        line.split(" | ")[1 + VERSIONS.index(version)].strip("`")
        for line in re.findall(r"^\| (.*) \|$", table, re.M)[1:]
    ]
    words = [set(cell.split()) for cell in cells if cell != "–"]
    of_nodes_and_jobs = [one for one in ran if "-o" not in one.split() and "config" not in one]
    assert len(of_nodes_and_jobs) == len(words)
    assert all(any(some <= set(one.split()) for one in ran) for some in words)


def test_the_page_on_versions_shows_where_settings_differ() -> None:
    table = PAGE.partition("## Settings that differ")[2].partition("## ")[0]
    lines = [line.split(" | ") for line in re.findall(r"^\| (.*) \|$", table, re.M)[2:]]
    assert len(lines) > 4
    for _, *cells in lines:
        for version, cell in zip(VERSIONS, cells, strict=True):
            said = slurm(version, "shared")
            text = re.sub(r"\s", "", b"".join(said.values()).decode())
            if cell.startswith("`squeue -O "):
                assert cell.strip("`").removeprefix("squeue -O ") + ":" in " ".join(said)
            else:
                assert cell == "–" or cell.strip("`").replace(" ", "") in text, (version, cell)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_page_on_versions_names_the_fields_of_nodes_that_each_has(version: str) -> None:
    said = slurm(version, "shared")
    nodes = json.loads(said.get("scontrol show nodes --json") or said["sinfo --json"])["nodes"]
    table = PAGE.partition("## Fields of nodes")[2]
    lines = [line.split(" | ") for line in re.findall(r"^\| (`.*) \|$", table, re.M)]
    has = {
        key: cells[VERSIONS.index(version)] == "yes"
        for keys, *cells in lines
        for key in re.findall(r"`(\w+)`", keys)
    }
    assert len(has) > 15
    assert {key: key in nodes[0] for key in has} == has


@pytest.mark.parametrize("version", VERSIONS)
def test_tiers_without_preemption_leave_no_job_to_slurm(version: str) -> None:
    left = looked(version, "tiers", job_state="PENDING", nodes="").left
    assert "preempts" not in {one.left for one in left.values()}
    left = looked(version, "preempting", job_state="PENDING", nodes="").left
    assert [one.left for one in left.values()] == ["preempts"] * 4


def test_from_json_alone_what_jobs_hold_adds_up_too() -> None:
    """A job that started after the text was asked for is known from JSON alone."""
    said = slurm("26.05", "running")
    found = cluster_snapshot(
        said["squeue --json"], said["scontrol show nodes --json"],
        said["scontrol show reservation -o"], said["scontrol show partition -o"], float(NOW_S),
        "select/cons_tres", parameters="CR_Core_Memory",
    )  # fmt: skip
    assert found.unequal == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_exclusive_jobs_are_read_in_every_version(version: str) -> None:
    found = looked(version, "running").snapshot.jobs
    names = {
        f"{row['job_id']}": row["name"]
        for row in json.loads(slurm(version, "running")["squeue --json"])["jobs"]
    }
    alone = {names[job.spec.id] for job in found if job.spec.exclusive}
    of_user = {names[job.spec.id] for job in found if job.spec.shared_with}
    assert alone == {"-N1 -n1 --exclusive --mem=100", "-n1 --exclusive=mcs --mem=10",
                     "-n1 --reboot --mem=10"}  # fmt: skip
    assert {name.split()[1] for name in of_user} == {"--uid=daemon", "--uid=games"}
    assert len(of_user) == 3


@pytest.mark.parametrize("site", ["whole", "shared"])
@pytest.mark.parametrize("version", ["24.11", "26.05"])
def test_jobs_that_are_known_from_text_alone_are_the_same_jobs(
    version: str, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = ("id", "submit_s", "walltime_s", "user", "partition", "priority", "held", "reason", "features",
            "dependencies", "exclusive", "shared_with", "not_before_s")  # fmt: skip
    whole = {job.spec.id: job for job in looked(version, site).snapshot.jobs}
    monkeypatch.setattr(listing, "MOST_PENDING", 0)
    found = looked(version, site)
    assert any("partially read" in note for note in found.notes)
    jobs = {job.spec.id: job for job in found.snapshot.jobs}
    assert jobs.keys() == whole.keys()
    for name, job in jobs.items():
        assert job.node_names == whole[name].node_names
        for key in kept:
            assert getattr(job.spec, key) == getattr(whole[name].spec, key), (name, key)


def test_squeue_lists_the_same_jobs_in_each_of_its_json_forms() -> None:
    forms = {k: v for k, v in slurm("26.05", "shared").items() if k.startswith("squeue --json")}
    assert len(forms) > 3
    jobs = [{row["job_id"] for row in json.loads(said)["jobs"]} for said in forms.values()]
    assert all(one == jobs[0] for one in jobs)
