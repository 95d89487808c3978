"""``hpctwin predictor``: learned prediction of runtimes, power and memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from hpctwin.cli.option_values import AT_LEAST_0, AT_LEAST_1
from hpctwin.cli.options import ClusterOptions, Overwrite, Trace, TraceOptions, WindowOptions

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

    from hpctwin.learn.prediction import Known
    from hpctwin.model import Workload
    from hpctwin.twin.start_times.hindcast import Steadiness

__all__ = ["predictor_app"]

predictor_app = App(
    name="predictor", help="Learn runtimes, power and memory from finished jobs; predict, score."
)

Methods = Annotated[tuple[str, ...], Parameter(name=["--method", "-m"])]
Every = Annotated[
    int,
    Parameter(help="Number of submissions between trainings of the models."),
    AT_LEAST_1,
]
Target = Literal["runtime_s", "node_w", "memory_gb"]


@Parameter(name="*")
@dataclass(frozen=True)
class JobOptions:
    """Jobs to learn from."""

    seed: int = 0
    """Seed of the models' random numbers."""
    under: str | None = None
    """Policy of a simulation, such as fcfs+easy, that sets when jobs end; default the trace."""
    reading: TraceOptions = TraceOptions()  # noqa: RUF009
    machine: ClusterOptions = ClusterOptions()  # noqa: RUF009

    def known(self, trace: Path) -> Known:
        """Return the jobs of a trace with their end times."""
        from hpctwin.cli.output import need_jobs, note_reading
        from hpctwin.errors import ConfigError
        from hpctwin.learn.prediction import Known
        from hpctwin.policies import parse_policy
        from hpctwin.simulation import simulate

        workload = self.reading.read(trace)
        note_reading(workload)
        if self.under is None:
            if self.machine != ClusterOptions():
                raise ConfigError(
                    "--nodes and --cluster apply only to a simulation; add --under POLICY"
                )
            return Known.of(workload, notes=workload.notes.sentences())
        need_jobs(workload)
        run = simulate(workload, self.machine.make(workload, trace), parse_policy(self.under))
        return Known.of(workload, run.jobs["end_s"].fill_null(float("nan")), run.notes)


@predictor_app.command
def score(
    trace: Trace,
    /,
    *,
    target: Target = "runtime_s",
    method: Methods = (),
    by: Literal["user", "size"] | None = None,
    every: Every = 2000,
    jobs: JobOptions = JobOptions(),
    json: bool = False,
) -> int:
    """Predict each job from the data known at its submission, and show each method's error.

    The scores exclude the first fifth of the jobs.

    Args:
        trace: Trace that records users and start times.
        target: Predicted value: runtime_s, node_w or memory_gb, if the trace has it.
        method: Method: walltime, recent (the user's last two), like (the last of the same user, nodes
            and walltime), boosting, clusters (S-RAPS's pipeline), ensemble, hedge; default all.
            Repeatable.
        by: Also show scores by user, or by size.
        json: Print the scores as JSON.
    """
    from hpctwin.learn.prediction import METHODS, Training, predict, scores, scores_by
    from hpctwin.model.text import progress_bar

    known = jobs.known(trace)
    with progress_bar(f"learning from {known.workload.name}") as progress:
        training = Training(every=every, seed=jobs.seed)
        found = predict(known, target, method or METHODS, training, progress)
    overall = scores(known, target, found)
    classes = None if by is None else scores_by(known, target, found, by)
    _show({"target": target}, known, "methods", overall, classes, by, _accuracy(target), json)
    return 0


