"""The gate into PBS: how jobs get in, and whose jobs it takes for its own."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Any

import pytest

from hpctwin.errors import UnreachableError
from hpctwin.rms.commands import Commands
from hpctwin.rms.gate import JobRequest, Mark
from hpctwin.rms.pbs.settings import VARIABLE, PbsGate
from tests.rms.fake_pbs import FakePbs
from tests.rms.recorded import PBS

MARK = Mark(b"known to the queue's owner")
REQUEST = JobRequest(key="run-42", nodes=3, walltime_s=90.5, script="#!/bin/sh\ntrue\n")


@pytest.fixture
def pbs(tmp_path: Path) -> FakePbs:
    return FakePbs(tmp_path, "leases")


def gate_into(pbs: FakePbs, *options: str, timeout_s: float = 120.0) -> PbsGate:
    return PbsGate(Commands(str(pbs.bin), timeout_s=timeout_s), MARK, options)


def listed(pbs: FakePbs, **jobs: dict[str, Any]) -> None:
    """The recorded listing of one waiting job, changed, as the only jobs."""
    path = pbs.folder / "qstat.json"
    content = json.loads(PBS["leases-qstat.json"])
    row = content["Jobs"]["8.vm"]
    content["Jobs"] = {}
    for name, about in jobs.items():
        variables = {**row["Variable_List"], **about.pop("Variable_List", {})}
        content["Jobs"][f"{name[1:]}.vm"] = {**row, "Variable_List": variables, **about}
    path.write_text(json.dumps(content))


def ours(mark: str | None = None, **about: Any) -> dict[str, Any]:
    return {
        "Job_Owner": f"{getpass.getuser()}@vm",
        "Variable_List": {VARIABLE: MARK.of("run-42") if mark is None else mark},
        "job_state": "H",
        "Hold_Types": "u",
        **about,
    }


def test_a_job_is_submitted_held_with_its_mark(pbs: FakePbs) -> None:
    changes: list[int] = []
    gate = PbsGate(Commands(str(pbs.bin)), MARK, (), lambda: changes.append(1))
    outcome, job_id = gate.submit(REQUEST)
    assert (outcome.result, job_id, changes) == ("done", "60.vm", [1])
    (call,) = pbs.calls()
    words = call.split()
    assert words[:3] == ["qsub", "-f", "-h"]
    assert words[words.index("-v") + 1] == f"{VARIABLE}={MARK.of('run-42')}"
    assert "-N run-42" in call
    assert "-l select=3:ncpus=1 -l place=vscatter -l walltime=91" in call


def test_all_that_a_job_asks_for_is_passed_on(pbs: FakePbs) -> None:
    request = JobRequest(
        key="9:odd@key[1]", nodes=2, walltime_s=60, name="42 ünd more", account="phys",
        partition="large", cores=8, gpus=2, memory_gb=1.5,
    )  # fmt: skip
    gate_into(pbs).submit(request, delay_s=1e9)
    (call,) = pbs.calls()
    assert "-N j42__nd_more -q large -A phys -a " in call
    assert "-l select=2:ncpus=8:ngpus=2:mem=1536mb " in call


def test_variables_of_the_sites_options_do_not_displace_the_mark(pbs: FakePbs) -> None:
    gate_into(pbs, "-v", "A=b,C=d", "-W", "umask=022", "-vE=f").submit(REQUEST)
    (call,) = pbs.calls()
    assert call.split().count("-v") == 1
    assert f"-v A=b,C=d,E=f,{VARIABLE}=hpctwin-facility:run-42:" in call
    assert "-W umask=022 /" in call


def test_a_job_that_we_submitted_is_known_by_its_key(pbs: FakePbs) -> None:
    listed(
        pbs,
        j11=ours(),
        j9=ours(),
        j12=ours(MARK.of("a:b"), job_state="R", Hold_Types="n"),
        j13=ours(MARK.of("gone"), job_state="F"),
    )
    found = gate_into(pbs).jobs()
    assert {key: [(j.id, j.held) for j in jobs] for key, jobs in found.items()} == {
        "run-42": [("9.vm", True), ("11.vm", True)],
        "a:b": [("12.vm", False)],
    }


@pytest.mark.parametrize(
    "mark",
    ["hpctwin-facility:run-42", "hpctwin-facility:run-42:", f"hpctwin-facility:run-42:{'0' * 32}",
     Mark(b"another secret").of("run-42"), MARK.of("run-42") + "0", ""],
)  # fmt: skip
def test_a_key_that_was_made_up_adopts_nothing(pbs: FakePbs, mark: str) -> None:
    listed(pbs, j5=ours(mark))
    assert gate_into(pbs).jobs() == {}


def test_a_mark_copied_onto_a_job_of_another_user_is_none(pbs: FakePbs) -> None:
    for owner in (f"{getpass.getuser()}x@vm", f"x@{getpass.getuser()}", ""):
        listed(pbs, j5=ours(Job_Owner=owner))
        assert gate_into(pbs).jobs() == {}


@pytest.mark.parametrize(
    ("said", "result"),
    [
        ("qsub: Unknown queue\n", "refused"),
        ("qsub: Job exceeds queue resource limits\n", "refused"),
        ("qsub: request rejected as filter hook 'x' encountered an exception.\n", "refused"),
        ("qsub: Server disconnected (errno=15031)\n", "unknown"),
        ("qsub: End of File\n", "unknown"),
        ("Connection refused\nqsub: cannot connect to server vm (errno=111)\n", "unknown"),
    ],
)
def test_an_unclear_answer_leaves_open_whether_a_job_was_submitted(
    pbs: FakePbs, said: str, result: str
) -> None:
    pbs.fail("qsub", said)
    outcome, job_id = gate_into(pbs).submit(REQUEST)
    assert (outcome.result, job_id) == (result, "")


def test_an_answer_that_is_no_job_number_leaves_it_open_too(pbs: FakePbs) -> None:
    pbs.says("qsub", "Welcome to this site!\n")
    assert gate_into(pbs).submit(REQUEST)[0].result == "unknown"
    pbs.hang("qsub")
    assert gate_into(pbs, timeout_s=0.5).submit(REQUEST)[0].result == "unknown"


def test_admitting_ends_the_holds_that_the_gate_made(pbs: FakePbs) -> None:
    gate = gate_into(pbs)
    assert gate.admit("50.vm").result == "done"
    assert gate.cancel("50.vm").result == "done"
    assert gate.admit("50.vm; reboot").result == gate.cancel("-x").result == "refused"
    assert pbs.calls() == ["qrls -h u 50.vm", "qdel 50.vm"]
    pbs.fail("qrls", "qrls: Job has finished\n")
    assert gate.admit("50.vm").result == "refused"


def test_a_listing_that_cannot_be_read_is_no_empty_one(pbs: FakePbs) -> None:
    path = pbs.folder / "qstat.json"
    path.write_bytes(path.read_bytes()[:900])
    with pytest.raises(UnreachableError, match="the end of the output is missing"):
        gate_into(pbs).jobs()
