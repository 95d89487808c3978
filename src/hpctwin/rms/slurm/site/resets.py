"""When Slurm forgets what was used: ``PriorityUsageResetPeriod`` within the span of the jobs.

Source:
    slurm.conf(5); where that leaves open when a period ends, its sources, `priority_multifactor.c`: at local
    midnight, of weeks that before Sunday, of months, quarters and years that before their first day.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Iterator, Mapping

import polars as pl

from hpctwin.formats.common.fields import zone_of
from hpctwin.formats.common.job_table import JobTable
from hpctwin.model import Cluster
from hpctwin.rms.site.findings import NO_BEARING, NOT_MODELLED, TAKEN, Site
from hpctwin.rms.slurm.listing.conf import Row, said

__all__ = ["RESETS", "midnights", "take_resets"]

RESETS = "priorityusageresetperiod"
_ONCE = {"none": "use is never reset", "now": "use is reset once, when Slurm reads its settings"}
_PERIODS = ("daily", "weekly", "monthly", "quarterly", "yearly")


def take_resets(
    site: Site, jobs: JobTable, values: Mapping[str, Row], timezone: str | None
) -> None:
    """Have a machine forget its use as often as Slurm does, and say what became of the setting.

    Args:
        site: gets the times, and what became of the setting.
        jobs: in our own columns, times in seconds since the epoch.
        values: settings of slurm.conf by key.
        timezone: the local one; UTC if left out.

    Raises:
        ConfigError: there is no such time zone.
    """
    period = said(values, RESETS).lower()
    if not period:
        return
    first, last = _span(jobs)
    shares = said(values, "priorityweightfairshare").strip("0.") != ""
    found: list[float] = []
    if period in _ONCE:
        became, why = NO_BEARING, _ONCE[period]
    elif said(values, "prioritytype").endswith("basic"):
        became, why = NO_BEARING, "under priority/basic Slurm does not count what was used"
    elif not shares and not any(limit.used for limit in site.cluster.limits):
        became, why = NO_BEARING, "neither fair share nor a limit goes by what was used"
    elif period not in _PERIODS:
        became, why = NOT_MODELLED, f"Slurm knows none, now, {', '.join(_PERIODS)}"
    elif first is None or last is None:
        became, why = NOT_MODELLED, "no job is there that tells when the machine is simulated"
    else:
        found = [time - first for time in midnights(period, first, last, zone_of(timezone))]
        times = f"{len(found)} time{'' if len(found) == 1 else 's'}"
        became, why = TAKEN, f"fairshare.resets: {times}, at midnight ({timezone or 'UTC'})"
    site.settings.append(values[RESETS].setting(RESETS, became, why))
    if found:
        fields = site.cluster.model_dump(exclude_defaults=True)
        fields["fairshare"] = {**fields.get("fairshare", {}), "resets": found}
        site.cluster = Cluster.checked(fields, site.manager)


def _span(jobs: JobTable) -> tuple[float | None, float | None]:
    """From the first submission to the last end; None without jobs."""
    if not len(jobs):
        return None, None
    begin = pl.col("submit_s")
    if "recorded_start_s" in jobs.columns:
        begin = pl.max_horizontal("submit_s", "recorded_start_s")
    span = jobs.scan().select(
        first=pl.col("submit_s").min(), last=(begin + pl.col("runtime_s")).max()
    )
    first, last = span.collect(engine="streaming").row(0)
    return first, last


def midnights(period: str, first_s: float, last_s: float, zone: str | None) -> list[float]:
    """The ends of all periods within a span, seconds since the epoch.

    Args:
        period: ``daily``, ``weekly``, ``monthly``, ``quarterly`` or ``yearly``.
        first_s: after that.
        last_s: until then.
        zone: where it is midnight; UTC if left out.
    """
    where = zoneinfo.ZoneInfo(zone or "UTC")
    begin = dt.datetime.fromtimestamp(first_s, where).date()
    end = dt.datetime.fromtimestamp(last_s, where).date()
    found = (
        dt.datetime.combine(day, dt.time(), where).timestamp() for day in _days(begin, end, period)
    )
    return [time for time in found if first_s < time <= last_s]


def _days(begin: dt.date, end: dt.date, period: str) -> Iterator[dt.date]:
    """The days, from one to another, on which a period begins."""
    for number in range((end - begin).days + 1):
        day = begin + dt.timedelta(days=number)
        if {
            "daily": True,
            "weekly": day.weekday() == 6,
            "monthly": day.day == 1,
            "quarterly": day.day == 1 and day.month % 3 == 1,
            "yearly": day.day == 1 and day.month == 1,
        }[period]:
            yield day
