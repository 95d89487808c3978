"""A run's folder, written while the simulation runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpctwin.cli.energy_options import EnergyOptions
    from hpctwin.cli.options import ClusterOptions
    from hpctwin.simulation import Simulation

__all__ = ["every_seconds", "inputs_of", "writing"]


def every_seconds(text: str | None, out: Path | None) -> float | None:
    """Return the interval between writes, in seconds; None to write only at the end.

    Raises:
        ConfigError: The interval is not above 0, or there is no folder to write to.
    """
    from hpctwin.errors import ConfigError
    from hpctwin.model import parse_duration_s

    if text is None:
        return None
    if out is None:
        raise ConfigError("--out-every needs --out: where to write")
    seconds = parse_duration_s(text)
    if not seconds > 0:
        raise ConfigError(f"--out-every is {text!r}, it must be above 0")
    return seconds


def writing(
    simulation: Simulation,
    out: Path,
    every_s: float,
    options: dict[str, Any],
    inputs: list[Path],
    progress: Callable[[float], None],
) -> Callable[[float], None]:
    """Return a progress function that also writes the results every `every_s` seconds."""
    from hpctwin.report.pages.run import write_run

    due = time.monotonic()

    def called(share: float) -> None:
        nonlocal due
        progress(share)
        if time.monotonic() >= due:
            write_run(simulation.result(), out, options, inputs=inputs, now_s=simulation.now_s)
            due = time.monotonic() + every_s

    return called


def inputs_of(trace: Path, machine: ClusterOptions, energy: EnergyOptions) -> list[Path]:
    """Return the input files of a run."""
    tariffs = (one for one in (energy.price, energy.carbon) if one and Path(one).is_file())
    files = [Path(one) for one in (trace, machine.cluster, *tariffs) if one is not None]
    return [*files, *(sorted(trace.iterdir()) if trace.is_dir() else ())]
