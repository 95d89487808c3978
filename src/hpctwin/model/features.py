"""What nodes must have that is not an amount: features, as Slurm's ``--constraint`` asks for them.

And what groups of nodes are by, such as ``rack`` of features ``rack=r1`` and ``rack=r2``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import numpy as np

from hpctwin.errors import WorkloadError, near
from hpctwin.model.columns import Category

__all__ = ["check_features", "has_features", "without_groups"]


def _asked(text: str) -> tuple[list[str], bool]:
    """Names, and whether one of them is enough."""
    some = "|" in text
    return [name.strip() for name in text.split("|" if some else "&")], some


def check_features(texts: Iterable[str]) -> None:
    """Whether texts such as ``avx512&ib`` (all of them) or ``a100|v100`` (any) can be understood.

    Raises:
        WorkloadError: one cannot.
    """
    for text in texts:
        names, some = _asked(text)
        if some and "&" in text:
            raise WorkloadError(
                f"features {text!r}: '&' and '|' do not go together; ask for all of some, such as "
                "avx512&ib, or for any of some, such as a100|v100"
            )
        for name in names:
            if not name or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
                raise WorkloadError(
                    f"features {text!r}: {name!r} is no name of a feature; write a name, such as a100, "
                    "a100|v100 or avx512&ib"
                )


def has_features(text: str, features: Collection[str]) -> bool:
    """Whether a node with some features has what a text asks for."""
    names, some = _asked(text)
    return (any if some else all)(name in features for name in names)


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
