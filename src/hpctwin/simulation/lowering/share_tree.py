"""Whose use is added up for fair shares, and the tree of accounts in the engine's form."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.state.sim import records
from hpctwin.model import Category, Cluster, Workload
from hpctwin.model.cluster.limits import ROOT

__all__ = ["labels_of", "share_tree", "shares"]

_FIRST = -1.0
_NO_TREE = records("tree", 0)
NOBODY = ""
"""The user, or account, of jobs that name none."""


def labels_of(
    workload: Workload, cluster: Cluster
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Whose use each job adds to [jobs], and the promised share of each label, as parts of the whole."""
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
    """Promised shares of all labels and of the jobs without one, as parts of the whole."""
    told = cluster.fairshare.shares
    unnamed = not labels.labels or bool(np.count_nonzero(labels.codes < 0))
    if not told:
        return _parts_alike(len(labels.labels), unnamed=unnamed)
    return _parts([told.get(label, 1.0) for label in labels.labels], unnamed=unnamed)


@lru_cache(maxsize=64)
def _parts_alike(labels: int, *, unnamed: bool) -> npt.NDArray[np.float64]:
    """As `_parts` where all have the same share: the same array each time, which an engine knows then."""
    return _parts([1.0] * labels, unnamed=unnamed)


def _parts(of_labels: list[float], *, unnamed: bool) -> npt.NDArray[np.float64]:
    """Shares as parts of the whole; behind them that of jobs without a label, if there are any."""
    shares = np.array([*of_labels, float(unnamed)])
    parts: npt.NDArray[np.float64] = np.maximum(shares / sum(shares.tolist()), 1e-12)
    return parts


def _pairs(
    workload: Workload, cluster: Cluster
) -> tuple[list[tuple[str, str]], npt.NDArray[np.int64]]:
    """All users in accounts, those that the cluster names first; and which each job is of."""
    pairs = {(account.name, user): None for account in cluster.accounts for user in account.users}
    codes = np.column_stack([workload.account.codes, workload.user.codes])
    found, of_job = np.unique(codes, axis=0, return_inverse=True)
    accounts, users = ((*one.labels, NOBODY) for one in (workload.account, workload.user))
    here = [(accounts[account], users[user]) for account, user in found.tolist()]
    pairs |= dict.fromkeys(here)
    if not pairs:
        pairs[NOBODY, NOBODY] = None
    number = {pair: row for row, pair in enumerate(pairs)}
    label = np.array([number[pair] for pair in here], np.int64)
    return list(pairs), label[of_job.ravel()] if len(label) else np.zeros(0, np.int64)


def share_tree(workload: Workload, cluster: Cluster) -> npt.NDArray[Any]:
    """The tree of fair shares, see `engine.state.records.Branch`; empty where they are classic.

    Accounts that jobs name and the cluster does not are below the root, with a share of 1, as are users in
    their account. What is below an account with the share of its ``parent`` counts as below that.
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
