"""A facility's results on a page: each cluster is a run among others."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from starlette.testclient import TestClient

from hpctwin import generate
from hpctwin.cli.app import main
from hpctwin.formats import write_workload
from hpctwin.report.pages.run import read_run, runs_in
from hpctwin.web.server.assembly import together
from hpctwin.web.server.gate import Access, Gate
from hpctwin.web.server.serve import run_part

FACILITY = """\
name: two
clusters:
  - name: big one
    machine: big.yaml
  - name: small
    nodes: 8
"""
BIG = "nodes: [{name: n, count: 16, modes: {base: {power_w: 200, idle_w: 50}}}]"


def test_each_cluster_of_a_facility_has_a_page_with_the_jobs_that_were_there(
    tmp_path: Path,
) -> None:
    place, trace, out = tmp_path / "two.yaml", tmp_path / "trace.csv", tmp_path / "out"
    place.write_text(FACILITY)
    (tmp_path / "big.yaml").write_text(BIG)
    write_workload(generate("poisson", jobs=40, nodes=8, seed=4), trace)
    with pytest.raises(SystemExit) as end:
        main(["facility", "compare", str(trace), str(place), "-s", "random", "-s", "least-loaded",
              "--out", str(out), "--json"])  # fmt: skip
    assert end.value.code == 0
    found = runs_in(out)
    assert [str(one.relative_to(out)) for one in found] == [
        "least-loaded/big_one", "least-loaded/small", "random/big_one", "random/small",
    ]  # fmt: skip
    of_all = pl.read_parquet(out / "random" / "jobs.parquet")
    for folder, cluster in ((found[2], "big one"), (found[3], "small")):
        run = read_run(folder)
        here = of_all.filter(pl.col("cluster") == cluster)
        assert set(run.jobs["job_id"]) == set(here["job_id"])
        assert set(run.manifest["inputs"]) == {str(place), str(trace)}
    energy = read_run(found[2]).jobs["energy_j"]
    assert (energy > 0).all()
    parts = {f"{i}": run_part(folder) for i, folder in enumerate(found)}
    with TestClient(
        Gate(together(parts), Access((), frozenset())), base_url="http://localhost"
    ) as client:
        shown = client.get("/api/v1/shown").json()
        assert [one["kind"] for one in shown] == ["run"] * 4
        assert client.get("/2/api/v1/jobs").json()["found"] == len(read_run(found[2]).jobs)
        assert client.get("/3/api/v1/timeline").json()["lanes"] == 8
