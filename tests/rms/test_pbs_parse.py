"""PBS's outputs, well-formed and broken: read as they are, never invented."""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin.errors import FormatError, HpctwinError
from hpctwin.model.requests.pbs_requests import memory_gb, parse_duration, parse_select
from hpctwin.rms.pbs.listing.output import nodes_needed, read_output, vnodes
from hpctwin.rms.pbs.listing.parse import Found, cluster_snapshot, own_estimates, server_attributes
from tests.examples import examples
from tests.rms.recorded import PBS

ROOT = Path(__file__).parents[2]
NOW_S = 1_795_246_410.0


def read(qstat: bytes = PBS["qstat.json"], nodes: bytes = PBS["pbsnodes.json"], **about: bytes):
    return cluster_snapshot(
        qstat, nodes, about.get("queues", PBS["queues.json"]), about.get("rstat", b""), NOW_S
    )


def changed(job_id: str, **about: Any) -> Found:
    """The recorded queue with attributes of one job changed; None takes one away."""
    content = json.loads(PBS["qstat.json"])
    row = content["Jobs"][job_id]
    for key, value in about.items():
        row[key] = value
        if value is None:
            del row[key]
    return read(json.dumps(content).encode())


def one(found: Found, job_id: str):
    return next((job for job in found.snapshot.jobs if job.spec.id == job_id), None)


def test_a_job_whose_chunks_need_one_group_of_vnodes_is_left_to_pbs_and_named() -> None:
    content = json.loads(PBS["qstat.json"])
    waiting = next(i for i, row in content["Jobs"].items() if row["job_state"] == "Q")
    asks = content["Jobs"][waiting]["Resource_List"]
    marks = []
    for place in ("scatter", "scatter:group=rack"):
        found = changed(waiting, Resource_List={**asks, "hpctwin": 0, "place": place})
        marks.append(waiting in found.marks)
    assert marks == [True, False]
    assert any(f"(job {waiting}: place=scatter:group=rack)" in note for note in found.notes)


def test_the_recorded_queue_is_read_whole() -> None:
    found = read()
    snapshot = found.snapshot
    assert found.notes == []
    assert [(g.count, g.cores, g.memory_gb) for g in snapshot.machine.nodes] == [(32, 1, 1)]
    assert [p.name for p in snapshot.machine.partitions] == ["workq"]
    running = {j.spec.id: len(j.node_names) for j in snapshot.jobs if j.start_s is not None}
    assert running == {
        "926.pbsvm": 4, "927.pbsvm": 6, "929.pbsvm": 10, "934.pbsvm": 3,
        "940[1].pbsvm": 1, "940[2].pbsvm": 1, "940[3].pbsvm": 1,
    }  # fmt: skip
    waiting = {j.spec.id: j.spec for j in snapshot.jobs if j.start_s is None}
    assert {i for i, spec in waiting.items() if spec.held} == {"937.pbsvm"}
    assert [(d.on, d.kind) for d in waiting["939.pbsvm"].dependencies] == [("927.pbsvm", "afterok")]
    later = time.strptime("Sat Nov 21 07:34:32 2026", "%a %b %d %H:%M:%S %Y")
    assert waiting["941.pbsvm"].not_before_s == time.mktime(later)
    assert waiting["930.pbsvm"].walltime_s == 60
    assert snapshot.time_s == json.loads(PBS["qstat.json"])["timestamp"]


def test_the_server_describes_itself() -> None:
    about = server_attributes(PBS["server.json"])
    assert (about["scheduling"], about["pbs_version"]) == ("False", "23.06.06")


BREAKS = {
    "a quote in a variable": ('"PBS_O_LANG":\t"C.UTF-8"', '"PBS_O_LANG":\t"say "hi", you"'),
    "a backslash": ('"PBS_O_LANG":\t"C.UTF-8"', '"PBS_O_LANG":\t"\\w\\h "'),
    "a line end": ('"PBS_O_LANG":\t"C.UTF-8"', '"PBS_O_LANG":\t"a\nb "c\n d"'),
    "no value": ('"Mail_Points":\t"a"', '"Mail_Points":\t'),
    "a name of digits": ('"Job_Name":\t"STDIN"', '"Job_Name":\t0012'),
    "a name with a brace": ('"Job_Name":\t"STDIN"', '"Job_Name":\t"a"{ }"'),
    "a comma too many": ('"Submit_Host":\t"pbsvm"', '"Submit_Host":\t"pbsvm",'),
    "bytes that are no text": ('"Account', '"Account'),
}


