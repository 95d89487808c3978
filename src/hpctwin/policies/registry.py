"""Registries of the parts of policies, by name, with parameters and a description.

All code that lists, checks, documents or reads policies uses them, and no other lists. A file can
also be a part of a policy: a user's function, or an agent's network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hpctwin.errors import ConfigError, PolicyError, UnknownNameError, in_brief
from hpctwin.model.text import MS_PER_S, parse_duration_s, to_ms

__all__ = [
    "NETWORK_SUFFIX",
    "Entry",
    "Parameter",
    "Registry",
    "exact_duration",
    "is_file",
    "is_network",
    "load_function",
    "split_file",
]

NETWORK_SUFFIX = ".safetensors"


def is_file(text: str) -> bool:
    """Return whether text names something in a Python file: ``my.py``, ``my.py:name``."""
    return text.partition(":")[0].endswith(".py")


def is_network(text: str) -> bool:
    """Return whether text names a file with an agent's network."""
    return text.endswith(NETWORK_SUFFIX)


def split_file(text: str) -> tuple[str, str, str]:
    """Return file, name and parameters of ``my.py:name:parameters``; empty if omitted."""
    file, _, rest = text.partition(":")
    name, _, parameters = rest.partition(":")
    return file, name.strip(), parameters


def load_function(text: str, kind: type, what: str, default: str = "") -> tuple[str, Any]:
    """Return the object that ``my.py:name`` names, and its full name.

    Args:
        text: The text; without a name, it means the only object of the kind in the file, or the
            default.
        kind: Type of the object if no name is given.
        what: Kind in messages: ``ordering``, ``backfill`` ….
        default: Name to use if none is given and it exists.

    Raises:
        PolicyError: The file does not exist, or fails on import, or the name must be given.
        UnknownNameError: The file has no such name.
    """
    from hpctwin.model.trusted import functions_in, load_module, named_in

    file, name, _ = split_file(text)
    module = load_module(file)
    found = [key for key, value in vars(module).items() if isinstance(value, kind)]
    if not name and default and hasattr(module, default):
        name = default
    if not name and len(found) == 1:
        name = found[0]
    if not name:
        there = ", ".join(sorted({*found, *functions_in(module)}))
        raise PolicyError(
            f"{file}: no {what} is named; write {file}:NAME (the file defines {there or 'none'})"
        )
    return f"{file}:{name}", named_in(module, name, file, found)


T = TypeVar("T")

ANY = ("any", "unlimited")
NEVER = "never"
_FLAGS = {
    **dict.fromkeys(("1", "true", "yes", 1), True),
    **dict.fromkeys(("0", "false", "no", 0), False),
}
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))


@dataclass(frozen=True)
class Parameter:
    """A parameter of a policy.

    Args:
        name: Name of the parameter.
        kind: ``duration`` (seconds), ``timeout`` (seconds, or never), ``durations``, ``whole``,
            ``limit`` (a whole number, or any), ``number``, ``flag``, ``word`` or ``text``.
        default: Default value.
        least: Minimum of a number, or of a duration in seconds.
        known: Possible words.
        help: Description.
    """

    name: str
    kind: str
    default: Any = None
    least: float = 0
    known: tuple[str, ...] = ()
    help: str = ""

    def read(self, given: Any, of: str) -> Any:
        """Return the value of a text.

        Args:
            given: Text or a value.
            of: Owner of the parameter, for messages.

        Raises:
            ConfigError, UnknownNameError: It is not a valid value.
        """
        text = given.strip() if isinstance(given, str) else given
        value = self._read(text, of)
        if not self._fits(value):
            raise ConfigError(f"{of}: {self.name} is {in_brief(given)}; it must be {self._must()}")
        return value

    def _read(self, given: Any, of: str) -> Any:
        if self.kind in ("limit", "timeout") and (given is None or given in (*ANY, NEVER)):
            return None
        if self.kind == "durations":
            parts = given.split("/") if isinstance(given, str) else given
            return tuple(parse_duration_s(part) for part in parts)
        if self.kind in ("duration", "timeout"):
            return parse_duration_s(given)
        if self.kind == "flag":
            return _FLAGS.get(given.lower() if isinstance(given, str) else given, given)
        if self.kind == "word":
            if given is not None and given not in self.known:
                raise UnknownNameError(f"{self.name} of {of}", given, self.known)
            return given
        if self.kind in ("whole", "limit") and isinstance(given, str):
            if given.isdecimal():
                return int(given)
            raise ConfigError(
                f"{of}: {in_brief(given)} is not a number of {self.name}; it must be {self._must()}"
            )
        if self.kind == "number" and isinstance(given, str):
            try:
                return float(given)
            except ValueError as error:
                raise ConfigError(f"{of}: {self.name}={in_brief(given)} is not a number") from error
        return given

    def _fits(self, value: Any) -> bool:
        if self.kind in ("limit", "timeout") and value is None:
            return True
        if self.kind == "durations":
            return all(0 <= one < 1e12 for one in value)
        if self.kind == "flag":
            return isinstance(value, bool)
        if self.kind in ("duration", "timeout"):
            return 0 <= value < 1e12 and to_ms(value) >= self.least * MS_PER_S
        if self.kind in ("whole", "limit"):
            return isinstance(value, int) and not isinstance(value, bool) and value >= self.least
        return True

    def _must(self) -> str:
        if self.kind == "flag":
            return "yes or no"
        if self.kind in ("duration", "durations", "timeout"):
            least = f"{self.least * MS_PER_S:g} ms" if self.least else "0 s"
            return f"at least {least}"
        more = ", or any" if self.kind == "limit" else ""
        return f"a whole number, at least {self.least:g}{more}"

    def write(self, value: Any) -> str:
        """Return a text that `read` reads."""
        if value is None:
            return NEVER if self.kind == "timeout" else ANY[0]
        if self.kind in ("duration", "timeout"):
            return exact_duration(value)
        if self.kind == "durations":
            return "/".join(exact_duration(one) for one in value)
        if self.kind == "flag":
            return "yes" if value else "no"
        return f"{value!r}" if isinstance(value, float) else str(value)


