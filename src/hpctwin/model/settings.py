"""Settings that people write in YAML: read and checked in one way.

Each error is one line: file, line, field, and the valid form. That is why this is not
pydantic-settings, whose errors have no lines of a file. The environment holds options of commands
and secrets, no settings.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, Self, get_args

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetJsonSchemaHandler,
    ValidationError,
)
from pydantic.json_schema import JsonSchemaValue

from hpctwin.errors import ConfigError, HpctwinError, in_brief, near
from hpctwin.model.files import cause
from hpctwin.model.text import Moment, parse_duration_s, parse_moment


class Fields(dict[str, Any]):
    """Plain values of a file, and their lines.

    Args:
        values: Fields.
        root: YAML's node of the file.
    """

    def __init__(self, values: dict[str, Any], root: yaml.Node) -> None:
        super().__init__(values)
        self._root = root

    def line_of(self, place: Iterable[int | str]) -> int | None:
        """Return the line, from 1, of a value or of its parent; None for the whole file."""
        node, line = self._root, None
        for part in place:
            if isinstance(node, yaml.MappingNode):
                pairs = [(k, v) for k, v in node.value if k.value == str(part)]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                pairs = [(v, v) for v in node.value[part : part + 1]]
            else:
                break
            if not pairs:
                break
            key, node = pairs[0]
            line = key.start_mark.line + 1
        return line


def located(content: Mapping[str, Any], where: str, place: Iterable[int | str]) -> str:
    """Return the name of a field in messages: ``twin.yaml, line 3, act.mode``.

    Args:
        content: Fields; the line is included if they are `Fields`.
    """
    place = tuple(place)
    line = content.line_of(place) if isinstance(content, Fields) else None
    return ", ".join(
        part for part in (where, f"line {line}" if line else "", ".".join(map(str, place))) if part
    )


def read_yaml(path: str | Path, example: str) -> Fields:
    """Read a YAML file of fields.

    Args:
        path: File.
        example: A field of such a file, for the message if it has none.

    Raises:
        ConfigError: The file cannot be read, is not YAML, has a field twice or no fields; the
            message names the line if there is one.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        raise ConfigError(f"{path}: {cause(error)}") from error
    return parse_yaml(text, str(path), example)


def parse_yaml(text: str, where: str, example: str) -> Fields:
    """Read fields from a YAML text; otherwise like `read_yaml`.

    Raises:
        ConfigError: See `read_yaml`.
    """
    root, content = yaml_document(text, where)
    if root is None or not isinstance(content, dict):
        found = "nothing" if content is None else f"{content!r:.60}"
        raise ConfigError(f"{where}: expected fields such as '{example}:', found {found}")
    return Fields(content, root)


def yaml_document(text: str, where: str) -> tuple[yaml.Node | None, Any]:
    """Read one YAML document: its nodes and its plain values.

    Both are None if it is empty.

    Raises:
        ConfigError: It is not YAML, or has a field twice; the message names the line if there is
            one.
    """
    try:
        loader = _Loader(text)
        loader.where = where
        root = loader.get_single_node()
        content = None if root is None else loader.construct_document(root)
    except ConfigError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        said = ": ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"{where}{line}: not YAML: {said}") from error
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        raise ConfigError(f"{where}: not YAML: {said}") from error
    except ValueError as error:  # an impossible date, or a number of thousands of digits
        raise ConfigError(f"{where}: not a usable value: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{where}: nested too deeply for settings") from error
    return root, content


class _Loader(yaml.SafeLoader):
    """Loader of plain values that rejects equal keys.

    YAML's own loader silently takes the last.
    """

    where = ""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            line = key.start_mark.line + 1
            if (key.tag, key.value) in lines:
                first = lines[key.tag, key.value]
                raise ConfigError(
                    f"{self.where}, line {line}: {key.value!r} is given twice, first in "
                    f"line {first}"
                )
            lines[key.tag, key.value] = line
        return super().construct_mapping(node, deep)

    def construct_whole(self, node: yaml.ScalarNode) -> int:
        """Return a whole number that the engine's integers can hold."""
        value = self.construct_yaml_int(node)
        if abs(value) > MOST:
            raise ConfigError(
                f"{self.where}, line {node.start_mark.line + 1}: {in_brief(value)} is too large; "
                f"the maximum is {MOST:,}"
            )
        return value


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_whole)

