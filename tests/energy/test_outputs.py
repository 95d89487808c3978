"""Files: SPARS's configuration in, SPARS's CSV family and ours out."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
import yaml

from hpctwin import write_workload
from hpctwin.cli import main
from hpctwin.energy.accounts.outputs import energy_tables
from hpctwin.errors import ConfigError
from hpctwin.formats.spars_config import read_spars_config
from tests.energy.test_cases import jobs
from tests.energy.test_platform import spars_machine


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    return int(stop.value.code or 0)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """SPARS's three files, four nodes and three jobs, laid out as its repository has them."""
    (tmp_path / "platforms").mkdir()
    (tmp_path / "workloads").mkdir()
    machines = {"machines": [spars_machine(number) for number in range(4)]}
    (tmp_path / "platforms" / "four.json").write_text(json.dumps(machines))
    write_workload(
        jobs((0, 100, 2), (20_000, 50, 4), (20_001, 10, 1)),
        tmp_path / "workloads" / "three.json",
        format="spars",
    )
    content = {
        "paths": {
            "workload": "workloads/three.json",
            "platform": "platforms/four.json",
            "output": "results",
        },
        "run": {
            "algorithm": "FCFS_psas",
            "overrun_policy": "terminate",
            "timeout": 600,
            "start_time": 0,
        },
        "rl": {"enabled": False},
        "logging": {"level": "TRACE"},
    }
    path = tmp_path / "simulator_config.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_sparss_configuration_runs_as_it_is(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("simulate", config, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["policy"] == "fcfs+none~spars-ipm:10m"
    assert summary["switching_on_node_s"] == 4 * 2700
    names = {path.name for path in (config.parent / "results").iterdir()}
    assert names == {
        "metrics.csv",
        "energy_log.csv",
        "raw_job_log.csv",
        "waiting_time_log.csv",
        "node_log.csv",
        "state_switch.csv",
        "raw_terminated_log.csv",
    }
    waits = pl.read_csv(config.parent / "results" / "waiting_time_log.csv")
    assert waits["waiting_time"].to_list() == [0, 2700, 2749]


def test_sparss_configuration_takes_no_other_scheduler(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("simulate", config, "--order", "sjf") == 2
    assert "simulator_config.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("section", "field", "value", "error", "says"),
    [
        ("run", "algorithm", "easy_psus_x", ConfigError, "line .*Did you mean 'easy_psus'"),
        ("run", "algorithm", "fcfs_normal", ConfigError, "never wakes"),
        ("run", "timeout", "soon", ConfigError, r"run\.timeout"),
        ("run", "overrun_policy", "kill", ConfigError, r"run\.overrun_policy"),
        ("run", "start_time", "noon", ConfigError, r"run\.start_time"),
        ("paths", "platform", "none.json", ConfigError, r"paths\.platform.*none\.json"),
        ("paths", "workload", None, ConfigError, r"paths\.workload"),
    ],
)
def test_a_bad_configuration_is_named_by_field(
    config: Path, section: str, field: str, value: object, error: type[Exception], says: str
) -> None:
    content = yaml.safe_load(config.read_text())
    content[section][field] = value
    config.write_text(yaml.safe_dump(content))
    with pytest.raises(error, match=says):
        read_spars_config(config)


def test_deviations_are_reported(config: Path) -> None:
    content = yaml.safe_load(config.read_text())
    content["run"] |= {"algorithm": "easy_psas", "start_time": "2024-05-01 12:00:00"}
    content["rl"]["enabled"] = True
    config.write_text(yaml.safe_dump(content))
    read = read_spars_config(config)
    assert read.power == "psas-ipm"
    assert [note.partition(":")[0] for note in read.notes] == ["easy_psas", "rl.enabled"]
    assert read.workload.start_epoch_s == 1_714_564_800


