"""Starting PBS's jobs on the vnodes that the twin chose: what `qrun -H` is told, and when PBS chooses."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hpctwin.rms.manager import LendsScheduling, Places
from hpctwin.rms.pbs import manager as of_pbs
from hpctwin.rms.pbs.leasing import vnodes_text
from hpctwin.rms.pbs.listing.node_attributes import used_up_of
from hpctwin.rms.pbs.manager import MOST_TIMES, PbsManager
from hpctwin.rms.polling.poller import Poller, polled
from tests.rms.fake_pbs import FakePbs
from tests.rms.recorded import PBS


@pytest.mark.parametrize(
    ("select", "place", "where", "said"),
    [
        ("2:ncpus=3:mem=4gb+1:ncpus=6", "free", [("a", (1, 0)), ("b", (1, 1))],
         "(a:ncpus=3:mem=4gb)+(b:ncpus=3:mem=4gb)+(b:ncpus=6)"),
        ("1:ncpus=1+3:ncpus=1", "free", [("a", (3,)), ("b", (1,))],
         "(a:ncpus=1)+(a:ncpus=1)+(a:ncpus=1)+(b:ncpus=1)"),
        ("1:ncpus=4+2:ncpus=8:ngpus=1", "pack", [("a", (1,))],
         "(a:ncpus=4)+(a:ncpus=8:ngpus=1)+(a:ncpus=8:ngpus=1)"),
        ("ncpus=2:scratch=500gb:mpiprocs=2:ompthreads=1", "scatter", [("a[1]", (1,))],
         "(a[1]:ncpus=2:scratch=500gb)"),
        ("2:mpiprocs=4", "free", [("a", (2,))], "(a:ncpus=4)+(a:ncpus=4)"),
    ],
)  # fmt: skip
def test_each_chunk_gets_the_vnode_that_was_chosen_for_it(select, place, where, said) -> None:
    assert vnodes_text(select, place, where, ["scratch"]) == said


@pytest.mark.parametrize(
    ("select", "where", "why"),
    [
        ("1:ncpus=1:rank=3", [("a", (1,))], "chunks request rank"),
        ("1:ncpus=1:host=b", [("a", (1,))], "chunks request host"),
        ("3:ncpus=1", [("a", (1,)), ("b", (1,))], "3 chunks are placed on 2 vnodes"),
    ],
)
def test_no_chunks_are_reported_if_the_model_does_not_know_their_requests(
    select, where, why
) -> None:
    with pytest.raises(ValueError, match=why):
        vnodes_text(select, "free", where, ())


@pytest.fixture
def pbs(tmp_path: Path) -> FakePbs:
    """Four vnodes that jobs share."""
    found = FakePbs(tmp_path)
    for name in ("qstat.json", "queues.json", "pbsnodes.json"):
        (tmp_path / name).write_bytes(PBS[f"shared-{name}"])
    return found


@pytest.fixture
def manager(pbs: FakePbs) -> PbsManager:
    made = PbsManager(
        "theta", folder=str(pbs.bin), timeout_s=120.0, heartbeat_file=pbs.folder / "alive"
    )
    made.snapshot()
    pbs.calls()
    return made


def shown(pbs: FakePbs, **more: object) -> None:
    """The hook's periodic part shows life."""
    (pbs.folder / "alive.lifts").write_text(json.dumps({"time_s": time.time(), **more}))


def state(pbs: FakePbs, word: str) -> None:
    """What qstat says of a job from now on."""
    (pbs.folder / "job.json").write_text(json.dumps({"Jobs": {"5.vm": {"job_state": word}}}))


def waiting(manager: PbsManager) -> str:
    """A job of ``3:ncpus=2:mem=50mb`` that waits."""
    assert manager.found is not None
    return next(
        i for i, (select, _) in manager.found.lies.items() if select.startswith("3:ncpus=2")
    )


def marked(pbs: FakePbs, manager: PbsManager) -> str:
    """That job, as one whose submission the hook has marked."""
    job = waiting(manager)
    said = json.loads((pbs.folder / "qstat.json").read_text())
    said["Jobs"][job]["Resource_List"]["hpctwin"] = 0
    (pbs.folder / "qstat.json").write_text(json.dumps(said))
    manager.snapshot()
    return job


WHERE = [("n01", (1,)), ("n02", (1,)), ("n03", (1,))]


def test_a_job_runs_on_its_chosen_nodes_and_pbs_is_asked_for_nothing_else(
    pbs: FakePbs, manager: PbsManager
) -> None:
    shown(pbs, rooms=True)
    state(pbs, "R")
    job = waiting(manager)
    outcome = manager.start_on(job, WHERE)
    select = "(n01:ncpus=2:mem=50mb)+(n02:ncpus=2:mem=50mb)+(n03:ncpus=2:mem=50mb)"
    assert (outcome.result, outcome.reason) == ("done", f"qrun -H {select}")
    assert pbs.calls() == [f"qrun -a -H {select} {job}", f"qstat -f -F json {job}"]
    # The hook lets it pass, and looks for room from now on.
    said = json.loads((pbs.folder / "alive.leases").read_text())
    assert (said["until_s"][job], said["rooms"]) == (0.0, ["ncpus", "mem", "ngpus"])


