"""The command line as its users meet it."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from hpctwin import Workload, generate, write_workload
from hpctwin.cli import main


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "small.swf"
    write_workload(generate("poisson", jobs=200, nodes=32, seed=1), path)
    return path


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    return int(stop.value.code or 0)


def test_simulate_prints_its_summary_as_json(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run("simulate", trace, "--nodes", 32, "--order", "fcfs", "--backfill", "easy", "--json")
        == 0
    )
    summary = json.loads(capsys.readouterr().out)
    assert summary["jobs"] == 200
    assert {"mean_wait_s", "makespan_s", "utilization", "engine_s"} <= set(summary)


def test_simulate_writes_a_folder_that_repeats_the_run(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert (
        run("simulate", trace, "-n", 32, "--order", "-(wait/walltime)**3*nodes", "--out", out) == 0
    )
    assert len(pl.read_parquet(out / "jobs.parquet")) == 200
    assert pl.read_parquet(out / "series.parquet")["used_nodes"].max() <= 32
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["policy"] == "-(wait/walltime)**3*nodes+easy"
    assert json.loads((out / "summary.json").read_text())["jobs"] == 200


@pytest.mark.parametrize("name", ["nodes.png", "queue.svg", "gantt.pdf"])
def test_simulate_draws_figures(trace: Path, tmp_path: Path, name: str) -> None:
    assert run("simulate", trace, "-n", 32, "--plot", tmp_path / name, "--by", "size") == 0
    assert (tmp_path / name).stat().st_size > 1000


def test_compare_marks_policies_and_writes_a_report(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.html"
    chosen = ["-p", "fcfs+none", "-p", "wfp+easy"]
    assert run("compare", trace, "-n", 32, *chosen, "--html", report, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [summary["policy"] for summary in found] == ["fcfs+none", "wfp+easy"]
    assert "wfp+easy" in report.read_text()


def test_replay_counts_conflicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = Workload.build(
        submit_s=[0, 0], runtime_s=[9, 9], nodes=[3, 3], recorded_start_s=[0, 1]
    )
    write_workload(workload, tmp_path / "w.swf")
    assert run("replay", tmp_path / "w.swf", "-n", 4, "--json") == 0
    assert json.loads(capsys.readouterr().out)["conflicts"] == {"nodes": 1}


def test_workload_commands_convert_filter_describe_and_generate(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "small.parquet"
    assert run("workload", "convert", trace, table) == 0
    assert len(pl.read_parquet(table)) == 200
    wide = tmp_path / "wide.csv"
    assert run("workload", "filter", table, wide, "--min-nodes", 4, "--first", 10) == 0
    assert pl.read_csv(wide)["nodes"].min() >= 4
    capsys.readouterr()
    assert run("workload", "describe", trace, "-n", 32, "--json") == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == 200
    assert run("workload", "describe", trace, "--plot", tmp_path / "w.png") == 0
    made = tmp_path / "made.csv.gz"
    assert run("workload", "generate", "four-phase", made, "seed=3") == 0
    assert len(pl.read_csv(made)) == 150


def test_a_cluster_file_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("nodes: [{name: a, count: 4}]\nreservations: [{start: 2d, end: 1d}]\n")
    assert run("cluster", "check", path) == 2
    assert "ends at 86400 s, not after start" in capsys.readouterr().err
    path.write_text("nodes: [{name: a, count: 4, corez: 3}]\n")
    assert run("cluster", "check", path) == 2
    assert "nodes.0.corez" in capsys.readouterr().err
    path.write_text("nodes: [{name: a, count: 4}]\n")
    assert run("cluster", "check", path) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["simulate", "none.swf", "-n", "4"], 2, "none.swf"),
        (["simulate", "{trace}", "-n", "4", "-o", "wfpp"], 2, "Did you mean 'wfp'"),
        (["simulate", "{trace}", "-n", "4", "-b", "eazy"], 2, "Did you mean 'easy'"),
        (["simulate", "{trace}", "-n", "four"], 2, "-n is 'four'; it must be a whole number"),
        (["simulate", "{trace}", "-n", "0"], 2, "it must be 1 or more"),
        (["simulate", "{trace}", "-n", "4", "--plot", "x.bmp"], 2, ".png, .svg, .pdf"),
        (["compare", "{trace}", "-n", "4", "-p", "wait+nodez"], 2, "unknown field 'nodez'"),
        (["workload", "generate", "poison", "x.swf"], 2, "Did you mean 'poisson'"),
        (["workload", "generate", "poisson", "x.swf", "jobz=3"], 2, "jobz"),
        (["workload", "convert", "{trace}", "x.doc"], 2, ".doc"),
        (["polcy"], 2, "polcy"),
        (["policy", "check", "0*wait/0"], 2, "NaN"),
    ],
)
def test_errors_are_reported_in_one_line_without_a_traceback(
    trace: Path,
    arguments: list[str],
    code: int,
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(*(a.replace("{trace}", str(trace)) for a in arguments)) == code
    shown = capsys.readouterr().err
    assert told in shown
    assert "Traceback" not in shown


def test_policies_are_listed_and_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("policy", "list", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"wfp", "multifactor", "adaptive", "pas", "pfm"} <= listed["order"].keys()
    assert {"pack", "pushdown"} <= set(listed["backfill"])
    assert run("policy", "check", "wfp+easy/sjf") == 0
    assert "sjf: fine" in capsys.readouterr().out


BACKFILL = """
from hpctwin.engine.passes import Pass, capacity