@pytest.mark.parametrize("name", BREAKS)
def test_invalid_json_gives_the_same_jobs(name: str) -> None:
    text = PBS["qstat.json"].decode()
    before, after = BREAKS[name]
    broken = text.replace(before, after).encode()
    if name.startswith("bytes"):
        broken = broken.replace(b"C.UTF-8", b'\xff\xfe"')
    found = read(broken)
    assert found.snapshot.jobs == read().snapshot.jobs
    if name != "bytes that are no text" and broken != PBS["qstat.json"]:
        with pytest.raises(ValueError):
            json.loads(broken)
        assert any("read line by line" in note for note in found.notes)


def test_output_that_was_truncated_is_an_error_not_a_shorter_queue() -> None:
    text = PBS["qstat.json"]
    for cut in (len(text) // 3, len(text) // 2, len(text) - 3):
        with pytest.raises(FormatError, match="qstat"):
            read(text[:cut])
    for text in (b"", b"qstat: cannot connect", b"[1]", b"{"):
        with pytest.raises(FormatError):
            read(text)


def test_a_state_is_read_as_pbs_means_it() -> None:
    waits = "930.pbsvm"
    assert one(changed(waits, job_state="F"), waits) is None
    assert one(changed(waits, job_state="X"), waits) is None
    assert one(changed(waits, Hold_Types="us"), waits).spec.held
    assert one(changed(waits, Hold_Types="s"), waits).spec.held
    assert one(changed("926.pbsvm", job_state="E"), "926.pbsvm").node_names
    assert one(changed("926.pbsvm", run_count=3), "926.pbsvm").requeues == 2
    assert one(changed(waits, run_count=2), waits).requeues == 2
    assert one(changed("926.pbsvm", stime=None), "926.pbsvm").start_s is not None


PLAIN_ATTRIBUTES = (
    "accounting_id accrue_type alt_id argument_list array_id array_index array_indices_remaining "
    "array_indices_submitted array_state_count block Checkpoint create_resv_from_job credential "
    "credential_validity egroup eligible_time Error_Path estimated etime exec_host exec_host2 executable "
    "Exit_status forward_x11_cookie forward_x11_port group_list hashname interactive jobdir Job_Name "
    "Join_Path Keep_Files Mail_Points Mail_Users mtime no_stdio_sockets obittime Output_Path pset pstate "
    "queue_rank queue_type release_nodes_on_stageout Remove_Files Rerunable resources_released "
    "resources_released_list resources_used run_version sandbox schedselect_hint server session_id "
    "Shell_Path_List stagein stageout Stageout_status Submit_arguments Submit_Host substate sw_index "
    "tolerate_node_failures topjob topjob_ineligible umask User_List Variable_List shiny_and_new"
)
TOLD_ATTRIBUTES: dict[str, Any] = {
    "Account_Name": "other", "comment": "Not Running: User has reached queue workq running job limit.",
    "depend": "afterok:926.pbsvm@pbsvm", "euser": "other", "Hold_Types": "u", "job_state": "F",
    "Priority": 77, "project": "other", "qtime": "Sat Nov 21 01:00:00 2026", "queue": "none", "run_count": 3,
    "schedselect": "3:ncpus=1", "Resource_List": {"select": "1:ncpus=1", "walltime": "09:00:00"},
}  # fmt: skip
RESOURCES = (
    "accelerator accelerator_group accelerator_memory accelerator_model aoe arch eoe exec_vnode hbmem host "
    "naccelerators nchunk netwins pcpus soft_walltime software start_time vnode shiny"
)


def test_each_attribute_of_qstat_has_its_purpose_and_no_other_changes_a_job() -> None:
    waits = "930.pbsvm"
    plain = one(read(), waiting := waits)
    for name in PLAIN_ATTRIBUTES.split():
        found = changed(waiting, **{name: "2"})
        assert (one(found, waiting), found.notes) == (plain, []), name
    for name, value in TOLD_ATTRIBUTES.items():
        assert one(changed(waiting, **{name: value}), waiting) != plain, name


def test_each_resource_of_a_job_that_is_not_modeled_is_reported_by_name() -> None:
    waits = "930.pbsvm"
    asks = json.loads(PBS["qstat.json"])["Jobs"][waits]["Resource_List"]
    for name in RESOURCES.split():
        job = one(changed(waits, Resource_List={**asks, name: "7"}), waits)
        assert f"{name}=7" in job.spec.constraints, name


def documented(what: str) -> dict[str, list[str]]:
    """Names in docs/reference/pbs-support.md by what becomes of them, such as ``Read``."""
    page = (ROOT / "docs/reference/pbs-support.md").read_text()
    part = page.partition(f"\n{what}, of `")[2].partition("\n\n")[2].partition("\n\n")[0]
    items = [item.partition(":") for item in re.split(r"^- ", part, flags=re.M)[1:]]
    return {kind: re.findall(r"`(\w+)`", names) for kind, _, names in items}


WAITS, RUNS = "930.pbsvm", "926.pbsvm"
LATER = "Sat Nov 21 23:00:00 2026"
READ_OF_JOBS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    # a job, another value, and what else is as it has to be
    "Account_Name": (WAITS, "other", {}), "Execution_Time": (WAITS, LATER, {"job_state": "W"}),
    "Hold_Types": (WAITS, "u", {}), "Job_Owner": (WAITS, "other@vm", {"euser": None}),
    "Priority": (WAITS, 77, {}), "Resource_List": (WAITS, {"walltime": "09:00:00"}, {}),
    "comment": (WAITS, "Not Running: User has reached queue workq running job limit.", {}),
    "ctime": (WAITS, LATER, {"qtime": None}), "depend": (WAITS, "afterok:926.pbsvm@pbsvm", {}),
    "euser": (WAITS, "other", {}), "exec_vnode": (RUNS, "(pbsvm[1]:ncpus=1)", {}),
    "job_state": (WAITS, "F", {}), "max_run_subjobs": (WAITS, 2, {}), "mtime": (RUNS, LATER, {"stime": None}),
    "project": (WAITS, "other", {}), "qtime": (WAITS, LATER, {}), "queue": (WAITS, "none", {}),
    "run_count": (WAITS, 3, {}), "schedselect": (WAITS, "3:ncpus=1", {}), "stime": (RUNS, LATER, {}),
}  # fmt: skip


