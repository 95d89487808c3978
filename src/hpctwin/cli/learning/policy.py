"""``hpctwin policy``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App
from cyclopts import Parameter as Option

from hpctwin.cli.option_values import AT_LEAST_1, complete_policy
from hpctwin.cli.options import ClustersOptions, Init, is_settings_file, within, write_settings

if TYPE_CHECKING:
    from hpctwin.policies.registry import Entry, Parameter

__all__ = ["policy_app"]

_WFP_FAMILY: dict[str, Any] = {
    "policies": ["-(wait/walltime)**{a}*nodes**{b}+easy:{k}"],
    "parameters": {
        "a": {"low": 0.1, "high": 5},
        "b": {"low": -1, "high": 2},
        "k": {"low": 1, "high": 8, "whole": True},
    },
}
"""Policies that a search tries by default; a = 3, b = 1 and k = 1 are WFP."""

policy_app = App(name="policy", help="List policies, check custom ones, schedule for Batsim.")


@policy_app.command
def serve(
    address: str,
    /,
    *,
    policy: Annotated[str, Option(name=["--policy", "-p"])] = "fcfs+easy",
) -> int:
    """Serve as Batsim's scheduler until its simulation ends.

    Args:
        address: Address to listen on, such as tcp://127.0.0.1:28000 (batsim -s
            tcp://127.0.0.1:28000).
        policy: Ordering and backfill, such as wfp+easy; without fair share and power policy.
    """
    from hpctwin.policies import parse_policy
    from hpctwin.simulation.schedulers import decide_for_batsim

    decide_for_batsim(address, parse_policy(policy))
    return 0


@policy_app.command(name="list")
def list_policies(
    *,
    json: bool = False,
    markdown: bool = False,
) -> int:
    """List orderings, backfills, placements and power policies with their settings.

    Args:
        json: Print the list as JSON.
        markdown: Print the list as Markdown tables.
    """
    from hpctwin.cli.output import print_json, screen
    from hpctwin.policies import REGISTRIES
    from hpctwin.report.verbatim import VerbatimTable

    if json:
        print_json(
            {kind: {name: _plain(one) for name, one in sorted(registry.entries().items())}
             for kind, registry in REGISTRIES.items()}
        )  # fmt: skip
        return 0
    if markdown:
        print("\n\n".join(map(_markdown, REGISTRIES)))
        return 0
    console = screen()
    for kind, registry in REGISTRIES.items():
        table = VerbatimTable(kind, "", "settings", box=None, header_style="bold", pad_edge=False)
        for name, one in sorted(registry.entries().items()):
            table.add_row(name, one.help, ", ".join(map(_setting, one.parameters)))
        console.print(table)
        console.print()
    console.print(
        "A policy is ORDER+BACKFILL@PLACEMENT~POWER, as in wfp+easy:2@best-fit~psus:20m; "
        "omitted parts default to fcfs, easy, first-fit and none. The ordering may be a "
        'formula, such as "-(wait/walltime)**3*nodes". Each of the four parts may be a '
        "function in a file, my.py:my_function.",
        highlight=False,
    )
    return 0


def _markdown(kind: str) -> str:
    """Return a registry as a Markdown table."""
    from hpctwin.policies import REGISTRIES

    lines = [f"| {kind} | | settings |", "|---|---|---|"]
    for name, one in sorted(REGISTRIES[kind].entries().items()):
        told = ", ".join(f"`{_setting(each)}`" for each in one.parameters)
        lines.append(f"| `{name}` | {one.help} | {told} |")
    return "\n".join(lines)


def _setting(one: Parameter) -> str:
    return f"{one.name}={one.write(one.default)}"


def _plain(one: Entry[Any]) -> dict[str, Any]:
    settings = {p.name: {"default": p.write(p.default), "help": p.help} for p in one.parameters}
    return {"help": one.help, "settings": settings}


@policy_app.command
def check(
    policy: Annotated[str, Option(allow_leading_hyphen=True, completer=complete_policy)],
    /,
    *,
    json: bool = False,
) -> int:
    """Check that each part of a policy exists, compiles, and returns numbers for all jobs.

    Args:
        policy: ORDER+BACKFILL@PLACEMENT~POWER. The ordering is a name, a formula, or a function in
            a file, my.py:my_order; the others are names or functions.
        json: Print the parsed policy and the findings as JSON.
    """
    from hpctwin.cli.output import print_json
    from hpctwin.policies import parse_policy
    from hpctwin.policies.check import check_policy

    found = parse_policy(policy)
    said = check_policy(found)
    if json:
        print_json({"policy": found.name, "says": said})
    else:
        print("\n".join(said))
    return 0


@policy_app.command
def search(
    source: Path,
    /,
    *,
    machine: ClustersOptions = ClustersOptions(),  # noqa: B008
    objective: Annotated[tuple[str, ...], Option(group="Search")] = (),
    baseline: Annotated[str | None, Option(group="Search")] = None,
    trials: Annotated[int | None, Option(group="Search"), AT_LEAST_1] = None,
    sharing: Annotated[Literal["simgrid", "fair"] | None, Option(group="Search")] = None,
    init: Init = False,
    out: Path | None = None,
    workers: Annotated[int, AT_LEAST_1] = 1,
    plot: Path | None = None,
    json: bool = False,
) -> int:
    """Search for a policy on some parts of a trace, and test the result on others.

    The parameters in the policy are chosen on the former parts. The same command resumes a search.
    Several runs at a time share the work, also on several hosts with the same folder.

    For a trace, it tunes the exponents and reservations of WFP on the first two thirds. A search
    file can name other policies, parameters and parts.

    Args:
        source: A trace; or a search file (.yaml), whose paths are relative to its folder. Options of
            cluster and search need a trace.
        objective: Metric to optimize, default mean_bounded_slowdown. Repeatable: the Pareto front.
        baseline: Policy that the winners are compared with; default fcfs+easy.
        trials: Number of policies to try; default 100.
        sharing: Let jobs that communicate share hosts and links, as SimGrid does or fairly.
        init: Write the options to search.yaml and stop; the file offers more settings.
        out: Folder for trials and resulting policies; default out/NAME of the search file or trace.
        workers: Number of policies tried in parallel.
        plot: Write a chart of all trials to this file, .png, .svg or .pdf.
        json: Print the resulting policies and all trials as JSON.
    """
    from hpctwin.cli.output import check_outputs, print_json, screen
    from hpctwin.model.text import count_text, progress_bar
    from hpctwin.report.figures.style import save_figure
    from hpctwin.report.figures.sweep import plot_search, sweep_table
    from hpctwin.sweep import SearchSettings, read_search
    from hpctwin.sweep import search as look

    if is_settings_file(
        source, nodes=machine.nodes, cluster=machine.cluster,
        objective=objective, baseline=baseline, trials=trials, sharing=sharing, init=init,
    ):  # fmt: skip
        settings = read_search(source)
    else:
        trace = within(source, "workload.parquet") or source
        content = {
            "workloads": [str(trace)],
            "clusters": machine.listed(source),
            **_WFP_FAMILY,
            "objectives": [*(objective or ("mean_bounded_slowdown",))],
            **_parts(trace),
            "baseline": baseline,
            "trials": trials,
            "run": {"sharing": sharing} if sharing else None,
        }
        content = {key: value for key, value in content.items() if value}
        settings = SearchSettings.checked(content, "options")
        if init:
            run = "hpctwin policy search search.yaml"
            return write_settings(Path("search.yaml"), settings, content, run)
    folder = out if out is not None else Path("out") / source.stem
    check_outputs(source, folders=[folder], figures=[plot])
    with progress_bar(f"{source.stem}, to {folder}") as bar:
        found = look(
            settings, out=folder, workers=workers, progress=lambda done, total: bar(done / total)
        )
    for note in found.held_out.notes:
        print(note, file=sys.stderr)
    paths = found.write(folder)
    if plot is not None:
        save_figure(plot_search(found.trials, settings.objectives), plot)
    compared = found.held_out.compare()
    if json:
        print_json(
            {
                "policies": found.winners,
                "held_out": compared.to_dicts(),
                "trials": found.trials.to_dicts(),
            }
        )
        return 0
    console = screen()
    states = dict(found.trials["state"].value_counts(sort=True).iter_rows())
    told = ", ".join(f"{count:,} {state}" for state, count in states.items())
    console.print(f"{count_text(len(found.trials), 'trial')}: {told}. On the held-out parts:")
    console.print(sweep_table(compared, width=console.width))
    console.print("written: " + ", ".join(map(str, paths)))
    return 0


def _parts(trace: Path) -> dict[str, Any]:
    """Return two thirds of a trace for the choice of parameters, and the rest for the test."""
    from hpctwin.cli.output import need_jobs
    from hpctwin.formats import read_workload
    from hpctwin.model import MS_PER_S

    workload = read_workload(trace)
    need_jobs(workload)
    end_s = int(workload.submit_ms[-1] / MS_PER_S) + 1
    middle = f"{end_s * 2 // 3}s"
    return {
        "train": [{"begin": "0s", "end": middle}],
        "held_out": [{"begin": middle, "end": f"{end_s}s"}],
    }
