"""Every example of the gallery runs as it stands, and draws something."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

EXAMPLES = sorted((Path(__file__).parent.parent / "docs/gallery").glob("plot_*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_draws_its_figures(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    said = {"__name__": "example"}
    code = compile(example.read_text(), str(example), "exec", dont_inherit=True)
    try:
        exec(code, said)
        drawn = {id(value): value for value in said.values() if isinstance(value, Figure)}
        assert drawn
        for figure in drawn.values():
            assert any(ax.has_data() for ax in figure.axes)
            figure.savefig(tmp_path / "figure.svg")
        assert (tmp_path / "figure.svg").stat().st_size > 10_000
    finally:
        pyplot.close("all")


def test_the_gallery_is_large_and_each_example_says_what_it_shows() -> None:
    assert len(EXAMPLES) >= 20
    for example in EXAMPLES:
        title, line, said = re.match(
            r'"""\n(.+)\n(=+)\n(?:\n(.*?))?"""', example.read_text(), re.DOTALL
        ).groups()
        assert len(title) == len(line), example.name
        assert said or "compared" in title, example.name
