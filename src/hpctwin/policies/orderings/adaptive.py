"""Orderings for jobs that depend on each other and share several resources."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable

from hpctwin.errors import ConfigError
from hpctwin.policies.orderings.formula import formula
from hpctwin.policies.orderings.ordering import Ordering

__all__ = ["adaptive", "pas", "pfm"]


def adaptive(*, chain: float = 0.2, fairshare: float = 1.0) -> Ordering:
    """Smallest area first, earlier with a longer chain of dependent jobs.

    The area is the expected runtime times the sum of the requested shares of nodes and resources.
    It is divided by the fair-share factor to the power ``fairshare``, so jobs of heavy users wait
    longer. If jobs have no users, the score does not change with time. The score is reduced by
    ``chain`` times the expected time of the longest chain of dependent jobs.

    Args:
        chain: Weight of the chain of dependent jobs; 0 for none.
        fairshare: Weight of past use, as an exponent; 0 for none.

    Raises:
        ConfigError: A weight is not a number, 0 or more.
    """
    for name, weight in (("chain", chain), ("fairshare", fairshare)):
        if not isinstance(weight, int | float) or not 0 <= weight < 1e6:
            raise ConfigError(f"adaptive: {name} is {weight!r}, it must be a number, 0 or more")
    behind = f" - {float(chain)!r} * chain" if chain else ""
    alone = formula(f"expected * load{behind}")
    made = alone
    if fairshare:
        # Unlimited usage would make the factor 0.
        factor = f"max(fairshare, 1e-9) ** {float(fairshare)!r}"
        made = dataclasses.replace(formula(f"expected * load / {factor}{behind}"), alone=alone)
    return _named(made, adaptive, "adaptive", chain=chain, fairshare=fairshare)


def pas(*, short: float = 100.0, cpu: float = 20.0, memory: float = 50.0) -> Ordering:
    """PAS: calculated priority, largest first (Goyal and Pavithra, eq. 1).

    priority + short / (runtime in ms + 1) - CPU / cpu - memory in MB / memory.

    Args:
        short: Dividend of the runtime.
        cpu: Divisor of the CPU units.
        memory: Divisor of the memory.

    Raises:
        ConfigError: A divisor is not above 0.
    """
    for name, number in (("short", short), ("cpu", cpu), ("memory", memory)):
        if not isinstance(number, int | float) or not 0 <= number < 1e12:
            raise ConfigError(f"pas: {name} is {number!r}, it must be a number, 0 or more")
    if cpu == 0 or memory == 0:
        raise ConfigError("pas: cpu and memory are divisors, they must be above 0")
    made = formula(
        f"-(priority + {float(short)!r} / (expected * 1000 + 1) - cpu / {float(cpu)!r}"
        f" - memory_mb / {float(memory)!r})"
    )
    return _named(made, pas, "pas", short=short, cpu=cpu, memory=memory)


def pfm(*, threshold: float = 0.2) -> Ordering:
    """PFM: jobs predicted to fail come last; otherwise first come, first served.

    Args:
        threshold: Predicted probability from which a job is at risk.

    Raises:
        ConfigError: The threshold is not between 0 and 1.
    """
    if not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise ConfigError(f"pfm: threshold is {threshold!r}, it must be between 0 and 1")
    # A number far above any submit time, and small enough to keep its milliseconds.
    made = formula(f"submit + (1e11 if risk >= {float(threshold)!r} else 0.0)")
    return _named(made, pfm, "pfm", threshold=threshold)


def _named(made: Ordering, maker: Callable[..., Ordering], name: str, **given: float) -> Ordering:
    default = {k: p.default for k, p in inspect.signature(maker).parameters.items()}
    changed = [f"{k}={v:g}" for k, v in given.items() if v != default[k]]
    return dataclasses.replace(
        made,
        name=name + (f":{','.join(changed)}" if changed else ""),
        summary=(inspect.getdoc(maker) or "").partition("\n")[0],
    )
