"""Sphinx extension: fills the page on settings from the models that check them."""

from __future__ import annotations

import enum
import inspect
import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from hpctwin.energy.cooling.fmu import Fmu
from hpctwin.facility.config import Facility
from hpctwin.formats.mapped_table import Columns
from hpctwin.model import Cluster, PowerCap
from hpctwin.model.settings import Duration, field_help
from hpctwin.policies.policy import PolicyFile
from hpctwin.sweep import SearchSettings, SweepSettings
from hpctwin.twin.facility.service import LiveFacility
from hpctwin.twin.settings.config import TwinConfig
from hpctwin.web.server.sign_in import SignInSettings

__all__ = ["FILES", "models", "page", "setup"]

PAGE = "reference/settings"
FILES: dict[str, tuple[type[BaseModel], str]] = {
    "A machine": (
        Cluster,
        "`--cluster FILE`, `cluster.yaml`; more in [clusters](../how-to/describe-a-cluster.md), "
        "[power](../how-to/power-price-and-carbon.md) and [systems](systems.md)",
    ),
    "A policy": (PolicyFile, "`-p FILE`, `policy.yaml`; more in [policies](policies.md)"),
    "Columns of a table": (
        Columns,
        "`--columns FILE`; more in [workloads](traces.md#other-tables)",
    ),
    "A twin": (
        TwinConfig,
        "`twin.yaml`; more in [the live twin](../how-to/configure-the-twin.md) "
        "and [in operation](../how-to/operate-and-upgrade.md)",
    ),
    "Several clusters": (
        Facility,
        "`facility.yaml`; more in [several clusters](../how-to/simulate-several-clusters.md)",
    ),
    "Several clusters, live": (
        LiveFacility,
        "`live.yaml`; more in [several clusters](../how-to/simulate-several-clusters.md#3-place-jobs-live)",
    ),
    "Sign-in of the web page": (
        SignInSettings,
        "`hpctwin serve --sign-in FILE`; more in "
        "[the web page](../how-to/serve-the-web-page.md#let-users-sign-in)",
    ),
    "A sweep": (
        SweepSettings,
        "`hpctwin sweep FILE`; more in [many simulations](../how-to/run-many-simulations.md)",
    ),
    "A search": (
        SearchSettings,
        "`hpctwin policy search FILE`; more in "
        "[many simulations](../how-to/run-many-simulations.md#search-for-a-policy)",
    ),
    "A cooling plant": (
        Fmu,
        "`--cooling-fmu FILE`; more in [systems](systems.md#a-custom-plant)",
    ),
}
"""What each file is checked by, and where it is told of."""


def models(root: type[BaseModel]) -> list[type[BaseModel]]:
    """A model and all that its fields may hold, each once, from outside in."""
    found = [root]
    for model in found:
        for field in model.model_fields.values():
            found += [one for one in _within(field.annotation) if one not in found]
    return found


def page() -> Iterator[str]:
    """Lines of Markdown: a heading for each file, a table for each model."""
    told: dict[type[BaseModel], str] = {}
    for heading, (root, where) in FILES.items():
        yield from (f"## {heading}", "", f"{where}.", "")
        for model in models(root):
            if model in told:
                continue
            told[model] = heading
            if model is not root:
                yield from (f"### {_title(model)}", "", _summary(model), "")
            yield from _table(model)


def _table(model: type[BaseModel]) -> Iterator[str]:
    meaning = field_help(model)
    yield from ("| key | what | default | meaning |", "|---|---|---|---|")
    for name, field in model.model_fields.items():
        text = meaning.get(name, field.description or "")
        cells = (f"`{field.alias or name}`", _kind(field), _default(field), text)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _title(model: type[BaseModel]) -> str:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", model.__name__.removesuffix("Settings"))
    return words[0] + words[1:].lower() if not words.isupper() else words


def _summary(model: type[BaseModel]) -> str:
    return inspect.cleandoc(model.__doc__ or "").split("\n\n")[0].replace("\n", " ")


def _within(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _within(part)


def _kind(field: FieldInfo) -> str:
    is_duration = any(one in field.metadata for one in Duration.__metadata__)
    word = "duration" if is_duration else _words(field.annotation)
    return ", ".join([word, *_bounds(field.metadata)])


_SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}  # fmt: skip
_WORDS = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    Any: "anything",
    Path: "path",
    PowerCap: "text",
}


def _bounds(metadata: list[Any]) -> Iterator[str]:
    for one in metadata:
        for name, sign in _SIGNS.items():
            if (bound := getattr(one, name, None)) is not None:
                yield f"{sign} {bound:g}"


def _words(annotation: Any) -> str:
    if annotation == Duration:
        return "duration"
    if annotation in _WORDS:
        return _WORDS[annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{part}`" for part in parts)
    if hasattr(annotation, "__metadata__"):
        return ", ".join([_words(parts[0]), *_bounds(list(annotation.__metadata__))])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_words(p) for p in parts if p is not type(None)))
    if origin in (tuple, list):
        return "list of " + " and ".join(_words(part) for part in parts if part is not Ellipsis)
    if origin in (dict, Mapping) or (inspect.isclass(origin) and issubclass(origin, Mapping)):
        return f"{_words(parts[1])} by name"
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        title = _title(annotation)
        return f"[{title.lower()}](#{title.lower().replace(' ', '-')})"
    if inspect.isclass(annotation) and issubclass(annotation, enum.Enum):
        return " or ".join(f"`{one.value}`" for one in annotation)
    return getattr(annotation, "__name__", str(annotation)).lower()


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value in (None, PydanticUndefined, "", (), {}) or isinstance(value, BaseModel):
        return ""
    return f"`{_text(value)}`"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_text(one)}" for key, one in value.items()) + "}"
    return str(value)


def _fill(app, name, source) -> None:
    if name == PAGE:
        source[0] += "\n" + "\n".join(page())


def setup(app):
    """Let Sphinx fill the page."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True}
