"""Resources of a PBS site's: they are known before a job asks for them, or it is said that they are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpctwin.rms.pbs import manager as of_pbs
from hpctwin.rms.pbs.manager import PbsManager
from hpctwin.rms.records.changes import JobSeen, Look
from tests.rms.fake_pbs import FakePbs

RECORDED = Path(__file__).parent / "recorded"
ASK = "qmgr -c print resource"


@pytest.fixture
def pbs(tmp_path: Path) -> FakePbs:
    """Six vnodes with `scratch`, three of them with `fpga`, and nobody that asks for any."""
    found = FakePbs(tmp_path)
    for name in ("queues.json", "pbsnodes.json", "resources.txt"):
        recorded = RECORDED / f"openpbs-23.06-consumables-{name}"
        (tmp_path / name).write_bytes(recorded.read_bytes())
    listed(found, [])
    return found


def recorded_jobs() -> dict[str, Any]:
    text = (RECORDED / "openpbs-23.06-consumables-qstat.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def listed(pbs: FakePbs, ids: list[str]) -> None:
    """What qstat lists of the recorded jobs from now on."""
    said = recorded_jobs()
    said["Jobs"] = {job_id: said["Jobs"][job_id] for job_id in ids}
    (pbs.folder / "qstat.json").write_text(json.dumps(said))


def submitted(job_id: str) -> str:
    """The hook's line of a recorded job."""
    row = {k: v for k, v in recorded_jobs()["Jobs"][job_id].items() if isinstance(v, str)}
    select = recorded_jobs()["Jobs"][job_id]["Resource_List"]["select"]
    asks = f"select={select},place=free,walltime=00:10:00,hpctwin=0"
    job = {
        "id": job_id, "job_state": "1", "queue": row["queue"], "ctime": "1763900000", "qtime": "1763900000",
        "Job_Owner": "u1@head", "Resource_List": asks, "schedselect": select,
    }  # fmt: skip
    return json.dumps({"v": 1, "t": 1763900000.5, "type": 0x8000000, "job": job})


@pytest.fixture
def manager(pbs: FakePbs) -> PbsManager:
    return PbsManager(
        "theta", folder=str(pbs.bin), timeout_s=120.0, heartbeat_file=pbs.folder / "alive"
    )


def consumables(manager: PbsManager) -> list[dict[str, float]]:
    return [dict(group.consumables) for group in manager.snapshot().machine.nodes]


def test_what_vnodes_have_of_them_is_in_the_first_picture_and_the_first_job_asks_for_it(
    pbs: FakePbs, manager: PbsManager
) -> None:
    assert consumables(manager) == [{"fpga": 2, "scratch": 800}, {"scratch": 800}]
    assert pbs.calls().count(ASK) == 1
    # Jobs were told to start where no fpga was left: the picture had none until a look saw one asked for.
    (seen,) = manager.translator()(submitted("5.head"))
    assert isinstance(seen, JobSeen)
    assert seen.record.spec.consumables == {"fpga": 1}
    manager.snapshot()
    assert ASK not in pbs.calls()


def test_one_that_is_made_later_is_seen_once_a_job_asks_for_it(
    pbs: FakePbs, manager: PbsManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    resources = pbs.folder / "resources.txt"
    all_of_them = resources.read_text()
    lines = [line for line in all_of_them.splitlines() if "fpga" not in line]
    resources.write_text("\n".join(lines))
    assert consumables(manager) == [{"scratch": 800}]
    resources.write_text(all_of_them)
    # A job that asks for what is not known yet is not taken for one that asks for nothing.
    (news,) = manager.translator()(submitted("5.head"))
    assert isinstance(news, Look)
    monkeypatch.setattr(of_pbs, "SELDOM_S", 0.0)
    listed(pbs, ["5.head"])
    assert consumables(manager) == [{"fpga": 2, "scratch": 800}, {"scratch": 800}]
    (seen,) = manager.translator()(submitted("5.head"))
    assert isinstance(seen, JobSeen)


def test_a_failed_request_is_reported_and_repeated(pbs: FakePbs, manager: PbsManager) -> None:
    pbs.fail("qmgr", "qmgr obj= svr=default: Unauthorized Request\n")
    assert consumables(manager) == [{}]
    (note,) = (one for one in manager.report().notes if "custom resources are not modeled" in one)
    assert "Unauthorized Request" in note
    assert isinstance(manager.translator()(submitted("5.head"))[0], Look)
    pbs.mend("qmgr")
    assert consumables(manager) == [{"fpga": 2, "scratch": 800}, {"scratch": 800}]
    assert not any("custom resources are not modeled" in one for one in manager.report().notes)