@predictor_app.command
def intervals(
    trace: Trace,
    /,
    *,
    target: Target = "runtime_s",
    coverage: float = 0.8,
    by: Literal["user", "size", "week"] | None = None,
    every: Every = 2000,
    jobs: JobOptions = JobOptions(),
    json: bool = False,
) -> int:
    """Predict bounds for each job from data known at its submission; show their coverage.

    Compares three kinds: calibrated (conformal) intervals, the quantiles of gradient boosting, and
    the quantiles of the user's last 20 jobs. The scores exclude the first fifth of the jobs.

    Args:
        trace: Trace that records users and start times.
        target: Predicted value: runtime_s, node_w or memory_gb, if the trace has it.
        coverage: Share of jobs that should be within their bounds.
        by: Also show scores by user, size or week.
        json: Print the scores as JSON.
    """
    from hpctwin.learn.prediction import Training, interval_scores
    from hpctwin.learn.prediction import intervals as say
    from hpctwin.learn.prediction.intervals import check_coverage
    from hpctwin.model.text import progress_bar

    check_coverage(coverage)
    known = jobs.known(trace)
    with progress_bar(f"learning from {known.workload.name}") as progress:
        found = say(known, target, coverage, Training(every=every, seed=jobs.seed), progress)
    overall = interval_scores(known, target, found).drop("bin")
    classes = None if by is None else interval_scores(known, target, found, by)
    about = {"target": target, "coverage": coverage}
    _show(about, known, "ways", overall, classes, by, _HELD, json)
    return 0


@predictor_app.command
def apply(
    source: Trace,
    target: Path,
    /,
    *,
    predictor: Path | None = None,
    method: Annotated[str, Parameter(name=["--method", "-m"])] = "hedge",
    every: Every = 2000,
    jobs: JobOptions = JobOptions(),
    overwrite: Overwrite = False,
) -> int:
    """Write a trace with predictions, for orderings and simulate --runtime-estimate prediction.

    Args:
        source: Trace that records users and start times.
        target: File to write, .csv or .parquet; also .gz.
        predictor: File written by hpctwin predictor train. If omitted, models learn along the
            trace, and each prediction uses the data known at the job's submission.
        method: Without --predictor: a method of hpctwin predictor score.
    """
    from hpctwin.cli.data.workload import check_target, write_to
    from hpctwin.errors import ConfigError
    from hpctwin.learn.prediction import Training, load_predictor, predict, with_predictions
    from hpctwin.model.text import count_text, progress_bar

    check_target(target, overwrite)
    if not target.name.endswith((".csv", ".csv.gz", ".parquet")):
        raise ConfigError(f"{target}: suffix cannot store predictions; use .csv or .parquet")
    trained = None if predictor is None else load_predictor(predictor)
    known = jobs.known(source)
    if trained is not None:
        found = trained.predict(known)
    else:
        training, targets = Training(every=every, seed=jobs.seed), list(known.truth)
        found = {}
        with progress_bar(f"learning from {known.workload.name}") as progress:
            for number, one in enumerate(targets):

                def part(share: float, done: int = number) -> None:
                    progress((done + share) / len(targets))

                predicted = predict(known, one, [method], training, part)
                if method in predicted:  # the method walltime does not predict power
                    found[one] = predicted[method]
    write_to(with_predictions(known.workload, found), target)
    print(f"{target}: {count_text(len(known.workload), 'job')} with {', '.join(found)}")
    return 0


@predictor_app.command
def train(
    trace: Trace,
    target: Path,
    /,
    *,
    method: Annotated[str, Parameter(name=["--method", "-m"])] = "boosting",
    until: str | None = None,
    jobs: JobOptions = JobOptions(),
    overwrite: Overwrite = False,
) -> int:
    """Train a model on all completed jobs, and write it with its features and versions.

    The file also contains quantiles of runtimes for a twin (core.learned in its configuration, for
    hpctwin when), and the last runtimes of each user's jobs.

    Args:
        trace: Trace that records users and start times.
        target: File to write; hpctwin predictor apply --predictor and forecast --predictor read it.
        method: Method: boosting, or clusters (S-RAPS's pipeline).
        until: Train on jobs that ended by this date, such as 2020-10-10T00:00 (UTC), or time from
            time zero, such as 30d.
    """
    from hpctwin.cli.data.workload import check_target
    from hpctwin.learn.prediction import train as train_models
    from hpctwin.model.text import count_text
    from hpctwin.simulation.running.window import moment

    check_target(target, overwrite)
    known = jobs.known(trace)
    if until is not None:
        known = known.until(moment(until, known.workload))
    trained = train_models(known, method, seed=jobs.seed)
    trained.write(target)
    print(
        f"{target}: {method} of {', '.join(trained.models)}, trained on {count_text(trained.jobs, 'job')}"
    )
    return 0


