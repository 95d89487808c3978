"""Damaged files: whatever the damage, the answer is a workload or an HpctwinError."""

from __future__ import annotations

import functools
import gzip
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin.errors import HpctwinError
from hpctwin.formats import FORMATS, read_workload, write_workload
from hpctwin.model import Category, Workload
from tests.examples import examples

WHOLE = Workload.build(
    submit_s=range(20),
    runtime_s=range(20),
    nodes=range(1, 21),
    job_id=range(20),
    user=Category.of([n % 3 for n in range(20)]),
    recorded_start_s=range(5, 25),
    start_epoch_s=1000,
    nodes_hint=64,
)
KINDS = [
    ("w.swf", "swf"),
    ("w.swf.gz", "swf"),
    ("w.json", "spars"),
    ("w.json", "batsim"),
    ("w.csv", "csv"),
    ("w.parquet", "parquet"),
]
DAMAGE = st.lists(
    st.tuples(
        st.sampled_from(["set", "cut", "insert", "repeat"]),
        st.integers(0, 10**6),
        st.integers(1, 12),
        st.one_of(
            st.binary(max_size=4),
            st.sampled_from(
                [b"-1", b"nan", b"1e999", b"\n", b" ", b'"', b",", b";", b"null", b"{"]
            ),
        ),
    ),
    min_size=1,
    max_size=4,
)


def damaged(content: bytes, damage: list[tuple[str, int, int, bytes]]) -> bytes:
    for what, place, length, new in damage:
        at = place % (len(content) + 1)
        if what == "set":
            content = content[:at] + new + content[at + len(new) :]
        elif what == "cut":
            content = content[:at] + content[at + length :]
        elif what == "insert":
            content = content[:at] + new + content[at:]
        else:
            content = content[:at] + content[max(0, at - 30 * length) :]
    return content


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which each example writes its file anew."""
    return tmp_path_factory.mktemp("fuzz")


@functools.cache
def written(folder: Path, name: str, kind: str) -> bytes:
    path = folder / name
    write_workload(WHOLE, path, format=kind)
    return path.read_bytes()


@pytest.mark.parametrize(("name", "kind"), KINDS)
@pytest.mark.parametrize("skip_invalid", [False, True])
@settings(max_examples=examples(150))
@given(damage=DAMAGE)
def test_damage_never_raises_anything_else(
    folder: Path,
    name: str,
    kind: str,
    skip_invalid: bool,
    damage: list[tuple[str, int, int, bytes]],
) -> None:
    path = folder / name
    content = written(folder, name, kind)
    for packed in (False, True) if name.endswith(".gz") else (False,):
        if packed:
            content = gzip.compress(damaged(gzip.decompress(content), damage))
            path.write_bytes(content)
        else:
            path.write_bytes(damaged(content, damage))
        with suppress(HpctwinError):
            read_workload(path, format=kind, skip_invalid=skip_invalid)


@settings(max_examples=examples(200))
@given(content=st.binary(max_size=200), kind=st.sampled_from(FORMATS))
def test_noise_never_raises_anything_else(folder: Path, content: bytes, kind: str) -> None:
    path = folder / "noise"
    path.write_bytes(content)
    with suppress(HpctwinError):
        read_workload(path, format=kind)
