"""Settings with wrong values: whatever is wrong, the answer is settings or an HpctwinError."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload
from hpctwin.errors import HpctwinError
from hpctwin.facility.config import Facility
from hpctwin.sweep.search import read_search
from hpctwin.sweep.settings import read_sweep
from hpctwin.twin.settings.config import TwinConfig
from hpctwin.web.server.sign_in import SignIn
from tests.examples import examples

ROOT = Path(__file__).parents[2]
READERS: dict[str, Callable[[Path], object]] = {
    "cluster": Cluster.from_yaml,
    "facility": Facility.from_yaml,
    "search": read_search,
    "sign-in": SignIn.from_yaml,
    "sweep": read_sweep,
    "twin": TwinConfig.from_yaml,
}
WRONG: list[Any] = [
    None, "", [], {}, True, -1, 0, 1.5, 2**63, 10**30, 1e308, float("nan"), float("inf"), "1e400", "inf",
    "-5", "50%", "10 GB", "12:00", "2024-02-30", "ü", "a" * 300, "n[3-1]", "n[1-99999999999]", [None],
    [[]], {"a": 1},
]  # fmt: skip
WORKLOAD = Workload.build(
    submit_s=[0, 1, 2, 50],
    runtime_s=[90, 50, 100, 10],
    walltime_s=[100, 50, 200, 10],
    nodes=[1, 2, 1, 1],
)


def documented() -> Iterator[Any]:
    """Settings in the documentation, in the tests and in the package."""
    pages = [page.read_text() for page in [*ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/**/*.py")]]
    texts = [text for page in pages for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    texts += [text for page in pages for text in re.findall(r'"""\\\n(.*?)"""', page, re.DOTALL)]
    texts += [path.read_text() for path in ROOT.glob("src/hpctwin/formats/systems/*.yaml")]
    for text in texts:
        try:
            yield yaml.safe_load(text)
        except yaml.YAMLError:
            continue


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Any]]]:
    """Documented settings that are valid, by their kind."""
    file = tmp_path_factory.mktemp("settings") / "settings.yaml"
    found: dict[str, list[Any]] = {kind: [] for kind in READERS}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HPCTWIN_OIDC_SECRET", "HPCTWIN_PROXY_SECRET"):
            patch.setenv(name, "x" * 32)
        for content in documented():
            if isinstance(content, dict):
                file.write_text(yaml.safe_dump(content))
                for kind, read in READERS.items():
                    try:
                        read(file)
                    except HpctwinError:
                        continue
                    found[kind].append(content)
        yield found


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Each container within settings, with each of its keys."""
    for key in list(content) if isinstance(content, dict) else range(len(content)):
        yield content, key
        if isinstance(content[key], dict | list):
            yield from places(content[key])


def damage(content: Any, others: list[Any], dice: random.Random) -> None:
    """Replace, remove, rename or add a value; what is added stands elsewhere in such settings."""
    within, key = dice.choice(list(places(content)))
    other, name = dice.choice(list(places(dice.choice(others))))
    match dice.choice(["wrong", "wrong", "remove", "elsewhere", "add", "rename"]):
        case "wrong":
            within[key] = copy.deepcopy(dice.choice(WRONG))
        case "remove":
            del within[key]
        case "elsewhere":
            within[key] = copy.deepcopy(other[name])
        case "add" if isinstance(within, dict):
            within[name] = copy.deepcopy(other[name])
        case "rename" if isinstance(within, dict):
            within[dice.choice([f"{key}x", 7, None])] = within.pop(key)


@pytest.mark.parametrize("kind", READERS)
@given(dice=st.randoms(use_true_random=False))
@settings(max_examples=examples(200))
def test_whatever_the_damage_the_answer_is_settings_or_an_error_of_hpctwin(
    kind: str,
    dice: random.Random,
    valid: dict[str, list[Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    content = copy.deepcopy(dice.choice(valid[kind]))
    for _ in range(dice.randint(1, 3)):
        if content:
            damage(content, valid[kind], dice)
    file = tmp_path_factory.getbasetemp() / f"{kind}.yaml"
    file.write_text(yaml.safe_dump(content))
    with suppress(HpctwinError):
        read = READERS[kind](file)
        if isinstance(read, Cluster):
            Simulation(WORKLOAD, read, "fcfs+easy").run()


def test_the_documentation_has_settings_of_each_kind(valid: dict[str, list[Any]]) -> None:
    assert [kind for kind, found in valid.items() if not found] == []
