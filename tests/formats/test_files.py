from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hpctwin.errors import HpctwinError, OutputError, TraceError, UnknownNameError
from hpctwin.formats import read_workload, write_workload
from hpctwin.formats._files import read_json, stem
from hpctwin.model import Workload

ONE = Workload.build(submit_s=[0], runtime_s=[1], nodes=[1])


@pytest.mark.parametrize("name", ["w.swf", "w.json", "w.csv", "w.parquet"])
def test_a_folder_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError, match=r"nowhere.*cannot be written: No such file"):
        write_workload(ONE, tmp_path / "nowhere" / name)


@pytest.mark.parametrize("name", ["w.swf", "w.json", "w.csv", "w.parquet", "w.swf.gz"])
def test_missing_empty_and_unreadable_files_are_trace_errors(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(TraceError, match="No such file"):
        read_workload(path)
    path.write_bytes(b"")
    with pytest.raises(TraceError, match="the file is empty"):
        read_workload(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(TraceError, match="directory"):
        read_workload(path)


@pytest.mark.parametrize("name", ["w.json", "w.csv"])
def test_bytes_that_are_no_text_are_named_with_their_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"a\n\xff\n")
    with pytest.raises(TraceError, match="line 2: found the byte 0xff, expected UTF-8"):
        read_workload(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"jobs": [\n  1,,]}', r"line 2: not JSON: .*column 5"),
        ('{"jobs": NaN}', "found NaN, expected a finite number"),
        ("[" * 200_000, "nested too deeply"),
        ("1" * 5000, "not a usable JSON number"),
    ],
)
def test_bad_json_is_explained(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "w.json").write_text(text)
    with pytest.raises(TraceError, match=message):
        read_json(tmp_path / "w.json")


def test_an_unknown_ending_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "w.dat").touch()
    with pytest.raises(TraceError, match=r"expected one of \.swf, \.txt, \.json, \.csv"):
        read_workload(tmp_path / "w.dat")
    with pytest.raises(HpctwinError, match=r"\.parquet"):
        write_workload(ONE, tmp_path / "w")


def test_an_unknown_format_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'batsim'"):
        read_workload(tmp_path / "w.swf", format="batsin")


def test_a_format_given_goes_before_the_name(tmp_path: Path) -> None:
    write_workload(ONE, tmp_path / "w.dat", format="csv")
    assert read_workload(tmp_path / "w.dat", format="csv").name == "w.dat"


def test_names_lose_their_endings() -> None:
    assert stem(Path("a/theta.v2.swf.gz")) == "theta.v2"
    assert stem(Path(".swf")) == ".swf"


def test_the_room_opens_without_tables_or_arrays() -> None:
    check = "import sys, hpctwin.formats; print({'polars', 'numba'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"
