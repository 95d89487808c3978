"""Generic resources as Slurm writes them: names, types, counts and what else stands in an item."""

from __future__ import annotations

import pytest

from hpctwin.model.requests.requests import parse_request
from hpctwin.model.requests.resources import gres_count, parse_gres


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("gpu", [("gpu", "", 1)]),
        ("gpu:2", [("gpu", "", 2)]),
        ("gpu:2K", [("gpu", "", 2048)]),
        ("gpu:a100", [("gpu", "a100", 1)]),
        ("gpu:2080ti", [("gpu", "2080ti", 1)]),
        ("gpu:2080ti:8(S:0-1)", [("gpu", "2080ti", 8)]),
        ("gpu:1080:4", [("gpu", "1080", 4)]),
        ("gpu:1g.10gb:21(S:1),gpu:3g.40gb:2(S:0)", [("gpu", "1g.10gb", 21), ("gpu", "3g.40gb", 2)]),
        ("gpu:7g.80gb", [("gpu", "7g.80gb", 1)]),
        ("gpu:3090:0", [("gpu", "3090", 0)]),
        ("gpu:(null):2(IDX:0-1)", [("gpu", "", 2)]),
        ("gres:gpu:2080ti:2", [("gpu", "2080ti", 2)]),
        ("gres/gpu:2080ti=2,gres/gpu=2", [("gpu", "2080ti", 2), ("gpu", "", 2)]),
        ("PER_NODE:gpu:4090:1", [("gpu", "4090", 1)]),
        ("bandwidth:lustre:no_consume:4G", [("bandwidth", "lustre", 4 * 1024**3)]),
        ("fpga:xilinx(CNT:3)", [("fpga", "xilinx", 3)]),
        (" gpu:l40s:4 , shard:16", [("gpu", "l40s", 4), ("shard", "", 16)]),
        ("tmp:800G", [("tmp", "", 800 * 1024**3)]),
        *(
            (nothing, [])
            for nothing in ("", "(null)", "N/A", "none", None, 7, "4", "gres/gpu=many")
        ),
    ],
)
def test_items_have_a_name_a_type_and_a_count(
    text: object, items: list[tuple[str, str, float]]
) -> None:
    assert [(one.name, one.kind, one.amount) for one in parse_gres(text)] == items


def test_flags_and_details_are_distinguished_from_types() -> None:
    (one,) = parse_gres("net:no_consume:4(S:0,1)")
    assert (one.kind, one.consumed, one.detail, one.tres) == ("", False, "S:0,1", False)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2", 2),
        ("2k", 2048),
        ("1M", 2**20),
        ("1MB", 10**6),
        ("1GiB", 2**30),
        ("2g.10gb", None),
        ("", None),
    ],
)
def test_counts_are_digits_with_a_suffix(text: str, count: float | None) -> None:
    assert gres_count(text) == count


@pytest.mark.parametrize(
    ("text", "gpus", "types"),
    [
        ("-n 2 --gpus=2080ti:2", 1, (("gpu/2080ti", 1),)),
        ("-n 1 --gpus=1g.10gb:1", 1, (("gpu/1g.10gb", 1),)),
        ("-n 1 --gpus-per-task=3090", 3090, ()),
        ("-N 1 --gres=gpu:2080ti:2", 2, (("gpu/2080ti", 2),)),
        ("-N 1 --gres=gpu:2080ti", 1, (("gpu/2080ti", 1),)),
        ("-N 1 --gpus-per-node=4090:3,a100:1", 4, (("gpu/4090", 3), ("gpu/a100", 1))),
    ],
)
def test_requests_name_types_that_begin_with_a_digit(
    text: str, gpus: float, types: tuple[tuple[str, float], ...]
) -> None:
    asked = parse_request(text)
    assert (asked.gpus, asked.consumables) == (gpus, types)
