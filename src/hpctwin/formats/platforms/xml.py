"""Untrusted XML as elements with line numbers, without entities and external files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from hpctwin.errors import ConfigError

_MOST_DEPTH = 100


@dataclass
class Element:
    """An element.

    Args:
        path: File, for messages.
        tag: Its tag.
        line: Its line, from 1.
        attributes: Its attributes.
        children: Elements inside.
    """

    path: Path
    tag: str
    line: int
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)

    @property
    def where(self) -> str:
        """File, line and tag with its id, for messages."""
        name = self.attributes.get("id")
        return f"{self.path}, line {self.line}, {self.tag}{f' {name[:60]!r}' if name else ''}"

    def fault(self, what: str) -> ConfigError:
        """Return the error about this element."""
        return ConfigError(f"{self.where}: {what}")

    def text(self, name: str) -> str:
        """Return a required attribute."""
        if name not in self.attributes:
            raise self.fault(f"attribute {name!r} is missing")
        return self.attributes[name]

    def inside(self, *tags: str) -> Iterator[Element]:
        """Yield the elements directly inside that have one of some tags."""
        return (child for child in self.children if child.tag in tags)

    def all(self) -> Iterator[Element]:
        """Yield the element and all inside, in the order of the file."""
        yield self
        for child in self.children:
            yield from child.all()


def parse_xml(path: Path, text: str) -> Element:
    """Return the root element of a file.

    Empty lines before the XML declaration, which many of Batsim's files have, are skipped.

    Raises:
        ConfigError: It is not XML, declares entities, or is nested too deeply.
    """
    skipped = len(text) - len(text.lstrip("\ufeff \t\r\n"))
    lines_before = text.count("\n", 0, skipped)
    parser = expat.ParserCreate()
    open_elements: list[Element] = []
    roots: list[Element] = []

    def line() -> int:
        return parser.CurrentLineNumber + lines_before

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(path, tag, line(), attributes)
        if len(open_elements) >= _MOST_DEPTH:
            raise element.fault(f"nested more than {_MOST_DEPTH} levels deep")
        (open_elements[-1].children if open_elements else roots).append(element)
        open_elements.append(element)

    def end(_tag: str) -> None:
        open_elements.pop()

    def entity(name: str, *_: object) -> NoReturn:
        raise ConfigError(
            f"{path}, line {line()}: the file declares the entity {name[:40]!r}; "
            "replace it by its text"
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.EntityDeclHandler = entity
    try:
        # The text is already decoded; the declaration of its encoding is ignored.
        parser.Parse(text[skipped:].encode(), True)
    except expat.ExpatError as error:
        said = expat.ErrorString(error.code)
        raise ConfigError(f"{path}, line {error.lineno + lines_before}: not XML: {said}") from error
    return roots[0]
