"""Accounts collected and redeemed, and what cheating changes."""

from __future__ import annotations

import contextlib
import inspect
import json
from pathlib import Path

import numpy as np
import pytest

from hpctwin import Cluster, errors
from hpctwin.cli.app import main
from hpctwin.model import Category, NodeGroup, Workload
from hpctwin.model.cluster.power import Component
from hpctwin.model.workload.jobs import Usage
from hpctwin.simulation import simulate
from hpctwin_papers.s_raps import incentives as experiment
from hpctwin_papers.s_raps.redeeming import PLAIN, redeem, trick, try_tricks


def machine() -> Cluster:
    """Four nodes that draw 100 W idle and 400 W used to the full."""
    parts = {"cpu": Component(idle_w=100, max_w=400)}
    return Cluster(name="small", nodes=[NodeGroup(name="node", count=4, cores=8, components=parts)])


def jobs(count: int = 40) -> Workload:
    """Jobs on all nodes of a thrifty and of a greedy account in turn, more than there is room for."""
    rows = np.arange(count)
    greedy = rows % 2 == 0
    return Workload.build(
        submit_s=rows * 10.0,
        runtime_s=np.full(count, 60.0),
        walltime_s=np.full(count, 100.0),
        nodes=np.full(count, 4.0),
        account=Category.of(np.where(greedy, "greedy", "thrifty")),
        usage={"cpu": Usage.averages(np.where(greedy, 0.9, 0.1))},
    )


def waits(found: dict[str, object]) -> tuple[float, float]:
    """Of the thrifty and of the greedy one."""
    return found["thrifty"], found["greedy"]  # type: ignore[return-value]


def test_low_power_brings_the_thrifty_forward_and_high_power_the_greedy() -> None:
    gains = redeem(jobs(), machine(), ["low-power", "high-power"]).gains()
    by_name = {
        column: dict(zip(gains["name"], gains[column], strict=True)) for column in gains.columns
    }
    thrifty, greedy = waits(by_name["low-power_wait_s"])
    assert thrifty < waits(by_name["plain_wait_s"])[0] < greedy
    thrifty, greedy = waits(by_name["high-power_wait_s"])
    assert greedy < waits(by_name["plain_wait_s"])[1] < thrifty


def test_an_account_that_collected_nothing_is_neither_first_nor_last() -> None:
    labels = ["greedy", "thrifty"] * 10 + ["greedy", "new", "thrifty"] * 7
    found = jobs(41).replace(account=Category.of(labels[:41]))
    gains = redeem(found, machine(), ["low-power"]).gains().sort("low-power_wait_s")
    assert gains["name"].to_list() == ["thrifty", "new", "greedy"]
    assert gains.filter(gains["name"] == "new")["collected_node_w"].to_list() == [None]


def test_to_split_jobs_costs_nothing_and_lowers_their_energy_delay_product() -> None:
    honest = simulate(jobs(), machine()).accounts().table
    split = simulate(trick(jobs(), "split", "greedy"), machine()).accounts().table
    for name in ("greedy", "thrifty"):
        before, after = (t.filter(t["name"] == name).row(0, named=True) for t in (honest, split))
        assert after["energy_j"] == pytest.approx(before["energy_j"])
        assert after["node_hours"] == pytest.approx(before["node_hours"])
        half = 0.5 if name == "greedy" else 1.0
        assert after["edp_js"] == pytest.approx(before["edp_js"] * half)


def test_to_idle_buys_low_mean_power_with_node_hours() -> None:
    rows = try_tricks(jobs(), machine(), ["low-power", "energy"], "greedy")
    by = {(row["incentive"], row["trick"]): row for row in rows.iter_rows(named=True)}
    honest, idle = by["low-power", "none"], by["low-power", "idle"]
    assert idle["node_hours"] == pytest.approx(2 * honest["node_hours"])
    assert idle["mean_node_w"] == pytest.approx((370 + 100) / 2)
    assert [by["low-power", t]["place"] for t in ("none", "split", "pad", "idle")] == [2, 2, 2, 2]
    assert by["low-power", "pad"]["mean_wait_s"] == pytest.approx(honest["mean_wait_s"])
    assert rows["incentive"].to_list() == ["low-power"] * 4 + ["energy"] * 4