def exact_duration(seconds: float) -> str:
    """Return a text that reads back to the millisecond: ``20m``, ``1500ms``."""
    ms = to_ms(seconds)
    unit, size = next(one for one in _UNITS if ms % one[1] == 0)
    return f"{ms // size}{unit}" if ms else "0s"


@dataclass(frozen=True)
class Entry(Generic[T]):
    """One entry of a registry.

    Args:
        name: Name of the entry.
        help: Description in one line.
        make: Function that makes it from its parameters by name.
        parameters: Its parameters.
        first: The parameter that may be given first, without its name.
    """

    name: str
    help: str
    make: Callable[..., T]
    parameters: tuple[Parameter, ...] = ()
    first: str = ""

    def text(self, values: Mapping[str, Any], always: tuple[str, ...] = ()) -> str:
        """Return ``name:key=value,…`` with the values that differ from the defaults.

        Args:
            values: Values of the parameters.
            always: Parameters that are always included.
        """
        told = []
        for one in self.parameters:
            value = values.get(one.name, one.default)
            if value != one.default or one.name in always:
                told.append(
                    one.write(value) if one.name == self.first else f"{one.name}={one.write(value)}"
                )
        return self.name + (":" + ",".join(told) if told else "")

    def read(self, text: str, kind: str = "setting") -> dict[str, Any]:
        """Read ``value,key=value,…``.

        Args:
            text: The text.
            kind: Word for parameters in messages.

        Raises:
            UnknownNameError: There is no such parameter.
            ConfigError: A value is not valid, or given twice.
        """
        if text and not self.parameters:
            raise ConfigError(f"{self.name!r} has no settings; omit {text!r}")
        by_name = {one.name: one for one in self.parameters}
        given: dict[str, Any] = {}
        for number, part in enumerate(filter(None, text.split(","))):
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals and number == 0 and self.first and key not in by_name:
                key, value = self.first, key
            if key not in by_name:
                raise UnknownNameError(f"{kind} of {self.name}", key, by_name)
            if key in given:
                raise ConfigError(f"{self.name}: {key} is given twice")
            given[key] = by_name[key].read(value, self.name)
        return given


class Registry(Generic[T]):
    """All entries of one kind. Names may be given in small or capital letters.

    Args:
        kind: Kind in messages: ``ordering``, ``backfill`` ….
        more: Function that returns further entries, which is called when they are needed.
    """

    def __init__(self, kind: str, more: Callable[[], Mapping[str, Entry[T]]] | None = None) -> None:
        self.kind = kind
        self._own: dict[str, Entry[T]] = {}
        self._more = more

    def register(self, entry: Entry[T]) -> Entry[T]:
        """Register an entry, so that policies can name it."""
        self._own[entry.name] = entry
        return entry

    def entries(self) -> dict[str, Entry[T]]:
        """Return all entries by name."""
        return {**self._further(), **self._own}

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._further(), *self._own}))

    def __contains__(self, name: object) -> bool:
        known = self._as_named(name)
        return known in self._own or known in self._further()

    def has_own(self, name: str) -> bool:
        """Return whether it was registered, and is not one of the further entries."""
        return self._as_named(name) in self._own

    def _further(self) -> Mapping[str, Entry[T]]:
        return {} if self._more is None else self._more()

    def _as_named(self, name: Any) -> Any:
        """Return a name as it was registered, such as ``fcfs`` for ``FCFS``."""
        if not isinstance(name, str) or name == name.lower() or is_file(name):
            return name
        return next((one for one in self if one.lower() == name.lower()), name)

    def find(self, name: str) -> Entry[T]:
        """Return the entry of a name, in small or capital letters.

        Raises:
            UnknownNameError: There is none; the message has the nearest name and all names.
        """
        known = self._as_named(name)
        found = self._own.get(known) or self._further().get(known)
        if found is None:
            raise UnknownNameError(self.kind, name, list(self))
        return found
