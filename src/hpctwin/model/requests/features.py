"""Features that nodes must have, in hpctwin's form and Slurm's ``--constraint``.

A group of nodes is a feature with values, such as ``rack`` with ``rack=r1`` and ``rack=r2``.

Source:
    Manual page sbatch(1), 22.05, ``--constraint``; Slurm combines ``&``, ``,`` and ``|`` from left
    to right, without precedence, except within parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from hpctwin.errors import WorkloadError, near
from hpctwin.model.text import count_text

_NAME = r"[^\s&|,*()\[\]!~^'\"]+"
_OPERATORS = {"&": "&", ",": "&", "|": "|"}
_MOST_CLAUSES = 64

Clauses = list[frozenset[str]]
"""Conditions that must all be true of a node.

One is true if the node has any of its features, or lacks ``a`` for ``!a``.
"""


class Constraint(NamedTuple):
    """Requirement of a job's ``--constraint`` on each of its nodes.

    Args:
        features: Text for `has_features`; empty for any node.
        lost: Part of the constraint that ``features`` does not express; empty if none.
    """

    features: str
    lost: str = ""


def alternatives(text: str) -> list[list[str]]:
    """Return lists of features; a node must have one of each list.

    Args:
        text: Text such as ``a100``, ``a100|v100``, ``(a100|v100)&ib`` or ``!gpu`` (a node without
            it).
    """
    parts = [part.strip() for part in text.split("&")]
    within = [p[1:-1] if len(parts) > 1 and p[:1] + p[-1:] == "()" else p for p in parts]
    return [[name.strip() for name in part.split("|")] for part in within]


def check_features(texts: Iterable[str]) -> None:
    """Check that texts such as ``avx512&ib`` (all) or ``a100|v100`` (any) can be read."""
    for text in texts:
        if re.search(r"\|[^()&]*&|&[^()&]*\|", text):
            raise WorkloadError(
                f"features {text!r}: group '&' and '|' by parentheses, such as (a100|v100)&ib"
            )
        for name in (name for some in alternatives(text) for name in some):
            if not re.fullmatch(f"!?{_NAME}", name):
                raise WorkloadError(
                    f"features {text!r}: {name!r} is not a valid feature name; write a name, "
                    "such as a100, a100|v100, avx512&ib, !gpu or (a100|v100)&ib"
                )


def has_features(text: str, features: Collection[str]) -> bool:
    """Return whether a node with some features meets a requirement."""
    return all(
        any(name[1:] not in features if name.startswith("!") else name in features for name in some)
        for some in alternatives(text)
    )


def read_constraint(text: str, nodes: float | None = None) -> Constraint:
    """Read a job's constraint as users write it for Slurm.

    A constraint on how many nodes have a feature, or on all nodes having the same one, becomes a
    condition on each single node. The condition is never stricter than the job's request.

    Args:
        text: Text such as ``a100``, ``(a100|v100)&ib``, ``!gpu``, ``a100*2`` or ``[rack1|rack2]``.
        nodes: Number of nodes of the job; None if unknown.

    Returns:
        Any node and the reason, if the text cannot be read.
    """
    try:
        reading = _Reading(text, nodes)
        return Constraint(_written(reading.all()), reading.lost)
    except (ValueError, RecursionError):
        return Constraint("", "constraint that cannot be parsed, ignored")


@dataclass
class _Term:
    """A part of a constraint: conditions, and the number of nodes; 0 for all."""

    clauses: Clauses
    count: int = 0


class _Reading:
    """One constraint, read token by token."""

    def __init__(self, text: str, nodes: float | None) -> None:
        plain = re.sub(r"[\"'\\]", "", text)
        self.tokens = re.findall(rf"{_NAME}|\S", plain)[::-1]
        self.nodes, self.lost = nodes, ""

    def all(self) -> Clauses:
        if not self.tokens:
            return []
        clauses = self._joined()
        if self.tokens:
            raise ValueError
        return clauses

    def _joined(self) -> Clauses:
        """Read terms and their operators from left to right."""
        found = self._on_all(self._term())
        while (operator := self._operator()) is not None:
            other = self._on_all(self._term())
            found = _both(found, other) if operator == "&" else _either(found, other)
        return found

    def _operator(self) -> str | None:
        found = _OPERATORS.get(self.tokens[-1]) if self.tokens else None
        while self.tokens and _OPERATORS.get(self.tokens[-1]) == found is not None:
            self.tokens.pop()  # '&&' is read as '&'
        return found

    def _term(self) -> _Term:
        if not self.tokens:
            raise ValueError
        token = self.tokens.pop()
        if token in ("!", "~", "^"):
            return _Term(_negated(self._term().clauses))
        if token == "[":
            return _Term(self._bracket())
        if token == "(":
            term = _Term(self._joined())
            self._expect(")")
        elif re.fullmatch(_NAME, token):
            term = _Term([frozenset([token])])
        else:
            raise ValueError
        if self.tokens[-1:] == ["*"]:
            self.tokens.pop()
            term.count = int(self.tokens.pop()) if self.tokens else 0
            if term.count < 1:
                raise ValueError
        return term

    def _expect(self, token: str) -> None:
        if not self.tokens or self.tokens.pop() != token:
            raise ValueError

    def _on_all(self, term: _Term) -> Clauses:
        """Return the conditions of a term on each node."""
        if not term.count or (self.nodes is not None and term.count >= self.nodes):
            return term.clauses
        self.lost = "constraint on some of the nodes (a*2), ignored"
        return []

    def _bracket(self) -> Clauses:
        """Read a constraint in brackets.

        ``[a|b]`` means one of them for all nodes, ``[a*2&b*4]`` each for some of the nodes.
        """
        terms, operators = [self._term()], set[str]()
        while (operator := self._operator()) is not None:
            operators.add(operator)
            terms.append(self._term())
        self._expect("]")
        if len(operators) > 1:
            raise ValueError
        if "&" in operators and not any(term.count for term in terms):
            return [clause for term in terms for clause in term.clauses]
        if "&" in operators:
            every = self.nodes is not None and sum(term.count for term in terms) >= self.nodes
            each = [term.clauses if every else [] for term in terms]
            taken = "treated as any of them for each node" if every else "ignored"
            self.lost = f"constraint that counts nodes in brackets ([a*2&b*4]), {taken}"
        else:
            each = [self._on_all(term) for term in terms]
            if len(terms) > 1 and self.nodes != 1:
                self.lost = self.lost or (
                    "constraint to one feature for all nodes ([a|b]), treated as any of "
                    "them for each node"
                )
        found = each[0]
        for other in each[1:]:
            found = _either(found, other)
        return found


def _both(one: Clauses, other: Clauses) -> Clauses:
    """Return clauses, without those that always hold or follow from others."""
    if len(one) + len(other) > _MOST_CLAUSES:
        raise ValueError
    found = list(dict.fromkeys([*one, *other]))
    return [
        clause
        for clause in found
        if not any(f"!{name}" in clause for name in clause)
        and not any(less < clause for less in found)
    ]


def _either(one: Clauses, other: Clauses) -> Clauses:
    if len(one) * len(other) > _MOST_CLAUSES:
        raise ValueError
    return _both([], [a | b for a, b in product(one, other)])


def _negated(clauses: Clauses) -> Clauses:
    opposite = [
        [frozenset([name[1:] if name.startswith("!") else f"!{name}"]) for name in sorted(clause)]
        for clause in clauses
    ]
    if not opposite:
        raise ValueError
    found = opposite[0]
    for other in opposite[1:]:
        found = _either(found, other)
    return found


def _written(clauses: Clauses) -> str:
    texts = ["|".join(sorted(clause)) for clause in clauses]
    if len(texts) == 1:
        return texts[0]
    return "&".join(f"({text})" if "|" in text else text for text in texts)


def without_groups(asked: Mapping[str, int], features: Collection[str]) -> Iterator[str]:
    """Yield sentences on jobs that request a group that no node has."""
    known = {name for name, equals, _ in (one.partition("=") for one in features) if equals}
    for name, jobs in asked.items():
        if name not in known:
            yield (
                f"{count_text(jobs, 'job')} requested nodes of one {name} (group_by), but no node group has "
                f"a feature such as {name}=1: all nodes can be used.{near(name, known)}"
            )