@predictor_app.command
def forecast(
    trace: Trace,
    /,
    *,
    under: str | None = None,
    by_policy: str = "fcfs+easy",
    every: Annotated[int, AT_LEAST_1] = 10,
    futures: Annotated[int, AT_LEAST_0] = 16,
    arrivals: str = "1h",
    predictor: Path | None = None,
    seed: int = 0,
    reading: TraceOptions = TraceOptions(),  # noqa: B008
    window: WindowOptions = WindowOptions(),  # noqa: B008
    machine: ClusterOptions = ClusterOptions(),  # noqa: B008
    json: bool = False,
) -> int:
    """Replay a trace in a twin, and show the errors of its start-time forecasts.

    For comparison, the output has the policy run ahead with walltimes, and quantiles of the last
    waits in the job's partition. The scores exclude the first fifth of the forecasts.

    Args:
        trace: The trace.
        under: Policy that starts and ends the jobs in a simulation, and forecasts them; default as
            recorded.
        by_policy: Policy of the forecasts for recorded starts.
        every: Forecast at every Nth submission of a job that does not start at once.
        futures: Number of sampled scenarios per forecast; 0 for none.
        arrivals: Duration of arrivals in each future.
        predictor: File written by hpctwin predictor train, with --until no later than --from; its
            quantiles are also used to draw runtimes.
        seed: Seed of the sampled scenarios.
        json: Print the scores as JSON.
    """
    from dataclasses import asdict

    from hpctwin.cli.output import note_no_network, note_reading, print_json, screen, with_notes
    from hpctwin.model import parse_duration_s
    from hpctwin.model.demand import assumptions
    from hpctwin.model.text import progress_bar
    from hpctwin.policies import parse_policy
    from hpctwin.twin.settings.config import CoreSettings
    from hpctwin.twin.start_times.hindcast import (
        at_once,
        hindcast,
        hindcast_scores,
        lived_under,
        recorded,
        right_of_all,
        steadiness,
    )

    policy = parse_policy(under or by_policy)
    coming_s = parse_duration_s(arrivals)
    workload = reading.read(trace)
    note_reading(workload)
    note_no_network(workload)
    cluster = machine.make(workload, trace, reading.timezone)
    cut = window.cut(workload)
    if predictor is not None:
        _trained_before(predictor, workload, 0.0 if cut is None else cut.begin_s)
    if under is None:
        past = recorded(workload if cut is None else cut.workload)
    else:
        past = lived_under(workload if cut is None else cut, cluster, policy)
    settings = CoreSettings(
        pool=(policy.name,), futures=futures, arrivals=coming_s, learned=predictor, seed=seed
    )
    with progress_bar(f"forecasting {workload.name}") as progress:
        said = hindcast(past, cluster, settings, every=every, progress=progress)
    tables = {by: hindcast_scores(said, by) for by in ("all", "asked", "size", "week")}
    if json:
        shown: dict[str, Any] = {by: table.to_dicts() for by, table in tables.items()}
        right = None if under is None else right_of_all(past, said, 60.0)
        shown["steady"] = {
            "size": asdict(steadiness(said, "size")),
            "week": asdict(steadiness(said, "week")),
        }
        shown |= with_notes(assumptions(workload, cluster))
        print_json({"at_once": at_once(past), "right_of_all_1min": right, **shown})
        return 0
    for by, table in tables.items():
        screen().print(_forecasts(table, by))
    print(_steady(steadiness(said, "size"), "classes of sizes"))
    print(_steady(steadiness(said, "week"), "weeks"))
    print(f"{at_once(past):.1%} of the jobs started at once and are not counted.")
    if under is not None:
        shares = [f"{right_of_all(past, said, time_s):.1%}" for time_s in (60.0, 600.0)]
        print(
            f"Including them, {shares[0]} of all forecasts were within 1 min and "
            f"{shares[1]} within 10 min."
        )
    return 0


def _steady(found: Steadiness, name: str) -> str:
    if found.off is None:
        return f"No {name} have 100 forecasts or more."
    return (
        f"Of {found.classes} {name} with 100 forecasts or more, {found.within} kept 78 to "
        f"82 % within their intervals, with a mean deviation of {100 * found.off:.1f} %. "
        f"By chance the best intervals would reach {found.independent:.1f} if forecasts "
        f"were independent, and {found.together:.1f} if forecasts of one hour were as "
        f"correlated as here (intraclass correlation {found.alike:.2f})."
    )


