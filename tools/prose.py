"""Check the language of documentation pages: ``python tools/prose.py [--show] [PAGE ...]``.

Prints one line per page and exits with 1 if a page breaks a rule of CONTRIBUTING.md:

- at most one word of ``AVOID`` per 1,000 words,
- a mean sentence of at most 18 words, and at most 5 % of sentences above 30,
- no line above 100 characters, except in tables, code and links,
- headings in sentence case.

Code, tables and links' targets do not count as sentences. Pages in ``EXEMPT`` have not been rewritten yet.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXEMPT: tuple[str, ...] = ()
AVOID = re.compile(
    r"\b(who|whom|whoever|anybody|somebody|nobody|everybody|no one"
    r"|so (?:many|long|often|much)(?! that| as)|tells?|told|telling|foretell|foretold|reckon\w*|anew"
    r"|mend(?:ed|s)?|left out|beside|of (?:one's|their|its|your) own|of (?:which|whom)"
    r"|(?:lies?|lain|laid)(?! (?:in|at) the)|goe?s? on|comes? back|those (?:that|who))\b"
    r"|(?:^|[.:;,] )what (?:is|was|a|the|it|they|one)\b",
    re.IGNORECASE | re.MULTILINE,
)
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "/_" not in page.as_posix()
]


def sentences(text: str) -> list[str]:
    """Return the sentences of a page; list items, headings and cells of tables end sentences."""
    text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"^(\s*\|.*|#+ .*|---.*|:\w+:.*|\(.*\)=)$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^\s*([-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`", "code", text)
    parts = re.split(r"\n\s*\n|(?<=[.:;!?])[)\"*]*\s+", text)
    return [part for part in (" ".join(part.split()) for part in parts) if len(part.split()) > 2]


def faults(page: Path) -> tuple[str, list[str]]:
    """Return a page's figures as one line of text, and each break of a rule as one line."""
    text = page.read_text()
    where = page.relative_to(ROOT).as_posix()
    found: list[str] = []
    words = len(text.split())
    hits = list(AVOID.finditer(text))
    if len(hits) > max(1, words / 1000):
        for hit in hits:
            line = text.count("\n", 0, hit.start()) + 1
            found.append(f"{where}:{line}: avoid {hit[0].strip()!r}")
    parts = sentences(text)
    lengths = [len(part.split()) for part in parts]
    mean = sum(lengths) / max(1, len(lengths))
    long = [part for part, length in zip(parts, lengths, strict=True) if length > 30]
    if mean > 18:
        found.append(f"{where}: the mean sentence has {mean:.1f} words, more than 18")
    if len(long) > max(1, 0.05 * len(parts)):
        found += [f"{where}: {len(part.split())} words: {part[:70]}…" for part in long]
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        code ^= line.lstrip().startswith("```")
        plain = re.sub(r"\]\([^)]*\)|https?://\S+", "", line)
        if len(plain) > 100 and not code and not line.lstrip().startswith("|"):
            found.append(f"{where}:{number}: {len(line)} characters, more than 100")
        if not code and (head := re.match(r"#+ (.*[.:])$", line)):
            found.append(f"{where}:{number}: heading {head[1]!r} ends with a full stop or a colon")
    share = 100 * len(long) / max(1, len(parts))
    rate = 1000 * len(hits) / max(1, words)
    return (
        f"{where:52} {words:6} words {rate:5.1f} avoided {mean:5.1f} mean {share:5.1f} % long",
        found,
    )


def main() -> None:
    """Check the pages of the command line, by default all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--show", action="store_true", help="Print the figures of every page.")
    asked = parser.parse_args()
    broken = 0
    for page in [one.resolve() for one in asked.pages] or PAGES:
        figures, found = faults(page)
        if asked.show:
            print(figures)
        if page.relative_to(ROOT).as_posix() not in EXEMPT:
            broken += len(found)
            print(*found, sep="\n", end="\n" if found else "")
    sys.exit(broken > 0)


if __name__ == "__main__":
    main()
