"""Tree of accounts with its shares, in sacctmgr's output, and decay of past use.

Use is also reset: ``PriorityUsageResetPeriod`` within the span of the jobs.

Source:
    Manual pages sacctmgr(1) and slurm.conf(5); Slurm's documentation, "Fair Tree Fairshare
    Algorithm" (the default since 19.05) and "Classic Fairshare Algorithm". slurm.conf(5) leaves
    open when a period ends. By Slurm's sources, `priority_multifactor.c`, it ends at local
    midnight: of weeks that before Sunday, of months, quarters and years that before their first
    day.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from hpctwin.errors import ConfigError
from hpctwin.formats.fields import zone_of
from hpctwin.formats.job_table import JobTable
from hpctwin.model import Cluster
from hpctwin.model.cluster.limits import ROOT
from hpctwin.model.text import count_text
from hpctwin.rms.site import IMPORTED, NO_EFFECT, NOT_MODELED, Setting, Site
from hpctwin.rms.slurm.listing.conf import Row, said, take
from hpctwin.rms.slurm.listing.values import limit_s
from hpctwin.rms.slurm.site.policy import version_of

RESETS = "priorityusageresetperiod"
_ONCE = {
    "none": "usage is never reset",
    "now": "usage is reset once, when Slurm reads its settings",
}
_PERIODS = ("daily", "weekly", "monthly", "quarterly", "yearly")


def take_resets(
    site: Site, jobs: JobTable, values: Mapping[str, Row], timezone: str | None
) -> None:
    """Add Slurm's resets of past use to a cluster, and record the setting's treatment.

    Args:
        site: Site that gets the times and the setting's treatment.
        jobs: Jobs in hpctwin's own columns, times in seconds since the epoch.
        timezone: Local time zone; by default UTC.
    """
    period = said(values, RESETS).lower()
    if not period:
        return
    first, last = span_of(jobs)
    shares = said(values, "priorityweightfairshare").strip("0.") != ""
    found: list[float] = []
    if period in _ONCE:
        became, why = NO_EFFECT, _ONCE[period]
    elif said(values, "prioritytype").endswith("basic"):
        became, why = NO_EFFECT, "Slurm counts no usage under priority/basic"
    elif not shares and not any(limit.used_minutes for limit in site.cluster.limits):
        became, why = NO_EFFECT, "neither fair share nor a limit depends on usage"
    elif period not in _PERIODS:
        became, why = (
            NOT_MODELED,
            f"not a period of Slurm; expected none, now, {', '.join(_PERIODS)}",
        )
    elif first is None or last is None:
        became, why = NOT_MODELED, "the simulated time is unknown, as there are no jobs"
    else:
        found = [time - first for time in midnights(period, first, last, zone_of(timezone))]
        times = f"{len(found)} time{'' if len(found) == 1 else 's'}"
        became, why = IMPORTED, f"fairshare.resets: {times}, at midnight ({timezone or 'UTC'})"
    site.settings.append(values[RESETS].setting(RESETS, became, why))
    if found:
        fields = site.cluster.model_dump(exclude_defaults=True)
        fields["fairshare"] = {**fields.get("fairshare", {}), "resets": found}
        site.cluster = Cluster.checked(fields, site.manager)


def span_of(jobs: JobTable) -> tuple[float | None, float | None]:
    """Return the first submission and the last end; None without jobs."""
    if not len(jobs):
        return None, None
    begin = pl.col("submit_s")
    if "recorded_start_s" in jobs.columns:
        begin = pl.max_horizontal("submit_s", "recorded_start_s")
    both = jobs.scan().select(
        first=pl.col("submit_s").min(), last=(begin + pl.col("runtime_s")).max()
    )
    first, last = both.collect(engine="streaming").row(0)
    return first, last


def midnights(period: str, first_s: float, last_s: float, zone: str | None) -> list[float]:
    """Return the ends of all periods within a span, in seconds since the epoch.

    Args:
        period: ``daily``, ``weekly``, ``monthly``, ``quarterly`` or ``yearly``.
        first_s: Start of the span, exclusive.
        last_s: End of the span, inclusive.
        zone: Time zone of the midnights; by default UTC.
    """
    where = zoneinfo.ZoneInfo(zone or "UTC")
    begin = dt.datetime.fromtimestamp(first_s, where).date()
    end = dt.datetime.fromtimestamp(last_s, where).date()
    found = (
        dt.datetime.combine(day, dt.time(), where).timestamp() for day in _days(begin, end, period)
    )
    return [time for time in found if first_s < time <= last_s]


def _days(begin: dt.date, end: dt.date, period: str) -> Iterator[dt.date]:
    """Yield the days, from one to another, on which a period begins."""
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


_SHARE = ("share", "rawshares", "fairshare")
_PARENT = ("parentname", "parname")
_NEVER_HALVES_S = 100 * 365 * 86400.0
"""Half-life for PriorityDecayHalfLife 0: use does not decay."""
_PARENTS_SHARE = "2147483647"  # as older versions print it


def of_cluster(rows: Sequence[Row], called: Row | None, notes: list[str]) -> list[Row]:
    """Return the associations of one cluster.

    Slurm's database may serve several clusters, and prints those of all.

    Args:
        rows: Rows of ``sacctmgr show assoc`` or ``dump``, or of ``sshare``, which does not name
            clusters.
        called: Setting that names the cluster; None if unknown.
        notes: List to which the number of skipped rows is added.

    Raises:
        ConfigError: They belong to several clusters, and the cluster's name is unknown.
    """
    found = {row.get("cluster").lower() for row in rows} - {""}
    if called is None:
        if len(found) > 1:
            where, names = rows[0].where.partition(":")[0], ", ".join(sorted(found))
            raise ConfigError(
                f"{where} contains clusters {names}; add slurm.conf or the output of scontrol show config, "
                "whose ClusterName selects one"
            )
        return list(rows)
    name = called.get("clustername").lower()
    kept = [row for row in rows if row.get("cluster").lower() in ("", name)]
    if len(kept) < len(rows):
        notes.append(
            f"{len(rows) - len(kept)} of {len(rows)} associations are omitted: they belong to other clusters "
            f"than {called.get('clustername')} (ClusterName)"
        )
    return kept


def shares_of(
    values: Mapping[str, Row], rows: Sequence[Row], settings: list[Setting], notes: list[str]
) -> dict[str, Any]:
    """Return ``fairshare`` and ``accounts`` of a cluster.

    Args:
        rows: Rows of ``sacctmgr show assoc`` or ``dump``.
        settings: List to which the treatment of settings is added.
        notes: List to which assumptions about accounts are added.
    """
    accounts = _accounts(rows, settings, notes)
    flags, where = _flags(values)
    share: dict[str, Any] = {}
    halving = said(values, "prioritydecayhalflife")
    half = _NEVER_HALVES_S if re.fullmatch(r"[0:-]+", halving) else limit_s(halving)
    if half:
        share["half_life"] = half
    classic = "NO_FAIR_TREE" in flags or _is_old(values, flags)
    kind = "classic" if classic else "tree"
    told = [flag for flag in flags if "FAIR_TREE" in flag]
    if told or accounts:
        why = (
            "fair-share factor 2^(-usage/share)"
            if classic
            else "Fair Tree: users are ranked account by account"
        )
        settings.append(
            Setting("fair share", ", ".join(told) or kind, where, IMPORTED, f"{kind}: {why}")
        )
    if "DEPTH_OBLIVIOUS" in flags:
        why = "classic fair share without DEPTH_OBLIVIOUS"
        settings.append(Setting("PriorityFlags: DEPTH_OBLIVIOUS", "", where, NOT_MODELED, why))
    if accounts:
        first = next(row for row in rows if row.get("account") and not row.get("partition"))
        count = sum(one["name"] != ROOT for one in accounts)
        settings.append(
            Setting("Shares", f"{count_text(count, 'account')}", first.where, IMPORTED, "accounts")
        )
    if classic:
        # The tree has no use in this formula, but limits of accounts apply below them.
        share |= {"by": "account", "shares": _of_machine(accounts)}
        if "prioritycalcperiod" in values:
            why = "priorities are always current"
            row = values["prioritycalcperiod"]
            settings.append(row.setting("prioritycalcperiod", NO_EFFECT, why))
        below = [_without_shares(one) for one in accounts if one["name"] != ROOT]
        return {"fairshare": share, "accounts": below}
    every = limit_s(said(values, "prioritycalcperiod"))
    if every:
        share["every"] = every
        take(values, "prioritycalcperiod", "fairshare.every", settings)
    return {"fairshare": {"kind": "tree", **share}, "accounts": accounts}


def _accounts(
    rows: Sequence[Row], settings: list[Setting], notes: list[str]
) -> list[dict[str, Any]]:
    """Return accounts with parents and shares, and their users with shares.

    Several outputs may list one account.
    """
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        name, user = row.get("account"), row.get("user")
        if not name or row.get("partition"):
            continue
        share, unread = _share(row)
        if unread:
            why = "expected a number, 0 or more, or parent"
            what = f"Association {f'user {user} of ' if user else ''}account {name}: share"
            settings.append(Setting(what, unread[:80], row.where, NOT_MODELED, why))
        account = found.setdefault(name, {"name": name, "users": {}})
        if user:
            account["users"].setdefault(user, 1.0)
            if share is not None:
                account["users"][user] = share
            continue
        if share is not None:
            account["share"] = share
        # Not every output has parents; if one has, they count.
        for key in _PARENT:
            if row.get(key):
                account["parent"] = row.get(key)
    root = found.pop(ROOT, {"users": {}})
    if len(found) > 1 and not any(key in row.values for row in rows for key in _PARENT):
        notes.append(
            "the account hierarchy is unknown, so all accounts are placed below the root; add the column "
            "ParentName to the output of sacctmgr, or add its dump or the output of sshare -a -P"
        )
    for account in found.values():
        parent = account.get("parent", ROOT)
        if parent not in found or _is_above(account["name"], parent, found):
            account.pop("parent", None)
            if parent != ROOT:
                notes.append(
                    f"account {account['name']} is placed below the root: its parent is not in the files, or "
                    "is the account itself"
                )
    made = [{k: v for k, v in account.items() if v != {}} for account in found.values()]
    # Users of the root have a rank like all others.
    return [{"name": ROOT, "users": root["users"]}, *made] if root["users"] and made else made


def _is_above(name: str, parent: str, found: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether an account is above its stated parent, so that there is no tree."""
    seen: set[str] = set()
    while parent in found and parent not in seen:
        if parent == name:
            return True
        seen.add(parent)
        parent = found[parent].get("parent", ROOT)
    return False


