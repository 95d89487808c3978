"""Search of policies: what is chosen is better on the jobs it is chosen on, and told on others."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest

pytest.importorskip("optuna")

from hpctwin import generate, simulate
from hpctwin.cli import main
from hpctwin.errors import ConfigError, HpctwinError
from hpctwin.policies.policy import read_policy
from hpctwin.sweep import SearchSettings, search

JOBS = generate("poisson", jobs=300, nodes=16, load=0.95, seed=3).replace(name="mine")
HALF = f"{JOBS.span_s / 2:.0f}s"
WANTED: dict[str, Any] = {
    "workloads": [{"trace": "mine", "name": "mine"}],
    "policies": ["walltime**{a}*nodes**{b}+easy"],
    "parameters": {"a": {"low": -1, "high": 2}, "b": {"low": -1, "high": 1}},
    "objectives": ["mean_wait_s"],
    "train": [{"begin": "0", "end": HALF}],
    "held_out": [{"begin": HALF, "end": "1000d"}],
    "trials": 12,
}


def found(tmp_path: Path, **changed: Any) -> Any:
    settings = SearchSettings.checked({**WANTED, **changed}, "here")
    return search(settings, out=tmp_path / "out", given={"mine": JOBS})


def test_the_winner_is_the_best_of_the_trials_and_its_figures_are_its_simulations(
    tmp_path: Path,
) -> None:
    result = found(tmp_path)
    whole = result.trials.filter(state="complete")
    assert len(result.trials) == 12
    best = whole.sort("mean_wait_s").row(0, named=True)
    assert result.winners == (best["policy"],)
    train = JOBS.window(0, HALF)
    assert best["mean_wait_s"] == simulate(train, 16, best["policy"]).summary()["mean_wait_s"]
    rest = JOBS.window(HALF)
    held = dict(result.held_out.table.select("policy", "mean_wait_s").iter_rows())
    for policy in ("fcfs+easy", best["policy"]):
        assert held[policy] == simulate(rest, 16, policy).summary()["mean_wait_s"]
    (path,) = result.write(tmp_path)
    assert read_policy(path) == best["policy"]
    assert (
        f"mean_wait_s {held[best['policy']]:.6g}, fcfs+easy {held['fcfs+easy']:.6g}"
        in path.read_text()
    )


def test_the_same_settings_find_the_same_and_a_search_continues(tmp_path: Path) -> None:
    once = found(tmp_path / "a")
    assert once.trials.equals(found(tmp_path / "b").trials)
    found(tmp_path / "c", trials=5)
    longer = found(tmp_path / "c")
    assert len(longer.trials) == 12
    assert longer.trials.head(5).equals(once.trials.head(5))
    with pytest.raises(ConfigError, match="contains the trials of another search"):
        found(tmp_path / "c", objectives=["max_wait_s"])


def test_a_continued_or_shared_search_tries_other_policies(tmp_path: Path) -> None:
    found(tmp_path, trials=5)
    assert found(tmp_path).trials["policy"].is_unique().all()
    # Two at once: each begins before the other has told of any trial.
    both = tmp_path / "both"
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(found, both) for _ in range(2)]
        tables = [end.result().trials for end in ends]
    trials = max(tables, key=len)
    assert 12 <= len(trials) <= 13
    assert trials["policy"].is_unique().all()


def test_hopeless_candidates_stop_after_the_first_jobs(tmp_path: Path) -> None:
    result = found(tmp_path, trials=25)
    pruned = result.trials.filter(state="pruned")
    assert 0 < len(pruned) < 20
    assert set(pruned["prefix"]) <= {0.1, 0.3}
    for row in pruned.iter_rows(named=True):
        before = [
            simulate(JOBS.window(0, HALF)[: round(row["prefix"] * len(JOBS.window(0, HALF)))], 16, policy)
            .summary()["mean_wait_s"]
            for policy in result.trials.filter(pl.col("trial") < row["trial"])["policy"]
        ]  # fmt: skip
        # Some of these were pruned earlier, so they were not tried on the longer part.
        assert (
            row["prefix"] == 0.3
            or sum(one < row["mean_wait_s"] for one in before) > len(before) / 2
        )


def test_a_front_of_several_objectives_is_found(tmp_path: Path) -> None:
    result = found(
        tmp_path, objectives={"mean_wait_s": "low", "max_wait_s": "low"}, trials=15, prefixes=[]
    )
    points = {
        row["policy"]: (row["mean_wait_s"], row["max_wait_s"])
        for row in result.trials.iter_rows(named=True)
    }
    front = {
        policy
        for policy, one in points.items()
        if not any(b[0] <= one[0] and b[1] <= one[1] and b != one for b in points.values())
    }
    assert set(result.winners) == front
    assert set(result.held_out.table["policy"]) == {"fcfs+easy", *front}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"objectives": ["mean_wiat_s"]}, "Did you mean 'mean_wait_s'?"),
        ({"policies": ["walltime**{c}+easy"]}, "{c} is no parameter"),
        ({"policies": ["waltime**{a}*{b}+easy"]}, "unknown field 'waltime'"),
        ({"prefixes": [0.3, 0.1]}, "prefixes must increase"),
        ({"held_out": WANTED["train"]}, "is in both train and held_out"),
        ({"trial": 3}, "Did you mean 'trials'?"),
        ({"held_out": [{"begin": "900d", "end": "901d"}]}, "has no jobs from 900d to 901d"),
        ({"train": [{"begin": "900d", "end": "901d"}]}, "has no jobs from 900d to 901d"),
    ],
)
def test_wrong_settings_of_a_search_are_reported(tmp_path: Path, changed: Any, said: str) -> None:
    with pytest.raises(HpctwinError) as caught:
        found(tmp_path, **changed)
    assert said in str(caught.value)


def test_the_command_writes_a_policy_that_simulate_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    generated = [{"generate": "poisson", "options": {"jobs": 200, "nodes": 16}}]
    Path("find.yaml").write_text(json.dumps({**WANTED, "workloads": generated, "trials": 6}))
    with pytest.raises(SystemExit) as left:
        main(["policy", "search", "find.yaml", "--plot", "find.png"])
    assert left.value.code == 0
    assert "6 trials" in capsys.readouterr().out
    assert Path("find.png").read_bytes().startswith(b"\x89PNG")
    assert read_policy("out/find/policy.yaml").endswith("+easy")
