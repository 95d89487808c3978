"""Lists of nodes that come beside data sets, read into a machine."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path
from typing import Any

from hpctwin.errors import ConfigError
from hpctwin.formats.json.jobs import JsonRecord, not_read

__all__ = ["alibaba_nodes"]

_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")


def alibaba_nodes(path: Path, text: str, counts: dict[str, int]) -> dict[str, Any]:
    """The nodes of Alibaba's GPU cluster of 2023 (``openb_node_list_*.csv``).

    Those that are alike are a group. Groups are in the order of their first nodes. The model of a node's GPUs
    is a feature, as pods ask for it.

    Args:
        path: the file, for messages and the machine's name.
        text: what is in it.
        counts: gets the columns that are not read, with the number of nodes.

    Raises:
        ConfigError: it is no such list; the message names line and column.

    Source:
        https://github.com/alibaba/clusterdata, cluster-trace-gpu-v2023.
    """
    rows = csv.DictReader(io.StringIO(text))
    if missing := [name for name in _COLUMNS if name not in (rows.fieldnames or ())]:
        raise ConfigError(
            f"{path}, line 1: no column {', '.join(missing)}; of lists of nodes in CSV Alibaba's of its GPU "
            f"cluster of 2023 are read, with columns {', '.join(_COLUMNS)}; else write the machine as YAML"
        )
    kinds: Counter[tuple[int, int, int, str]] = Counter()
    for row in rows:
        where = f"{path}, line {rows.line_num}"
        milli, mib, gpus = (_whole(row[name], name, where) for name in _COLUMNS[1:4])
        kinds[milli, mib, gpus, (row["model"] or "").strip()] += 1
    if not kinds:
        raise ConfigError(f"{path}: no node in it")
    nodes = [
        {
            "name": f"{model or 'cpu'}-{number}",
            "count": count,
            "cores": milli / 1000,
            "memory_gb": mib / 1024,
            "gpus": gpus,
            "features": [model] if model else [],
        }
        for number, ((milli, mib, gpus, model), count) in enumerate(kinds.items())
    ]
    columns = dict.fromkeys(rows.fieldnames or ())
    every = [JsonRecord(path, "a node", columns)] * kinds.total()
    counts |= not_read("a node", every, _COLUMNS)
    return {"name": path.stem, "nodes": nodes}


def _whole(text: str | None, name: str, where: str) -> int:
    said = (text or "").strip()
    if not (said.isascii() and said.isdigit() and len(said) <= 15):
        raise ConfigError(f"{where}, column {name}: {text!r} must be a whole number, 0 or more")
    return int(said)
