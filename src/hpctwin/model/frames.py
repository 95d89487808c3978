"""Tables of Polars as tables of other packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpctwin.errors import need

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


def as_pandas(frame: pl.DataFrame) -> pd.DataFrame:
    """Return a table of Polars as one of pandas.

    Raises:
        ConfigError: pandas or pyarrow is not installed; the message names the extra.
    """
    for package in ("pandas", "pyarrow"):
        need(package, "pandas", "to_pandas()")
    return frame.to_pandas()
