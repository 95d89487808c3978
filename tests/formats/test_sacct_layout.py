"""How dumps of sacct are laid out: without a header, of one width, with any separator."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hpctwin.errors import ConfigError, TraceError
from hpctwin.formats import read_workload
from hpctwin.formats.accounting.sacct import is_sacct, sacct_table
from hpctwin.formats.accounting.sacct_layout import COLUMNS, FIELDS, NOT_MODELED, named_columns
from hpctwin.formats.record import Tally

CELLS = {
    "jobid": "7_2", "jobidraw": "9", "cluster": "c1", "partition": "batch", "qos": "normal",
    "account": "phys", "group": "users", "gid": "100", "user": "ada", "uid": "1001",
    "submit": "2026-01-01T00:00:00",
    "eligible": "2026-01-01T00:00:00", "start": "2026-01-01T01:00:00", "end": "2026-01-01T02:00:00",
    "elapsed": "01:00:00", "exitcode": "0:0", "state": "CANCELLED by 1001", "nnodes": "2", "ncpus": "64",
    "reqcpus": "64", "reqmem": "4Gc", "reqgres": "gpu:2", "reqtres": "cpu=64,mem=256G,node=2",
    "alloctres": "billing=64,cpu=64,gres/gpu=4,mem=256G,node=2", "timelimit": "1-00:00:00",
    "nodelist": "n[01-02]", "jobname": "a|b c",
}  # fmt: skip
"""A job as sacct prints it, by column in lower case."""

ORDERS = {
    "XDMoD 11": (
        "jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,eligible,start,end,elapsed,"
        "exitcode,state,nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,jobname"
    ),
    "XDMoD 9.5": (
        "jobid,jobidraw,cluster,partition,account,group,gid,user,uid,submit,eligible,start,end,elapsed,"
        "exitcode,state,nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,jobname"
    ),
    "XDMoD 7.5": (
        "jobid,jobidraw,cluster,partition,account,group,gid,user,uid,submit,eligible,start,end,elapsed,"
        "exitcode,state,nnodes,ncpus,reqcpus,reqmem,reqgres,reqtres,timelimit,nodelist,jobname"
    ),
    "XDMoD 6.5": (
        "jobid,jobidraw,cluster,partition,account,group,gid,user,uid,submit,eligible,start,end,elapsed,"
        "exitcode,state,nnodes,ncpus,reqcpus,reqmem,timelimit,nodelist,jobname"
    ),
    "XDMoD 3.5": (
        "jobid,cluster,partition,account,group,user,submit,eligible,start,end,exitcode,nnodes,ncpus,nodelist,"
        "jobname"
    ),
}


def printed(order: str, separator: str = "|", end: str = "", **other: str) -> str:
    """A line of sacct -n with these columns."""
    cells = {**CELLS, **other}
    return separator.join(cells[name] for name in order.split(",")) + end + "\n"


def dump(tmp_path: Path, text: str, name: str = "dump.log") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("end", ["", "|"], ids=["-P", "-p"])
def test_column_orders_of_open_xdmod_are_known_without_a_header(tmp_path, order, end):
    names = ("4711", "4712", "4713")
    lines = [printed(order, end=end, jobid=name, jobname="sh") for name in names]
    lines.append(printed(order, end=end))  # its name holds the separator
    jobs = read_workload(dump(tmp_path, "".join(lines)))
    assert jobs.job_id.tolist() == ["4711", "4712", "4713", "7_2"]
    assert jobs.nodes.tolist() == [2] * 4
    assert jobs.runtime_ms.tolist() == [3_600_000] * 4
    assert jobs.recorded_start_ms.tolist() == [3_600_000] * 4
    assert (jobs.user.labels, jobs.partition.labels) == (("ada",), ("batch",))
    assert jobs.per_node["cores"].tolist() == [32] * 4
    assert jobs.recorded_nodes == ("n[01-02]",) * 4
    assert "no header; its values match the columns of Open XDMoD" in jobs.notes.remarks[0]


def test_gres_and_tres_in_one_position_are_distinguished_by_their_values(tmp_path):
    gpus = {
        name: read_workload(dump(tmp_path, printed(ORDERS[name], jobname="x"))).per_node["gpus"]
        for name in ("XDMoD 9.5", "XDMoD 7.5")
    }
    assert {name: one.tolist() for name, one in gpus.items()} == {
        "XDMoD 9.5": [2],
        "XDMoD 7.5": [2],
    }


OTHER = "jobid,user,state,submit,start,end,timelimit,nnodes,ncpus"


@pytest.mark.parametrize(
    "given",
    [{"columns": OTHER}, {"columns": "JobID%20,USER,State,sub,START,End,timel,NNodes%-4,NCPUS"}],
)
def test_other_orders_are_read_with_the_format_string_of_sacct(tmp_path, given):
    path = dump(tmp_path, printed(OTHER), "jobs.txt")
    with pytest.raises(
        TraceError, match=r"not a header, and no known column order matches; .* --columns JobID"
    ):
        read_workload(path)
    jobs = read_workload(path, **given)
    assert (jobs.job_id.tolist(), jobs.walltime_ms.tolist()) == (["7_2"], [86_400_000])


@pytest.mark.parametrize("separator", ["|", ";", "\t", "^", "::", "@@", "¦", ","])
def test_any_delimiter_is_recognized_with_and_without_a_header(tmp_path, separator):
    line = printed(ORDERS["XDMoD 11"], separator, jobname="x")
    columns = ORDERS["XDMoD 11"]
    header = separator.join(columns.split(",")) + "\n"
    headed = read_workload(dump(tmp_path, header + line), skip_invalid=False)
    bare = read_workload(dump(tmp_path, line, "bare"), columns=columns)
    for jobs in (headed, bare):
        assert jobs.job_id.tolist() == ["7_2"]
        assert jobs.nodes.tolist() == [2]
        assert jobs.per_node["cores"].tolist() == [32]


def test_a_format_string_that_does_not_fit_is_rejected_with_both_numbers(tmp_path):
    path = dump(tmp_path, printed(OTHER))
    with pytest.raises(TraceError, match=r"found 9 cells in .*--columns names 2"):
        read_workload(path, columns="jobid,submit")
    with pytest.raises(TraceError, match="a cell does not fit"):
        read_workload(path, columns="jobid,state,user,submit,start,end,timelimit,nnodes,ncpus")


def test_an_unknown_column_of_a_format_string_names_the_nearest():
    with pytest.raises(
        ConfigError, match=r"'Sumbit' is not a column of sacct.* Did you mean 'Submit'"
    ):
        named_columns("JobID,Sumbit")
    with pytest.raises(ConfigError, match="ALL: these differ between versions"):
        named_columns("ALL")


WIDE = """\
       JobID      User              Submit                 End  Elapsed      State NNodes        NodeList
