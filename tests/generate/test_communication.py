"""Generated communication: as often, as much and in the patterns that were asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from hpctwin import Cluster, Workload, generate, read_workload, simulate
from hpctwin.cli.app import main
from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.generate import GENERATORS
from hpctwin.generate.communication import with_communication
from hpctwin.metrics.description import describe
from hpctwin.network.patterns import Pattern

STAR = Cluster.model_validate(
    {
        "name": "star",
        "nodes": [{"name": "n", "count": 128}],
        "network": {"topology": "star", "bandwidth": "10 GB/s", "core_speed": "5 Gflop/s"},
    }
)


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_every_generator_draws_communication(name: str) -> None:
    plain = generate(name, seed=3)
    one, same = (generate(name, seed=3, communicating=0.3, storing=0.1) for _ in range(2))
    assert one.to_frame().equals(same.to_frame())
    assert one.replace(demands={}).to_frame().equals(plain.to_frame())
    wide = one.nodes > 1
    sends = np.asarray(one.demands["comm_bytes"]) > 0
    assert not sends[~wide].any()
    assert sends.sum() == pytest.approx(0.3 * wide.sum(), abs=2 * wide.sum() ** 0.5)


def test_shares_ratios_and_patterns_are_those_asked_for() -> None:
    table = generate(
        "poisson", jobs=40_000, seed=1, communicating=0.4, patterns="ring:3,gather,broadcast:1",
        comm_ratio=0.5, comm_sigma=0.8, iterations=4, storing=0.2, io_gb_per_node=3,
    ).to_frame()  # fmt: skip
    wide = table.filter(pl.col("nodes") > 1)
    sends = wide.filter(pl.col("comm_bytes") > 0)
    assert len(sends) / len(wide) == pytest.approx(0.4, abs=0.01)
    assert sends["iterations"].unique().to_list() == [4.0]
    counts = dict(sends["comm_pattern"].value_counts(normalize=True).iter_rows())
    assert counts == pytest.approx({"ring": 0.6, "gather": 0.2, "broadcast": 0.2}, abs=0.02)
    computing = sends["flops"] / sends["nodes"] / 20e9
    ratio = (sends["runtime_s"] - computing) / computing
    assert np.median(ratio) == pytest.approx(0.5, rel=0.05)
    assert np.log(ratio).std() == pytest.approx(0.8, rel=0.05)
    reads = table.filter(pl.col("read_bytes") > 0)
    assert len(reads) / len(table) == pytest.approx(0.2, abs=0.01)
    for name in ("read_bytes", "write_bytes"):
        per_node = reads[name] / reads["nodes"]
        assert per_node.mean() == pytest.approx(3e9, rel=0.05)


@pytest.mark.parametrize("pattern", list(Pattern))
def test_a_job_that_is_alone_takes_its_run_time(pattern: Pattern) -> None:
    alone = Workload.build(
        submit_s=np.arange(8) * 1e5, runtime_s=[1000.0] * 8, walltime_s=[2000.0] * 8,
        nodes=[1, 2, 3, 8, 12, 27, 64, 128],
    )  # fmt: skip
    jobs = with_communication(
        alone, communicating=1.0, patterns=pattern, core_speed="5 Gflop/s", bandwidth=10e9
    )
    table = simulate(jobs, STAR, sharing="fair").jobs
    assert (table["end_s"] - table["start_s"]).to_list() == pytest.approx([1000.0] * 8)


def test_communication_does_not_depend_on_the_size_that_the_same_seed_draws() -> None:
    jobs = generate("poisson", jobs=20_000, seed=5, communicating=0.5)
    sends = np.asarray(jobs.demands["comm_bytes"]) > 0
    narrow, broad = (sends[rows].mean() for rows in (jobs.nodes < 12, jobs.nodes >= 12))
    wide = jobs.nodes > 1
    assert sends[wide & (jobs.nodes < 12)].mean() == pytest.approx(broad, abs=0.03)
    assert narrow < broad


@pytest.mark.parametrize(
    ("options", "fault", "told"),
    [
        ({"communicating": 1.5}, ConfigError, "communicating is 1.5"),
        ({"patterns": "rings"}, UnknownNameError, "Did you mean 'ring'"),
        ({"patterns": "ring:x"}, ConfigError, "weight of ring: number 'x'"),
        ({"patterns": "ring:0"}, ConfigError, "weight of ring is 0"),
        ({"patterns": ""}, UnknownNameError, "pattern"),
        ({"patterns": 3}, ConfigError, "patterns is 3"),
        ({"comm_ratio": 0}, ConfigError, "comm_ratio is 0"),
        ({"iterations": 0}, ConfigError, "iterations is 0"),
        ({"core_speed": "20 GB/s"}, ConfigError, "core_speed: speed '20 GB/s' must be"),
        ({"bandwidth": -1}, ConfigError, "bandwidth is -1"),
        ({"communicate": 1}, UnknownNameError, "Did you mean 'communicating'"),
    ],
)
def test_wrong_options_are_rejected(options: dict[str, Any], fault: Any, told: str) -> None:
    with pytest.raises(fault, match=told):
        generate("poisson", jobs=10, **options)


def test_the_command_writes_a_table(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    options = ["jobs=200", "communicating=0.5", "patterns=all-to-all:2,neighbor-3d", "seed=4"]
    with pytest.raises(SystemExit, match="0"):
        main(["workload", "generate", "poisson", str(path), *options, "bandwidth=100 Gbit/s"])
    found = read_workload(path).to_frame()["comm_pattern"].drop_nulls().unique().sort()
    assert found.to_list() == ["all-to-all", "neighbor-3d"]


def test_a_description_shows_how_many_jobs_communicate() -> None:
    jobs = generate("poisson", jobs=2000, seed=5, communicating=0.5, storing=0.25)
    figures = describe(jobs).figures
    sends = np.asarray(jobs.demands["comm_bytes"]) > 0
    assert figures["share_with_comm_bytes"] == sends.mean()
    assert figures["share_with_read_bytes"] == pytest.approx(0.25, abs=0.03)
    assert "share_with_comm_bytes" not in describe(jobs.replace(demands={})).figures
