"""Check the language of documentation, docstrings, comments and messages: `make prose`.

Findings are words that hpctwin does not use, sentences above 30 words, and wide lines of Markdown.
`contrib/prose.json` has the number of findings in each file that is not finished. A file with more
findings than that fails; `python contrib/prose.py --record` stores lower numbers.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

__all__ = ["findings", "main", "sentences"]

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "contrib/prose.json"
MAX_WORDS = 30
MAX_LINE = 100
LONG_IN_REFERENCE = 0.05

WORDS = {
    r"\b(who|whom|whoever|whose turn|anybody|somebody|nobody|everybody|no one)\b": "job, user, no job",
    r"\bso (many|long|often|much)\b(?! that| as)": "N, for T, every T",
    r"\b(tells?|told|telling)\b": "reports, shows, says",
    r"\b(foretell|foretold)\b": "predict",
    r"\breckon\w*\b": "estimate, compute, count",
    r"\banew\b": "again, from scratch",
    r"\bmend(ed|s)?\b": "fix",
    r"\bleft out\b": "omitted, ignored, skipped",
    r"\bbeside\b": "next to",
    r"\bof (one's|their|its|your) own\b": "custom",
    r"\bof (which|whom)\b": "a sentence of its own",
    r"\b(lies?|lain|laid)\b(?! (in|at) the)": "is allocated, is placed",
    r"\b(goe?s? on|come[s]? back)\b": "continues, returns",
    r"\bthose (that|who)\b": "jobs that, users who",
    r"(?:^|[.:;,] )what (is|was|a|the|it|they|one)\b": "start with the subject",
    r"\b(taken over|took over|takes over)\b": "imported",
    r"\b(modelled|behaviour|licences?|utilisation|normalise\w*|neighbour\w*)\b": "American spelling",
}


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield each sentence of a Markdown text with its line, without code, tables and headings."""
    paragraph: list[str] = []
    begin, fenced = 1, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.lstrip().startswith(("```", "~~~", ":::")):
            fenced = not fenced and not line.lstrip().startswith(":::")
            line = ""
        starts_item = bool(re.match(r"\s*([-*+]|\d+\.) ", line))
        if (
            fenced
            or not line.strip()
            or line.lstrip().startswith(("#", "|", "<", ">"))
            or starts_item
        ):
            yield from _split(begin, " ".join(paragraph))
            paragraph = []
        if fenced or not line.strip() or line.lstrip().startswith(("#", "|", "<")):
            continue
        if not paragraph:
            begin = number
        paragraph.append(re.sub(r"^\s*([-*+]|\d+\.|>) ?", "", line).strip())


def _split(line: int, paragraph: str) -> Iterator[tuple[int, str]]:
    text = re.sub(r"`[^`]*`", "CODE", re.sub(r"\]\([^)]*\)|[\[\]]", "", paragraph))
    for one in re.split(r"(?<=[.!?:])\s+(?=[A-Z\"(*`])", text):
        if one.strip():
            yield line, one.strip()


def words(sentence: str) -> int:
    """Return the number of words of a sentence; code counts as one word."""
    return len(re.findall(r"[\w'’–-]*\w[\w'’-]*", sentence))


def findings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each finding in a file of Markdown or Python."""
    text = path.read_text()
    if path.suffix == ".py":
        for line, one in _texts(text):
            yield from _wrong_words(line, one)
        return
    found = list(sentences(text))
    for line, one in found:
        yield from _wrong_words(line, one)
    long = [(line, one) for line, one in found if words(one) > MAX_WORDS]
    if len(long) > LONG_IN_REFERENCE * len(found) or not _is_reference(path):
        for line, one in long:
            yield line, f"{words(one)} words in a sentence, at most {MAX_WORDS}: {one[:60]}…"
    fenced = False
    for line, one in enumerate(text.splitlines(), 1):
        fenced ^= one.lstrip().startswith("```")
        if (
            len(one) > MAX_LINE
            and not fenced
            and not one.lstrip().startswith(("|", "[", "![", "<"))
        ):
            yield line, f"{len(one)} characters in a line, at most {MAX_LINE}"


def _is_reference(path: Path) -> bool:
    return bool({"reference", "evidence", "project"} & set(path.parts))


def _wrong_words(line: int, text: str) -> Iterator[tuple[int, str]]:
    for rule, instead in WORDS.items():
        for match in re.finditer(rule, text, re.IGNORECASE):
            at = line + text[: match.start()].count("\n")
            yield at, f"{match.group().strip()!r}: write {instead}"


def _texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield comments, docstrings, and other texts of at least four words, with their lines."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)) if len(text.split()) > 3:
                yield node.lineno, text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def files() -> list[Path]:
    """Return the files to check."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("packages/*/*.md")]
    code = [*(ROOT / "src").rglob("*.py"), *ROOT.glob("packages/*/src/**/*.py")]
    built = {"_build", "_gallery", "CODE_OF_CONDUCT.md"}
    return sorted(path for path in pages + code if not built & set(path.parts))


def main() -> int:
    """Print findings beyond the recorded numbers; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help="Print all findings of these files.")
    parser.add_argument("--record", action="store_true", help="Store the numbers of findings.")
    asked = parser.parse_args()
    if asked.paths:
        for path in asked.paths:
            for line, text in sorted(findings(path.resolve())):
                print(f"{path}:{line}: {text}")
        return 0
    known: dict[str, int] = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
    counted, failed = {}, False
    for path in files():
        name, found = path.relative_to(ROOT).as_posix(), sorted(findings(path))
        counted[name] = len(found)
        if len(found) > known.get(name, 0) and not asked.record:
            failed = True
            for line, text in found:
                print(f"{name}:{line}: {text}")
    if asked.record:
        left = {name: count for name, count in counted.items() if count}
        RECORD.write_text(json.dumps(left, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
