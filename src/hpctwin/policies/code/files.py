"""Files that are a part of a policy: a user's own function, or an agent's network."""

from __future__ import annotations

from typing import Any

from hpctwin.errors import PolicyError

__all__ = ["NETWORK_SUFFIX", "is_file", "is_network", "load_function", "split_file"]

NETWORK_SUFFIX = ".safetensors"


def is_file(text: str) -> bool:
    """Whether text names something in a Python file: ``my.py``, ``my.py:name``."""
    return text.partition(":")[0].endswith(".py")


def is_network(text: str) -> bool:
    """Return whether text names a file with an agent's network."""
    return text.endswith(NETWORK_SUFFIX)


def split_file(text: str) -> tuple[str, str, str]:
    """File, name and parameters of ``my.py:name:parameters``; what is left out is empty."""
    file, _, rest = text.partition(":")
    name, _, parameters = rest.partition(":")
    return file, name.strip(), parameters


def load_function(text: str, kind: type, what: str, default: str = "") -> tuple[str, Any]:
    """What ``my.py:name`` names, and its whole name.

    Args:
        text: so written; without a name, the only thing of that kind in the file, or the default.
        kind: of what is looked for where no name is given.
        what: is named, for messages: ``ordering``, ``backfill`` ….
        default: taken if no name is given and it is there.

    Raises:
        PolicyError: the file is not there, or fails when it is loaded, or the name must be given.
        UnknownNameError: the file has nothing of that name.
    """
    from hpctwin.model.files.trusted import functions_in, load_module, named_in

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