MOST = 2**53
"""Largest whole number in settings: a float still holds it exactly."""


Duration = Annotated[float, BeforeValidator(lambda value: parse_duration_s(value))]
"""Seconds, or text such as ``"2h"``."""


def _not_before_zero(value: Any) -> Moment:
    found = parse_moment(value)
    if isinstance(found, float) and not found >= 0:
        raise ValueError(f"it must be 0 or more, or a date, not {in_brief(value)}")
    return found


Time = Annotated[Moment, BeforeValidator(_not_before_zero, json_schema_input_type=float | str)]
"""Seconds or a duration from time zero, or a date (UTC if it names no zone)."""

Place = tuple[int | str, ...]


def field_help(model: type) -> dict[str, str]:
    """Return the text of each field in the docstrings of a class and of its bases, by name."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        _, _, args = cleandoc(base.__doc__ or "").partition("\nArgs:\n")
        args = re.split(r"\n(?=\S)", args)[0]
        for names, text in re.findall(
            r"^    (\w+(?:, \w+)*): (.*(?:\n {5,}.*)*)", args, re.MULTILINE
        ):
            found.update(dict.fromkeys(names.split(", "), " ".join(text.split())))
    return found


class Described:
    """Mixin of models and dataclasses whose JSON Schema takes descriptions from the docstring."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: Any, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        found = handler.resolve_ref_schema(schema)
        found["description"] = cleandoc(cls.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
        fields = getattr(cls, "model_fields", {})
        for name, text in field_help(cls).items():
            key = fields[name].alias or name if name in fields else name
            if key in found.get("properties", {}):
                found["properties"][key].setdefault("description", text)
        return schema


class Settings(Described, BaseModel):
    """Base of all settings: they are immutable, and unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def __init__(self, **content: Any) -> None:
        """Create the settings from their fields.

        Raises:
            ConfigError: They are invalid; a line for each error.
        """
        with _told(type(self), content, type(self).__name__):
            super().__init__(**content)

    # Settings within others are checked with them, and their errors are reported together.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Create the settings from plain values.

        Raises:
            ConfigError: They are invalid; a line for each error.
        """
        with _told(cls, obj, cls.__name__):
            return super().model_validate(obj, **options)

    @classmethod
    def checked(cls, content: Mapping[str, Any], where: str) -> Self:
        """Create the settings from plain values, for example of a file.

        Args:
            content: Fields; with `Fields`, messages include lines.
            where: Beginning of messages, such as the file's name.

        Raises:
            ConfigError: They are invalid; a line for each error.
        """
        with _told(cls, content, where):
            try:
                return super().model_validate(content)
            except HpctwinError as error:
                raise ConfigError(f"{where}: {error}") from error


@contextmanager
def _told(model: type[BaseModel], content: Any, where: str) -> Iterator[None]:
    """Report validation errors in hpctwin's words."""
    try:
        yield
    except ValidationError as error:
        raise ConfigError("\n".join(faults_of(error, model, content, where))) from error


def faults_of(
    error: ValidationError, model: type[BaseModel], content: Mapping[str, Any], where: str
) -> Iterator[str]:
    """Yield the errors in plain words: a line for each field.

    Args:
        content: Values; with `Fields`, the lines are included.
    """
    said: dict[Place, list[str]] = {}
    for fault in error.errors():
        place = _place(fault["loc"], content, missing=fault["type"] == "missing")
        said.setdefault(place, []).append(_words(fault, model, place))
    for place, texts in said.items():
        if any(deeper != place and deeper[: len(place)] == place for deeper in said):
            continue  # an alternative form, which was not intended
        at = located(content, where, place)
        called = _name_of(place, content)
        # If several forms are possible, each says what it lacks.
        yield f"{at}: {'; or '.join(dict.fromkeys(texts))}{f' (of {called!r})' if called else ''}"


def first_fault(error: ValidationError) -> str:
    """Return the first error in another program's data, in plain words.

    It is field and error.
    """
    fault = error.errors()[0]
    field = ".".join(map(str, fault["loc"]))
    return f"{field}{': ' if field else ''}{_words(fault, BaseModel, tuple(fault['loc']))}"


def _name_of(place: Place, content: Any) -> str:
    """Return the first name within a list on the way to a place; else empty."""
    for part in place:
        try:
            content = content[part]
        except (KeyError, IndexError, TypeError):
            break
        if isinstance(part, int) and isinstance(content, Mapping) and "name" in content:
            return str(content["name"])
    return ""


def _place(loc: Place, content: Any, *, missing: bool) -> Place:
    """Return the place of an error, without pydantic's parts for alternatives."""
    place: list[int | str] = []
    for part in loc:
        if isinstance(content, Mapping):
            there = part in content
        else:
            there = isinstance(content, list | tuple) and part in range(len(content))
        if there:
            content = content[part]
            place.append(part)
    return (*place, loc[-1]) if missing else tuple(place)


def _words(fault: Any, model: type[BaseModel], place: Place) -> str:
    kind, about, given = fault["type"], fault.get("ctx", {}), fault["input"]
    if kind == "value_error":
        return str(about["error"])
    if kind == "missing":
        fields = [one.model_fields.get(str(place[-1])) for one in _models_at(model, place[:-1])]
        why = [one.description for one in fields if one is not None and one.description]
        return "it is missing" + (f": {why[0]}" if why else "")
    if kind == "extra_forbidden":
        known = sorted({name for one in _models_at(model, place[:-1]) for name in one.model_fields})
        listed = f"{near(str(place[-1]), known)} Known: {', '.join(known)}" if known else ""
        return f"unknown field.{listed}"
    if kind == "literal_error":
        known = re.findall(r"'([^']*)'", about["expected"]) or about["expected"].split(" or ")
        return f"{in_brief(given)} is unknown.{near(str(given), known)} Known: {', '.join(known)}"
    if kind == "union_tag_invalid":
        known = re.findall(r"'([^']*)'", about["expected_tags"])
        tag = f"{about['discriminator']} {in_brief(about['tag'])}".replace("'", "", 2)
        return f"{tag} is unknown.{near(about['tag'], known)} Known: {', '.join(known)}"
    if kind == "union_tag_not_found":
        return f"{about['discriminator']} is missing".replace("'", "")
    if kind == "string_type" and isinstance(given, Mapping):
        return f"it must be text (quote it if it has a colon or a brace), not {in_brief(given)}"
    if kind == "string_type" and isinstance(given, bool):
        return f"it must be text, not {in_brief(given)}: quote on, off, yes and no in YAML"
    if kind == "json_invalid":
        return f"it is not JSON: {about['error']}"
    bounds = {k: f"{v:,.12g}" if isinstance(v, int | float) else v for k, v in about.items()}
    # Only our own texts have fields to fill in; pydantic's may contain braces.
    must = _MUST[kind].format(**bounds) if kind in _MUST else fault["msg"]
    return f"it must be {must.removeprefix('Input should ').removeprefix('be ')}, not {in_brief(given)}"


_TEXT, _WHOLE, _NUMBER = "text", "a whole number", "a number"
_LIST, _FIELDS = "a list", "fields with values"
_MUST = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing_size": "a whole number of fewer digits",
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": _TEXT,
    "string_too_short": "text of {min_length} or more characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "text of the form {pattern}",
    "path_type": "a path",
    "tuple_type": _LIST,
    "list_type": _LIST,
    "too_short": "of length {min_length} or more",
    "too_long": "of length {max_length} or less",
    "dict_type": _FIELDS,
    "mapping_type": _FIELDS,
    "model_type": _FIELDS,
    "model_attributes_type": _FIELDS,
    "none_required": "left out",
}
"""Valid values, by pydantic's name of the error."""


def _models_at(model: type[BaseModel], place: Place) -> list[type[BaseModel]]:
    """Return the models to which the fields at a place may belong."""
    here = [model]
    for part in place:
        fields = [one.model_fields[part] for one in here if part in one.model_fields]
        if fields:
            here = [found for field in fields for found in _models_in(field.annotation)]
    return here


def _models_in(annotation: Any) -> Iterable[type[BaseModel]]:
    """Yield the models within a type: optional, in lists, by name or alternatives."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