def test_the_documentation_lists_which_job_attributes_are_read_and_which_are_not() -> None:
    of_jobs = documented("Jobs")
    assert set(of_jobs["Read"]) == READ_OF_JOBS.keys()
    for name, (job_id, value, others) in READ_OF_JOBS.items():
        found, before = changed(job_id, **others, **{name: value}), changed(job_id, **others)
        assert (one(found, job_id), found.notes) != (one(before, job_id), before.notes), name
    assert len(of_jobs["Ignored"]) > 80
    plain = changed(WAITS, **dict.fromkeys(of_jobs["Ignored"], "2"))
    assert (one(plain, WAITS), plain.notes) == (one(read(), WAITS), [])


@pytest.mark.parametrize(
    ("what", "file", "which", "values"),
    [
        (
            "Nodes", "pbsnodes", ("nodes", "pbsvm[32]"),
            {
                "in_multivnode_host": (0, {"resources_available": {"ncpus": 2}}),
                "pcpus": (5, {"resources_available": {}}), "queue": ("other", {}), "state": ("down", {}),
                "resources_available": ({"ncpus": 2}, {}), "sharing": ("force_excl", {"resources_available":
                {"ncpus": 2}}), "resources_assigned": ({"ncpus": 2}, {"resources_available": {"ncpus": 2}}),
            },
        ),
        (
            "Queues", "queues", ("Queue", "workq"),
            {
                "Priority": (7, {}), "backfill_depth": (3, {}), "default_chunk": ({"Qlist": "gpu"}, {}),
                "queue_type": ("Route", {}), "resources_default": ({"neednodes": "big"}, {}), "resources_max":
                ({"walltime": "1:00:00"}, {}), "resources_min": ({"nodect": 2}, {}), "started": ("False", {}),
                "route_destinations": None,
            },
        ),
    ],
)  # fmt: skip
def test_the_documentation_lists_what_is_read_of_nodes_and_queues(
    what, file, which, values
) -> None:
    def found_with(about: dict[str, Any]) -> Found:
        content = json.loads(PBS[f"{file}.json"])
        content[which[0]][which[1]] |= about
        text = json.dumps(content).encode()
        return read(nodes=text) if file == "pbsnodes" else read(queues=text)

    told = documented(what)
    assert set(told["Read"]) == values.keys()
    for name, (value, others) in {k: v for k, v in values.items() if v}.items():
        assert found_with({**others, name: value}) != found_with(others), name
    for name in told.get("Named as not modeled", []):
        assert any(name in note for note in found_with({name: "[u:PBS_GENERIC=3]"}).notes), name
    assert len(told["Ignored"]) > 25
    assert found_with(dict.fromkeys(told["Ignored"], "2")) == read()


