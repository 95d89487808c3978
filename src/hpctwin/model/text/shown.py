"""Display of objects: a line in Python, a table in a notebook."""

from __future__ import annotations

from html import escape

__all__ = ["Shown"]


class Shown:
    """Base of objects with a short ``repr``, and a table in notebooks, from `shown`."""

    def shown(self) -> tuple[str, dict[str, str]]:
        """Return a title, and facts by name, the most important first.

        All must be fast to find.
        """
        raise NotImplementedError

    def shown_more(self) -> dict[str, str]:
        """Return further facts, for notebooks only; they may take a second."""
        return {}

    def __repr__(self) -> str:
        title, facts = self.shown()
        told = ", ".join(f"{value} {name}".rstrip() for name, value in facts.items())
        return f"<{type(self).__name__} {title}: {told}>"

    def _repr_html_(self) -> str:
        title, facts = self.shown()
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(value)}</td></tr>"
            for name, value in {**facts, **self.shown_more()}.items()
        )
        head = f"{type(self).__name__} {title}"
        return f"<table><caption>{escape(head)}</caption><tbody>{rows}</tbody></table>"
