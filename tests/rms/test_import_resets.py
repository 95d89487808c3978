"""``PriorityUsageResetPeriod``: when past use is forgotten, and what becomes of the setting."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Simulation, read_workload
from hpctwin.cli import main
from hpctwin.rms.site import IMPORTED, NO_EFFECT, NOT_MODELED
from hpctwin.rms.site_folder import Imported, import_site
from hpctwin.rms.slurm.site.accounts import midnights

CONF = (
    "ClusterName=c\nSelectType=select/linear\nPriorityType=priority/multifactor\nPriorityDecayHalfLife=0\n"
    "AccountingStorageEnforce=limits\nNodeName=n[1-8] CPUs=8\nPartitionName=main Nodes=ALL Default=YES\n"
)
HEADER = "JobID|User|Account|Partition|Submit|Start|ElapsedRaw|TimelimitRaw|NNodes|State|NodeList"
JOBS = (
    "1|ann|chem|main|2027-01-29T20:00:00|2027-01-29T20:00:00|7200|120|4|COMPLETED|n[1-4]",
    "2|ann|chem|main|2027-01-30T12:00:00|2027-02-01T00:03:00|600|15|1|COMPLETED|n1",
)
LIMIT = "Cluster|Account|User|GrpTRESMins|Par Name\nc|root|||\nc|chem||node=480|root\n"


def site(
    folder: Path, period: str, *, more: str = "", limit: str = LIMIT, zone: str = "UTC"
) -> Imported:
    folder.mkdir(exist_ok=True)
    (folder / "slurm.conf").write_text(f"{CONF}PriorityUsageResetPeriod={period}\n{more}")
    (folder / "assoc.txt").write_text(limit)
    (folder / "sacct.txt").write_text("\n".join([HEADER, *JOBS]) + "\n")
    return import_site("slurm", folder, timezone=zone)


def told(made: Imported) -> tuple[str, str]:
    [one] = [one for one in made.site.settings if one.name == "PriorityUsageResetPeriod"]
    return one.became, one.why


@pytest.mark.parametrize(
    ("period", "zone", "hours"),
    [
        ("DAILY", "UTC", [4, 28, 52]),
        ("DAILY", "Europe/Berlin", [4, 28, 52]),
        ("WEEKLY", "UTC", [28]),  # 31 January 2027 is a Sunday
        ("MONTHLY", "UTC", [52]),
    ],
)
def test_use_is_forgotten_at_local_midnight(
    tmp_path: Path, period: str, zone: str, hours: list[int]
) -> None:
    made = site(tmp_path / "site", period, zone=zone)
    # Job 2 ran until 13 minutes after midnight of 1 February: the span is until then.
    assert [time / 3600 for time in made.site.cluster.fairshare.resets] == hours
    assert told(made)[0] == IMPORTED


@given(
    first=st.integers(0, 2_000_000_000),
    days=st.integers(0, 900),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
    period=st.sampled_from(["daily", "weekly", "monthly", "quarterly", "yearly"]),
)
def test_each_is_the_next_of_its_kind_and_none_is_skipped(
    first: int, days: int, zone: str, period: str
) -> None:
    """As Slurm reckons the next from the last: from its day on to the end of the period."""
    import zoneinfo

    where = zoneinfo.ZoneInfo(zone)

    def next_after(time: float) -> float:
        day = dt.datetime.fromtimestamp(time, where).date()
        if period == "daily":
            day += dt.timedelta(days=1)
        elif period == "weekly":
            day += dt.timedelta(days=7 - (day.weekday() + 1) % 7)
        else:
            months = {"monthly": 1, "quarterly": 3, "yearly": 12}[period]
            number = 12 * day.year + (day.month - 1) // months * months + months
            day = dt.date(number // 12, number % 12 + 1, 1)
        return dt.datetime.combine(day, dt.time(), where).timestamp()

    last = first + days * 86400
    found = midnights(period, first, last, zone)
    time, expected = next_after(first), []
    while time <= last:
        expected.append(time)
        time = next_after(time)
    assert found == expected


@pytest.mark.parametrize(
    ("period", "more", "limit", "became", "why"),
    [
        ("NONE", "", LIMIT, NO_EFFECT, "never"),
        ("NOW", "", LIMIT, NO_EFFECT, "once"),
        ("FORTNIGHTLY", "", LIMIT, NOT_MODELED, "not a period of Slurm; expected none, now, daily"),
        ("DAILY", "", "Cluster|Account|User|GrpJobs|Par Name\nc|root||9|\n", NO_EFFECT, "neither"),
        ("DAILY", "PriorityType=priority/basic\n", LIMIT, NO_EFFECT, "counts no usage"),
    ],
)
def test_what_else_becomes_of_it_is_reported(
    tmp_path: Path, period: str, more: str, limit: str, became: str, why: str
) -> None:
    made = site(tmp_path / "site", period, more=more, limit=limit)
    assert made.site.cluster.fairshare.resets == ()
    assert told(made)[0] == became
    assert why in told(made)[1]


def test_without_jobs_it_is_not_known_when_that_is(tmp_path: Path) -> None:
    site(tmp_path / "site", "DAILY")
    (tmp_path / "site" / "sacct.txt").unlink()
    made = import_site("slurm", tmp_path / "site")
    assert told(made) == (
        NOT_MODELED, "the simulated time is unknown, as there are no jobs"
    )  # fmt: skip


def test_a_user_who_has_used_everything_starts_when_use_is_forgotten(tmp_path: Path) -> None:
    for period, start_h in (("DAILY", 16), ("WEEKLY", 28), ("MONTHLY", 52), ("NONE", None)):
        made = site(tmp_path / period.lower(), period)
        out = tmp_path / f"{period.lower()}-out"
        with pytest.raises(SystemExit, match="0"):
            main(["import", "slurm", "--from", str(tmp_path / period.lower()), "--out", str(out)])
        workload = read_workload(out / "workload.parquet")
        result = Simulation(workload, made.site.cluster, policy=made.site.policy).run()
        start = result.jobs.sort("submit_s")["start_s"].to_list()[1]
        assert (None if start is None else start / 3600) == start_h