@pytest.mark.parametrize(
    "text", ["1e5", "0012", "nan", "NaN", "-Infinity", "true", "12", "1.50", "9" * 100]
)
def test_a_name_that_a_version_writes_as_a_number_or_word_is_that_name(text: str) -> None:
    for written in (text, f'"{text}"'):
        content = json.loads(PBS["qstat.json"])
        content["Jobs"][WAITS] |= {"euser": "NAME", "Account_Name": "NAME", "queue": "NAME"}
        queues = PBS["queues.json"].replace(b'"workq"', f'"{text}"'.encode())
        qstat = json.dumps(content, indent=1).replace('"NAME"', written).encode()
        spec = one(read(qstat, queues=queues), WAITS).spec
        assert (spec.user, spec.account, spec.partition) == (text, text, text)


@pytest.mark.parametrize("value", ["[1]", '{"a": 1}', "[]", "{}"])
def test_a_name_that_is_json_itself_ends_nothing(value: str) -> None:
    """Later builds of OpenPBS write a text that is JSON as what it says."""
    for file in ("qstat", "pbsnodes", "queues"):
        for name in (
            "queue",
            "comment",
            "state",
            "project",
            "Account_Name",
            "depend",
            "sharing",
            "started",
        ):
            content = json.loads(PBS[f"{file}.json"])
            for rows in (content.get(kind, {}) for kind in ("Jobs", "nodes", "Queue")):
                for row in list(rows.values())[:3]:
                    row[name] = "VALUE"
            text = json.dumps(content).replace('"VALUE"', value).encode()
            about = {"qstat": PBS["qstat.json"], "nodes": PBS["pbsnodes.json"]}
            about |= {{"pbsnodes": "nodes"}.get(file, file): text}
            assert len(read(**about).snapshot.jobs) >= len(read().snapshot.jobs) - 3


@pytest.mark.parametrize("value", ["null", '""'])
def test_an_unset_value_is_unset_in_each_of_its_forms(value: str) -> None:
    content = json.loads(PBS["qstat.json"])
    row = content["Jobs"][WAITS]
    names = (
        "Account_Name project euser run_count comment depend Execution_Time Priority schedselect"
    )
    row |= dict.fromkeys(names.split(), "NONE")
    row["Resource_List"] |= dict.fromkeys(("place", "mem", "software"), "NONE")
    found = read(json.dumps(content).replace('"NONE"', value).encode())
    del row["Resource_List"]["place"], row["Resource_List"]["mem"], row["Resource_List"]["software"]
    for name in names.split():
        del row[name]
    assert one(found, WAITS) == one(read(json.dumps(content).encode()), WAITS)
    assert found.notes == []


def test_the_project_of_jobs_that_have_none_is_no_account() -> None:
    for project, account in (("_pbs_project_default", ""), ("fusion", "fusion"), ("7", "7")):
        found = changed(WAITS, Account_Name=None, project=project)
        assert one(found, WAITS).spec.account == account


def test_limits_that_are_written_under_one_key_each_are_all_read() -> None:
    limit = (
        '"max_run_res": {"hpctwin_wait": "[o:PBS_ALL=0]", "ncpus": "[u:a=3]", "ncpus": "[u:b=4]"}'
    )
    for text in (
        f'{{"Server": {{"vm": {{{limit}}}}}}}',
        '{\n"Server":{\n"vm":{\n"comment":"a "b" c",\n'
        + limit.replace("{", "{\n").replace(", ", ",\n").replace("}", "\n}")
        + "\n}\n}\n}",
    ):
        about = server_attributes(text.encode())
        assert about["max_run_res"] == {"hpctwin_wait": "[o:PBS_ALL=0]", "ncpus": "[u:a=3],[u:b=4]"}