------------ --------- ------------------- ------------------- -------- ---------- ------ ---------------
           1       ada 2026-01-01T00:00:00 2026-01-01T02:00:00 01:00:00  COMPLETED      2        n[01-02]
     1.batch           2026-01-01T01:00:00 2026-01-01T02:00:00 01:00:00  COMPLETED      1             n01
           2 longuser+ 2026-01-01T00:00:00 2026-01-01T03:00:00 02:00:00 CANCELLED+      4 n[01-02,04-05,+
123456789_1+       ada 2026-01-01T00:00:00 2026-01-01T03:00:00 02:00:00 OUT_OF_ME+      1             n01
"""  # fmt: skip


def test_columns_of_one_width_are_read_and_what_was_truncated_is_counted(tmp_path):
    jobs = read_workload(dump(tmp_path, WIDE, "jobs.txt"))
    assert jobs.job_id.tolist() == [1, 2]
    assert jobs.nodes.tolist() == [2, 4]
    assert jobs.recorded_nodes == ("n[01-02]", None)
    counts = jobs.notes.counts
    cut = {
        what.split()[3]: n for what, n in counts.items() if "truncated at the column width" in what
    }
    assert cut == {"User": 1, "NodeList": 1, "JobID": 1}
    assert counts["record skipped: not a job id"] == 1


@pytest.mark.parametrize(
    "head",
    [
        # sacct, sacct -l, sacct --brief, each as printed without further options
        "       JobID    JobName  Partition    Account  AllocCPUS      State ExitCode \n"
        "------------ ---------- ---------- ---------- ---------- ---------- -------- \n"
        "1234               wrap          p          a          4  COMPLETED      0:0 \n",
        "       JobID     JobIDRaw    JobName  Partition  MaxVMSize    Elapsed      State ExitCode\n"
        "------------ ------------ ---------- ---------- ---------- ---------- ---------- --------\n",
        "JobID|State|ExitCode\n1234|COMPLETED|0:0\n",
        "       JobID      State ExitCode \n------------ ---------- -------- \n",
    ],
)
def test_default_outputs_of_sacct_are_recognized_and_rejected_for_what_they_lack(tmp_path, head):
    assert is_sacct(head.encode())
    with pytest.raises(TraceError, match="field Submit: the column is missing; required are"):
        read_workload(dump(tmp_path, head, "jobs.txt"))


@pytest.mark.parametrize(
    "text",
    [
        "1 0 10 100 4 -1 -1 4 200 -1 1 1 1 -1 -1 -1 -1 -1\n",
        "1\t0\t10\t100\t4\t-1\t-1\t4\t200\t-1\t1\t1\t1\t-1\t-1\t-1\t-1\t-1\n",
        "job_id,submit_s,runtime_s,nodes\n1,0,10,1\n",
        "1,0,10,1\n2,5,10,1\n",
        "01/01/2026 00:00:00;E;1.pbs;user=ada\n",
        "ClusterName=x\nNodeName=n[1-4] CPUs=4\n",
        "",
    ],
)
def test_text_that_is_no_output_of_sacct_is_not_taken_for_one(text):
    assert not is_sacct(text.encode())


@pytest.mark.parametrize("name", FIELDS)
def test_every_column_of_sacct_is_read_or_reported_or_has_no_bearing(tmp_path, name):
    cells = {full: CELLS.get(full.lower(), "") for full in FIELDS} | {"JobName": "x"}
    columns = [
        "JobID",
        "Submit",
        "Elapsed",
        *([] if name in ("JobID", "Submit", "Elapsed") else [name]),
    ]
    text = "|".join(columns) + "\n" + "|".join(cells[one] for one in columns) + "\n"
    jobs = read_workload(dump(tmp_path, text))
    assert len(jobs) == 1
    told = " ".join(jobs.notes.remarks)
    assert (f"not modeled: {name}" in told) == (name in NOT_MODELED)
    assert named_columns(name.upper()) == (name,)
    assert not set(NOT_MODELED) & set(COLUMNS)


def test_a_column_that_no_version_of_sacct_has_is_reported_by_its_name(tmp_path):
    jobs = read_workload(
        dump(tmp_path, "JobID|Submit|Elapsed|Glitter\n1|2026-01-01T00:00:00|10:00|x\n")
    )
    assert "columns of sacct that are not modeled: Glitter" in jobs.notes.remarks[0]


def test_one_file_of_several_that_breaks_off_is_counted_and_the_others_are_read(tmp_path):
    text = "JobID|Submit|Elapsed\n" + "".join(
        f"{i}|2026-01-01T00:00:00|10:00\n" for i in range(1, 500)
    )
    whole = dump(tmp_path, text, "whole")
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(text.encode())[:-200])
    tally = Tally()
    assert len(sacct_table([cut, whole], tally).frame()) == 499
    assert tally.counts["rest of a file skipped: cannot be read"] == 1
    assert "cut.gz: the compressed file is truncated" in tally.skipped[0]
    with pytest.raises(TraceError, match="truncated"):
        sacct_table([cut], Tally()).frame()
