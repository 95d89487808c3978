"""What nodes must have that is not an amount: features, as Slurm's ``--constraint`` asks for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hpctwin.errors import WorkloadError

__all__ = ["check_features", "has_features"]


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
