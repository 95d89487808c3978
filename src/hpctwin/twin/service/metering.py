"""Metering of a live twin: readings from a thread, and power calibrated on them.

No error or delay of a meter stops the twin.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from hpctwin.energy.power.meter import Metered, Sensors, Sieve
from hpctwin.errors import HpctwinError
from hpctwin.model import Cluster, write_atomically
from hpctwin.rms.records.records import JobRecord
from hpctwin.twin.core.core import Core
from hpctwin.twin.meters import CsvMeter, JsonMeter, Meter, PrometheusMeter, Reading

__all__ = ["Metering", "full_w", "use_expected", "use_now"]

logger = logging.getLogger(__name__)

EVERY_S = 1.0
LONGEST_PAUSE_S = 60.0
SPARING = 50
"""The forecast of utilization takes at most 1 / `SPARING` of the running time."""
SAVED_EVERY_S = 600.0


class Metering:
    """Reads a meter, and calibrates the power forecast on it.

    Args:
        settings: Settings of the meter.
        kept: Parquet file of the measurements, from which a restarted twin continues.
    """

    def __init__(self, settings: CsvMeter | JsonMeter | PrometheusMeter, kept: Path) -> None:
        self.settings, self.kept = settings, kept
        self._reader = _Reader(settings.open())
        self._sieve = Sieve()
        self._sensors = (
            Sensors(
                settings.sensor_count,
                rising=settings.rising,
                silent_after_s=settings.stale_after,
            )
            if settings.rising or settings.sensor_count > 1
            else None
        )
        self._metered: Metered | None = None
        self._last: tuple[float, float] | None = None
        self._began_s: float | None = None
        self._fault: str | None = None
        self._expected_w: float | None = None
        self._errors: dict[str, float] = {}
        self._due = self._due_expected = 0.0
        self._due_saved = time.monotonic() + SAVED_EVERY_S

    def begin(self) -> None:
        """Start reading."""
        self._reader.start()

    def end(self) -> None:
        """Stop reading, and save the measurements."""
        self._reader.stop()
        self._tried(self._save)

    def turn(self, core: Core, now_s: float, is_active: bool) -> None:
        """Process new readings and the present utilization, at most once per second.

        Args:
            core: The core, with the mirror.
            now_s: The present by the cluster's clock, in seconds.
            is_active: Whether the twin starts the jobs.
        """
        now = time.monotonic()
        if now < self._due or not core.mirror.snapshots:
            return
        self._due = now + EVERY_S
        self._tried(lambda: self._turn(core, now_s, is_active))

    def _tried(self, step: Any) -> None:
        """Run a step and log its errors: no error of metering may stop the twin."""
        try:
            step()
            self._fault = None
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            if said != self._fault:
                logger.warning("the meter: %s", said, exc_info=not isinstance(error, HpctwinError))
            self._fault = said

    def _turn(self, core: Core, now_s: float, is_active: bool) -> None:
        use = use_now(core)
        metered = self._for(core, tuple(use))
        self._began_s = now_s if self._began_s is None else self._began_s
        # A mirror that waits for a snapshot does not show the present utilization.
        blind = core.mirror.needs_snapshot is not None
        ended = metered.see(now_s, None if blind else list(use.values()))
        for time_s, power_w in self._read(now_s):
            if self._sieve.takes(time_s, power_w, now_s):
                self._last = (time_s, power_w)
                if not metered.read(time_s, power_w):
                    self._sieve.omitted["too late"] += 1
        if not ended:
            return
        self._errors = metered.errors_pct()
        began = time.monotonic()
        if began >= self._due_expected and not blind:
            expected = use_expected(core, now_s, self.settings.horizon, is_active)
            self._expected_w = metered.expect([expected.get(name, 0.0) for name in use])
            now = time.monotonic()
            self._due_expected = now + SPARING * (now - began)
        if began >= self._due_saved:
            self._due_saved = began + SAVED_EVERY_S
            self._save()

    def _read(self, now_s: float) -> Iterator[tuple[float, float]]:
        """Yield time and power of the new readings; one without a time counts as of now."""
        new = self._reader.new()
        if self._sensors is None:
            for time_s, power_w, _ in _of_times(new):
                yield now_s if time_s is None else time_s, power_w
            return
        for time_s, value, sensor in new:
            at = now_s if time_s is None else time_s
            found = self._sensors.take(sensor, at, value, now_s)
            if found is not None:
                yield found

    def _for(self, core: Core, columns: tuple[str, ...]) -> Metered:
        """Return the calibration for the given columns of utilization.

        It is the present one, unless the columns have changed. A new one continues from the saved
        measurements, if there are any.
        """
        if self._metered is None or self._metered.columns != columns:
            asked = self.settings
            full = full_w(core.mirror.machine)
            self._sieve.min_w = asked.min_w or (full or 0) / 100
            self._sieve.max_w = asked.max_w or (10 * full if full else math.inf)
            self._metered = Metered(
                columns, step_s=asked.step, ahead_s=asked.horizon, past_s=asked.window
            )
            if self.kept.exists():
                self._metered.restore(pl.read_parquet(self.kept, glob=False))
        return self._metered

    def _save(self) -> None:
        if self._metered is not None and len(self._metered.measured_w):
            with write_atomically(self.kept) as file:
                self._metered.table().write_parquet(file)

    def status(self, now_s: float) -> dict[str, Any]:
        """Return the last reading and the quality of the power forecast, as plain values."""
        last = self._last
        quiet_s = now_s - (last[0] if last else self._began_s if self._began_s else now_s)
        silent = quiet_s > self.settings.stale_after
        omitted = self._sieve.omitted
        fault = self._reader.fault or self._fault
        if self._sensors is not None:
            omitted = omitted + self._sensors.omitted
            fault = fault or self._sensors.fault(now_s)
        if silent and not fault:
            said = self._sieve.fault
            fault = f"its readings are ignored: {said}" if said else "it is silent"
        return {
            "power_w": last[1] if last and not silent else None,
            "age_s": now_s - last[0] if last else None,
            "expected_w": None if silent else self._expected_w,
            "horizon_s": self.settings.horizon,
            "error_pct": self._errors,
            "omitted": dict(omitted),
            "fault": fault,
        }


class _Reader(threading.Thread):
    """Thread that reads a meter repeatedly; its pauses grow after failures."""

    def __init__(self, meter: Meter) -> None:
        super().__init__(name="meter", daemon=True)
        self._meter = meter
        self._stopped = threading.Event()
        self._found: deque[Reading] = deque(maxlen=100_000)
        self.fault: str | None = None

    def run(self) -> None:
        """See `threading.Thread`."""
        pause_s = 0.0
        while not self._stopped.wait(pause_s):
            try:
                self._found.extend(self._meter.read())
                self.fault, pause_s = None, self._meter.every_s
            except Exception as error:
                told = isinstance(error, HpctwinError)
                self.fault = str(error) if told else f"{type(error).__name__}: {error}"
                pause_s = min(LONGEST_PAUSE_S, max(self._meter.every_s, 2 * pause_s))

    def stop(self) -> None:
        """Stop reading, without waiting for a reading in progress."""
        self._stopped.set()

    def new(self) -> list[Reading]:
        """Return the readings since the last call."""
        return [self._found.popleft() for _ in range(len(self._found))]


def _of_times(readings: list[Reading]) -> list[Reading]:
    """Return the readings; those without a time are replaced by one with their mean."""
    timeless = [one.value for one in readings if one.time_s is None]
    told = [one for one in readings if one.time_s is not None]
    return [*told, Reading(None, sum(timeless) / len(timeless))] if timeless else told


def full_w(machine: Cluster) -> float | None:
    """Return the power of all nodes in full use, in W; None without a power model."""
    if not machine.has_power:
        return None
    return sum(
        group.count * max(m.power_w for m in group.modes.values()) for group in machine.nodes
    )


def use_now(core: Core) -> dict[str, float]:
    """Return the utilization that power is calibrated on: nodes in use and asleep.

    A shared node counts by the share of it that is in use.
    """
    mirror = core.mirror
    running = (job for job in mirror.jobs.values() if job.start_s is not None)
    found = {"nodes_in_use": sum(_nodes_used(job, mirror.machine) for job in running)}
    powers = [node.power for node in mirror.nodes.values() if node.power is not None]
    if powers:
        found["nodes_asleep"] = float(sum(power.state == "asleep" for power in powers))
    return found


def use_expected(core: Core, now_s: float, ahead_s: float, is_active: bool) -> dict[str, float]:
    """Return the utilization expected after a time, by a simulation from the present.

    The nodes that are asleep now are assumed to be asleep then.

    Args:
        core: The core, with the mirror.
        now_s: The present by the cluster's clock, in seconds.
        ahead_s: Lead time, in seconds.
        is_active: Whether the twin starts the jobs. If not, the cluster starts them by its own
            policy, if the settings name it.
    """
    # Imported late, so that a twin without a meter does not load the simulator.
    from hpctwin.simulation.running.incremental import runs

    present = core.present(now_s, None if is_active else core.own)
    simulation = present.fork()
    simulation.advance(now_s + ahead_s)
    jobs, machine = core.mirror.jobs, core.mirror.machine
    rows = runs(simulation).nonzero()[0].tolist()
    ids = [present.ids[row] for row in rows]
    used = sum(_nodes_used(jobs[one], machine) for one in ids if one in jobs)
    return {**use_now(core), "nodes_in_use": used}


def _nodes_used(job: JobRecord, machine: Cluster) -> float:
    spec = job.spec
    if not spec.shares:
        return float(len(job.node_names) or spec.nodes)
    first = machine.nodes[0]
    shares = [
        sum(kind.tasks * getattr(kind, name) for kind in spec.kinds) / has
        for name, has in (("cores", first.cores), ("gpus", first.gpus))
        if has
    ]
    return max(shares, default=0.0)