def _share(row: Row) -> tuple[float | str | None, str]:
    """Return a share, None without one, and text in its place that is none."""
    unread = ""
    for key in _SHARE:
        text = row.get(key).strip()
        if text.lower() == "parent" or text == _PARENTS_SHARE:
            return "parent", ""
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isfinite(value) and value >= 0:
            return value, ""
        unread = unread or text
    return None, unread


def _without_shares(account: Mapping[str, Any]) -> dict[str, Any]:
    return {key: account[key] for key in ("name", "parent") if key in account}


def _of_machine(accounts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return each account's part of the cluster: of its parent's part, and so on."""
    raw = {one["name"]: one["share"] for one in accounts if isinstance(one.get("share"), float)}
    parents = {one["name"]: one.get("parent", ROOT) for one in accounts}
    made = {}
    for account in raw:
        part, name = 1.0, account
        while name in raw:
            beside = [one for one in raw if parents[one] == parents[name]]
            part *= raw[name] / (sum(raw[one] for one in beside) or 1.0)
            name = parents[name]
        if part > 0:
            made[account] = round(part, 9)
    return made


def _flags(values: Mapping[str, Row]) -> tuple[list[str], str]:
    where = values["priorityflags"].where if "priorityflags" in values else "slurm.conf"
    return [flag.strip().upper() for flag in said(values, "priorityflags").split(",")], where


def _is_old(values: Mapping[str, Row], flags: Sequence[str]) -> bool:
    """Return whether this Slurm has no tree by default."""
    version = version_of(values)
    return "FAIR_TREE" not in flags and version is not None and version < (19, 5)
