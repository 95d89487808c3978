"""A live twin's meter: read in a thread of its own, calibrated on meanwhile; never in the twin's way."""

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

from hpctwin.energy.power.meter import Metered, Sieve
from hpctwin.energy.power.sensors import Sensors
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
"""What is expected takes no more than this part of the time."""
SAVED_EVERY_S = 600.0


class Metering:
    """Reads a meter and calibrates on it.

    Args:
        settings: of the meter.
        kept: Parquet file for what was measured, which a twin that is started again goes on with.
    """

    def __init__(self, settings: CsvMeter | JsonMeter | PrometheusMeter, kept: Path) -> None:
        self.settings, self.kept = settings, kept
        self._reader = _Reader(settings.open())
        self._sieve = Sieve()
        self._sensors = (
            Sensors(
                settings.sensor_count,
                rising=settings.rising,
                silent_after_s=settings.silent_after,
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
        """Read from now on."""
        self._reader.start()

    def end(self) -> None:
        """Read no more, and keep what was measured."""
        self._reader.stop()
        self._tried(self._save)

    def turn(self, core: Core, now_s: float, in_charge: bool) -> None:
        """Take in what was read, and what is used; at most once a second.

        Args:
            core: with the mirror.
            now_s: the present by the cluster's clock.
            in_charge: whether the twin starts the jobs.
        """
        now = time.monotonic()
        if now < self._due or not core.mirror.snapshots:
            return
        self._due = now + EVERY_S
        self._tried(lambda: self._turn(core, now_s, in_charge))

    def _tried(self, step: Any) -> None:
        """Nothing that a meter does, or what is made of it, is a fault of the twin's."""
        try:
            step()
            self._fault = None
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            if said != self._fault:
                logger.warning("the meter: %s", said, exc_info=not isinstance(error, HpctwinError))
            self._fault = said

    def _turn(self, core: Core, now_s: float, in_charge: bool) -> None:
        use = use_now(core)
        metered = self._for(core, tuple(use))
        self._began_s = now_s if self._began_s is None else self._began_s
        # What a mirror shows that waits for a snapshot is not what is used.
        blind = core.mirror.needs_snapshot is not None
        ended = metered.see(now_s, None if blind else list(use.values()))
        for time_s, power_w in self._read(now_s):
            if self._sieve.takes(time_s, power_w, now_s):
                self._last = (time_s, power_w)
                if not metered.read(time_s, power_w):
                    self._sieve.left_out["too late"] += 1
        if not ended:
            return
        self._errors = metered.errors_pct()
        began = time.monotonic()
        if began >= self._due_expected and not blind:
            expected = use_expected(core, now_s, self.settings.ahead, in_charge)
            self._expected_w = metered.expect([expected.get(name, 0.0) for name in use])
            now = time.monotonic()
            self._due_expected = now + SPARING * (now - began)
        if began >= self._due_saved:
            self._due_saved = began + SAVED_EVERY_S
            self._save()

    def _read(self, now_s: float) -> Iterator[tuple[float, float]]:
        """Time and power of what was read; what tells no time is of now."""
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
        """What calibrates on such use: what there is, or what was kept, or begun anew."""
        if self._metered is None or self._metered.columns != columns:
            asked = self.settings
            full = full_w(core.mirror.machine)
            self._sieve.least_w = asked.least_w or (full or 0) / 100
            self._sieve.most_w = asked.most_w or (10 * full if full else math.inf)
            self._metered = Metered(
                columns, step_s=asked.step, ahead_s=asked.ahead, past_s=asked.past
            )
            if self.kept.exists():
                self._metered.restore(pl.read_parquet(self.kept))
        return self._metered

    def _save(self) -> None:
        if self._metered is not None and len(self._metered.measured_w):
            with write_atomically(self.kept) as file:
                self._metered.table().write_parquet(file)

    def status(self, now_s: float) -> dict[str, Any]:
        """What the meter tells and how well power is forecast, in plain values.

        Args:
            now_s: the present by the cluster's clock.
        """
        last = self._last
        quiet_s = now_s - (last[0] if last else self._began_s if self._began_s else now_s)
        silent = quiet_s > self.settings.silent_after
        left_out = self._sieve.left_out
        fault = self._reader.fault or self._fault
        if self._sensors is not None:
            left_out = left_out + self._sensors.left_out
            fault = fault or self._sensors.fault(now_s)
        if silent and not fault:
            said = self._sieve.fault
            fault = f"its readings are left out: {said}" if said else "it is silent"
        return {
            "power_w": last[1] if last and not silent else None,
            "age_s": now_s - last[0] if last else None,
            "expected_w": None if silent else self._expected_w,
            "ahead_s": self.settings.ahead,
            "error_pct": self._errors,
            "left_out": dict(left_out),
            "fault": fault,
        }


class _Reader(threading.Thread):
    """Reads a meter again and again, however long it takes; what fails is tried again, less often."""

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
        """Read no more; a reading under way is not waited for."""
        self._stopped.set()

    def new(self) -> list[Reading]:
        """What was read since."""
        return [self._found.popleft() for _ in range(len(self._found))]


def _of_times(readings: list[Reading]) -> list[Reading]:
    """Readings; those that tell no time are of now, and their mean is one."""
    timeless = [one.value for one in readings if one.time_s is None]
    told = [one for one in readings if one.time_s is not None]
    return [*told, Reading(None, sum(timeless) / len(timeless))] if timeless else told


def full_w(machine: Cluster) -> float | None:
    """What a machine's nodes draw in full use by its description, W; None if it does not say."""
    if not machine.has_power:
        return None
    return sum(
        group.count * max(m.power_w for m in group.modes.values()) for group in machine.nodes
    )


def use_now(core: Core) -> dict[str, float]:
    """What power is calibrated on: nodes in use, of shared ones as much as is used, and nodes asleep."""
    mirror = core.mirror
    running = (job for job in mirror.jobs.values() if job.start_s is not None)
    found = {"nodes_in_use": sum(_nodes_used(job, mirror.machine) for job in running)}
    powers = [node.power for node in mirror.nodes.values() if node.power is not None]
    if powers:
        found["nodes_asleep"] = float(sum(power.state == "asleep" for power in powers))
    return found


def use_expected(core: Core, now_s: float, ahead_s: float, in_charge: bool) -> dict[str, float]:
    """The same so long ahead, by running the present on; what sleeps now is taken to sleep then.

    Args:
        core: with the mirror.
        now_s: the present.
        ahead_s: how long ahead.
        in_charge: whether the twin starts the jobs; else the cluster does by its own policy, if that is told.
    """
    # Who has no meter does not wait for the simulator to be loaded.
    from hpctwin.simulation.running.present import runs

    present = core.present(now_s, None if in_charge else core.own)
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