def test_a_state_that_is_not_known_is_reported_by_name() -> None:
    found = changed(WAITS, job_state="Z")
    assert one(found, WAITS) is None
    assert found.notes == [f"job {WAITS} is omitted: its state 'Z' is unknown"]
    nodes = json.loads(PBS["pbsnodes.json"])
    for number, state in enumerate(("job-busy,melting", "Melting,offline", "down-ish"), start=1):
        nodes["nodes"][f"pbsvm[{number}]"]["state"] = state
    found = read(nodes=json.dumps(nodes).encode())
    states = {node.name: node.state for node in found.snapshot.nodes}
    assert [states[f"pbsvm[{n}]"] for n in (1, 2, 3)] == ["up", "drained", "up"]
    assert sorted(found.notes) == [
        "state 'down-ish' of 1 node is unknown: ignored", "state 'melting' of 2 nodes is unknown: ignored",
    ]  # fmt: skip


def test_an_array_that_bounds_how_many_of_it_run_is_left_to_pbs_and_named() -> None:
    content = json.loads(PBS["qstat.json"])
    content["Jobs"]["940[].pbsvm"]["max_run_subjobs"] = 2
    row = content["Jobs"]["940[3].pbsvm"]
    row["job_state"] = "Q"
    row.pop("exec_vnode"), row.pop("stime", None)
    found = read(json.dumps(content).encode())
    assert any("940[3].pbsvm: max_run_subjobs=2" in note for note in found.notes)


def test_jobs_left_to_pbs_are_named_with_the_reason() -> None:
    waits = "930.pbsvm"
    for about, says in (
        ({"queue": "R12"}, "reservation"),
        ({"queue": "route"}, "route"),
        ({"Resource_List": {}, "schedselect": None}, "Resource_List.select is missing"),
        ({"schedselect": "two:ncpus=1"}, "not name=value"),
        ({"qtime": None, "ctime": None}, "submit time is missing"),
        ({"depend": "runone:1.vm"}, "not modeled"),
    ):
        found = changed(waits, **about)
        assert any(says in note and waits in note for note in found.notes), (about, found.notes)
        if "depend" in about:
            assert one(found, waits).spec.dependencies[0].on == "0"
        else:
            assert one(found, waits) is None
    content = json.loads(PBS["qstat.json"])
    for number in (1, 2, 3):
        del content["Jobs"][f"940[{number}].pbsvm"]
    found = read(json.dumps(content).encode())
    assert any("940[].pbsvm" in note and "array" in note for note in found.notes)


def test_queues_give_limits_and_nodes() -> None:
    queues = json.loads(PBS["queues.json"])
    queues["Queue"]["workq"] |= {
        "resources_max": {"walltime": "24:00:00", "nodect": 16}, "max_run": "[u:PBS_GENERIC=3]",
        "Priority": 7,
    }  # fmt: skip
    queues["Queue"]["own"] = {"queue_type": "Execution", "started": "False"}
    queues["Queue"]["in"] = {"queue_type": "Route"}
    nodes = json.loads(PBS["pbsnodes.json"])
    nodes["nodes"]["pbsvm[32]"]["queue"] = "own"
    nodes["nodes"]["pbsvm[31]"]["state"] = "offline,job-busy"
    nodes["nodes"]["pbsvm[30]"]["state"] = "down,offline"
    found = read(nodes=json.dumps(nodes).encode(), queues=json.dumps(queues).encode())
    machine = found.snapshot.machine
    by_name = {p.name: p for p in machine.partitions}
    assert set(by_name) == {"workq", "own"}
    work = by_name["workq"]
    assert (work.max_walltime, work.max_nodes, work.priority) == (86_400, 16, 7)
    size = {g.name: g.count for g in machine.nodes}
    assert [sum(size[g] for g in by_name[n].groups) for n in ("workq", "own")] == [31, 1]
    states = {n.name: n.state for n in found.snapshot.nodes}
    assert (states["pbsvm[31]"], states["pbsvm[30]"]) == ("drained", "down")
    assert any("max_run" in note for note in found.notes)
    assert any("own is stopped" in note for note in found.notes)


