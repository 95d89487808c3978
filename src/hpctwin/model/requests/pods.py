"""Requests of pods, in Kubernetes' words and quantities."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpctwin.model.requests.chunks import Tasks
from hpctwin.model.requests.resources import NAME

_OPTIONS = ("--requests", "--limits", "--replicas")
_BYTES: dict[str, int] = {
    "": 1,
    **{unit: 1000 ** (n + 1) for n, unit in enumerate("kMGTPE")},
    **{f"{unit}i": 1024 ** (n + 1) for n, unit in enumerate("KMGTPE")},
}
_GB = 1024**3
"""GB are those of 2^30 bytes, as everywhere in requests."""
_NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"


def is_pods(words: Sequence[str]) -> bool:
    """Return whether the words of a request are those of Kubernetes."""
    return any(word.startswith(_OPTIONS) for word in words)


def parse_pods(words: Sequence[str]) -> Tasks:
    """Return the tasks that pods request.

    An example is ``--requests=cpu=500m,memory=2Gi --limits=nvidia.com/gpu=1 --replicas=4``. As in
    Kubernetes' placement of pods, a resource with a limit and no request requests its limit. What a
    pod may use beyond its request keeps no other pod away.

    Returns:
        As many tasks as pods; extended resources are consumables.

    Raises:
        ValueError: The words are invalid, or request something that is not modeled.
    """
    said: dict[str, str] = {}
    for word in words:
        name, given, value = word.partition("=")
        if name not in _OPTIONS or not given:
            raise ValueError(
                f"{word!r} is not supported with --requests; write "
                f"{', '.join(_OPTIONS)}, each with ="
            )
        said[name] = value
    replicas = said.get("--replicas", "1")
    if not re.fullmatch(r"0*[1-9]\d{0,8}", replicas):
        raise ValueError(f"--replicas is {replicas!r}; it must be a whole number above 0")
    limits, requests = _amounts(said.get("--limits", "")), _amounts(said.get("--requests", ""))
    for name, amount in requests.items():
        if amount > limits.get(name, amount):
            raise ValueError(f"a pod requests more {name} than its limit")
    asked = {**limits, **requests}
    gpus = sum(amount for name, amount in asked.items() if name.endswith("/gpu"))
    cores, memory_gb = asked.get("cpu", 0.0), asked.get("memory", 0.0)
    others = {name: amount for name, amount in asked.items() if not _is_common(name)}
    if not (cores or memory_gb or gpus or any(others.values())):
        raise ValueError("a pod requests no cores, memory or GPUs")
    return Tasks(int(replicas), cores, memory_gb, gpus, tuple(others.items()))


def _is_common(name: str) -> bool:
    return name in ("cpu", "memory") or name.endswith("/gpu")


def _amounts(text: str) -> dict[str, float]:
    found = {}
    for part in filter(None, text.split(",")):
        name, _, quantity = part.partition("=")
        if name == "cpu":
            found[name] = _cores(quantity)
        elif name in ("memory", "ephemeral-storage") or name.startswith("hugepages-"):
            found[name] = _gigabytes(name, quantity)
        elif re.fullmatch(rf"(?=[^/]+/[^/]+$){NAME}", name):
            found[name] = _devices(name, quantity)
        else:
            raise ValueError(
                f"resource {name!r} of a pod is not modeled; known are cpu, memory, "
                "ephemeral-storage, hugepages-… and vendor resources domain/name, such as "
                "nvidia.com/gpu"
            )
    return found


def _cores(quantity: str) -> float:
    match = re.fullmatch(_NUMBER + "(m?)", quantity)
    if not match:
        raise ValueError(f"cpu={quantity} is not a number of cores, such as 2, 0.5 or 500m")
    return float(match[1]) / (1000 if match[2] else 1)


def _gigabytes(name: str, quantity: str) -> float:
    match = re.fullmatch(_NUMBER + "([A-Za-z]*)", quantity)
    if not match or match[2] not in _BYTES:
        kind = "storage" if "storage" in name else "memory"
        raise ValueError(f"{name}={quantity} is not an amount of {kind}, such as 512Mi, 2Gi or 1G")
    return float(match[1]) * _BYTES[match[2]] / _GB


def _devices(name: str, quantity: str) -> float:
    if not re.fullmatch(r"\d{1,9}", quantity):
        kind = "GPUs" if name.endswith("/gpu") else "devices"
        raise ValueError(f"{name}={quantity}: Kubernetes allocates only whole {kind}, such as 1")
    return float(quantity)
