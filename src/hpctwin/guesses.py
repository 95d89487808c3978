"""Names that people try first, because they know them from other tools, with the right ones.

An unknown name is answered with the right one: attributes of classes and of the package by
`ATTRIBUTES`, and names of policies, metrics and arguments by `OTHER_NAMES`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

__all__ = ["ATTRIBUTES", "OTHER_NAMES", "Guessed", "GuessedType", "near", "other_names", "unknown"]

OTHER_NAMES: dict[str, tuple[str, ...]] = {
    # Orderings
    "fifo": ("fcfs",), "lifo": ("lcfs",), "spt": ("sjf",),
    "shortest": ("sjf",), "longest": ("ljf",), "lpt": ("ljf",),
    "saf": ("smallest-area",), "sqf": ("smallest",),
    "laf": ("largest-area",), "lqf": ("largest",),
    # A policy never sees a runtime.
    **dict.fromkeys(("runtime", "run_time", "duration"), ("sjf", "expected")),
    "lxf": ("expansion",), "xfactor": ("expansion",), "wfp3": ("wfp",), "unicep": ("unicef",),
    "slurm-multifactor": ("multifactor",), "fair": ("fairshare",), "fair-share": ("fairshare",),
    # Backfills
    "cons": ("conservative",), "conservative-bf": ("conservative",), "cbf": ("conservative",),
    "aggressive": ("easy",), "ebf": ("easy",), "easy-bf": ("easy",), "easybackfill": ("easy",),
    "easy-backfilling": ("easy",), "backfill": ("easy",), "no-backfill": ("none",),
    # Placements and power policies
    "ff": ("first-fit",), "bf": ("best-fit",), "consecutive": ("contiguous",),
    "timeout": ("psus",),
    # Metrics
    "bsld": ("mean_bounded_slowdown",), "avebsld": ("mean_bounded_slowdown",),
    "avgbsld": ("mean_bounded_slowdown",), "mean_bsld": ("mean_bounded_slowdown",),
    "bounded_slowdown": ("mean_bounded_slowdown",), "slowdown": ("mean_slowdown", "mean_bounded_slowdown"),
    "mean_slowdown": ("mean_bounded_slowdown",), "awt": ("mean_wait_s",), "wait": ("mean_wait_s",),
    "avg_wait": ("mean_wait_s",), "mean_wait": ("mean_wait_s",), "wait_s": ("mean_wait_s",),
    "waiting_time": ("mean_wait_s",), "mean_waiting_time": ("mean_wait_s",),
    "turnaround": ("mean_turnaround_s",), "mean_turnaround_time": ("mean_turnaround_s",),
    "response_time": ("mean_turnaround_s",), "art": ("mean_turnaround_s",),
    "util": ("utilization",), "system_utilization": ("utilization",), "makespan": ("makespan_s",),
    "energy": ("total_energy_j",), "consumed_joules": ("total_energy_j",),
    "nb_jobs": ("jobs",), "n_jobs": ("jobs", "threads"),
    # Arguments
    "scheduler": ("policy", "policies"), "scheduling": ("policy", "policies"),
    "algorithm": ("policy", "policies"), "schedulers": ("policies",), "ordering": ("order",),
    "backfilling": ("backfill",), "platform": ("cluster",), "system": ("cluster",),
    "machine": ("cluster",), "num_nodes": ("nodes", "cluster"), "n_nodes": ("nodes", "cluster"),
    "trace": ("workload",), "random_state": ("seed",), "rng": ("seed",), "until": ("until_s",),
    "workers": ("threads",), "num_workers": ("threads",), "verbose": ("progress",),
    "tqdm": ("progress",), "threshold": ("tau_s",), "threshold_s": ("tau_s",),
    "tau": ("tau_s",), "tasks": ("chunks",), "ntasks": ("chunks",), "cores": ("chunks",),
    "cores_per_task": ("chunks",), "cpus": ("chunks",), "gpus": ("chunks",), "memory": ("chunks",),
}  # fmt: skip
"""Right names by names from papers and other tools; the first that is known is suggested."""

_READ = "hpctwin.read_workload(path)"
_WRITE = "hpctwin.write_workload(workload, path)"
_FRAME = "workload.to_frame()"
_MAKE = (
    "gymnasium.make('hpctwin/JobSelection-v0', workload=…, cluster=…) after import hpctwin.learn"
)

ATTRIBUTES: dict[str, dict[str, str]] = {
    "hpctwin": {
        **dict.fromkeys(
            ("read_swf", "load_swf", "read_trace", "load_trace", "load_workload", "load", "read",
             "read_csv", "read_parquet", "read_json", "parse_swf", "open_dataset"), _READ,
        ),
        **dict.fromkeys(("write_swf", "to_swf", "save_workload", "save"), _WRITE),
        **dict.fromkeys(
            ("read_platform", "load_platform", "load_cluster", "read_system"),
            "hpctwin.read_cluster(path)",
        ),
        **dict.fromkeys(("make", "make_env", "Env", "env", "gym", "envs", "make_vec"), _MAKE),
        **dict.fromkeys(("Environment", "Simulator", "Batsim", "Engine"),
                        "hpctwin.Simulation(workload, cluster, policy)"),
        **dict.fromkeys(("Job", "Jobs"), "hpctwin.Workload.build(submit_s=…, runtime_s=…, nodes=…)"),
        **dict.fromkeys(("Resource", "Machine", "Node"), "hpctwin.Cluster.uniform(nodes=…)"),
        **dict.fromkeys(("Platform", "System"), "hpctwin.Cluster"),
        **dict.fromkeys(("run", "schedule", "evaluate"), "hpctwin.simulate(workload, cluster, policy)"),
        "Trace": "hpctwin.Workload",
        "Scheduler": "hpctwin.Policy, or the decorator hpctwin.ordering",
        "generate_workload": "hpctwin.generate(model, …)",
        "run_experiment": "hpctwin.sweep(…)",
        "plot": "result.plot, for example result.plot.gantt()",
    },
    "Workload": {
        "()": "hpctwin.read_workload(path), Workload.from_frame(table) or Workload.build(…)",
        **dict.fromkeys(
            ("from_swf", "read_swf", "from_file", "read", "load", "from_csv", "read_csv",
             "from_parquet", "read_parquet", "from_trace", "parse"), _READ,
        ),
        **dict.fromkeys(("from_pandas", "from_dataframe", "from_df", "from_polars", "from_dict"),
                        "Workload.from_frame(table)"),
        **dict.fromkeys(("generate", "random", "synthetic"), "hpctwin.generate(model, …)"),
        **dict.fromkeys(("jobs", "df", "frame", "data", "table", "dataframe", "to_polars",
                         "to_dataframe", "to_df", "values"), _FRAME),
        **dict.fromkeys(("columns", "dtypes", "schema", "sort", "iter_rows", "select"),
                        f"{_FRAME}, a Polars frame with this name"),
        "describe": f"{_FRAME}.describe(), or hpctwin workload describe FILE",
        "groupby": f"{_FRAME}.group_by(…)",
        "sort_values": f"{_FRAME}.sort(…)",
        **dict.fromkeys(("iterrows", "itertuples"), f"{_FRAME}.iter_rows(named=True)"),
        **dict.fromkeys(("plot", "hist"), "hpctwin.report.plot_workload(workload)"),
        "head": "workload[:5]",
        "tail": "workload[-5:]",
        **dict.fromkeys(("filter", "query", "where", "isel", "sel", "loc", "iloc", "subset"),
                        "workload[workload.nodes > 8] or workload.take(rows)"),
        **dict.fromkeys(("between", "slice", "truncate"), "workload.window(begin, end)"),
        **dict.fromkeys(("copy", "assign", "with_columns"),
                        "workload.replace(nodes=…); a workload never changes"),
        **dict.fromkeys(("perturb", "jitter", "shake"),
                        "workload.replace(submit_ms=…), or variations of a sweep"),
        **dict.fromkeys(("shape", "size", "n_jobs", "nb_jobs", "num_jobs", "count"), "len(workload)"),
        **dict.fromkeys(("save", "write", "to_swf", "to_csv", "to_parquet", "to_json", "dump"), _WRITE),
        **dict.fromkeys(("submit", "submit_s", "submit_time", "submission_time", "subtime",
                         "arrival", "arrival_time"), "workload.submit_ms"),
        **dict.fromkeys(("runtime", "runtime_s", "run_time", "duration", "execution_time"),
                        "workload.runtime_ms"),
        **dict.fromkeys(("walltime", "walltime_s", "requested_time", "time_limit", "estimate"),
                        "workload.walltime_ms"),
        **dict.fromkeys(("n_nodes", "num_nodes", "procs", "processors", "res", "requested_nodes"),
                        "workload.nodes"),
        **dict.fromkeys(("users", "user_id", "uid"), "workload.user"),
        **dict.fromkeys(("id", "ids", "index", "job_ids", "jobid"), "workload.job_id"),
        **dict.fromkeys(("load", "offered_load"), "hpctwin.metrics.description.describe(workload)"),
    },
    "Result": {
        "[]": "result.jobs['wait_s'] for jobs, result.summary()['mean_wait_s'] for metrics",
        **dict.fromkeys(("metrics", "stats", "statistics", "kpis", "describe", "info", "report"),
                        "result.summary()"),
        **dict.fromkeys(("df", "frame", "to_frame", "data", "table", "dataframe", "schedule",
                         "to_polars", "columns", "head", "records", "values"), "result.jobs"),
        **dict.fromkeys(("save", "to_csv", "to_parquet", "write", "to_netcdf", "export"),
                        "result.jobs.write_parquet(path), or hpctwin simulate --out FOLDER"),
        **dict.fromkeys(("wait", "waits", "wait_s", "wait_time", "waiting_time", "waiting_times"),
                        "result.jobs['wait_s']"),
        **dict.fromkeys(("start", "start_s", "start_times"), "result.jobs['start_s']"),
        **dict.fromkeys(("mean_wait", "mean_wait_s", "mean_waiting_time", "avg_wait"),
                        "result.summary()['mean_wait_s']"),
        **dict.fromkeys(("bsld", "slowdown", "bounded_slowdown", "mean_bounded_slowdown"),
                        "result.summary()['mean_bounded_slowdown']"),
        **dict.fromkeys(("utilization", "util"), "result.summary()['utilization']"),
        **dict.fromkeys(("makespan", "makespan_s"), "result.summary()['makespan_s']"),
        **dict.fromkeys(("consumed_joules", "total_energy_j", "power"), "result.energy"),
        **dict.fromkeys(("gantt", "show", "plot_gantt"), "result.plot.gantt()"),
        **dict.fromkeys(("queue", "queue_length", "timeline", "log", "events"), "result.series"),
        **dict.fromkeys(("group_by", "groupby"), "result.breakdown('user')"),
        "to_latex": "hpctwin.compare(…).to_latex()",
        **dict.fromkeys(("summary(threshold_s)", "summary(threshold)", "summary(tau)"),
                        "result.summary(tau_s=…)"),
    },
    "Comparison": {
        **dict.fromkeys(("df", "frame", "to_frame", "table", "metrics", "summaries", "results",
                         "describe", "to_polars"), "comparison.summary()"),
        **dict.fromkeys(("to_csv", "save", "write", "to_parquet"),
                        "comparison.summary().write_csv(path)"),
        **dict.fromkeys(("policies", "names"), "list(comparison)"),
        **dict.fromkeys(("best", "idxmin", "sort_values", "ranking"),
                        "comparison.summary().sort('mean_wait_s')"),
        "report": "hpctwin.report.accessor.report_results(path, comparison)",
    },
    "SweepResult": {
        **dict.fromkeys(("df", "frame", "to_frame", "rows", "results", "data", "dataframe", "jobs",
                         "to_polars"), "result.table"),
        **dict.fromkeys(("summary", "means", "mean", "groupby", "group_by", "describe"),
                        "result.compare()"),
        **dict.fromkeys(("to_csv", "save", "to_parquet"), "result.table.write_csv(path)"),
        **dict.fromkeys(("errors", "failures"), "result.failed"),
        "plot": "hpctwin.report.figures.sweep.plot_sweep(result.compare())",
    },
    "Cluster": {
        "()": "Cluster.uniform(nodes=…), a number of nodes in simulate(), or hpctwin.read_cluster(path)",
        **dict.fromkeys(("size", "n_nodes", "num_nodes", "nb_res", "nb_nodes", "total_nodes"),
                        "cluster.node_count"),
        **dict.fromkeys(("from_file", "read", "load", "from_json", "from_xml", "from_platform"),
                        "hpctwin.read_cluster(path)"),
        **dict.fromkeys(("homogeneous", "simple", "of"), "Cluster.uniform(nodes=…)"),
        "from_dict": "Cluster(**fields)",
        **dict.fromkeys(("to_dict", "to_json"), "cluster.model_dump()"),
    },
    "Simulation": {
        **dict.fromkeys(("now", "time", "clock", "current_time"), "simulation.now_s"),
        **dict.fromkeys(("step", "run_until", "tick"), "simulation.advance(until_s), or advance(instants=1)"),
        **dict.fromkeys(("reset", "copy", "clone"), "simulation.fork(), or a new Simulation"),
        **dict.fromkeys(("results", "metrics", "summary", "jobs", "stats"), "simulation.result()"),
        **dict.fromkeys(("execute_job", "execute_jobs", "start_job", "start"),
                        "simulation.begin(job_ids)"),
        **dict.fromkeys(("process", "timeout", "event", "events"),
                        "jobs in a Workload: hpctwin.Workload.build(…)"),
        "run(until)": "simulation.advance(until_s)",
        **dict.fromkeys(("queue", "peek", "waiting", "pending"), "simulation.result().jobs"),
        **dict.fromkeys(("terminated", "finished", "is_done"), "simulation.done"),
    },
}  # fmt: skip
"""Right expressions by attribute, by class or package.