def test_our_tables_hold_all_energy() -> None:
    from hpctwin.policies import PowerPolicy
    from tests.energy.powered import energy_of, uniform

    energy = energy_of(
        jobs((0, 10, 1), (50, 10, 2)), uniform(2), power=PowerPolicy("psus", 5), log=True
    )
    tables = energy_tables(energy)
    assert tables["nodes"]["energy_j"].sum() == pytest.approx(energy.total_j)
    assert tables["node_log"]["energy_j"].sum() == pytest.approx(energy.total_j)
    power = tables["power"]
    joules = power["total_w"][:-1].to_numpy() @ power["time_s"].diff()[1:].to_numpy()
    assert joules == pytest.approx(energy.total_j)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A trace and a platform."""
    trace, platform = tmp_path / "jobs.csv", tmp_path / "platform.yaml"
    write_workload(jobs((0, 100, 2), (3000, 50, 4), (3001, 10, 1)), trace)
    platform.write_text(
        "nodes: [{name: n, count: 4, modes: {base: {power_w: 200, idle_w: 100}}, sleep: [{name: off,"
        " power_w: 10, switch_off: {time: 1m, power_w: 50}, switch_on: {time: 2m, power_w: 150}}]}]"
    )
    return trace, platform


def test_simulate_takes_a_platform_and_a_power_policy(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, platform = files
    prices = tmp_path / "prices.csv"
    prices.write_text("time,Price (EUR/MWh)\n0,100\n3600,10\n")
    code = run(
        "simulate", trace, "--cluster", platform, "--power", "psas-ipm:5m",
        "--price", prices, "--json", "--by", "user", "--out", tmp_path / "out",
        "--spars-out", tmp_path / "spars", "--plot", tmp_path / "states.png",
    )  # fmt: skip
    assert code == 0
    summary = json.loads(capsys.readouterr().out)
    kinds = ("idle", "computing", "switching_off", "sleeping", "switching_on")
    assert sum(summary[f"{kind}_node_s"] for kind in kinds) == 4 * summary["makespan_s"]
    assert summary["cost_eur"] == pytest.approx(summary["total_energy_j"] / 3.6e9 * 100)
    assert pl.read_parquet(tmp_path / "out" / "jobs.parquet")["energy_j"].sum() == pytest.approx(
        summary["compute_energy_j"]
    )
    assert (tmp_path / "out" / "node_log.parquet").is_file()
    assert (tmp_path / "spars" / "metrics.csv").is_file()
    assert (tmp_path / "states.png").stat().st_size > 1000


def test_a_cluster_has_its_price_and_its_carbon(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, platform = files
    (tmp_path / "carbon.csv").write_text("time,Carbon intensity (gCO2/kWh)\n0,400\n3600,400\n")
    platform.write_text(platform.read_text() + "\nprice: 0.25\ncarbon: carbon.csv\n")
    assert run("simulate", trace, "--cluster", platform, "--power", "psus:5m", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    kwh = summary["total_energy_j"] / 3.6e6
    assert summary["cost_currency"] == pytest.approx(0.25 * kwh)
    assert summary["emissions_kg"] == pytest.approx(0.4 * kwh)
    machine = tmp_path / "plain.yaml"
    machine.write_text("nodes: [{name: n, count: 4}]\nprice: 0.25\n")
    assert run("simulate", trace, "--cluster", machine) == 2
    assert "price needs a power model; add 'modes' to node group 'n'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-n", "4", "--power", "psas-ipm:5m"], "'modes'"),
        (["-M", "P", "--power", "psas"], "psas-ipm"),
        (["-M", "P", "--power", "none:5m"], "'none' has no settings"),
        (["-M", "P", "--power", "psus:-5"], "timeout"),
        (["-M", "P", "-n", "5"], "not both"),
        (["-M", "P", "--max-delay", "1h"], "--price"),
        (["-M", "P", "--power", "spars-auto:5m"], "--backfill none"),
        (["-M", "none.yaml"], "none.yaml"),
    ],
)
def test_wrong_options_are_reported_without_a_traceback(
    files: tuple[Path, Path],
    arguments: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace, platform = files
    given = [str(platform) if argument == "P" else argument for argument in arguments]
    assert run("simulate", trace, *given) == 2
    message = capsys.readouterr().err
    assert says in message
    assert "Traceback" not in message


def test_simulate_takes_a_power_policy_in_python_and_a_cap(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, platform = files
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from hpctwin.energy import Orders\n\n\ndef mine(view):\n"
        "    return Orders(on=view.nodes('sleeping')) if view.waiting else Orders(off=view.nodes('idle'))\n"
    )
    given = ("--cluster", platform, "--power", f"{mine}:mine", "--power-cap", "1kW", "--json")
    assert run("simulate", trace, *given) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["jobs_completed"] == 3
    assert summary["switching_on_node_s"] > 0