def in_order(sim):
    capacity.begin_pass(sim)
    size = capacity.order_jobs(sim)
    for i in range(size):
        if not capacity.start(capacity.job_at(i, size, sim), sim):
            return


PASS = Pass(in_order)
"""


def test_a_check_reports_every_part_of_a_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(BACKFILL)
    assert run("policy", "check", f"fcfs+{mine}@best-fit~psus:20m") == 0
    order, backfill, placement, power = capsys.readouterr().out.splitlines()
    assert order.startswith("ordering fcfs: fine")
    assert backfill.startswith(
        f"backfill {mine}:PASS: fine; exclusive and shared nodes, preemption; compiled in"
    )
    assert placement == "placement best-fit: fine; exclusive and shared nodes"
    assert power == "power psus:20m: fine; needs a cluster with power states"
    assert run("policy", "check", "fcfs+easy/sjf", "--json") == 0
    said = json.loads(capsys.readouterr().out)["says"]
    assert [text.split()[0] for text in said] == [
        "ordering", "candidates", "backfill", "placement", "power",
    ]  # fmt: skip
    mine.write_text(BACKFILL.replace("return\n", "return capacity.no_such(sim)\n"))
    assert run("policy", "check", f"fcfs+{mine}") == 2
    assert "mine.py, line" in capsys.readouterr().err


POWERED = """
nodes:
  - name: a
    count: 32
    modes: {normal: {power_w: 200, idle_w: 100}}
    sleep: [{power_w: 10, switch_off: {time: 30s, power_w: 100}, switch_on: {time: 60s, power_w: 150}}]
