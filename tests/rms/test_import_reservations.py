"""Reservations of a Slurm: those of a real one with all flags, and made ones, as maintenance; wrong texts."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from hpctwin import Cluster, Result, read_workload, simulate
from hpctwin.cli import main
from hpctwin.model.text import parse_nodes
from hpctwin.rms.site import IMPORTED, NO_EFFECT, NOT_MODELED, Setting
from hpctwin.rms.site_folder import Imported, import_site, pseudonyms

RECORDED = Path(__file__).parent / "recorded" / "slurm-reservations"
CONF = (
    "ClusterName=c\nSelectType=select/linear\nLicenses=matlab:10\nNodeName=n[1-8] CPUs=8\n"
    "PartitionName=main Nodes=ALL Default=YES\n"
)
HEADER = "JobID|User|Account|Partition|Submit|Start|ElapsedRaw|TimelimitRaw|NNodes|State|NodeList"
SHOWN = (
    "ReservationName={name} StartTime={start} EndTime={end} Duration=08:00:00\n"
    "   Nodes={nodes} NodeCnt=2 CoreCnt=16 Features=(null) PartitionName=(null) Flags={flags}\n"
    "   TRES={tres}\n"
    "   Users={users} Groups={groups} Accounts={accounts} Licenses={licences} State=INACTIVE "
    "BurstBuffer=(null) Watts=n/a\n   MaxStartDelay=(null)\n\n"
)
ZERO = dt.datetime(2027, 1, 4, tzinfo=dt.UTC)


def reservation(**about: str) -> str:
    """What Slurm prints of one: maintenance of n1 and n2 from 8 to 16 h on 5 January 2027."""
    plain = {
        "name": "r", "start": "2027-01-05T08:00:00", "end": "2027-01-05T16:00:00", "nodes": "n[1-2]",
        "flags": "MAINT,SPEC_NODES", "tres": "cpu=16", "users": "root", "groups": "(null)",
        "accounts": "(null)", "licences": "(null)",
    }  # fmt: skip
    return SHOWN.format(**{**plain, **about})


def job(
    number: int, submit: str, *, user: str = "ann", account: str = "chem", start: str = "",
    runs_s: int = 600, nodes: str = "n8", count: int = 1, minutes: int = 15,
) -> str:  # fmt: skip
    return (
        f"{number}|{user}|{account}|main|{submit}|{start or submit}|{runs_s}|{minutes}|{count}|COMPLETED|"
        f"{nodes}"
    )


MONTH = (job(1, "2027-01-04T00:00:00"), job(2, "2027-01-31T23:00:00"))
"""The first and the last job of January."""


def imported(folder: Path, shown: str, *jobs: str, zone: str | None = None) -> Imported:
    folder.mkdir(exist_ok=True)
    (folder / "slurm.conf").write_text(CONF)
    (folder / "sacct.txt").write_text("\n".join([HEADER, *(jobs or MONTH)]) + "\n")
    (folder / "reservations.txt").write_text(shown)
    return import_site("slurm", folder, timezone=zone)


def became(made: Imported) -> dict[str, Setting]:
    """What became of each reservation as a whole."""
    return {
        s.name.removeprefix("reservation "): s
        for s in made.site.settings
        if s.name.startswith("reservation ") and ":" not in s.name
    }


def flags(made: Imported) -> dict[tuple[str, str], str]:
    return {
        (s.name.removeprefix("reservation ").removesuffix(": Flags"), s.value): s.became
        for s in made.site.settings
        if s.name.endswith(": Flags")
    }


def away(made: Imported) -> dict[str, list[tuple[str, str, str | None]]]:
    """When nodes are away, in UTC, by the reservation's name."""
    found: dict[str, list[tuple[str, str, str | None]]] = {}
    submits = made.jobs["submit_s"].min()
    for one in made.site.cluster.reservations:
        times = [
            dt.datetime.fromtimestamp(float(submits) + t, dt.UTC).strftime("%m-%dT%H:%M")  # type: ignore[arg-type]
            for t in (one.start, one.end)
        ]
        found.setdefault(one.name, []).append((times[0], times[1], one.nodes))
    return found


