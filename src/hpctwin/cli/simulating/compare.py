"""``hpctwin compare``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from hpctwin.cli.energy_options import EnergyOptions
from hpctwin.cli.option_values import AT_LEAST_1
from hpctwin.cli.options import (
    BY_POLICY,
    POLICIES,
    By,
    ClusterOptions,
    Latex,
    RunOptions,
    Trace,
    TraceOptions,
    WindowOptions,
    with_site_policy,
)
from hpctwin.cli.simulating.run_options import inputs_of
from hpctwin.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl

    from hpctwin.policies import Policy
    from hpctwin.simulation import Result

__all__ = ["compare_command"]


def compare_command(
    trace: Trace,
    /,
    *more: Trace,
    policy: Annotated[tuple[str, ...], BY_POLICY] = POLICIES,
    reading: TraceOptions = TraceOptions(),  # noqa: B008
    part: WindowOptions = WindowOptions(),  # noqa: B008
    machine: ClusterOptions = ClusterOptions(),  # noqa: B008
    run: RunOptions = RunOptions(),  # noqa: B008
    energy: EnergyOptions = EnergyOptions(),  # noqa: B008
    priorities_from: Annotated[str | None, Parameter(group="Policy")] = None,
    runtime_estimate: Annotated[
        Literal["walltime", "prediction"], Parameter(group="Policy")
    ] = "walltime",
    by: By = None,
    fairness: Annotated[bool, Parameter(group="Output")] = False,
    threads: Annotated[int | None, Parameter(group="Run"), AT_LEAST_1] = None,
    out: Annotated[Path | None, Parameter(group="Output")] = None,
    plot: Annotated[Path | None, Parameter(group="Output")] = None,
    html: Annotated[Path | None, Parameter(group="Output")] = None,
    all: Annotated[bool, Parameter(group="Output")] = False,
    json: Annotated[bool, Parameter(group="Output")] = False,
    latex: Latex = False,
) -> int:
    """Simulate one or more traces under several policies and compare the policies.

    Args:
        trace: The trace: SWF, SPARS or Batsim JSON, CSV or Parquet; also .gz; - for standard input.
            Or the folder of hpctwin import, whose own policy is also compared.
        more: Further traces, each simulated under all policies. The output then shows mean
            differences over traces; from six traces on, with paired 95 % intervals that separate
            effects from chance.
        policy: Policy as ORDER+BACKFILL, for example wfp+easy, sjf+none, fcfs+easy:4/sjf (four
            reservations, candidates shortest first), fcfs+easy@contiguous. Repeatable.
        priorities_from: Give jobs the priorities that their accounts earned, as in `hpctwin simulate`.
        runtime_estimate: Planned duration of running and pending jobs: walltime or prediction.
        fairness: Also compute the delay of jobs by later arrivals (slow).
        threads: Number of policies simulated in parallel; default the number of cores.
        out: Write a folder per policy here, each as `hpctwin simulate --out`; with several traces
            in a folder per trace.
        plot: Write a chart to this file, .png, .svg or .pdf: the distribution of waits; with "bars"
            in the name, bars of the main metrics; with "radar", a Kiviat diagram. For several
            traces: the differences with their intervals.
        html: Write a report with charts on one trace to this file.
        all: Print all metrics of each policy instead of the main ones.
        json: Print the summaries as JSON; for several traces as "runs", next to "differences".
    """
    import polars as pl

    from hpctwin.cli.output import check_outputs, screen
    from hpctwin.model.text import count_text, progress_bar
    from hpctwin.policies import make_policy, parse_policy
    from hpctwin.report import summary_table
    from hpctwin.report.accessor import breakdown_table, report_results

    traces = (trace, *more)
    check_outputs(*traces, folders=[out], files=[html], figures=[plot])
    _check_several(traces, html, energy)
    texts = with_site_policy(trace, policy)
    policies = [make_policy(parse_policy(text), power=energy.power) for text in texts]
    asked = _Asked(
        reading, part, machine, run, energy, priorities_from, runtime_estimate, by, fairness,
        threads, log=out is not None
    )  # fmt: skip
    compared: list[_Compared] = []
    title = trace.name if not more else f"{len(traces)} traces"
    with progress_bar(f"{title}, {count_text(len(policies), 'policy', 'policies')}") as progress:
        for number, one in enumerate(traces):
            done = number / len(traces)
            found = asked.compared(one, policies, _share_of(progress, done, 1 / len(traces)))
            if out is not None:
                folder = out / f"{number + 1}-{_as_file(found.name)}" if more else out
                _write(found, folder, run, inputs_of(one, machine, energy))
            if more:  # free the memory of what is no longer needed
                found = dataclasses.replace(found, results={}, told=found.summaries_only())
            compared.append(found)
    code = int(any(one.code for one in compared))
    if html is not None:
        report_results(html, compared[0].results)
    console = screen(latex=latex)
    for each in compared if not json else ():
        for name, summary in each.summaries.items():
            label = f"{each.name}: {name}" if more else name
            if all:
                console.print(summary_table(summary, title=label))
            if by is not None:
                console.print(
                    breakdown_table(pl.DataFrame(each.classes[name]), by, label, alike=latex)
                )
    if more:
        _show_several(compared, plot, json, latex)
    else:
        _show_one(compared[0], plot, json, latex)
    if html is not None and not json:
        console.print(f"report: {html}")
    return code


def _share_of(
    progress: Callable[[float], None], before: float, share: float
) -> Callable[[float], None]:
    """Return the progress function for a part of the work."""
    return lambda done: progress(before + share * done)


def _check_several(traces: Sequence[Path], html: Path | None, energy: EnergyOptions) -> None:
    """Reject options that work only with one trace or one run.

    Raises:
        ConfigError: Such an option is given, or a trace is missing or given twice.
    """
    if energy.spars_out is not None:
        raise ConfigError("--spars-out works for one run only; use hpctwin simulate")
    if html is not None and len(traces) > 1:
        raise ConfigError(
            "--html reports on one trace; for several, --plot draws the differences and "
            "--out writes each run"
        )
    seen: set[Path] = set()
    for one in traces:
        if str(one) != "-" and not one.exists():
            hint = "; give a policy with -p" if _is_policy(one) else ""
            raise ConfigError(f"{one}: file does not exist{hint}")
        if one.resolve() in seen:
            raise ConfigError(
                f"{one} is given twice, which would make differences look more certain "
                "than they are; give it once"
            )
        seen.add(one.resolve())


def _is_policy(text: Path) -> bool:
    from hpctwin.errors import HpctwinError
    from hpctwin.policies import parse_policy

    try:
        parse_policy(str(text))
    except HpctwinError:
        return False
    return True


@dataclasses.dataclass(frozen=True)
class _Compared:
    """Results of one trace under all policies.

    Args:
        name: Name of the workload.
        results: Results by policy.
        told: All metrics and the tables over time, by policy.
        classes: Metrics by class of jobs, by policy; empty without a breakdown.
        code: Exit code, 1 if no job could run.
        notes: Assumptions and ignored fields.
    """

    name: str
    results: dict[str, Result]
    told: dict[str, tuple[dict[str, Any], dict[str, pl.DataFrame]]]
    classes: dict[str, list[dict[str, Any]]]
    code: int
    notes: tuple[str, ...]

    @property
    def summaries(self) -> dict[str, dict[str, Any]]:
        """All metrics, by policy."""
        return {name: summary for name, (summary, _) in self.told.items()}

    @property
    def plain(self) -> list[dict[str, Any]]:
        """The results for JSON."""
        from hpctwin.cli.output import with_notes

        return [
            summary
            | with_notes(self.notes)
            | ({"by": self.classes[name]} if name in self.classes else {})
            for name, summary in self.summaries.items()
        ]

    def summaries_only(self) -> dict[str, tuple[dict[str, Any], dict[str, pl.DataFrame]]]:
        """Return the metrics without tables over time."""
        return {name: (summary, {}) for name, summary in self.summaries.items()}


@dataclasses.dataclass(frozen=True)
class _Asked:
    """Options for reading and simulating each trace; arguments as of the command."""

    reading: TraceOptions
    part: WindowOptions
    machine: ClusterOptions
    run: RunOptions
    energy: EnergyOptions
    priorities_from: str | None
    runtime_estimate: Literal["walltime", "prediction"]
    by: By
    fairness: bool
    threads: int | None
    log: bool

    def compared(
        self, trace: Path, policies: Sequence[Policy], progress: Callable[[float], None]
    ) -> _Compared:
        """Simulate a trace under all policies."""
        from hpctwin.cli.output import note_classes, note_rejected, note_unstarted, note_walltimes
        from hpctwin.cli.simulating.run_options import option_from, planned_s
        from hpctwin.cli.simulating.simulate import breakdown_rows
        from hpctwin.metrics import unfair_delay
        from hpctwin.model.text import counted
        from hpctwin.simulation import Simulation
        from hpctwin.sweep import compare, fair_starts

        workload, window = self.reading.part(trace, self.part, self.machine)
        if self.priorities_from is not None:
            workload = option_from("hpctwin-papers", "priorities-from")(
                workload, self.priorities_from
            )
        cluster = self.energy.machine(self.machine.make(workload, trace, self.reading.timezone))
        note_classes(workload, self.by)
        series, notes = self.energy.series(workload, cluster)
        begins, saved = self.energy.deferred(workload, series, window)
        more = {**notes, **saved}
        if window is not None:
            if self.fairness:
                raise ConfigError(
                    "--from and --until do not work with --fairness; remove one of them"
                )
            window = dataclasses.replace(window, workload=workload)
        options = {
            **self.run.as_dict(), "begin_s": begins, "expected_s": planned_s(workload, self.runtime_estimate)
        }  # fmt: skip
        results = compare(
            workload, cluster, policies, threads=self.threads, part=window,
            progress=counted(progress, len(policies)),
            log=bool(series or window or self.log), **options,
        )  # fmt: skip
        told = {
            name: self.energy.summed(one, series, more, window) for name, one in results.items()
        }
        for one in policies if self.fairness else ():
            fair = fair_starts(Simulation(workload, cluster, one, **options))
            told[one.name][0].update(unfair_delay(results[one.name].jobs, fair))
        by = self.by
        classes = {name: breakdown_rows(one, by) for name, one in results.items() if by}
        first = next(iter(results.values()))
        code = note_rejected(first)
        note_walltimes(first, self.run.sharing)
        for result in results.values() if window is None else ():
            note_unstarted(result)
        return _Compared(workload.name, results, told, classes, code, first.notes)


def _show_one(compared: _Compared, plot: Path | None, json: bool, latex: bool) -> None:
    from hpctwin.cli.output import print_json, screen
    from hpctwin.report import compare_table, difference_table, saved_table

    summaries = compared.summaries
    if plot is not None:
        _plot(compared.results, summaries, plot)
    if json:
        print_json(compared.plain)
        return
    console = screen(latex=latex)
    console.print(compare_table(summaries, width=console.width, alike=latex))
    if len(summaries) > 1:
        console.print(difference_table(summaries, width=console.width))
        saved = saved_table(summaries, width=console.width)
        if saved is not None:
            console.print(saved)


def _show_several(
    compared: Sequence[_Compared], plot: Path | None, json: bool, latex: bool
) -> None:
    from hpctwin.cli.output import print_json, screen
    from hpctwin.metrics import mean_summaries, paired_differences
    from hpctwin.report import compare_table, paired_table, plot_differences
    from hpctwin.report.figures.style import save_figure

    runs = [one.summaries for one in compared]
    differences = paired_differences(runs)
    if plot is not None:
        save_figure(plot_differences(differences), plot)
    if json:
        told = [one.plain for one in compared]
        print_json({"runs": told, "differences": differences.to_dicts()})
        return
    console = screen(latex=latex)
    title = f"means over {len(runs)} traces"
    means = mean_summaries(runs)
    console.print(compare_table(means, title=title, width=console.width, alike=latex))
    if len(runs[0]) > 1:
        console.print(paired_table(differences, width=console.width))


def _as_file(name: str) -> str:
    """Return a name in the form of a file name."""
    import re

    return re.sub(r"[^A-Za-z0-9.+@~-]+", "_", name)[:80]


def _write(compared: _Compared, out: Path, run: RunOptions, inputs: list[Path]) -> None:
    """Write a folder for each policy, named after it."""
    from hpctwin.report.pages.run import write_run

    for number, (name, result) in enumerate(compared.results.items(), 1):
        summary, tables = compared.told[name]
        folder = out / f"{number}-{_as_file(name)}"
        write_run(result, folder, run.as_dict(), summary, tables=tables, inputs=inputs)


def _plot(results: dict[str, Result], summaries: dict[str, dict[str, Any]], plot: Path) -> None:
    from hpctwin.report import plot_compare_bars, plot_radar, plot_wait_cdf
    from hpctwin.report.figures.style import save_figure

    if "bars" in plot.stem:
        save_figure(plot_compare_bars(summaries), plot)
    elif "radar" in plot.stem:
        save_figure(plot_radar(summaries), plot)
    else:
        save_figure(plot_wait_cdf({name: one.jobs for name, one in results.items()}), plot)