"""


def test_simulate_answers_in_about_ten_lines_and_prints_all_if_asked(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = tmp_path / "machine.yaml"
    machine.write_text(POWERED)
    assert run("simulate", trace, "-M", machine, "-p", "sjf+easy~psus:5m", "--price", "0.25") == 0
    told = capsys.readouterr().out
    assert len(told.splitlines()) <= 14
    assert "under sjf+easy~psus:5m" in told
    assert "200: 200 completed" in told
    assert "cost" in told
    assert run("simulate", trace, "-M", machine, "--all") == 0
    assert "per-processor bounded slowdown" in capsys.readouterr().out


def test_a_flat_price_and_carbon_intensity_are_numbers(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = tmp_path / "machine.yaml"
    machine.write_text(POWERED)
    flat = ["--price", "0.25", "--carbon", "400", "--json"]
    assert run("simulate", trace, "-M", machine, *flat) == 0
    found = json.loads(capsys.readouterr().out)
    kwh = found["total_energy_j"] / 3.6e6
    assert found["cost_currency"] == pytest.approx(0.25 * kwh)
    assert found["emissions_kg"] == pytest.approx(0.4 * kwh)
    assert run("simulate", trace, "-M", machine, "--price", "-1") == 2
    assert "--price is -1; it must be 0 or more" in capsys.readouterr().err


def test_compare_takes_what_simulate_takes_and_shows_differences(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine, out = tmp_path / "machine.yaml", tmp_path / "runs"
    machine.write_text(POWERED)
    policies = ["-p", "fcfs+easy", "-p", "a-policy-that-is-not+easy"]
    assert run("compare", trace, "-M", machine, *policies) == 2
    policies = ["-p", "fcfs+easy", "-p", "sjf+easy:4/sjf~psus:5m"]
    more = ["--price", "0.25", "--out", out, "--plot", tmp_path / "bars.png"]
    capsys.readouterr()
    assert run("compare", trace, "-M", machine, *policies, *more) == 0
    told = capsys.readouterr().out
    assert "against" in told
    assert "sjf+easy:4/sjf~psus:5m" in told  # in a pipe, no name is folded
    assert (tmp_path / "bars.png").stat().st_size > 1000
    folders = sorted(folder.name for folder in out.iterdir())
    assert folders == ["1-fcfs+easy", "2-sjf+easy_4_sjf~psus_5m"]
    for folder, policy in zip(folders, ("fcfs+easy", "sjf+easy:4/sjf~psus:5m"), strict=True):
        run("simulate", trace, "-M", machine, "-p", policy, "--price", "0.25", "--json")
        alone = json.loads(capsys.readouterr().out)
        same = json.loads((out / folder / "summary.json").read_text())
        assert {k: v for k, v in alone.items() if k != "engine_s"} == {
            k: v for k, v in same.items() if k != "engine_s"
        }


def test_compare_separates_differences_over_several_traces_from_chance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["jobs=150", "nodes=16", "load=1.1"]
    assert run("workload", "generate", "poisson", "{seed}.swf", *options, "seed=1..7") == 0
    traces = sorted(tmp_path.glob("*.swf"))
    assert [file.name for file in traces] == [f"{seed}.swf" for seed in range(1, 8)]
    policies = ["-n", 16, "-p", "fcfs+none", "-p", "sjf+easy"]
    capsys.readouterr()
    assert run("compare", *traces, *policies, "--out", "runs", "--plot", "d.png") == 0
    told = capsys.readouterr().out
    assert "means over 7 traces" in told
    assert "compared with fcfs+none, paired on 7 workloads" in told
    assert "significant" in told
    assert Path("d.png").stat().st_size > 1000
    assert len(list(Path("runs").glob("*/*/summary.json"))) == 14
    assert run("compare", *traces, *policies, "--json", "--by", "size") == 0
    found = json.loads(capsys.readouterr().out)
    waits = [[summary["mean_wait_s"] for summary in pair] for pair in found["runs"]]
    assert all(pair[0]["by"][0]["jobs"] > 0 for pair in found["runs"])
    (row,) = (row for row in found["differences"] if row["metric"] == "mean_wait_s")
    assert row["difference"] == pytest.approx(sum(b - a for a, b in waits) / 7)
    assert row["low"] < row["difference"] < row["high"] < 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["{trace}"], "is given twice"),
        (["other.swf", "--html", "r.html"], "--html reports on one trace"),
        (["nothing.swf"], "nothing.swf: file does not exist\n"),
        (["sjf+easy"], "sjf+easy: file does not exist; give a policy with -p"),
    ],
)
def test_options_for_one_trace_only_are_rejected_before_the_work(
    trace: Path, capsys: pytest.CaptureFixture[str], options: list[str], told: str
) -> None:
    given = [one.format(trace=trace) for one in options]
    assert run("compare", trace, *given, "-n", 32) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "seeds", "told"),
    [
        ("jobs.swf", "seed=1..3", "several seeds need {seed} in the file name"),
        ("jobs-{seed}.swf", "seed=3..1", "write the smaller number first"),
    ],
)
def test_an_invalid_range_of_seeds_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str, seeds: str, told: str
) -> None:
    assert run("workload", "generate", "poisson", tmp_path / target, seeds) == 2
    assert told in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_compare_reports_fairness_and_classes_of_each_policy(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = ["-n", 32, "-p", "fcfs+easy", "-p", "sjf+easy"]
    assert run("compare", trace, *policies, "--fairness", "--by", "size") == 0
    told = capsys.readouterr().out
    assert "unfair" in told
    assert "sjf+easy by size" in told
    assert run("compare", trace, *policies, "--fairness", "--json") == 0
    first, _ = json.loads(capsys.readouterr().out)
    run("simulate", trace, "-n", 32, "-p", "fcfs+easy", "--fairness", "--json")
    alone = json.loads(capsys.readouterr().out)
    assert first["mean_unfair_delay_s"] == alone["mean_unfair_delay_s"]
