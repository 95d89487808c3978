"""Result of a comparison of policies: their results, with a table and charts of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from hpctwin.attributes import Attached
from hpctwin.errors import UnknownKeyError
from hpctwin.guesses import GuessedType
from hpctwin.model.columns import as_pandas
from hpctwin.model.text import Shown
from hpctwin.simulation import Result

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison"]


class Comparison(Shown, dict[str, Result], metaclass=GuessedType):
    """Results of one workload under several policies, by the policy's name.

    A notebook shows it as a table of the main metrics. The first policy is the baseline.
    """

    def __missing__(self, name: str) -> Result:
        raise UnknownKeyError("policy", name, self)

    def shown(self) -> tuple[str, dict[str, str]]:
        """See `Shown`."""
        name = next((one.workload.name for one in self.values()), "of nothing")
        return name, {"": ", ".join(self)}

    def summary(self, *, tau_s: float | None = None) -> pl.DataFrame:
        """Return all metrics: a row for each policy, with the columns of `Result.summary`.

        A metric that only other policies have is null; a count of jobs is then 0.

        Args:
            tau_s: As of `Result.summary`.
        """
        rows = pl.DataFrame(
            [{"policy": name, **one.summary(tau_s=tau_s)} for name, one in self.items()],
            infer_schema_length=None,
        )
        return rows.with_columns(pl.col("^jobs_.*$").fill_null(0))

    def to_pandas(self) -> pd.DataFrame:
        """Return `summary` as a table of pandas.

        Raises:
            ConfigError: pandas is not installed.
        """
        return as_pandas(self.summary())

    def to_latex(self) -> str:
        r"""Return the main metrics as a LaTeX table, for the package ``booktabs``.

        Each column has one unit and one number of decimals; the best values are bold.

        Example:
            ``Path("table.tex").write_text(compare(...).to_latex())``
        """
        text: str = self._tables.latex()
        return text

    def _repr_html_(self) -> str:
        text: str = self._tables.html()
        return text

    plot = Attached()
    """Charts of all policies: ``plot.wait_cdf()``, ``plot.bars()``, ``plot.radar()``.

    See `hpctwin.report.accessor`.
    """

    _tables: Any = Attached()
