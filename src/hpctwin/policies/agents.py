"""Trained agents as an ordering or a power policy, and their small networks.

A network is read and written without pickle, and computed in NumPy. The format is that of
safetensors. Its library checks neither that layers fit together nor that numbers are finite.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.agents import power as hooks
from hpctwin.engine.agents.agent_record import AGENT, hook
from hpctwin.engine.agents.step import look
from hpctwin.engine.compile.intrinsics import described
from hpctwin.engine.state import layout
from hpctwin.errors import PolicyError
from hpctwin.model import MS_PER_S
from hpctwin.model.files import cause, write_atomically
from hpctwin.policies.registry import is_file, load_function, split_file
from hpctwin.policies.score import Ordering, ordering

if TYPE_CHECKING:
    from hpctwin.engine.compile.policy_modules import JobView

__all__ = [
    "AgentControl",
    "Network",
    "agent_control",
    "agent_ordering",
    "custom_part",
    "hash_of_file",
    "read_agent",
]

FloatArray = npt.NDArray[np.float32]
CARD = "hpctwin"
ROWLESS = "rowless"
MOST_BYTES = 64 << 20
"""Maximum size of a file; networks of agents have some kilobytes."""


@dataclass(frozen=True, eq=False)
class Network:
    """Layers ``tanh(W x + b)``; the last is linear and returns a score per choice.

    Args:
        layers: W [outputs, inputs] and b [outputs] of each layer.
        by_row: Whether each row of the observation is scored separately: one choice per row, and
            one output of the last layer.
        card: Description of the training, as plain values.
        rowless: Constant scores of choices after the rows, which belong to no row.
    """

    layers: tuple[tuple[FloatArray, FloatArray], ...]
    by_row: bool
    card: dict[str, Any] = field(default_factory=dict)
    rowless: FloatArray = field(default_factory=lambda: np.zeros(0, np.float32))

    def scores(self, seen: FloatArray) -> FloatArray:
        """Return the score of each choice; the highest is the best [choices].

        Args:
            seen: The observation.
        """
        found = seen if self.by_row else seen.reshape(-1)
        for number, (weight, bias) in enumerate(self.layers):
            found = found @ weight.T + bias
            if number < len(self.layers) - 1:
                found = np.tanh(found)
        scores: FloatArray = np.concatenate([found.reshape(-1), self.rowless])
        return scores

    def save(self, path: str | Path) -> None:
        """Write the network and its card as safetensors."""
        header: dict[str, Any] = {
            "__metadata__": {CARD: json.dumps({"by_row": self.by_row, **self.card})}
        }
        arrays = {
            f"{number}.{name}": array
            for number, layer in enumerate(self.layers)
            for name, array in zip(("weight", "bias"), layer, strict=True)
        }
        if len(self.rowless):
            arrays[ROWLESS] = self.rowless
        pieces, at = [], 0
        for name, array in arrays.items():
            piece = np.ascontiguousarray(array, "<f4").tobytes()
            header[name] = {
                "dtype": "F32",
                "shape": list(array.shape),
                "data_offsets": [at, at + len(piece)],
            }
            pieces.append(piece)
            at += len(piece)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with write_atomically(path) as file:
            file.write(len(text).to_bytes(8, "little") + text + b"".join(pieces))

    @classmethod
    def load(cls, path: str | Path) -> Network:
        """Read a network; nothing in the file is executed.

        Raises:
            PolicyError: The file does not exist, or is not a network.
        """
        path = Path(path)
        try:
            if path.stat().st_size > MOST_BYTES:
                raise PolicyError(
                    f"{path} is too large for an agent (at most {MOST_BYTES >> 20} MB)"
                )
            data = path.read_bytes()
        except OSError as error:
            raise PolicyError(
                f"{path}: {cause(error)}; train an agent with hpctwin agent train"
            ) from error
        try:
            return cls._of(data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PolicyError(
                f"{path} is not an agent file ({error}); train an agent with hpctwin agent train"
            ) from error

    @classmethod
    def _of(cls, data: bytes) -> Network:
        size = int.from_bytes(data[:8], "little")
        if len(data) < 8 or size > len(data) - 8:
            raise ValueError("the file is truncated")
        header = json.loads(data[8 : 8 + size])
        card = json.loads(header["__metadata__"][CARD])
        by_row = bool(card.pop("by_row"))
        layers: list[tuple[FloatArray, FloatArray]] = []
        while f"{len(layers)}.weight" in header:
            number = len(layers)
            pair = [_array(data[8 + size :], header[f"{number}.{k}"]) for k in ("weight", "bias")]
            weight, bias = pair
            inputs = weight.shape[1] if not layers else len(layers[-1][1])
            if weight.shape != (len(bias), inputs) or bias.ndim != 1:
                raise ValueError(f"the shape of layer {number} does not match the layer before")
            layers.append((weight, bias))
        if not layers or (by_row and len(layers[-1][1]) != 1):
            raise ValueError("its last layer must return one score for each job")
        if ROWLESS not in header:
            return cls(tuple(layers), by_row, card)
        rowless = _array(data[8 + size :], header[ROWLESS])
        if rowless.ndim != 1 or not by_row:
            raise ValueError("the scores of actions without a row are not a list")
        return cls(tuple(layers), by_row, card, rowless)


def _array(data: bytes, about: dict[str, Any]) -> FloatArray:
    first, last = about["data_offsets"]
    shape = tuple(about["shape"])
    if about["dtype"] != "F32" or not 0 <= first <= last <= len(data):
        raise ValueError("its weights are not 32-bit floats, or are truncated")
    found = np.frombuffer(data[first:last], "<f4").astype(np.float32).reshape(shape)
    if not np.isfinite(found).all():
        raise ValueError("some of its weights are not finite")
    found.flags.writeable = False
    return found


ORDERS = "JobSelection"
SEEN = "job"


def hash_of_file(text: str) -> str:
    """Return the SHA-256 of the file of ``FILE.py:NAME``.

    Raises:
        PolicyError: The file cannot be read.
    """
    path = Path(split_file(text)[0])
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise PolicyError(f"{path}: {cause(error)}") from error


def custom_part(card: Mapping[str, Any], part: str, instead: str | None = None) -> str:
    """Return ``FILE.py:NAME`` of a custom part that an agent was trained with.

    Args:
        card: Card of the agent.
        part: ``observation`` or ``action``.
        instead: Its name if the file is elsewhere now.

    Raises:
        PolicyError: The file does not exist, has changed since, or is not named.
    """
    name, trained = card["custom"][part]["name"], card["custom"][part]["sha256"]
    used = instead or str(name)
    if not is_file(used):
        raise PolicyError(
            f"agent was trained with {part} {name}, which is in no file; name it as FILE.py:NAME "
            "in training"
        )
    if hash_of_file(used) != trained:
        raise PolicyError(
            f"{split_file(used)[0]} has changed since the agent was trained with {part} {name} "
            f"(SHA-256 {trained[:12]}…); restore it, or train the agent again"
        )
    return used


def read_agent(text: str, kind: str) -> Network:
    """Return the network of an agent that was trained in an environment of one kind.

    Raises:
        PolicyError: It was not.
    """
    network = Network.load(text)
    made = network.card.get("environment")
    if made != kind:
        use = {ORDERS: "works as an ordering", "PowerManagement": "works as a power policy"}
        raise PolicyError(
            f"{text} is an agent of environment {made}, which "
            f"{use.get(str(made), 'cannot be part of a policy')}"
        )
    return network


def agent_ordering(text: str) -> Ordering:
    """Return an agent of job selection as an ordering: its choice comes first.

    Args:
        text: Path of its file.

    Raises:
        PolicyError: It is not such an agent, or its observation is not available to orderings.
    """
    return _ordering(text, Path(text).stat().st_mtime_ns if Path(text).exists() else 0)


@lru_cache(maxsize=64)
def _ordering(text: str, changed: int) -> Ordering:
    network = read_agent(text, ORDERS)
    seen = network.card.get("options", {}).get("observation")
    if seen != SEEN or len(network.layers) != 3:
        raise PolicyError(
            f"{text} sees {seen!r}, which orderings do not have; train it with observation "
            f"{SEEN!r} and two hidden layers, or let such an agent imitate it "
            "(docs/how-to/custom-agents.md)"
        )
    arrays = [np.array(one, np.float64) for layer in network.layers for one in layer]
    for array in arrays:
        array.flags.writeable = False
    made: Ordering = ordering(_scored(*arrays), name=text, changes=True)
    return made


def _scored(w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any) -> Any:
    from hpctwin.engine.agents.parallel_steps import seen_by_orderings

    first, second = len(b1), len(b2)

    def score(now: float, job: JobView) -> float:
        a, b, c, d, e = seen_by_orderings(job.wait, job.walltime, job.nodes, job.machine_nodes)
        hidden = np.zeros(first)
        for h in range(first):
            x = b1[h] + w1[h, 0] + w1[h, 1] * a + w1[h, 2] * b + w1[h, 3] * c
            hidden[h] = np.tanh(x + w1[h, 4] * d + w1[h, 5] * e)
        total = b3[0]
        for h in range(second):
            x = b2[h]
            for k in range(first):
                x += w2[h, k] * hidden[k]
            total += w3[0, h] * np.tanh(x)
        return -float(total)

    return score


SEEN_BY_CONTROL: dict[str, tuple[Any, Callable[[int, int], tuple[int, ...]]]] = {
    "shares": (hooks.OBSERVE_SHARES, lambda levels, nodes: (hooks.SHARES,)),
    "spars": (hooks.OBSERVE_SPARS, lambda levels, nodes: (hooks.SPARS,)),
    "levels": (hooks.OBSERVE_LEVELS, lambda levels, nodes: (levels, hooks.LEVEL)),
}


def _custom_observation(card: Mapping[str, Any]) -> tuple[Any, Callable[[int, int], Any]]:
    """Return the hook and the shape of a custom observation."""
    name = custom_part(card, "observation")
    found = load_function(name, object, "observation")[1]
    if found.amounts is not None:
        raise PolicyError(f"observation {name} has amounts, which power policies do not have")
    return hook(found.function), found.shape


def agent_control(text: str) -> AgentControl:
    """Return an agent of power management as a control function.

    Args:
        text: Path of its file.

    Raises:
        PolicyError: It is not such an agent, or it decides for each node.
    """
    return AgentControl(text, read_agent(text, "PowerManagement"))


class AgentControl:
    """Control function that decides at multiples of an interval.

    Args:
        name: Path of the agent's file.
        network: The agent's network.

    Raises:
        PolicyError: It does not choose from levels at fixed times.
    """

    def __init__(self, name: str, network: Network) -> None:
        options = network.card.get("options", {})
        seen, every_s = options.get("observation", "shares"), options.get("every_s", 1800.0)
        custom = is_file(str(seen))
        known = custom or seen in SEEN_BY_CONTROL
        if not known or not every_s or (options.get("levels") or 0) < 2:
            raise PolicyError(
                f"{name} must choose a share of nodes at fixed times; train it with "
                "every_s and levels"
            )
        self.__name__ = name
        self.network, self.every_s = network, float(every_s)
        self.action = options.get("action", "share")
        self.levels = int(options["levels"])
        self.shape: Callable[[int, int], tuple[int, ...]]
        self.hook, self.shape = SEEN_BY_CONTROL.get(seen) or _custom_observation(network.card)
        self.agent = np.zeros(1, AGENT)
        self.agent["window"] = self.levels
        self.agent["observe"] = self.hook.address
        self.seen = np.zeros(0, np.float32)

    def __call__(self, view: Any) -> Any:
        """Return the nodes to switch now; see `hpctwin.energy.PowerView`."""
        every_ms = round(self.every_s * MS_PER_S)
        now_ms = round(view.now_s * MS_PER_S)
        due_s = (now_ms // every_ms + 1) * self.every_s
        if not view.due:
            return view.orders(next_call_s=due_s)
        sim = view.sim
        if self.seen.size == 0:
            self.seen = np.zeros(self.shape(self.levels, len(sim["node"])), np.float32)
            self.described = described(self.seen[None])
            self.agent["seen"] = self.described.ctypes.data
        self.agent["sim"] = sim.address
        look(self.agent.ctypes.data)
        level = int(np.argmax(self.network.scores(self.seen)))
        on, off = self.switched(sim, view.can_sleep, level / (self.levels - 1))
        return view.orders(on=on, off=off, next_call_s=due_s)

    def switched(self, sim: Any, can_sleep: Any, share: float) -> tuple[list[int], list[int]]:
        """Return the nodes to switch on and off for a choice, like `engine.agents.power`."""
        node, pool = sim["node"], sim["pool_of"]
        power = node["power"]
        on = power <= layout.COMPUTING
        if self.action != "share-spars":
            on = on | (power == layout.SWITCHING_ON)
        wanted = int(np.rint(share * len(node)))
        if self.action == "reserve":
            asked = sim["job"]["nodes"][sim["queue"][: sim.clock.queued]].sum()
            computing = (power == layout.COMPUTING).sum()
            wanted = min(wanted + int(computing) + int(asked), len(node))
        more = wanted - int(on.sum())
        there = (node["job"] < 0) & (node["down"] == 0)
        numbers = np.arange(len(node))
        if more < 0:
            idle = numbers[there & (power == layout.IDLE) & can_sleep]
            return [], idle[np.lexsort((idle, pool[idle]))][:-more].tolist()
        asleep = numbers[there & (power == layout.ASLEEP)]
        order = np.lexsort((asleep, pool[asleep], node["depth"][asleep]))
        return asleep[order][:more].tolist(), []