def test_an_account_that_idles_enough_comes_first() -> None:
    modest = jobs().replace(
        usage={"cpu": Usage.averages(np.where(np.arange(40) % 2 == 0, 0.5, 0.4))}
    )
    rows = try_tricks(modest, machine(), ["low-power"], "greedy")
    by = {row["trick"]: row for row in rows.iter_rows(named=True)}
    assert (by["none"]["place"], by["idle"]["place"]) == (2, 1)
    assert by["idle"]["mean_wait_s"] < by["none"]["mean_wait_s"]


def test_a_trick_or_account_that_is_not_there_is_rejected_with_the_nearest() -> None:
    with pytest.raises(errors.UnknownNameError, match="split"):
        trick(jobs(), "spilt", "greedy")
    with pytest.raises(errors.UnknownNameError, match="greedy"):
        trick(jobs(), "split", "gredy")
    with pytest.raises(errors.ConfigError, match="two"):
        redeem(jobs(1), machine(), ["low-power"])


def test_the_experiment_rewards_thrift_under_low_power_and_points() -> None:
    tried = experiment.Incentives(("low-power", "high-power", "fugaku-points"))
    found = tried.run(tried.points()[0], lambda share: None)
    gains = found.gains().drop_nulls("collected_node_w")
    low = gains["collected_node_w"] <= gains["collected_node_w"].median()

    def wait_s(name: str) -> float:
        rows = gains.filter(low)
        return float((rows[f"{name}_wait_s"] * rows["jobs"]).sum()) / float(rows["jobs"].sum())

    assert wait_s("low-power") < wait_s(PLAIN)
    assert wait_s("fugaku-points") < wait_s(PLAIN)
    assert wait_s("low-power") < wait_s("high-power")


def test_from_a_run_to_its_accounts_to_a_rewarded_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, cluster, accounts = (str(tmp_path / n) for n in ("t.parquet", "c.yaml", "a.json"))
    jobs().to_frame().write_parquet(trace)
    Path(cluster).write_text(
        "name: small\nnodes:\n  - {name: node, count: 4, components: {cpu: {idle_w: 100, max_w: 400}}}\n"
    )
    run(["simulate", trace, "-M", cluster, "--accounts", accounts, "--json"])
    capsys.readouterr()
    run(["accounts", accounts, accounts, "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["total"]["jobs"] == 80
    assert [row["name"] for row in told["accounts"]] == ["greedy", "thrifty"]
    run(["simulate", trace, "-M", cluster, "--priorities-from", f"low-power:{accounts}", "--json"])
    assert json.loads(capsys.readouterr().out)["policy"] == "priority+easy"
    run(["incentives", trace, "-M", cluster, "-i", "low-power", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert [row["incentive"] for row in told["incentives"]] == ["plain", "low-power"]
    run(["incentives", trace, "-M", cluster, "-i", "low-power", "--cheat", "greedy"])
    assert "idle: each job is followed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--priorities-from", "low-power"], "give an incentive and a file"),
        (["--priorities-from", "low-power:nowhere.json"], "nowhere.json: no such file"),
        (["--priorities-from", "budget=many:a.json"], "budget is 'many'"),
        (["--accounts", "a.csv"], "a file name ending in .json or .parquet"),
    ],
)
def test_a_wrong_reward_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    trace = tmp_path / "t.parquet"
    jobs().to_frame().write_parquet(trace)
    with pytest.raises(SystemExit) as ended:
        main(["simulate", str(trace), "-n", "4", *arguments])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def run(arguments: list[str]) -> None:
    """A command that succeeds."""
    with contextlib.suppress(SystemExit):
        main(arguments)


@pytest.mark.parametrize("function", [redeem, try_tricks])
def test_public_functions_name_their_parameters(function: object) -> None:
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    assert not [one for one in parameters if one.kind is one.VAR_KEYWORD]
