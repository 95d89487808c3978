"""Hypothesis strategies for accounts, and for limits of users, accounts and QOS."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from hpctwin.model import Cluster
from tests.strategies import ACCOUNTS, QOS, USERS

__all__ = ["limited", "with_tree"]

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
        limit["per"] = draw(st.sampled_from(("all", "user", "job")))
        if limit["per"] != "user" and draw(st.booleans()):
            limit["user"] = draw(st.sampled_from(USERS))
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
        what = draw(st.sampled_from(("amounts", "walltime", "minutes", "least")))
    elif per == "all":
        what = draw(st.sampled_from(("amounts", "amounts", "submitted", "minutes")))
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
        limit["least"] = {"nodes": 2}
    else:
        limit["minutes"] = {"nodes": draw(st.sampled_from((0.2, 0.5, 1, 2)))}
    return limit


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
    for partition in content.get("partitions", ()):
        partition["qos"] = draw(st.sampled_from((None, "partition", "high")))
    return Cluster.model_validate(content)


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
    }
    return Cluster.model_validate(content)
