"""All commands together: one name means one thing, and each option is told of."""

from __future__ import annotations

import types
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import pytest
from cyclopts import App, Argument

from hpctwin.cli.app import app


def commands(part: App = app, path: tuple[str, ...] = ()) -> Iterator[tuple[str, App]]:
    """Each command that does something, by what is typed for it; other names of one are not shown."""
    shown = (name for name in part if not name.startswith("-") and part[name].show)
    names = [name for name in shown if name != "experiments"]
    if not names:
        yield " ".join(path), part
    for name in names:
        yield from commands(part[name], (*path, name))


COMMANDS = dict(commands())


def options(command: App) -> list[Argument]:
    """What can be given to it; a group of options is its parts."""
    found = command.assemble_argument_collection(
        default_parameter=app.default_parameter, parse_docstring=True
    )
    return [one for one in found if not one.children]


def kind(hint: Any) -> set[Any]:
    """What is typed for it: a number, a file, a text or one of some words; whether once or several times."""
    if get_origin(hint) in (Union, types.UnionType, tuple):
        return set().union(*(kind(part) for part in get_args(hint)))
    if hint in (type(None), Ellipsis):
        return set()
    return {hint if hint in (int, float, bool, Path) else str}


def test_a_name_of_an_option_means_the_same_in_all_commands() -> None:
    meant: dict[str, dict[tuple[Any, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, command in COMMANDS.items():
        for one in options(command):
            for given in filter(lambda text: text.startswith("-"), one.names):
                long = next(text for text in one.names if text.startswith("--"))
                meant[given][long, *sorted(map(str, kind(one.hint)))].append(name)
    unlike = {given: dict(several) for given, several in meant.items() if len(several) > 1}
    # A facility's demo has no "max": its clusters share one clock. A site is imported from a folder, and a
    # window is from a time.
    assert unlike.keys() <= {"--speed", "--from"}, unlike


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_and_command_has_help(name: str) -> None:
    untold = [one.names for one in options(COMMANDS[name]) if not one.parameter.help]
    assert not untold
    assert COMMANDS[name].help


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_has_a_generated_negative_form(name: str) -> None:
    leaked = [one.negatives for one in options(COMMANDS[name]) if one.negatives]
    assert not leaked
    # What has a place on the line has no name besides, but a configuration, which all commands call so.
    placed = [one for one in options(COMMANDS[name]) if one.index is not None]
    named = {text for one in placed for text in one.names if text.startswith("--")}
    assert named <= {"--config"}


@pytest.mark.parametrize(
    ("short", "whole"),
    [("train", "agent train"), ("evaluate", "agent evaluate"), ("agents", "agent list")],
)
def test_short_names_of_agents_commands_take_the_same(short: str, whole: str) -> None:
    assert [one.names for one in options(app[short])] == [
        one.names for one in options(COMMANDS[whole])
    ]
    assert app[short].default_command is COMMANDS[whole].default_command


WITHOUT_JSON = {
    # What they write or draw is the result, or they run until they are ended.
    "export", "report", "serve", "policy serve", "mcp", "twin run", "twin top", "rms forward",
    "rms emulate", "warmup",
    "workload convert", "workload filter", "workload generate", "dataset sample",
    "predictor apply", "predictor train", "agent train",
    # These say that it is done.
    "facility submit", "facility cancel", "twin approve", "rms pbs install", "rms pbs uninstall",
    # These print a file that another program reads.
    "cluster schema", "facility schema", "twin schema", "rms slurm events", "rms slurm rule", "man",
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_that_print_results_print_them_as_json_too(name: str) -> None:
    has = any("--json" in one.names for one in options(COMMANDS[name]))
    assert has is (name not in WITHOUT_JSON)


def test_commands_are_named_noun_then_verb_and_nouns_in_the_singular() -> None:
    nouns = {name.split()[0] for name in COMMANDS if " " in name}
    assert nouns == {
        "agent", "cluster", "dataset", "experiment", "facility", "import", "policy", "predictor", "rms",
        "signal", "system", "twin", "workload",
    }  # fmt: skip
    # A third word only names the resource manager that something is for.
    assert {name.rsplit(" ", 1)[0] for name in COMMANDS if name.count(" ") > 1} == {
        "rms pbs",
        "rms slurm",
    }


OF_ONE_RUN = {
    # Parts of a policy, which a policy's own text has.
    "--order", "--backfill", "--reservations", "--candidates", "--placement",
    # Somebody else's program, or a sizing, decides in place of a policy.
    "--scheduler", "--scheduler-every", "--sizing",
    # What is written, told or looked at of one run while it goes on.
    "--accounts", "--accounts-by", "--stream", "--out-every", "--explain",
}  # fmt: skip


def test_compare_takes_whatever_simulate_takes_but_what_is_of_one_run() -> None:
    def names(command: str) -> set[str]:
        found = {name for one in options(COMMANDS[command]) for name in one.names}
        return {name for name in found if name.startswith("--")}

    assert names("simulate") - names("compare") == OF_ONE_RUN
