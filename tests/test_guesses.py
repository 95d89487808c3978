"""Names that people try first work, or the error has the right name.

The names are those that users of pandas, Polars, xarray, SimPy, Gymnasium and Batsim try.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
from typing import Any

import pytest

import hpctwin
from hpctwin import Cluster, Simulation, Workload, compare, generate, simulate, sweep
from hpctwin.errors import UnknownNameError
from hpctwin.guesses import ATTRIBUTES, OTHER_NAMES
from hpctwin.metrics import METRICS
from hpctwin.policies import parse_policy
from hpctwin.policies.backfills import BACKFILLS
from hpctwin.policies.orderings import ORDERINGS
from hpctwin.policies.placements import PLACEMENTS
from hpctwin.policies.powers import POWERS

GUESSES = [
    # Reading and writing, as in pandas and other simulators
    ("hpctwin.read_swf('month.swf')", "read_workload"),
    ("hpctwin.read_csv('jobs.csv')", "read_workload"),
    ("hpctwin.load_workload('month.swf')", "read_workload"),
    ("hpctwin.read_platform('platform.xml')", "read_cluster"),
    ("hpctwin.write_swf(workload, 'out.swf')", "write_workload"),
    ("Workload.from_swf('month.swf')", "read_workload"),
    ("Workload.from_pandas(frame)", "from_frame"),
    ("Workload('month.swf')", "read_workload"),
    ("Workload.read_csv('jobs.csv')", "read_workload"),
    ("workload.to_csv('jobs.csv')", "write_workload"),
    # Tables, as in pandas and Polars
    ("workload.head()", "workload[:5]"),
    ("workload.tail(3)", "workload[-5:]"),
    ("workload.describe()", "to_frame().describe()"),
    ("workload.to_frame()", ""),
    ("workload.to_pandas()", "hpctwin[pandas]"),
    ("workload.filter(workload.nodes > 4)", "workload[workload.nodes > 8]"),
    ("workload.query('nodes > 4')", "workload[workload.nodes > 8]"),
    ("workload.copy()", "replace"),
    ("workload.assign(nodes=1)", "replace"),
    ("workload.perturb(0.1)", "replace"),
    ("workload.columns", "to_frame()"),
    ("workload.iloc[0]", "take"),
    ("workload.shape", "len(workload)"),
    ("len(workload)", ""),
    ("workload[:5]", ""),
    ("workload.sample(3)", ""),
    ("workload.groupby('user')", "group_by"),
    ("workload.submit_time", "submit_ms"),
    ("workload.runtime", "runtime_ms"),
    ("workload.requested_time", "walltime_ms"),
    ("workload.job_ids", "job_id"),
    ("workload.jobs", "to_frame"),
    # Results
    ("result.metrics", "summary()"),
    ("result.describe()", "summary()"),
    ("result.to_frame()", "result.jobs"),
    ("result.df", "result.jobs"),
    ("result.to_pandas()", "hpctwin[pandas]"),
    ("result.save('out')", "write_parquet"),
    ("result['wait_s']", "result.jobs['wait_s']"),
    ("result.waiting_time", "jobs['wait_s']"),
    ("result.makespan", "makespan_s"),
    ("result.plot()", "plot.utilization()"),
    ("result.plot.waits()", "wait_cdf"),
    ("result.gantt()", "plot.gantt"),
    ("result.summary()['bsld']", "mean_bounded_slowdown"),
    ("result.summary()['avebsld']", "mean_bounded_slowdown"),
    ("result.summary()['mean_waiting_time']", "mean_wait_s"),
    ("result.summary(threshold_s=60)", "tau_s"),
    ("comparison.df", "summary()"),
    ("comparison['fcfs']", "fcfs+easy"),
    ("comparison['FCFS+EASY']", "fcfs+easy"),
    ("comparison.to_pandas()", "hpctwin[pandas]"),
    ("comparison.to_latex()", ""),
    ("comparison.plot.bars()", ""),
    ("swept.df", "table"),
    ("swept.summary()", "compare"),
    # Clusters
    ("Cluster(4360)", "Cluster.uniform"),
    ("Cluster(nodes=4360)", "nodes"),
    ("Cluster.uniform(16)", ""),
    ("cluster.nb_res", "node_count"),
    ("cluster.num_nodes", "node_count"),
    ("Cluster.from_dict({})", "Cluster(**fields)"),
    # Arguments
    ("simulate(workload, 16, scheduler='easy')", "policy"),
    ("simulate(workload, 16, backfilling='easy')", "backfill"),
    ("compare(workload, 16, algorithm='easy')", "policies"),
    ("compare(workload, 16, ['easy'], n_jobs=2)", "threads"),
    ("simulate(workload, 16, random_state=1)", "seed"),
    ("simulate(workload, 16)", ""),
    # SimPy and Gymnasium
    ("simulation.now", "now_s"),
    ("simulation.step()", "advance"),
    ("simulation.run(until=100)", "advance"),
    ("simulation.reset()", "fork"),
    ("simulation.process(print)", "Workload"),
    ("simulation.execute_job(1)", "begin"),
    ("hpctwin.Environment()", "Simulation"),
    ("hpctwin.make('JobSelection')", "gymnasium.make"),
    ("hpctwin.Job(nodes=2)", "Workload.build"),
    ("hpctwin.run(workload, 16)", "simulate"),
    ("hpctwin.Platform", "Cluster"),
    # Policies by the names of papers and other programs
    ("parse_policy('FCFS')", ""),
    ("parse_policy('EASY')", ""),
    ("parse_policy('FCFS+EASY@BEST-FIT~PSUS:20m')", ""),
    ("parse_policy('F1+Conservative')", ""),
    ("parse_policy('FIFO')", "fcfs"),
    ("parse_policy('saf')", "smallest-area"),
    ("parse_policy('smallest_area+easy')", "smallest-area"),
    ("parse_policy('wfp3')", "wfp"),
    ("parse_policy('WFP3+EASY')", "wfp"),
    ("parse_policy('UNICEP')", "unicef"),
    ("parse_policy('ljf')", ""),
    ("parse_policy('lxf+easy')", "expansion"),
    ("parse_policy('laf')", "largest-area"),
    ("parse_policy('spt')", "sjf"),
    ("parse_policy('cons')", "conservative"),
    ("parse_policy('fcfs+cons')", "conservative"),
    ("parse_policy('fcfs+easy_bf')", "easy"),
    ("parse_policy('fcfs+aggressive')", "easy"),
    ("parse_policy('fcfs+easy@ff')", "first-fit"),
    ("sweep(workloads=[], scheduler='easy')", "polic"),
]


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    """What an expression may use."""
    workload = generate("poisson", jobs=30, nodes=16, seed=1)
    return {
        "hpctwin": hpctwin, "Workload": Workload, "Cluster": Cluster, "workload": workload,
        "result": simulate(workload, 16), "comparison": compare(workload, 16, ["fcfs+easy"]),
        "swept": sweep(workloads=[workload], clusters=[16], policies=["fcfs+easy"]),
        "cluster": Cluster.uniform(16), "simulation": Simulation(workload, 16), "frame": None,
        "simulate": simulate, "compare": compare, "sweep": sweep, "parse_policy": parse_policy,
    }  # fmt: skip


@pytest.mark.parametrize(("guess", "right"), GUESSES, ids=[guess for guess, _ in GUESSES])
def test_a_guess_works_or_is_answered_with_the_right_name(
    guess: str, right: str, known: dict[str, Any]
) -> None:
    try:
        eval(guess, dict(known))
    except ImportError:
        raise
    except Exception as error:
        message = f"{error}".partition(" Known: ")[0]
        assert right, f"{guess} must work: {message}"
        assert right in message
    else:
        # With pandas installed, its tables are made.
        assert right in ("", "hpctwin[pandas]"), f"{guess} works; no answer is needed"


def test_each_answer_names_what_exists(known: dict[str, Any]) -> None:
    for module in ("learn", "metrics.description", "report.accessor", "report.figures.sweep"):
        importlib.import_module(f"hpctwin.{module}")
    owners = {**known, "Simulation": Simulation}
    for owner, answers in ATTRIBUTES.items():
        objects = {**owners, "result": known["swept" if owner == "SweepResult" else "result"]}
        for name, answer in answers.items():
            code = re.sub(r"'[^']*'|\[[^]]*\]", "", answer)
            named = re.findall(r"\b([A-Za-z]+)((?:\.[A-Za-z_]\w*)+)", code)
            for base, path in named:
                if base not in objects:
                    continue
                found = objects[base]
                for part in path.removeprefix(".").split("."):
                    if callable(found) and not inspect.isclass(found):
                        break  # what it returns
                    found = getattr(found, part)
            assert named or "workload[" in answer or "(" in answer, (owner, name, answer)


def test_no_answer_is_for_a_name_that_exists(known: dict[str, Any]) -> None:
    objects = {
        "hpctwin": hpctwin, "Workload": known["workload"],
        "Result": known["result"],
        "Comparison": known["comparison"], "SweepResult": known["swept"],
        "Cluster": known["cluster"], "Simulation": known["simulation"],
    }  # fmt: skip
    assert set(objects) == set(ATTRIBUTES)
    for owner, found in objects.items():
        there = [name for name in ATTRIBUTES[owner] if name.isidentifier() and hasattr(found, name)]
        assert not there, owner


def test_each_other_name_is_of_something_that_exists() -> None:
    there = {*ORDERINGS, *BACKFILLS, *PLACEMENTS, *POWERS, *METRICS, "jobs", "total_energy_j"}
    for function in (
        simulate, compare, Simulation.advance, Cluster.uniform, hpctwin.formula, Workload.build,
    ):  # fmt: skip
        there |= set(inspect.signature(function).parameters)
    there |= {"tau_s", "makespan_s", "utilization"}
    for name, rights in OTHER_NAMES.items():
        assert any(right in there for right in rights), name
        assert name == name.lower()


def test_type_checkers_still_report_unknown_names() -> None:
    """What answers a guess is not in the classes that type checkers see."""
    source = inspect.getsource(hpctwin.guesses)
    assert source.count("if not TYPE_CHECKING:\n") == source.count("    def __getattr__") == 2


def test_an_error_inside_a_property_is_not_hidden() -> None:
    class Broken(Workload):
        @property
        def broken(self) -> int:
            return self.missing_thing  # type: ignore[attr-defined,no-any-return]

    made = Broken.__new__(Broken)
    with pytest.raises(AttributeError, match="missing_thing"):
        _ = made.broken


def test_a_name_of_a_file_keeps_its_case(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "My.py").write_text("def Mine(now, job):\n    return job.nodes\n")
    assert parse_policy("My.py:Mine+EASY").name == "My.py:Mine+easy"
    with contextlib.suppress(UnknownNameError):
        pytest.fail(parse_policy("my-unknown+easy").name)
