"""`make prose` finds wrong words, long sentences and wide lines, and nothing in code."""

from __future__ import annotations

import runpy
from pathlib import Path

PROSE = runpy.run_path(str(Path(__file__).parent.parent / "contrib/prose.py"))


def found(path: Path, text: str) -> list[str]:
    """Return the findings in a text, without lines."""
    path.write_text(text)
    return [what for _, what in PROSE["findings"](path)]


def test_words_of_the_table_are_found_in_pages_docstrings_comments_and_messages(
    tmp_path: Path,
) -> None:
    page = "The twin tells the time.\n\n```\nhpctwin tells\n```\n\n`tells` is code.\n"
    code = (
        '"""Jobs that are left out."""\n# Sorted anew.\nMESSAGE = "it lies beside the other one"\n'
    )
    findings = PROSE["findings"]
    (tmp_path / "page.md").write_text(page)
    (tmp_path / "code.py").write_text(code)
    in_page = [(line, text.split(":")[0]) for line, text in findings(tmp_path / "page.md")]
    in_code = sorted((line, text.split(":")[0]) for line, text in findings(tmp_path / "code.py"))
    assert in_page == [(1, "'tells'")]
    assert in_code == [(1, "'left out'"), (2, "'anew'"), (3, "'beside'"), (3, "'lies'")]


def test_a_sentence_of_31_words_is_found_and_30_are_not(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    assert found(path, "Word" + "\nword" * 29 + ".\n") == []
    (text,) = found(path, "Word" + "\nword" * 30 + ". Short one.\n")
    assert text.startswith("31 words")


def test_wide_lines_are_found_except_in_code_and_tables(tmp_path: Path) -> None:
    wide = "`" + "x" * 99 + "`"
    path = tmp_path / "page.md"
    assert found(path, f"{wide}\n") == ["101 characters in a line, at most 100"]
    assert found(path, f"```\n{wide}\n```\n| {wide} |\n") == []