def _trained_before(predictor: Path, workload: Workload, begin_s: float) -> None:
    """Raise an error if a predictor was trained on the ends of the jobs to forecast.

    Raises:
        ConfigError: The predictor was trained on them.
    """
    from hpctwin.errors import ConfigError
    from hpctwin.model import format_duration
    from hpctwin.twin.forecast.learned_runtimes import read_quantiles

    quantiles = read_quantiles(predictor)
    if quantiles.trained_on == workload.name and quantiles.until_s > begin_s:
        raise ConfigError(
            f"{predictor} was trained on jobs of {workload.name} that ended until "
            f"{format_duration(quantiles.until_s)} from its beginning, but forecasts start "
            f"at {format_duration(begin_s)}; train it with --until, and give --from and "
            "--until of later jobs"
        )


Figures = dict[str, tuple[str, str, float]]
"""Header, format and scale factor of each column of metrics."""

_UNITS = {"runtime_s": ("h", 1 / 3600), "node_w": ("W", 1.0), "memory_gb": ("GB", 1.0)}
_HELD: Figures = {
    "jobs": ("jobs", ",.0f", 1.0),
    "held": ("held, %", ".1f", 100.0),
    "below": ("below, %", ".1f", 100.0),
    "above": ("above, %", ".1f", 100.0),
    "median_factor": ("median factor", ",.2f", 1.0),
    "mean_log2_width": ("mean width, log2", ".2f", 1.0),
}


def _accuracy(target: Target) -> Figures:
    unit, scale = _UNITS[target]
    return {
        "jobs": ("jobs", ",.0f", 1.0),
        "accuracy": ("accuracy", ".3f", 1.0),
        "mean_absolute_error": (f"mean error, {unit}", ",.2f", scale),
        "median_factor": ("median factor", ",.2f", 1.0),
        "mean_log2_error": ("mean log2", ".3f", 1.0),
        "too_short": ("too short, %", ".1f", 100.0),
    }


def _show(
    about: dict[str, Any],
    known: Known,
    what: str,
    overall: pl.DataFrame,
    classes: pl.DataFrame | None,
    by: str | None,
    figures: Figures,
    json: bool,
) -> None:
    """Show the metrics of all jobs, and of each class if classes are given."""
    from hpctwin.cli.output import print_json, screen, with_notes

    if json:
        more = {} if classes is None else {"by": classes.to_dicts()}
        print_json({**about, what: overall.to_dicts(), **more, **with_notes(known.notes)})
        return
    console = screen()
    console.print(_table(overall, figures))
    if classes is not None:
        console.print(_table(classes.rename({"bin": str(by)}), figures))


def _table(rows: pl.DataFrame, figures: Figures) -> Table:
    from hpctwin.cli.output import plain_table

    names = [name for name in rows.columns if name not in figures]
    lines = (
        (
            *(str(row[name]) for name in names),
            *(format(row[name] * scale, form) for name, (_, form, scale) in figures.items()),
        )
        for row in rows.iter_rows(named=True)
    )
    heads = (*names, *(head for head, _, _ in figures.values()))
    return plain_table(heads, lines, numbers=slice(len(names), None))


def _forecasts(rows: pl.DataFrame, by: str) -> Table:
    from hpctwin.model import format_duration
    from hpctwin.report.verbatim import VerbatimTable

    table = VerbatimTable(box=None, pad_edge=False, collapse_padding=True)
    table.add_column({"asked": "asked", "size": "nodes"}.get(by, by), overflow="fold")
    heads = (
        "forecasts", "held\n%", "width", "of\nqueue's", "median\nerror", "by\nwalltimes", "by\nqueue",
        "within\n1 min, %",
    )  # fmt: skip
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows.iter_rows(named=True):
        seconds = ("width_s", "median_error_s", "walltime_error_s", "queue_error_s")
        width, *errors = (format_duration(round(row[name])) for name in seconds)
        shares = f"{100 * row['covered']:.1f}", f"{100 * row['within_1min']:.0f}"
        ratio = f"{row['width_ratio']:.2f}"
        table.add_row(
            row["bin"], f"{row['forecasts']:,}", shares[0], width, ratio, *errors, shares[1]
        )
    return table