@pytest.mark.parametrize("name", ["reservations.txt", "reservations-o.txt"])
def test_reservations_of_a_real_slurm_are_maintenance_or_named_with_the_reason(
    tmp_path: Path, name: str
) -> None:
    made = imported(tmp_path, (RECORDED / name).read_text())
    assert made.site.cluster.name == "c"
    there = away(made)
    assert there["maint"] == [("01-05T08:00", "01-05T16:00", "0-1")]
    assert there["all"] == [("01-20T08:00", "01-20T20:00", "0-7")]
    # Nobody uses it, so that it is over after the five minutes of its PURGE_COMP.
    assert there["course"] == [
        (f"01-{day:02}T08:00", f"01-{day:02}T08:05", "0-1") for day in (6, 13, 20, 27)
    ]
    assert there["daily"][0] == ("01-04T20:00", "01-04T22:00", "4")
    assert len(there["daily"]) == 28
    assert there["part"] == [("01-08T08:00", "01-08T10:00", "0-3")]
    assert len(there["hourly"]) == 28 * 24 - 1
    assert {one[0][-5:] for one in there["hourly"]} == {f"{h:02}:30" for h in range(24)}
    assert there["first"] == [("01-13T00:30", "01-13T00:35", "0-1")]
    whole = became(made)
    assert set(whole) == {
        "maint", "all", "course", "daily", "cores", "lic", "part", "weekend", "weekday", "hourly", "forever",
        "float", "active", "first",
    }  # fmt: skip
    assert {n for n, one in whole.items() if one.became == IMPORTED} == set(there)
    left = {n: one.why for n, one in whole.items() if one.became == NOT_MODELED}
    assert "3 of its nodes' 8 cores" in left["cores"]
    assert "matlab:4" in left["lic"]
    assert "TIME_FLOAT" in left["float"]
    out = {n: one.why for n, one in whole.items() if one.became == NO_EFFECT}
    assert out == {
        "forever": "it starts after the end of the last job",
        "active": "it ended before the first submission",
    }
    assert any(
        "2 reservations are omitted: outside the jobs' time span" in n for n in made.site.notes
    )


def test_each_imported_flag_is_reported(tmp_path: Path) -> None:
    told = flags(imported(tmp_path, (RECORDED / "reservations.txt").read_text()))
    assert told["maint", "IGNORE_JOBS"] == NOT_MODELED
    assert told["course", "REPLACE"] == NOT_MODELED
    assert told["course", "PURGE_COMP"] == told["course", "WEEKLY"] == IMPORTED
    assert told["daily", "FLEX"] == NO_EFFECT
    assert (
        told["all", "ALL_NODES"]
        == told["part", "PART_NODES"]
        == told["part", "OVERLAP"]
        == IMPORTED
    )
    assert told["hourly", "STATIC"] == told["hourly", "HOURLY"] == IMPORTED
    assert told["first", "FIRST_CORES"] == NO_EFFECT
    made = imported(tmp_path, reservation(flags="MAINT,NEW_THING"))
    assert flags(made)["r", "NEW_THING"] == NOT_MODELED
    assert len(away(made)["r"]) == 1


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(one) for one in arguments])
    return int(ended.value.code or 0)


def runs_on(found: Result, reserved: Cluster) -> int:
    """How many jobs ran on nodes of reservations meanwhile."""
    assert found.node_map is not None
    rows = found.node_map.select("start_s", "end_s", "first_node", "count").rows()
    return sum(
        start < one.end and end > one.start and not numbers.isdisjoint(range(first, first + count))
        for one in reserved.reservations
        for numbers in [set(parse_nodes(one.nodes or "", 8))]
        for start, end, first, count in rows
    )


