"""Print the test files to run for what changed since the upstream branch: `make check`.

A changed test file is run itself. For a changed module, test files are run that import it or have its
name; if there are none, all of its package's. The engine's core tests always run (see the Makefile).
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

__all__ = ["main", "tests_of"]

ROOT = Path(__file__).resolve().parent.parent


def git(*words: str) -> list[str]:
    """Return the lines that a git command prints, or none if it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed() -> list[str]:
    """Return the files that differ from the upstream branch, and those that git does not know."""
    base = (git("merge-base", "HEAD", "@{upstream}") or ["HEAD"])[0]
    return git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")


def tests_of(path: str, tests: dict[str, str]) -> list[str]:
    """Return the test files to run for a changed file.

    Args:
        path: The changed file, relative to the repository.
        tests: Text of each test file, by its path.
    """
    if path in tests:
        return [path]
    if path.startswith("docs/"):
        return ["tests/test_docs.py"]
    if not path.endswith(".py") or "/" not in path:
        return []
    parts = list(Path(path.rpartition("src/")[2]).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    *folder, name = parts
    package = re.escape(".".join(folder))
    imports = re.compile(
        rf"\b{package}\.{name}\b|from {package} import (\([^)]*|[^\n]*)\b{name}\b", re.DOTALL
    )
    found = [
        test for test, text in tests.items()
        if Path(test).stem == f"test_{name}" or imports.search(text)
    ]  # fmt: skip
    if found or folder[:1] != ["hpctwin"] or "engine" in folder:
        return found
    return [test for test in tests if test.startswith(f"tests/{(*folder, name)[1]}/")]


def main() -> None:
    """Print the test files, one per line."""
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("packages/*/tests/**/test_*.py")]
    tests = {str(file.relative_to(ROOT)): file.read_text() for file in files}
    found = {test for path in changed() for test in tests_of(path, tests)}
    sys.stdout.writelines(f"{test}\n" for test in sorted(found))


if __name__ == "__main__":
    main()