def test_reservations_are_read_from_the_full_listing() -> None:
    rstat = b"""Resv ID: R7.pbsvm
Reserve_Name = fix
reserve_state = RESV_CONFIRMED
reserve_start = Sat Nov 21 09:00:00 2026
reserve_end = Sat Nov 21 10:00:00 2026
resv_nodes = (pbsvm[1]:ncpus=1)+(pbsvm[2]:ncpus=1)

Resv ID: R8.pbsvm
reserve_state = RESV_UNCONFIRMED
"""
    found = read(rstat=rstat)
    (reservation,) = found.snapshot.reservations
    assert (reservation.name, reservation.node_names) == ("R7.pbsvm", ("pbsvm[1]", "pbsvm[2]"))
    assert reservation.end_s - reservation.start_s == 3600
    assert any("R8.pbsvm" in note for note in found.notes)


def test_estimates_of_pbs_are_read() -> None:
    content = json.loads(PBS["qstat.json"])
    content["Jobs"]["930.pbsvm"]["estimated"] = {"start_time": 1795246999, "exec_vnode": "x"}
    assert own_estimates(json.dumps(content).encode()) == {"930.pbsvm": 1795246999.0}


@pytest.mark.parametrize(
    ("select", "place", "cores", "gpus", "nodes"),
    [
        ("4:ncpus=1", "vscatter", 1, 0, 4),
        ("4:ncpus=1", "free", 8, 0, 1),
        ("4:ncpus=1", "scatter:excl", 8, 0, 4),
        ("9:ncpus=4", "pack", 8, 0, 5),
        ("2:ncpus=8:mem=4gb+3:ncpus=1", "free", 8, 0, 3),
        ("8:ncpus=2:ngpus=1", "free", 64, 4, 2),
        ("3", "free", 0, 0, 3),
        ("ncpus=4", "free", 8, 0, 1),
    ],
)
def test_a_select_statement_has_a_number_of_nodes(select, place, cores, gpus, nodes) -> None:
    assert nodes_needed(parse_select(select), place, cores, gpus) == nodes


def test_values_of_pbs() -> None:
    assert [parse_duration(v) for v in ("01:00:00", "90", 90, "1:30", "x", True, None)] == [
        3600, 90, 90, 90, None, None, None,
    ]  # fmt: skip
    assert memory_gb("1048576kb") == memory_gb("1gb") == memory_gb("128mw") == 1.0
    assert memory_gb("lots") is None
    assert vnodes("(a:ncpus=1)+(b[1]:ncpus=1:mem=2kb+b[2]:ncpus=1)+(a:ncpus=1)") == (
        "a", "b[1]", "b[2]",
    )  # fmt: skip


@settings(max_examples=examples(150))
@given(data=st.data())
def test_damaged_output_is_read_or_rejected_and_no_job_is_invented(data: st.DataObject) -> None:
    which = data.draw(st.sampled_from(["qstat.json", "pbsnodes.json"]))
    text = bytearray(PBS[which])
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text) - 1))
        piece = data.draw(st.binary(max_size=4) | st.sampled_from([b'"', b"\\", b"\n", b"{", b"}"]))
        text[at : at + data.draw(st.integers(0, 40))] = piece
    damaged = bytes(text)
    try:
        found = read(damaged) if which == "qstat.json" else read(nodes=damaged)
    except HpctwinError:
        return
    shown = damaged.decode("utf-8", errors="replace") if which == "qstat.json" else ""
    real = {job.spec.id for job in read().snapshot.jobs}
    for job in found.snapshot.jobs:
        assert job.spec.id in real or job.spec.id in shown
        assert len(set(job.node_names)) == len(job.node_names)


@settings(max_examples=examples(150))
@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_bytes_are_an_object_or_a_named_error(text: bytes) -> None:
    with contextlib.suppress(FormatError):
        assert isinstance(read_output(text, "qstat", []), dict)


@given(st.text(max_size=60))
def test_any_text_is_a_select_statement_or_a_named_error(text: str) -> None:
    try:
        chunks = parse_select(text)
    except ValueError:
        return
    assert nodes_needed(chunks, "free", 8, 0) >= 1
