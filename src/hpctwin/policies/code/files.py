"""Files as parts of a policy: a user's function, or an agent's network."""

from __future__ import annotations

from typing import Any

from hpctwin.errors import PolicyError

__all__ = ["NETWORK_SUFFIX", "is_file", "is_network", "load_function", "split_file"]

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
        raise PolicyError(f"{file}: name the {what}, as in {file}:NAME; it has {there or 'none'}")
    return f"{file}:{name}", named_in(module, name, file, found)
