from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

from hpctwin.errors import HpctwinError, OutputError, TraceError, UnknownNameError
from hpctwin.formats import files, read_workload, write_workload
from hpctwin.formats.files import read_json, stem
from hpctwin.model import Workload

ONE = Workload.build(submit_s=[0], runtime_s=[1], nodes=[1])


@pytest.mark.parametrize("name", ["w.swf", "w.json", "w.csv", "w.parquet"])
def test_a_folder_that_is_not_there_is_reported_by_name(tmp_path: Path, name: str) -> None:
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


SWF = "; MaxProcs: 8\n1 0 0 100 4 -1 -1 4 120 -1 1 1 1 1 1 1 -1 -1\n"


def in_zip(*names: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in names:
            archive.writestr(name, SWF)
    return packed.getvalue()


def in_tar(*names: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(SWF)
            archive.addfile(member, io.BytesIO(SWF.encode()))
    return packed.getvalue()


def frame_of_zstd(text: str) -> bytes:
    """A Zstandard frame of one raw block."""
    raw = text.encode()
    assert len(raw) < 256
    block = (len(raw) << 3 | 1).to_bytes(3, "little")
    return b"\x28\xb5\x2f\xfd\x20" + bytes([len(raw)]) + block + raw


PACKED = {
    "gz": gzip.compress(SWF.encode()),
    "two members": gzip.compress(SWF[:30].encode()) + gzip.compress(SWF[30:].encode()),
    "twice": gzip.compress(gzip.compress(SWF.encode())),
    "bz2": bz2.compress(SWF.encode()),
    "xz": lzma.compress(SWF.encode()),
    "zst": frame_of_zstd(SWF),
    "two frames": frame_of_zstd(SWF[:13]) + frame_of_zstd(SWF[13:]),
    "zip": in_zip("a.swf", "__MACOSX/._a.swf"),
    "tar": in_tar("a.swf"),
    "utf-16": SWF.encode("utf-16"),
    "utf-16 big": codecs.BOM_UTF16_BE + SWF.encode("utf-16-be"),
    "utf-16 in xz": lzma.compress(SWF.encode("utf-16")),
    "windows": codecs.BOM_UTF8 + SWF.replace("\n", "\r\n").encode(),
}


@pytest.mark.parametrize("name", ["w.swf", "w.log", "w.txt", "w", "w.swf.gz", "w.SWF.XZ", "w.2024"])
@pytest.mark.parametrize("packing", PACKED)
def test_the_content_shows_compression_and_format(tmp_path: Path, packing: str, name: str) -> None:
    (tmp_path / name).write_bytes(PACKED[packing])
    assert read_workload(tmp_path / name).runtime_ms.tolist() == [100_000]


@pytest.mark.parametrize("suffix", [".swf", ".csv", ".tsv", ".json"])
@pytest.mark.parametrize("packing", ["", ".gz", ".bz2", ".xz"])
def test_suffixes_of_packing_hold_for_writing_too(
    tmp_path: Path, suffix: str, packing: str
) -> None:
    path = tmp_path / f"w{suffix}{packing}"
    write_workload(ONE, path)
    assert packing == "" or not path.read_bytes().isascii()
    back = read_workload(path)
    assert (back.name, back.runtime_ms.tolist()) == ("w", [1000])


def test_zst_is_written_if_a_module_is_there(tmp_path: Path) -> None:
    path = tmp_path / "w.swf.zst"
    if files._zstd() is None:
        with pytest.raises(OutputError, match=r"pip install 'hpctwin\[zstd\]'"):
            write_workload(ONE, path)
        assert not path.exists()
        return
    write_workload(ONE, path)
    assert read_workload(path).runtime_ms.tolist() == [1000]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (in_zip("a.swf", "b.swf"), r"zip archive holds 2 files \(a.swf, b.swf\), expected one"),
        (in_tar("a.swf", "b.swf", "c", "d"), r"tar archive holds 4 files \(a.swf, b.swf, c, …\)"),
        (in_zip(), "zip archive holds 0 files, expected one"),
        (b"7z\xbc\xaf\x27\x1c and more", "7-Zip files are not supported; unpack the file first"),
        (PACKED["xz"][:-20], "the compressed file is truncated or corrupt"),
        (PACKED["bz2"][:-20], "the compressed file is truncated or corrupt"),
        (PACKED["zst"][:-20], "the compressed file is truncated or corrupt"),
        (in_zip("a.swf")[:-30], "the compressed file is truncated or corrupt"),
        (codecs.BOM_UTF16_LE + b"a", "starts like UTF-16 text, but is not valid UTF-16"),
    ],
)
@pytest.mark.parametrize("name", ["w.swf", "w"])
def test_a_file_that_cannot_be_unpacked_says_why(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceError, match=message):
        read_workload(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("submit_s,runtime_s,nodes\n0,100,4\n", "csv"),
        ("submit_s;runtime_s;nodes\n0;100;4\n", "csv"),
        (
            '{"jobs": [{"job_id": 1, "res": 4, "subtime": 0, "reqtime": 120, "runtime": 100}], "nb_res": 8}',
            "json",
        ),
        ("JobID|Submit|ElapsedRaw|NNodes|State\n1|2024-01-01T00:00:00|100|4|COMPLETED\n", "sacct"),
        ("# from a script\n1,0,0,100,4,-1,-1,4,120,-1,1,1,1,1,1,1,-1,-1\n", "swf"),
    ],
)
@pytest.mark.parametrize("name", ["w.log", "w.txt", "w", "w.dat.xz"])
def test_the_content_decides_if_the_name_does_not(
    tmp_path: Path, name: str, content: str, kind: str
) -> None:
    raw = content.encode()
    (tmp_path / name).write_bytes(lzma.compress(raw) if name.endswith(".xz") else raw)
    assert read_workload(tmp_path / name).runtime_ms.tolist() == [100_000]


@pytest.mark.parametrize("content", [b"Dear reader\nthis is no trace\n", b"\x89PNG\r\n\0\0,1 2 3"])
def test_content_that_is_no_workload_is_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "readme").write_bytes(content)
    with pytest.raises(TraceError, match="the format is not recognized by file name or content"):
        read_workload(tmp_path / "readme")


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[PACKED["xz"]])
    writer.start()
    assert read_workload(tmp_path / "pipe").runtime_ms.tolist() == [100_000]
    writer.join()


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


def test_the_package_imports_without_tables_or_arrays() -> None:
    check = "import sys, hpctwin.formats; print({'polars', 'numba'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"
