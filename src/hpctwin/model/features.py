"""What nodes must have that is not an amount: features, as Slurm's ``--constraint`` asks for them.

And what groups of nodes are by, such as ``rack`` of features ``rack=r1`` and ``rack=r2``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

import numpy as np

from hpctwin.errors import WorkloadError, near
from hpctwin.model.columns import Category

__all__ = ["alternatives", "check_features", "has_features", "without_groups"]


_NAME = re.compile(r"[\w.=-]+")


def alternatives(text: str) -> list[list[str]]:
    """What a node must have one of each of, of text such as ``a100``, ``a100|v100``, ``(a100|v100)&ib``."""
    parts = [part.strip() for part in text.split("&")]
    within = [p[1:-1] if len(parts) > 1 and p[:1] + p[-1:] == "()" else p for p in parts]
    return [[name.strip() for name in part.split("|")] for part in within]


def check_features(texts: Iterable[str]) -> None:
    """Whether texts such as ``avx512&ib`` (all of them) or ``a100|v100`` (any) can be understood.

    Raises:
        WorkloadError: one cannot.
    """
    for text in texts:
        if re.search(r"\|[^()&]*&|&[^()&]*\|", text):
            raise WorkloadError(
                f"features {text!r}: say by parentheses what '&' and '|' go with, such as (a100|v100)&ib"
            )
        for name in (name for some in alternatives(text) for name in some):
            if not _NAME.fullmatch(name):
                raise WorkloadError(
                    f"features {text!r}: {name!r} is no name of a feature; write a name, such as a100, "
                    "a100|v100, avx512&ib or (a100|v100)&ib"
                )


def has_features(text: str, features: Collection[str]) -> bool:
    """Whether a node with some features has what a text asks for."""
    return all(any(name in features for name in some) for some in alternatives(text))


def without_groups(group_by: Category, features: Collection[str]) -> Iterator[str]:
    """Sentences on jobs that ask for nodes of one group, where no node has a value of what it is by.

    Args:
        group_by: what each job asks for [jobs].
        features: those that any nodes have.
    """
    known = {name for name, equals, _ in (one.partition("=") for one in features) if equals}
    for code, name in enumerate(group_by.labels):
        jobs = int(np.count_nonzero(group_by.codes == code))
        if jobs and name not in known:
            yield (
                f"{jobs:,} jobs ask for nodes of one {name} (group_by), and no node group has a feature such "
                f"as {name}=1: they may have any nodes.{near(name, known)}"
            )
