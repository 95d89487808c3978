"""The compiled entry for the passes ``pack`` and ``pushdown``; apart, since few runs need it."""

from __future__ import annotations

from hpctwin.engine import loop
from hpctwin.engine.jit import jit
from hpctwin.engine.kernel import ADVANCE_SIGNATURE

__all__ = ["advance"]

advance = jit(ADVANCE_SIGNATURE)(loop.advance_packed)
