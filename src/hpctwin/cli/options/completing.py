"""Shell completion of a policy or a part of one, from the registries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

    from hpctwin.policies.registry import Registry

__all__ = ["complete_part", "complete_policy"]

_PARTS = {"+": "backfill", "@": "placement", "~": "power"}
"""Part of a policy that follows each sign."""


def complete_part(kind: str) -> Callable[[CompletionContext], dict[str, str]]:
    """Return the completer of a policy part: names and, after a colon, settings.

    Args:
        kind: ``order``, ``backfill``, ``placement`` or ``power``.
    """

    def complete(context: CompletionContext) -> dict[str, str]:
        return dict(_offered(kind, context.incomplete))

    return complete


def complete_policy(context: CompletionContext) -> dict[str, str]:
    """Complete a whole policy: the part at the end of the typed text."""
    text = context.incomplete
    at = max(text.rfind(sign) for sign in _PARTS)
    before, part = text[: at + 1], text[at + 1 :]
    kind = _PARTS[before[-1]] if before else "order"
    return {before + name: help for name, help in _offered(kind, part)}


def _offered(kind: str, typed: str) -> Iterator[tuple[str, str]]:
    from hpctwin.policies import REGISTRIES

    registry: Registry[Any] = REGISTRIES[kind]
    name, colon, settings = typed.partition(":")
    if not colon:
        for known in registry:
            yield known, registry.find(known).help
    elif name in registry:
        before = typed[: len(typed) - len(settings.rpartition(",")[2])]
        for one in registry.find(name).parameters:
            yield f"{before}{one.name}=", one.help
