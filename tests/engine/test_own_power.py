"""A power policy is one file: in a user's folder, or in the package, and no other file is touched."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hpctwin.engine.powers
from hpctwin import Cluster, Simulation, Workload, generate, parse_policy, simulate
from hpctwin.engine.powers import POWER_PASSES
from hpctwin.errors import ConfigError, PolicyError
from hpctwin.policies import POWERS
from tests.cli.test_cli import run

PAGE = Path(__file__).parents[2] / "docs/how-to/write-a-power-policy.md"
HOUR = 3600
MACHINE = Cluster.uniform(
    4, active_w=200, idle_w=100, sleep_w=10, off_s=60, off_w=100, on_s=300, on_w=150
)


@pytest.fixture
def night(tmp_path: Path) -> Path:
    (code,) = re.findall(r"```python\n# night.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "night.py"
    path.write_text(code)
    return path


def test_nodes_are_off_at_night_and_jobs_wait_for_them_to_wake(night: Path) -> None:
    workload = Workload.build(
        submit_s=[10 * HOUR, 22 * HOUR, 33 * HOUR],
        runtime_s=[60] * 3,
        walltime_s=[60] * 3,
        nodes=[4, 1, 4],
    )
    result = simulate(workload, MACHINE, f"fcfs~{night}")
    assert result.jobs.sort("job_id")["wait_s"].to_list() == [0, 300, 0]
    assert result.energy is not None
    spent = result.energy.state_s()
    # From eight in the evening to six, but for the one job.
    assert spent["sleeping:off"] == 4 * (10 * HOUR - 60) - 300 - 60 - 60
    assert spent["switching_on:off"] == 4 * 300 + 300
    late = simulate(workload, MACHINE, f"fcfs~{night}:POWER:evening=23h")
    assert late.jobs.sort("job_id")["wait_s"].to_list() == [0, 0, 0]


def test_it_reads_back_and_goes_with_forks_and_files(night: Path, tmp_path: Path) -> None:
    text = f"fcfs+easy~{night}:POWER:evening=22h,morning=7h"
    assert parse_policy(text).name == text
    workload = generate("poisson", jobs=60, nodes=4, seed=1)
    whole = Simulation(workload, MACHINE, text).run()
    half = Simulation(workload, MACHINE, text)
    half.advance(workload.span_s / 2)
    half.save(tmp_path / "half.npz")
    for other in (half.fork(), Simulation.load(tmp_path / "half.npz")):
        result = other.run()
        assert result.jobs.equals(whole.jobs)
        assert result.energy.total_j == whole.energy.total_j


def test_the_page_s_file_in_the_package_is_a_power_policy_by_name_with_its_settings(
    night: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    powers = hpctwin.engine.powers
    night.rename(night.with_name("page_night.py"))
    assert "page-night" not in POWER_PASSES.names()
    monkeypatch.setattr(powers, "__path__", [*powers.__path__, str(night.parent)])
    told = POWERS.find("page-night")
    assert told.help == "Idle nodes are off at night, and all are on by day."
    assert [one.name for one in told.parameters] == ["evening", "morning"]
    assert (
        simulate(
            generate("poisson", jobs=20, nodes=4, seed=1), MACHINE, "fcfs~page-night:evening=22h"
        ).policy
        == "fcfs+easy~page-night:evening=22h"
    )


def test_a_job_that_can_never_start_does_not_keep_a_policy_that_returns_each_day(
    night: Path,
) -> None:
    machine = MACHINE.model_validate(
        {
            **MACHINE.model_dump(exclude_unset=True),
            "failures": {"outages": [{"node": 0, "start": 5, "duration": "300000d"}]},
        }
    )
    workload = Workload.build(submit_s=[10], runtime_s=[60], nodes=[4])
    result = simulate(workload, machine, f"fcfs~{night}")
    assert result.jobs["state"].to_list() == ["waiting"]


BROKEN = """from hpctwin.engine.compile.jit import jit
from hpctwin.engine.passes import made_of
from hpctwin.engine.powers import switched_by


@jit
def helper(sim):
    return sim.nodes[0].power


def wrong(sim):
    x = helper(sim)


def text(sim):
    x = 1
    x = "a" + x


PASS = made_of(wrong)
POWER = switched_by(wrong)
TEXT = made_of(text)
"""


@pytest.mark.parametrize(
    ("policy", "line", "told"),
    [
        ("fcfs+{}:PASS", 8, "Unknown attribute 'nodes'"),
        ("fcfs~{}:POWER", 8, "Unknown attribute 'nodes'"),
        ("fcfs+{}:TEXT", 17, "Numba does not know add"),
    ],
)
def test_code_that_cannot_be_compiled_is_reported_in_one_line_with_file_and_line(
    policy: str, line: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    assert run("policy", "check", policy.format(path)) == 2
    (err,) = (
        one
        for one in capsys.readouterr().err.splitlines()
        if not one.startswith("hpctwin: compiling")
    )
    assert f"{path}, line {line}: " in err
    assert told in err
    workload = Workload.build(submit_s=[0], runtime_s=[1], nodes=[1])
    with pytest.raises(PolicyError, match="cannot be compiled"):
        simulate(workload, MACHINE, policy.format(path))


def test_the_published_rule_is_a_power_policy_by_name_and_says_what_it_goes_with() -> None:
    workload = Workload.build(submit_s=[0, 700], runtime_s=[10, 10], nodes=[4, 4])
    assert simulate(workload, MACHINE, "fcfs+none~spars-ipm:5m").energy is not None
    for text, told in (
        ("fcfs+easy~spars-ipm:5m", "without backfilling only"),
        ("fcfs+none@spread~spars-ipm:5m", "chooses the nodes itself"),
        ("fcfs~spars-ipm", "needs a timeout to switch nodes off"),
    ):
        with pytest.raises(ConfigError, match=told):
            simulate(workload, MACHINE, text)