``()`` is a call of the class, ``[]`` an index, and ``run(until)`` an argument of a method.
"""


def other_names(name: str) -> tuple[str, ...]:
    """Return what a name of the field is called here; empty if it is not such a name."""
    return OTHER_NAMES.get(name.lower().replace("_", "-")) or OTHER_NAMES.get(name.lower(), ())


def near(name: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests the nearest known name; empty if no name is near."""
    names = list(known)
    found = [one for one in other_names(name) if one in names]
    found = found or [one for one in names if one.lower() == name.lower()]
    # Swapped letters are the commonest slip, and difflib counts two of three of them as wrong.
    found = found or [one for one in names if sorted(one) == sorted(name)]
    found = found or difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f" Did you mean {found[0]!r}?" if found else ""


def unknown(owner: str, name: str, known: Iterable[str]) -> str:
    """Return the message for an attribute that does not exist.

    Args:
        owner: Class or package.
        name: The attribute.
        known: Existing attributes.
    """
    said = f"{owner} has no attribute {name!r}"
    if right := ATTRIBUTES.get(owner, {}).get(name):
        return f"{said}; use {right}"
    public = [one for one in known if not one.startswith("_")]
    return f"{said}.{near(name, public)}"


def _answer(of: type, name: str) -> AttributeError:
    if name.startswith("_"):
        return AttributeError(f"{of.__name__!r} object has no attribute {name!r}")
    owners = [one.__name__ for one in of.__mro__ if name in ATTRIBUTES.get(one.__name__, {})]
    owner = owners[0] if owners else of.__name__
    return AttributeError(unknown(owner, name, dir(of)))


class GuessedType(type):
    """Type of classes whose unknown attributes are answered."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            if name.startswith("_") and hasattr(super(), "__getattr__"):
                return super().__getattr__(name)  # private attributes of pydantic's models
            raise _answer(cls, name)


class Guessed:
    """Base of classes that answer an unknown attribute or call with the right one.

    Type checkers do not see this, so that they still report these names.
    """

    if not TYPE_CHECKING:

        def __new__(cls, *given: Any, **fields: Any) -> Any:
            """Reject values without a name where a function makes the object."""
            right = ATTRIBUTES.get(cls.__name__, {}).get("()")
            if given and right:
                raise TypeError(f"{cls.__name__} takes no value without a name; use {right}")
            return super().__new__(cls)

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") and hasattr(super(), "__getattr__"):
                return super().__getattr__(name)  # private attributes of pydantic's models
            if hasattr(type(self), name):
                # A property raised an AttributeError: raise it again.
                return object.__getattribute__(self, name)
            raise _answer(type(self), name)
