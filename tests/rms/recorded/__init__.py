"""Outputs recorded from real resource managers."""

import gzip
import json
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
BEGINNING = "openpbs-23.06-"

PBS = {path.name.removeprefix(BEGINNING): path.read_bytes() for path in HERE.glob(f"{BEGINNING}*")}

NOW_S = 1_800_000_000
"""When Slurm's outputs were recorded; their times are moved so."""


def slurm_path(version: str, site: str) -> Path:
    """The file of a site that ``record_slurm.py`` has recorded with a version of Slurm."""
    return HERE / f"slurm-{version}-{site}.json.gz"


@cache
def slurm(version: str, site: str) -> dict[str, bytes]:
    """Outputs by command, such as ``squeue --json``."""
    said = json.loads(gzip.decompress(slurm_path(version, site).read_bytes()))
    return {command: output.encode() for command, output in said.items()}
