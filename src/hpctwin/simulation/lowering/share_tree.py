"""Labels that usage is added up by for fair share, and the tree of accounts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.state.sim import records
from hpctwin.model import Category, Cluster, Workload
from hpctwin.model.cluster.limits import ROOT, Account

__all__ = ["labels_of", "share_tree", "shares", "with_pairs"]

_FIRST = -1.0
_NO_TREE = records("tree", 0)


def labels_of(
    workload: Workload, cluster: Cluster
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the fair-share label of each job [jobs] and the share of each label."""
    if cluster.fairshare.kind == "tree":
        pairs, label = _pairs(workload, cluster)
        return label, np.full(len(pairs), 1.0 / len(pairs))
    labels = workload.user if cluster.fairshare.by == "user" else workload.account
    code = labels.codes.astype(np.int64)
    unnamed = code < 0
    if np.count_nonzero(unnamed):
        code[unnamed] = len(labels.labels)
    return code, shares(labels, cluster)


def shares(labels: Category, cluster: Cluster) -> npt.NDArray[np.float64]:
    """Return the configured shares of all labels and of unlabeled jobs, as fractions."""
    told = cluster.fairshare.shares
    unnamed = not labels.labels or bool(np.count_nonzero(labels.codes < 0))
    if not told:
        return _parts_alike(len(labels.labels), unnamed=unnamed)
    return _parts([told.get(label, 1.0) for label in labels.labels], unnamed=unnamed)


@lru_cache(maxsize=64)
def _parts_alike(labels: int, *, unnamed: bool) -> npt.NDArray[np.float64]:
    """Return `_parts` of equal shares, as the same array each time.

    The engine recognizes an array that it has seen before.
    """
    return _parts([1.0] * labels, unnamed=unnamed)


def _parts(of_labels: list[float], *, unnamed: bool) -> npt.NDArray[np.float64]:
    """Return shares as fractions of the total; the share of unlabeled jobs is last."""
    shares = np.array([*of_labels, float(unnamed)])
    parts: npt.NDArray[np.float64] = np.maximum(shares / sum(shares.tolist()), 1e-12)
    return parts


def _pairs(
    workload: Workload, cluster: Cluster
) -> tuple[list[tuple[str, str]], npt.NDArray[np.int64]]:
    """Return all (account, user) pairs, the cluster's first, and the pair of each job."""
    from hpctwin.model.workload.joining import NOBODY, named_pairs

    pairs = {(account.name, user): None for account in cluster.accounts for user in account.users}
    here, of_job = named_pairs(workload.account, workload.user)
    pairs |= dict.fromkeys(here)
    if not pairs:
        pairs[NOBODY, NOBODY] = None
    number = {pair: row for row, pair in enumerate(pairs)}
    label = np.array([number[pair] for pair in here], np.int64)
    return list(pairs), label[of_job] if len(label) else np.zeros(0, np.int64)


def with_pairs(cluster: Cluster, pairs: Iterable[tuple[str, str]]) -> Cluster:
    """Return a cluster that knows (account, user) pairs; its share tree is as if jobs named them."""
    accounts = {account.name: account for account in cluster.accounts}
    for name, user in pairs:
        account = accounts.get(name) or Account(name=name)
        users = {**account.users, user: account.users.get(user, 1.0)}
        accounts[name] = account.model_copy(update={"users": users})
    return cluster.model_copy(update={"accounts": tuple(accounts.values())})


def share_tree(workload: Workload, cluster: Cluster) -> npt.NDArray[Any]:
    """Return the fair-share tree (`engine.state.records.Branch`); empty if classic.

    Accounts and users that only jobs name have a share of 1. Such accounts are below the root, and
    such users below their account. Children of an account whose share is ``parent`` count as
    children of that account's parent.
    """
    if cluster.fairshare.kind == "classic":
        return _NO_TREE
    pairs, _ = _pairs(workload, cluster)
    of = {account.name: account for account in cluster.accounts}

    def above(name: str) -> str:
        while name != ROOT and name in of and of[name].share == "parent":
            name = of[name].parent
        return name

    below: dict[str, list[tuple[float, str, int]]] = {ROOT: []}  # share, account, label
    for name in dict.fromkeys([*of, *(account for account, _ in pairs)]):
        if name == ROOT:
            continue
        account = of.get(name)
        share = 1.0 if account is None else account.share
        if share != "parent":
            parent = ROOT if account is None else above(account.parent)
            below.setdefault(parent, []).append((float(share), name, -1))
    for label, (name, user) in enumerate(pairs):
        share = of[name].users.get(user, 1.0) if name in of else 1.0
        number = _FIRST if share == "parent" else float(share)
        below.setdefault(above(name), []).append((number, "", label))
    table = records("tree", 1, parent=-1, label=-1)
    names, at = [ROOT], 0
    rows = [table]
    size = 1
    # Breadth first: the children of a branch are contiguous rows, from ``first`` to ``last``.
    while at < len(names):
        here = below.get(names[at], []) if rows[at]["label"][0] < 0 else []
        whole = sum(share for share, _, _ in here if share > 0)
        rows[at]["first"], rows[at]["last"] = size, size + len(here)
        for share, name, label in here:
            part = share / whole if share > 0 else share
            rows.append(records("tree", 1, parent=at, label=label, share=part))
            names.append(name)
        size += len(here)
        at += 1
    return np.concatenate(rows)
