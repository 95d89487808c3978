"""``hpctwin agent``: agents that learn to schedule."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from hpctwin.cli.option_values import AT_LEAST_1
from hpctwin.cli.options import (
    ClusterOptions,
    Latex,
    Overwrite,
    Trace,
    TraceOptions,
    named_values,
)

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

    from hpctwin.facility import Facility
    from hpctwin.learn import Episodes

__all__ = ["agent_app"]

agent_app = App(name="agent", help="Train agents, compare them with policies, list them.")

Metric = Literal["mean_bounded_slowdown", "mean_wait_s", "mean_turnaround_s", "energy_j"]
Count = Annotated[int, AT_LEAST_1]
Kind = Literal["JobSelection", "Backfilling", "PowerManagement", "PolicySelection", "Placement"]


@agent_app.command
def train(
    kind: Kind,
    trace: Trace,
    target: Path,
    /,
    *,
    steps: Count = 200_000,
    jobs: Count = 256,
    first: int = 0,
    last: int | None = None,
    seed: int = 0,
    reward: str | None = None,
    observation: str | None = None,
    option: Annotated[tuple[str, ...], Parameter(name="--option")] = (),
    learner: Literal["ppo", "evolution", "cma"] = "ppo",
    environments: Count | None = None,
    imitate: tuple[str, ...] = (),
    checkpoints: Path | None = None,
    tensorboard: Path | None = None,
    facility: Path | None = None,
    reading: TraceOptions = TraceOptions(),  # noqa: B008
    machine: ClusterOptions = ClusterOptions(),  # noqa: B008
    overwrite: Overwrite = False,
) -> int:
    """Train an agent on parts of a trace, and write it with its model card.

    If jobs remain after --last, the card compares the agent on them with the baselines of hpctwin
    agent evaluate.

    Args:
        kind: Environment: JobSelection, Backfilling, PowerManagement, PolicySelection or Placement
            (docs/how-to/train-agents.md).
        trace: The trace.
        target: File to write, .safetensors. An agent that selects jobs or switches nodes is then an
            ordering or a power policy, as in FILE+easy or fcfs+easy~FILE.
        steps: Number of decisions to train on.
        jobs: Number of jobs in an episode.
        first: First job of the episodes.
        last: End of the episodes, before this job; default the end of the trace.
        seed: Seed of episodes, initial weights and choices.
        reward: Name of a reward, or a function in a file, FILE.py:NAME; default by environment.
        observation: Name of an observation, or an Observation in a file, FILE.py:NAME; default by
            environment.
        option: Setting of the environment, as in backfilling=true, every_s=600 or
            policies=[fcfs+easy,sjf+easy]. Repeatable.
        learner: Learning method. ppo uses gradients and PyTorch. evolution and cma search the weights
            of sums of observations, in many more steps; cma is compiled and only selects jobs.
        environments: Number of environments stepped at once; default 16 for ppo, 64 for evolution.
        imitate: Ordering to start from, such as f1. If repeated, the best one on the training jobs is
            used. Repeatable.
        checkpoints: Folder of checkpoints; training resumes from them.
        tensorboard: Folder of TensorBoard logs.
        facility: The facility's YAML file, for Placement; its clusters replace the cluster options.
    """
    from hpctwin.cli.data.workload import check_target
    from hpctwin.cli.output import check_outputs, with_notes
    from hpctwin.errors import ConfigError
    from hpctwin.learn.baselines.evaluation import held_out
    from hpctwin.learn.training.training import check_facility
    from hpctwin.learn.training.training import train as train_agent
    from hpctwin.learn.training.trial import Plan
    from hpctwin.model.text import count_text, progress_bar
    from hpctwin.policies.registry import is_network

    check_target(target, overwrite)
    check_outputs(folders=[checkpoints, tensorboard])
    if not is_network(target.name):
        raise ConfigError(f"{target}: suffix is not supported; agents are stored as .safetensors")
    place = _facility(facility)
    check_facility(kind, place)
    episodes, notes = _episodes(trace, reading, machine, place, jobs, first, last)
    layers, together = ((), 64) if learner != "ppo" else (Plan.layers, Plan.environments)
    plan = Plan(
        steps,
        seed,
        environments or together,
        layers=layers,
        imitate=imitate,
        checkpoints=checkpoints,
        tensorboard=tensorboard,
        learner=learner,
    )
    data = {"trace": episodes.workload.name, "first": first, "last": episodes.last}
    about = {"data": data | with_notes(notes)}
    earned: list[float] = []
    with progress_bar(f"training on {episodes.workload.name}") as show:

        def progress(share: float, lately: float) -> None:
            earned.append(lately)
            show(share)

        parts = {"reward": reward, "observation": observation}
        options = _options(option) | {name: one for name, one in parts.items() if one is not None}
        try:
            network = train_agent(
                kind, episodes, plan, options=options, progress=progress, about=about, facility=place
            )  # fmt: skip
        except BaseException as error:
            for note in getattr(error, "__notes__", ()):
                print(f"hpctwin: {note}", file=sys.stderr)
            raise
    network.save(target)
    told = ""
    if len(episodes.workload) - (episodes.last or 0) >= jobs:
        rest = replace(episodes, first=episodes.last or 0, last=None)
        found = held_out(target, rest, facility=place)
        network.card["held_out"] = found
        network.save(target)
        told = (
            f"\non jobs after {episodes.last:,}: {found['metric']} {found['agent']:,.4g}, "
            f"{found['best']} {found['of_best']:,.4g}"
        )
    came = f", reward {earned[0]:.4g} at first and {earned[-1]:.4g} at the end" if earned else ""
    print(f"{target}: {kind}, {count_text(network.card['trained']['steps'], 'step')}{came}{told}")
    return 0


@agent_app.command
def evaluate(
    agent: Path,
    trace: Trace,
    /,
    *,
    policy: Annotated[tuple[str, ...], Parameter(name=["--policy", "-p"])] = (),
    metric: Metric | None = None,
    without: tuple[Literal["tuned", "schedtwin", "oracle"], ...] = (),
    episodes: Count = 10,
    jobs: Count = 1024,
    first: int = 0,
    last: int | None = None,
    seed: int = 0,
    facility: Path | None = None,
    observation: str | None = None,
    reading: TraceOptions = TraceOptions(),  # noqa: B008
    machine: ClusterOptions = ClusterOptions(),  # noqa: B008
    json: bool = False,
    latex: Latex = False,
) -> int:
    """Compare an agent with baselines that need no training, on the same parts of a trace.

    The baselines depend on the agent. For job selection, they are orderings and F1 to F4, and for
    Backfilling also backfills. For power management, they are timeouts, PSAS and PSAS+IPM. Both
    also have formulas or timeouts tuned on the agent's training jobs, SchedTwin, and the best
    possible result. For policy selection, they are each of its policies, and SchedTwin at the same
    event times. For placement, they are strategies of facilities, including CQSim+'s.

    The output lists omitted baselines, and why they are omitted.

    Args:
        agent: File written by hpctwin agent train.
        trace: The trace.
        policy: Additional baseline; for agents of Placement a strategy, as in 'user(0.6)'.
            Repeatable.
        metric: Metric to compare; by default the agent's training goal.
        without: Slow baseline to omit: tuned, schedtwin or oracle. Repeatable.
        episodes: Number of episodes.
        jobs: Number of jobs in an episode.
        first: First job of the episodes.
        last: End of the episodes, before this job; default the end of the trace.
        seed: Seed of the selected episodes.
        facility: The facility's YAML file, for an agent of Placement.
        observation: The agent's custom observation, FILE.py:NAME; default where it was in training.
        json: Print the comparison as JSON.
    """
    from hpctwin.cli.output import print_json, screen, with_notes
    from hpctwin.learn.baselines.evaluation import evaluate as evaluate_agent
    from hpctwin.model.text import count_text, progress_bar

    place = _facility(facility)
    source, notes = _episodes(trace, reading, machine, place, jobs, first, last)
    with progress_bar(f"{agent} on {source.workload.name}") as progress:
        found = evaluate_agent(
            agent, source, episodes=episodes, seed=seed, policies=policy, metric=metric,
            without=without, progress=progress, facility=place, observation=observation,
        )  # fmt: skip
    if json:
        print_json(found.plain() | with_notes(notes))
        return 0
    console = screen(latex=latex)
    console.print(_table(found.table(), found.metric, found.best_before))
    drawn = f"{count_text(episodes, 'episode')} of {count_text(jobs, 'job')}"
    console.print(f"{drawn}; more: above the agent, 95 % interval")
    if found.best_before:
        console.print(f"best fixed policy on the training jobs: {found.best_before}")
    for name, why in found.omitted.items():
        console.print(f"{name} skipped: {why}")
    return 0


@agent_app.command(name="list")
def list_agents(
    folder: Path = Path(),
    /,
    *,
    json: bool = False,
) -> int:
    """List the agents in a folder with their environment and training.

    Args:
        folder: The folder; default the current one.
        json: Print the model cards as JSON.
    """
    from hpctwin.cli.output import plain_table, print_json, screen
    from hpctwin.errors import ConfigError, PolicyError
    from hpctwin.policies.agents import Network
    from hpctwin.policies.registry import NETWORK_SUFFIX

    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder")
    cards: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob(f"*{NETWORK_SUFFIX}")):
        try:
            cards[str(path)] = Network.load(path).card
        except PolicyError:
            continue  # weights of something else
    if json:
        print_json(cards)
        return 0
    heads = (
        "agent", "environment", "trained on", "nodes", "steps", "seed", "held out", "µs/decision",
    )  # fmt: skip
    rows = []
    for name, card in cards.items():
        trained, data = card.get("trained", {}), card.get("data", {})
        held = card.get("held_out", {})
        shown = f"{held['agent']:.4g}, {held['best']} {held['of_best']:.4g}" if held else ""
        rows.append((
            name,
            str(card.get("environment", "")),
            str(data.get("trace", "")),
            str(card.get("nodes", "")),
            f"{trained.get('steps', 0):,}",
            str(trained.get("seed", "")),
            shown,
            str(card.get("us_per_decision", "")),
        ))  # fmt: skip
    nothing = f"{folder} contains no agents; make one with hpctwin agent train"
    screen().print(plain_table(heads, rows) if rows else nothing)
    return 0


def _episodes(
    trace: Path,
    reading: TraceOptions,
    machine: ClusterOptions,
    facility: Facility | None,
    jobs: int,
    first: int,
    last: int | None,
) -> tuple[Episodes, list[str]]:
    """Return the episodes, and the assumptions about their jobs, which are also printed."""
    from hpctwin.cli.output import note_facility, note_no_network
    from hpctwin.errors import ConfigError
    from hpctwin.learn import Episodes
    from hpctwin.learn.environments.placement import largest_of
    from hpctwin.model.demand import assumptions

    workload = reading.jobs(trace, machine)
    if facility is None:
        cluster = machine.make(workload, trace, reading.timezone)
        note_no_network(workload)
        notes = assumptions(workload, cluster)
    elif machine != ClusterOptions():
        raise ConfigError(
            "give --facility or a cluster, not both: the facility's file names its clusters"
        )
    else:
        cluster = largest_of(facility)
        notes = note_facility(workload, facility)
    return Episodes.of(workload, cluster, jobs=jobs, first=first, last=last), notes


def _facility(path: Path | None) -> Facility | None:
    from hpctwin.facility import Facility

    return None if path is None else Facility.from_yaml(path)


def _options(given: tuple[str, ...]) -> dict[str, Any]:
    """Return the option values as Python objects.

    Raises:
        ConfigError: A value cannot be parsed.
    """
    import yaml

    from hpctwin.errors import ConfigError

    found = {}
    for name, value in named_values("--option", given, "backfilling=true").items():
        try:
            found[name] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ConfigError(f"--option '{name}={value}': {value!r} is not a value") from None
    return found


def _table(rows: pl.DataFrame, metric: str, best_before: str) -> Table:
    from rich.text import Text

    from hpctwin.cli.output import plain_table

    lines: list[tuple[Text | str, ...]] = []
    for name, kind, *values in rows.iter_rows():
        shown = Text(name, "bold" if kind == "agent" or name == best_before else "")
        lines.append((shown, kind, *("" if one is None else f"{one:,.4g}" for one in values)))
    heads = ("policy", "", metric, "more", "from", "to", "µs/job")
    return plain_table(heads, lines, numbers=slice(2, None))