def test_no_job_runs_on_those_nodes_meanwhile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two that overlap, and one that comes again."""
    jobs = [
        job(n, f"2027-01-05T{n % 24:02}:{n % 60:02}:00", count=1 + n % 3, runs_s=5400, minutes=120)
        for n in range(1, 120)
    ]
    shown = (
        reservation()
        + reservation(name="s", nodes="n[2-3]", start="2027-01-05T12:00:00", end="2027-01-05T20:00:00")
        + reservation(name="t", nodes="n[5,7]", start="2027-01-04T04:00:00", end="2027-01-04T05:00:00",
                      flags="DAILY,SPEC_NODES")
    )  # fmt: skip
    site, out = tmp_path / "site", tmp_path / "out"
    imported(site, shown, *jobs)
    assert run("import", "slurm", "--from", site, "--out", out, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["read"]["files"]["reservations.txt"] == "scontrol show reservation"
    assert run("simulate", out, "--json") == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == len(jobs)
    cluster, past = Cluster.from_yaml(out / "cluster.yaml"), read_workload(out / "workload.parquet")
    assert [one.name for one in cluster.reservations] == ["r", "s", "t"]
    free = cluster.model_copy(update={"reservations": ()})
    for policy in ("fcfs+slurm@contiguous", "fcfs+easy@contiguous"):
        with_, without = (simulate(past, one, policy) for one in (cluster, free))
        assert set(with_.jobs["state"]) == {"completed"}
        assert runs_on(with_, cluster) == 0
        assert runs_on(without, cluster) > 10


def test_what_its_own_jobs_used_is_not_taken_from_them_unless_it_is_maintenance(
    tmp_path: Path,
) -> None:
    inside = job(3, "2027-01-05T09:00:00", user="ben", nodes="n2")
    beside = job(4, "2027-01-05T09:00:00", user="ben", nodes="n3")
    other = job(5, "2027-01-05T09:00:00", user="cy", nodes="n1")
    cases = [
        ("SPEC_NODES", "ben", "(null)", (inside,), NOT_MODELED, "1 job of its users"),
        ("SPEC_NODES", "ben", "(null)", (beside,), IMPORTED, "maintenance of 2 nodes"),
        ("SPEC_NODES", "ben", "(null)", (other,), IMPORTED, "1 job of other users started on its nodes"),
        ("SPEC_NODES", "-ben", "(null)", (inside,), IMPORTED, "1 job of other users started on its nodes"),
        ("SPEC_NODES", "-ben", "(null)", (other,), NOT_MODELED, "1 job of its users"),
        ("SPEC_NODES", "(null)", "sciences", (inside,), NOT_MODELED, "1 job of its users"),
        ("SPEC_NODES", "(null)", "bio", (inside,), IMPORTED, "1 job of other users started on its nodes"),
        ("SPEC_NODES", "ben", "bio", (inside,), IMPORTED, "1 job of other users started on its nodes"),
        ("MAINT,SPEC_NODES", "ben", "(null)", (inside,), IMPORTED, "1 job of its users ran on its nodes"),
    ]  # fmt: skip
    tree = "Cluster|Account|ParentName|User|Share\nc|sciences|root||1\nc|chem|sciences||1\nc|bio|root||1\n"
    for number, (flag, users, accounts, jobs, is_, why) in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "assoc.txt").write_text(tree)
        shown = reservation(flags=flag, users=users, accounts=accounts)
        made = imported(folder, shown, *MONTH, *jobs)
        told = became(made)["r"]
        assert (told.became, why in told.why) == (is_, True), (cases[number], told)
        assert len(made.site.cluster.reservations) == (is_ == IMPORTED)


def test_without_records_of_nodes_any_user_may_have_run_there(tmp_path: Path) -> None:
    def without(*columns: str) -> Imported:
        keep = [i for i, name in enumerate(HEADER.split("|")) if name not in columns]
        rows = [HEADER, *MONTH, job(3, "2027-01-05T09:00:00", nodes="n8")]
        imported(tmp_path, reservation(flags="SPEC_NODES", users="ben"))
        (tmp_path / "sacct.txt").write_text(
            "\n".join("|".join(row.split("|")[i] for i in keep) for row in rows) + "\n"
        )
        return import_site("slurm", tmp_path)

    assert became(without())["r"].became == IMPORTED
    assert became(without("NodeList"))["r"].became == IMPORTED  # ann may not
    assert became(without("User"))["r"].became == IMPORTED  # n8 is none of its nodes
    assert became(without("User", "NodeList"))["r"].became == NOT_MODELED
    assert became(without("User", "Start"))["r"].became == NOT_MODELED


@pytest.mark.parametrize(
    ("flag", "days"),
    [("WEEKLY", {5, 12, 19, 26}), ("DAILY", set(range(4, 32))), ("WEEKEND", {9, 10, 16, 17, 23, 24, 30, 31}),
     ("WEEKDAY", {d for d in range(4, 30) if (d - 4) % 7 < 5}), ("SPEC_NODES", {5})],
)  # fmt: skip
def test_those_that_come_again_do_so_before_and_after_what_is_shown(
    tmp_path: Path, flag: str, days: set[int]
) -> None:
    found = away(imported(tmp_path, reservation(flags=flag)))["r"]
    assert {int(start[3:5]) for start, _, _ in found} == days
    assert {(start[6:], end[6:]) for start, end, _ in found} == {("08:00", "16:00")}


def test_one_that_comes_again_is_at_the_same_local_time_after_a_change_of_the_clock(
    tmp_path: Path,
) -> None:
    jobs = [job(1, "2027-03-27T00:00:00"), job(2, "2027-03-29T23:00:00")]
    made = imported(tmp_path, reservation(flags="DAILY"), *jobs, zone="Europe/Berlin")
    assert [start for start, _, _ in away(made)["r"]] == [
        "03-27T07:00",
        "03-28T06:00",
        "03-29T06:00",
    ]


def test_a_job_that_may_run_for_longer_than_from_one_to_the_next_is_counted(tmp_path: Path) -> None:
    long = job(3, "2027-01-06T00:00:00", minutes=17 * 60)
    assert (
        "exceeds its interval"
        not in became(imported(tmp_path, reservation(flags="DAILY")))["r"].why
    )
    made = imported(tmp_path, reservation(flags="DAILY"), *MONTH, long)
    assert "1 job whose walltime exceeds its interval" in became(made)["r"].why


def test_json_says_the_same_as_text(tmp_path: Path) -> None:
    start = int(ZERO.timestamp()) + 32 * 3600

    def at(seconds: int) -> dict[str, object]:
        return {"set": True, "infinite": False, "number": seconds}

    one = {
        "name": "r", "start_time": at(start), "end_time": at(start + 8 * 3600), "node_list": "n[1-2]",
        "node_count": 2, "core_count": 16, "flags": ["MAINT", "SPEC_NODES", "PURGE_COMP"], "users": "root",
        "accounts": "", "groups": "", "licenses": "", "tres": "cpu=16", "burst_buffer": "",
        "purge_completed": {"time": at(1800)},
    }  # fmt: skip
    endless = {**one, "name": "e", "end_time": {"set": True, "infinite": True, "number": 0},
               "start_time": start, "flags": ["MAINT"]}  # fmt: skip
    imported(tmp_path, "")
    (tmp_path / "reservations.txt").write_text(json.dumps({"reservations": [one, endless]}))
    made = import_site("slurm", tmp_path)
    assert away(made) == {
        "r": [("01-05T08:00", "01-05T08:30", "0-1")],
        "e": [("01-05T08:00", "01-05T08:00", "0-1")],
    }
    assert (
        made.site.cluster.reservations[1].end - made.site.cluster.reservations[1].start
        == 365 * 86400
    )
    text = reservation(flags="MAINT,SPEC_NODES,PURGE_COMP=00:30:00")
    assert away(imported(tmp_path / "text", text))["r"] == away(made)["r"]


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"start": "soon"}, "'soon' is not a time"),
        ({"end": "2027-13-45T00:00:00"}, "'2027-13-45T00:00:00' is not a time"),
        ({"start": "Unknown"}, "'Unknown' is not a time"),
        ({"end": "2027-01-05T08:00:00"}, "its end is not after its start"),
        ({"nodes": "n[1-"}, "its node list is invalid"),
        ({"nodes": "m[1-2]"}, "its nodes are not described"),
        ({"flags": "HOURLY", "end": "2027-01-05T08:30:00"}, ""),
        ({"tres": "cpu=12"}, "12 of its nodes' 16 cores"),
        (
            {"nodes": "(null)", "tres": "(null)", "licences": "matlab:4"},
            "it has no nodes, but matlab:4",
        ),
        ({"nodes": "n[1-2],m1", "tres": "cpu=24"}, "not described: 1 more node"),
    ],
)
def test_settings_that_cannot_be_imported_are_named_with_the_reason(
    tmp_path: Path, about: dict[str, str], why: str
) -> None:
    made = imported(tmp_path, reservation(**about) + reservation(name="good"))
    assert why in became(made)["r"].why
    assert became(made)["good"].became == IMPORTED
    if why and "more node" not in why:
        assert [one.name for one in made.site.cluster.reservations] == ["good"]


def test_licenses_besides_nodes_are_reported_by_name(tmp_path: Path) -> None:
    made = imported(tmp_path, reservation(licences="matlab:4"))
    assert ("reservation r: Licenses", NOT_MODELED) in {
        (s.name, s.became) for s in made.site.settings
    }
    assert len(made.site.cluster.reservations) == 1


def test_of_a_truncated_text_only_complete_reservations_are_imported(tmp_path: Path) -> None:
    whole = reservation(flags="MAINT").rstrip()
    first = reservation(name="first")
    for length in range(len("ReservationName=r S"), whole.index(" State="), 7):
        made = imported(tmp_path, first + whole[:length])
        told = became(made)["r"]
        complete = "Licenses=" in whole[:length]
        assert (told.became == IMPORTED) == complete, whole[:length]
        assert "truncated" in told.why or complete
        assert became(made)["first"].became == IMPORTED


def test_one_that_comes_too_often_is_reported_by_name(tmp_path: Path) -> None:
    jobs = [job(1, "2020-01-01T00:00:00"), job(2, "2027-01-31T23:00:00")]
    made = imported(tmp_path, reservation(flags="DAILY"), *jobs)
    assert "more than 1,000 times" in became(made)["r"].why
    assert not made.site.cluster.reservations


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        ("sacct.txt", "the simulated time or the nodes are unknown"),
        ("slurm.conf", "its nodes are not described"),
    ],
)
def test_without_jobs_or_nodes_they_are_reported_by_name(
    tmp_path: Path, gone: str, why: str
) -> None:
    imported(tmp_path, reservation())
    (tmp_path / gone).unlink()
    if gone == "slurm.conf":
        (tmp_path / "p.conf").write_text("PartitionName=main Default=YES\n")
    made = import_site("slurm", tmp_path)
    assert why in became(made)["r"].why
    assert not made.site.cluster.reservations


def test_a_slurm_without_reservations_says_so(tmp_path: Path) -> None:
    made = imported(tmp_path, "No reservations in the system\n")
    assert made.files["reservations.txt"] == "scontrol show reservation"
    assert not became(made)


def test_pseudonyms_hide_names_of_reservations(tmp_path: Path) -> None:
    shown = reservation(name="secret") + reservation(name="hidden", users="ann", flags="SPEC_NODES")
    made = pseudonyms(imported(tmp_path, shown), b"0123456789abcdef")
    assert len(made.site.cluster.reservations) == 2
    assert all(one.name.startswith("reservation-") for one in made.site.cluster.reservations)
    text = " ".join(f"{s.name} {s.value} {s.why}" for s in made.site.settings)
    assert "reservation-" in text
    assert "secret" not in text
    assert "hidden" not in text


def test_outputs_of_several_days_are_read_together(tmp_path: Path) -> None:
    """A name that is used again is another reservation; one that comes again is there once."""
    first = reservation() + reservation(name="d", flags="DAILY")
    later = reservation(start="2027-01-12T08:00:00", end="2027-01-12T16:00:00") + reservation(
        name="d", flags="DAILY", start="2027-01-12T08:00:00", end="2027-01-12T16:00:00"
    )
    found = away(imported(tmp_path, first + later + first))
    assert [start for start, _, _ in found["r"]] == ["01-05T08:00", "01-12T08:00"]
    assert len(found["d"]) == len(set(found["d"])) == 28


def test_json_that_is_not_as_slurm_writes_it_is_reported_by_name(tmp_path: Path) -> None:
    imported(tmp_path, "")
    odd = [{"name": "x"}, {"name": "y", "start_time": 1e30, "end_time": "z", "flags": 7}, 5, {}]
    (tmp_path / "reservations.txt").write_text(json.dumps({"reservations": odd}))
    made = import_site("slurm", tmp_path)
    told = became(made)
    assert set(told) == {"x", "y"}
    assert all("is not a time" in one.why for one in told.values())
    assert any(
        "2 of its reservations are omitted: without a name" in note for note in made.site.notes
    )
