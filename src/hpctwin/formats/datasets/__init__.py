"""Published data sets, each declared by its source, columns, and records."""

from __future__ import annotations

from pathlib import Path

from hpctwin.errors import UnknownNameError
from hpctwin.formats.datasets.cineca import ADASTRA, MARCONI100
from hpctwin.formats.datasets.clouds import ALIBABA_GPU, GOOGLE
from hpctwin.formats.datasets.declared import Column, DataSet, File
from hpctwin.formats.datasets.frontier import FRONTIER, FRONTIER_SWF
from hpctwin.formats.datasets.fugaku import FUGAKU
from hpctwin.formats.datasets.lassen import LASSEN
from hpctwin.formats.datasets.making import write_sample
from hpctwin.formats.datasets.philly import PHILLY
from hpctwin.formats.datasets.reading import columns_in, files_of, fits, nodes_away, read_dataset
from hpctwin.formats.datasets.supercloud import SUPERCLOUD
from hpctwin.formats.datasets.tables import ALCF, BLUE_WATERS, EAGLE, KESTREL, LISA, LUMOS

__all__ = [
    "DATASETS", "Column", "DataSet", "File", "columns_in", "dataset", "files_of", "nodes_away",
    "read_dataset", "told_by", "write_sample",
]  # fmt: skip

DATASETS: dict[str, DataSet] = {
    one.name: one
    for one in (
        ADASTRA, ALCF, ALIBABA_GPU, BLUE_WATERS, EAGLE, FRONTIER, FRONTIER_SWF, FUGAKU, GOOGLE, KESTREL,
        LASSEN, LISA, LUMOS, MARCONI100, PHILLY, SUPERCLOUD,
    )
}  # fmt: skip
"""All data sets, by name."""

_MOST = 0.7


def dataset(name: str) -> DataSet:
    """Return a data set by its name."""
    if name not in DATASETS:
        raise UnknownNameError("data set", name, DATASETS)
    return DATASETS[name]


def told_by(path: Path) -> DataSet | None:
    """Return the data set whose columns a file or folder has, else None.

    A file that lacks few of the columns counts too; reading it reports which.
    """
    best, share = None, _MOST
    for one in DATASETS.values():
        first = files_of(one, path)[one.main.name] if path.is_dir() else [path]
        found = fits(one, first[0]) if first and first[0].is_file() else 0.0
        if found > share:
            best, share = one, found
    return best
