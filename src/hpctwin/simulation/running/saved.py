"""Save and load simulations, with the arrays of the state and their context."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl

from hpctwin._version import __version__
from hpctwin.energy.power.states import ModeChange
from hpctwin.engine.operations.power_control import WorkLeft
from hpctwin.engine.state.layout import STATE
from hpctwin.errors import HpctwinError, SimulationError
from hpctwin.model import Cluster, Workload, write_atomically
from hpctwin.model.files import other_format
from hpctwin.model.workload.frame import LABEL_COLUMNS
from hpctwin.network.archive import pack, unpack
from hpctwin.policies import Policy, parse_policy
from hpctwin.simulation.lowering.power_states import Outside
from hpctwin.simulation.state.arguments import SizingHook
from hpctwin.simulation.state.base import SimulationBase

__all__ = ["load", "save"]

_FORMAT = 20

S = TypeVar("S", bound=SimulationBase)


def save(simulation: SimulationBase, path: Path) -> None:
    """Write a simulation to a file, atomically.

    Raises:
        OutputError: The file cannot be written.
    """
    table = io.BytesIO()
    simulation.workload.to_frame().write_parquet(table)
    sizing = simulation.sizing
    expected = simulation.expected_ms() if sizing is None else sizing.expected_ms(simulation)
    about = {
        "format": _FORMAT,
        "version": __version__,
        "policy": simulation.policy.name,
        "overrun": simulation.overrun,
        "sharing": simulation.sharing,
        "mode_speeds": simulation.mode_speeds,
        "tau_s": simulation.tau_s,
        "on_dependency_failure": simulation.on_dependency_failure,
        "track_nodes": simulation.tracked,
        "cluster": simulation.cluster.model_dump(mode="json"),
        "workload": simulation.workload.name,
        "labels": {name: getattr(simulation.workload, name).labels for name in LABEL_COLUMNS},
        "outages": [
            [int(n) for n in row] for row in zip(*simulation.outages_so_far(), strict=True)
        ],
        "drawn": simulation.drawn,
        "engine_s": simulation.engine_s,
        "over": simulation.over,
        "log": simulation.log,
        "outside": _outside_as_plain(simulation.outside),
        "sized": None if sizing is None else sizing.save(simulation),
    }
    arrays: dict[str, Any] = {f"sim_{k}": v for k, v in simulation.state.state().items()}
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    arrays["workload"] = np.frombuffer(table.getvalue(), np.uint8)
    arrays["expected_ms"] = expected
    if simulation.risk is not None:
        arrays["risk"] = simulation.risk
    if simulation.network is not None:
        given = pack((simulation.cluster.platform, simulation.network.profiles))
        arrays |= {f"given_{k}": v for k, v in given.items()}
        arrays |= {f"net_{k}": v for k, v in simulation.network.state().items()}
    for number, change in enumerate(simulation.outside.changes):
        arrays[f"spent_ms_{number}"] = change.spent_ms
    with write_atomically(path) as file:
        np.savez_compressed(file, **arrays)


def load(cls: type[S], path: Path, policy: Policy | None, sizing: SizingHook | None) -> S:
    """Read a simulation from a file.

    Raises:
        SimulationError: The file is not a saved simulation or has another format version; or its
            ordering was a Python function and no policy is given; or a sizing is missing or not
            expected.
    """
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(arrays["about"].tobytes())
        found, version = about["format"], about["version"]
    except FileNotFoundError as error:
        raise SimulationError(
            f"{path}: file does not exist; give a file written by `Simulation.save`"
        ) from error
    except (OSError, ValueError, LookupError, TypeError, zipfile.BadZipFile) as error:
        raise SimulationError(
            f"{path}: not a simulation saved by hpctwin ({error}); give a file written by "
            "`Simulation.save`"
        ) from error
    if found != _FORMAT:
        raise SimulationError(other_format(path, found, _FORMAT, version))
    _check_sizing(path, sizing, had=about.get("sized") is not None)
    with _as_it_is_now(path, version):
        frame = pl.read_parquet(io.BytesIO(arrays["workload"].tobytes()))
        workload = Workload.from_frame(frame, name=about["workload"])
        # Fair shares and other state of users are found by the codes of the labels.
        same = {k: getattr(workload, k).with_labels(v) for k, v in about["labels"].items()}
        workload = replace(workload, **same)
        cluster = Cluster.model_validate(about["cluster"])
        given, network = (_named(arrays, prefix) for prefix in ("given_", "net_"))
        if given:
            platform, profiles = unpack(given)
            cluster, workload = cluster.connected(platform), replace(workload, profiles=profiles)
        state = {name: arrays[f"sim_{name}"] for name in STATE}
        node, start, end = np.array(about["outages"], np.int64).reshape(-1, 3).T
        outside = _outside_of_plain(about["outside"], arrays)
    try:
        was = parse_policy(about["policy"])
    except HpctwinError as error:
        if policy is None:
            raise SimulationError(
                f"{path}: policy {about['policy']!r} of the file cannot be found; give policy="
            ) from error
        was = policy
    made = cls(
        workload,
        cluster,
        policy=was,
        sizing=sizing,
        sharing=about["sharing"],
        overrun=about["overrun"],
        tau_s=about["tau_s"],
        on_dependency_failure=about["on_dependency_failure"],
        expected_s=arrays["expected_ms"] / 1000,
        risk=arrays.get("risk"),
        track_nodes=about["track_nodes"],
        log=about["log"],
    )
    with _as_it_is_now(path, version):
        made.restore(
            state,
            (node, start, end),
            about["drawn"],
            about["engine_s"],
            outside,
            over=about["over"],
        )
        if made.network is not None:
            made.network.restore(network)
            made.mode_speeds = about["mode_speeds"]
        if sizing is not None:
            sizing.resume(made, about["sized"])
    if policy is not None and policy.name != about["policy"]:
        return made.fork(policy)
    return made


def _check_sizing(path: Path, sizing: SizingHook | None, *, had: bool) -> None:
    """Check that a sizing is given exactly if the saved simulation had one.

    No file holds a sizing, whose functions are the user's.

    Raises:
        SimulationError: It is missing, or the saved simulation had none.
    """
    if had and sizing is None:
        raise SimulationError(
            f"{path}: a sizing function, which is not in the file, decided the sizes of "
            "its jobs; give sizing="
        )
    if sizing is not None and not had:
        raise SimulationError(
            f"{path}: its jobs ran with the sizes they requested; remove sizing=, or start "
            "a new simulation with it"
        )


@contextmanager
def _as_it_is_now(path: Path, version: str) -> Iterator[None]:
    """Turn errors about a file's content into one that names the version it is from."""
    try:
        yield
    except (ValueError, LookupError, TypeError, pl.exceptions.PolarsError) as error:
        why = str(error).splitlines()[0]
        raise SimulationError(
            f"{path}: file of hpctwin {version}, whose format differs from that of "
            f"{__version__} ({why}); use the version that wrote it, or simulate again"
        ) from error


def _named(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the arrays whose names begin with a prefix, by the rest of their names."""
    return {
        name.removeprefix(prefix): one for name, one in arrays.items() if name.startswith(prefix)
    }


def _outside_as_plain(outside: Outside) -> dict[str, Any]:
    return {
        "changes": [[change.time_ms, change.group, change.mode] for change in outside.changes],
        "work": [
            [job, one.start_ms, one.ran_ms, one.work.numerator, one.work.denominator]
            for job, one in outside.work.items()
        ],
        "asked": outside.asked,
        "next_call_s": outside.next_call_s,
        "last_s": outside.last_s,
    }


def _outside_of_plain(plain: dict[str, Any], arrays: Mapping[str, Any]) -> Outside:
    return Outside(
        changes=tuple(
            ModeChange(time_ms, group, mode, arrays[f"spent_ms_{number}"])
            for number, (time_ms, group, mode) in enumerate(plain["changes"])
        ),
        work={
            job: WorkLeft(start, ran, Fraction(over, under))
            for job, start, ran, over, under in plain["work"]
        },
        asked=plain["asked"],
        next_call_s=plain["next_call_s"],
        last_s=plain["last_s"],
    )
