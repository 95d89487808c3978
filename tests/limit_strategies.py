"""Hypothesis strategies for accounts, and for limits of users, accounts and QOS."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from hpctwin.model import Cluster, Workload
from tests.strategies import ACCOUNTS, QOS, USERS

__all__ = ["limited", "limited_in_use", "slowed", "with_tree"]

PARENTS = ({}, {"chem": "science", "phys": "science"}, {"phys": "chem"})


@st.composite
def _amounts(draw: st.DrawFn) -> dict[str, Any]:
    names = ("nodes", "jobs", "cores", "memory_gb", "gpus")
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    most = {"jobs": (0, 1, 2, 3), "nodes": (1, 2, 4), "cores": (4, 8, 20.5), "gpus": (0, 1, 2)}
    return {name: draw(st.sampled_from(most.get(name, (16, 32, 100)))) for name in chosen}


@st.composite
def _limit(draw: st.DrawFn, accounts: list[str], partitions: list[str]) -> dict[str, Any]:
    of = draw(st.sampled_from(("qos", "account", "user", "user in account", "root", "partitions")))
    limit: dict[str, Any] = {}
    if of == "qos":
        limit["qos"] = draw(st.sampled_from((*QOS, "partition")))
        limit["per"] = draw(st.sampled_from(("all", "user", "account", "job")))
        limit["deny"] = draw(st.sampled_from((False, False, True)))
    elif of == "partitions":
        some = st.lists(st.sampled_from(partitions), min_size=1, max_size=2, unique=True)
        limit["partitions"] = draw(
            st.one_of(st.just("all"), some) if partitions else st.just("all")
        )
        limit["per"] = draw(st.sampled_from(("all", "user", "account", "job")))
        whose = draw(st.sampled_from(("", "user", "account")))
        if limit["per"] in ("all", "job") and whose:
            limit[whose] = draw(st.sampled_from(USERS if whose == "user" else accounts))
    elif of == "root":
        limit["account"] = "root"
        limit["per"] = draw(st.sampled_from(("all", "user", "job")))
    else:
        if of != "user":
            limit["account"] = draw(st.sampled_from(accounts))
        if of != "account":
            limit["user"] = draw(st.sampled_from(USERS))
        limit["per"] = draw(st.sampled_from(("all", "job", "user")))
        if of != "account" and limit["per"] == "user":
            limit["per"] = "all"
    per = limit["per"]
    if per == "job":
        what = draw(st.sampled_from(("amounts", "walltime", "minutes", "least", "per_node")))
    elif per == "all":
        what = draw(st.sampled_from(("amounts", "amounts", "submitted", "minutes", "used")))
    else:
        what = draw(st.sampled_from(("amounts", "amounts", "submitted")))
    if what == "amounts":
        said = draw(_amounts())
        if per == "job":
            said.pop("jobs", None)
        if per == "user" and of not in ("qos", "partitions"):
            said = {"jobs": draw(st.integers(0, 3))}
        limit |= said or {"nodes": 2}
    elif what == "submitted":
        limit["submitted"] = draw(st.integers(0, 4))
    elif what == "walltime":
        limit["walltime"] = draw(st.sampled_from((10, 20, 30)))
    elif what == "least":
        limit["min_request"] = {"nodes": 2}
    elif what == "per_node":
        limit["per_node"] = draw(st.sampled_from(({"cores": 4}, {"cores": 7.5}, {"memory_gb": 16})))
    elif what == "used":
        names = st.sampled_from(("wall", "nodes", "cores"))
        limit["used_minutes"] = {draw(names): draw(st.sampled_from((0, 1, 2, 4)))}
        limit |= {name: draw(st.booleans()) for name in ("safe", "decays")}
    else:
        limit["minutes"] = {"nodes": draw(st.sampled_from((0.2, 0.5, 1, 2)))}
    return limit


@st.composite
def _factors(draw: st.DrawFn) -> dict[str, Any]:
    """How often use counts by QOS; often once for all."""
    some = st.lists(st.sampled_from(QOS), min_size=1, max_size=2, unique=True)
    names = draw(st.one_of(st.just([]), some))
    factors = {name: draw(st.sampled_from((0, 0.25, 0.5, 2, 3.5))) for name in names}
    return {"factors": factors, "safe_factors": [name for name in names if draw(st.booleans())]}


@st.composite
def limited(draw: st.DrawFn, clusters: st.SearchStrategy[Cluster]) -> Cluster:
    """Clusters whose users, accounts and QOS have limits."""
    cluster = draw(clusters)
    parents = draw(st.sampled_from(PARENTS))
    names = [*ACCOUNTS, "science"]
    content = cluster.model_dump(exclude_unset=True)
    content["accounts"] = [{"name": name, "parent": parents.get(name, "root")} for name in names]
    partitions = [partition.name for partition in cluster.partitions]
    content["limits"] = draw(st.lists(_limit(names, partitions), min_size=1, max_size=5))
    resets = draw(st.lists(st.integers(0, 200), max_size=2, unique=True))
    content["fairshare"] = {
        **content.get("fairshare", {}),
        "half_life": draw(st.sampled_from((20, 60, 3600))),
        "every": draw(st.sampled_from((7, 30, 300))),
        "resets": sorted(resets),
    }
    content["fairshare"] |= draw(_factors())
    for partition in content.get("partitions", ()):
        partition["qos"] = draw(st.sampled_from((None, "partition", "high")))
    return Cluster.model_validate(content)


@st.composite
def limited_in_use(draw: st.DrawFn, clusters: st.SearchStrategy[Cluster]) -> Cluster:
    """Clusters whose users, accounts and QOS have limits of what they use, in minutes."""
    cluster = draw(limited(clusters))
    content = cluster.model_dump(exclude_unset=True)
    content["limits"] = []
    for _ in range(draw(st.integers(1, 3))):
        of = draw(
            st.sampled_from(
                (
                    {"account": "root"},
                    {"account": draw(st.sampled_from(ACCOUNTS))},
                    {"user": draw(st.sampled_from(USERS))},
                    {"qos": draw(st.sampled_from((*QOS, "partition")))},
                    {"partitions": "all"},
                )
            )
        )
        what = draw(st.sampled_from(("wall", "nodes", "nodes", "cores")))
        most = draw(st.sampled_from((1, 2, 4, 8, 30)))
        ways = {name: draw(st.booleans()) for name in ("safe", "decays")}
        content["limits"].append({**of, "used_minutes": {what: most}, **ways})
    content["fairshare"]["resets"] = sorted(
        draw(st.lists(st.integers(0, 2000), max_size=2, unique=True))
    )
    return Cluster.model_validate(content)


def slowed(workload: Workload, factor: int) -> Workload:
    """The same jobs, with all their times so many times as long."""
    return workload.replace(
        submit_ms=workload.submit_ms * factor,
        runtime_ms=workload.runtime_ms * factor,
        walltime_ms=workload.walltime_ms * factor,
    )


@st.composite
def with_tree(draw: st.DrawFn, clusters: st.SearchStrategy[Cluster]) -> Cluster:
    """Clusters whose fair shares are a tree."""
    cluster = draw(clusters)
    parents = draw(st.sampled_from(PARENTS))
    share = st.sampled_from((1, 1, 2, 5, 0, "parent"))
    content = cluster.model_dump(exclude_unset=True)
    content["accounts"] = []
    for name in (*ACCOUNTS, "science"):
        users = draw(st.lists(st.sampled_from((*USERS, "dee")), unique=True))
        account = {
            "name": name,
            "share": draw(share),
            "users": {user: draw(share) for user in users},
        }
        if draw(st.integers(0, 4)) or name in parents.values():
            content["accounts"].append({**account, "parent": parents.get(name, "root")})
    present = {account["name"] for account in content["accounts"]}
    for account in content["accounts"]:
        if account["parent"] not in present:
            account["parent"] = "root"
    content["fairshare"] = {
        "kind": "tree",
        "half_life": 20,
        "every": draw(st.sampled_from((1, 7, 300))),
        "resets": sorted(draw(st.lists(st.integers(0, 200), max_size=2, unique=True))),
        **draw(_factors()),
    }
    return Cluster.model_validate(content)