@pytest.mark.parametrize("more", [None, {}, {"rooms": False}, {"rooms": True, "time_s": 7.0}])
def test_without_a_hook_that_checks_capacity_pbs_chooses_and_the_journal_records_it(
    pbs: FakePbs, manager: PbsManager, more: dict[str, object] | None
) -> None:
    if more is not None:
        shown(pbs, **more)
    job = waiting(manager)
    outcome = manager.start_on(job, WHERE)
    assert outcome.result == "done"
    assert outcome.reason.startswith(
        "started with qrun on vnodes chosen by PBS: the installed hook"
    )
    assert [call for call in pbs.calls() if call.startswith("qrun")] == [f"qrun {job}"]


def test_what_cannot_be_told_is_left_to_pbs_and_what_the_hook_rejects_is_rejected(
    pbs: FakePbs, manager: PbsManager
) -> None:
    shown(pbs, rooms=True)
    job = waiting(manager)
    assert "3 chunks are placed on 2 vnodes" in manager.start_on(job, WHERE[:2]).reason
    assert "exclusive vnodes, or is not pending" in manager.start_on("999.vm", WHERE).reason
    pbs.fail("qrun", "qrun: Unauthorized Request 5.vm\n")
    outcome = manager.start_on(job, WHERE)
    assert (outcome.result, "Unauthorized Request" in outcome.reason) == ("refused", True)


def test_acceptance_by_pbs_is_queried_because_it_does_not_report_refusals(
    pbs: FakePbs, manager: PbsManager
) -> None:
    shown(pbs, rooms=True)
    job = waiting(manager)
    state(pbs, "Q")
    outcome = manager.start_on(job, WHERE)
    assert (outcome.result, "no longer fits" in outcome.reason) == ("refused", True)
    (pbs.folder / "job.json").write_text("{}")
    assert manager.start_on(job, WHERE).result == "unknown"
    pbs.fail("qstat", f"qstat: Unknown Job Id {job}\n")
    assert manager.start_on(job, WHERE).result == "done"  # it has run already
    pbs.fail("qstat", "qstat: cannot connect to server vm (errno=15010)\n")
    assert manager.start_on(job, WHERE).result == "unknown"


def test_a_job_that_does_not_fit_waits_for_its_next_turn_and_is_finally_left_to_pbs(
    pbs: FakePbs, manager: PbsManager
) -> None:
    shown(pbs, rooms=True)
    state(pbs, "Q")
    job = marked(pbs, manager)
    for _ in range(MOST_TIMES - 1):
        assert manager.start_on(job, WHERE).result == "refused"
        # PBS started it elsewhere: 43 of 300 jobs of a real one, on vnodes that others had been told to take.
        assert manager.leases()[job] > time.time() + 10
    assert manager.start_on(job, WHERE).result == "refused"
    assert manager.leases()[job] == 0.0
    state(pbs, "R")
    assert manager.start_on(job, WHERE).result == "done"
    assert manager.leases()[job] == 0.0


def test_many_starts_at_a_slow_pbs_do_not_make_the_hook_hold_the_twin_for_dead(
    pbs: FakePbs, manager: PbsManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown(pbs, rooms=True)
    state(pbs, "R")
    job, alive = waiting(manager), pbs.folder / "alive"
    manager.start_on(job, WHERE)
    assert not alive.exists()  # who never was in charge shows no life
    manager.heartbeat(7)
    alive.unlink()
    manager.start_on(job, WHERE)
    assert not alive.exists()
    monkeypatch.setattr(of_pbs, "BEAT_AGAIN_S", 0.0)
    manager.start_on(job, WHERE)
    assert abs(json.loads(alive.read_text())["time_s"] - time.time()) < 60


def test_an_earlier_longer_lease_is_restored_if_the_start_did_not_fit(
    pbs: FakePbs, manager: PbsManager
) -> None:
    shown(pbs, rooms=True)
    state(pbs, "Q")
    job, until_s = marked(pbs, manager), time.time() + 300
    assert manager.lease({job: until_s})[job].result == "done"
    manager.start_on(job, WHERE)
    assert manager.leases()[job] == until_s


def test_a_manager_that_is_polled_can_what_it_can_and_no_more(
    pbs: FakePbs, manager: PbsManager
) -> None:
    through = polled(Poller(manager, lambda event: None, every_s=60.0, floor_s=1.0))
    # It was taken for one whose scheduling can rest: a twin that acts by `qrun` was never in charge.
    assert isinstance(through, Places)
    assert not isinstance(through, LendsScheduling)
    shown(pbs, rooms=True)
    state(pbs, "R")
    assert through.start_on(waiting(manager), WHERE).reason.startswith("qrun -H (n01:")


def test_gpus_that_a_site_has_created_as_a_resource_are_no_additional_consumable() -> None:
    said = b"".join(
        b"create resource %b\nset resource %b type = long\nset resource %b flag = %b\n"
        % (n, n, n, f)
        for n, f in ((b"ngpus", b"nh"), (b"fpga", b"nh"), (b"rank", b"h"))
    )
    # Else no look succeeded where chunks asked for an fpga.
    assert used_up_of(said) == {"fpga": True, "rank": False}
