"""Outputs recorded from real resource managers."""

from pathlib import Path

HERE = Path(__file__).parent
BEGINNING = "openpbs-23.06-"

PBS = {path.name.removeprefix(BEGINNING): path.read_bytes() for path in HERE.glob(f"{BEGINNING}*")}
