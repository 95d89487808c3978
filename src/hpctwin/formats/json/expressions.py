"""Arithmetic expressions of ElastiSim's performance models, such as ``flops / num_nodes ^ alpha``.

They have the syntax of the C++ library ExprTk: ``+ - * / % ^``, comparisons, ``and or not``,
``condition ? value : other``, ``if(condition, value, other)`` and functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from hpctwin.errors import ConfigError

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign><=|>=|==|!=|<>|:=|&&|\|\||[-+*/%^<>=()?:,!&|]))",
    re.ASCII,
)
_MOST_CHARACTERS = 10_000
_MOST_DEPTH = 100
_CONDITIONAL = 1
_BINARY: dict[str, tuple[int, Callable[[float, float], float]]] = {
    "or": (2, lambda a, b: float(a != 0 or b != 0)),
    "and": (3, lambda a, b: float(a != 0 and b != 0)),
    **dict.fromkeys(("=", "=="), (4, lambda a, b: float(a == b))),
    **dict.fromkeys(("!=", "<>"), (4, lambda a, b: float(a != b))),
    "<": (4, lambda a, b: float(a < b)),
    "<=": (4, lambda a, b: float(a <= b)),
    ">": (4, lambda a, b: float(a > b)),
    ">=": (4, lambda a, b: float(a >= b)),
    "+": (5, lambda a, b: a + b),
    "-": (5, lambda a, b: a - b),
    "*": (6, lambda a, b: a * b),
    "/": (6, lambda a, b: a / b),
    "%": (6, math.fmod),
    "^": (8, math.pow),
}
"""Precedence and meaning of signs between two values."""
_UNARY = 7
"""Precedence of a sign before a value: below ``^``, so that -2^2 is -4."""
_OTHER_NAMES = {"&": "and", "&&": "and", "|": "or", "||": "or"}


def _round(value: float) -> float:
    """Round half away from zero."""
    return math.copysign(math.floor(abs(value) + 0.5), value)


_FUNCTIONS: dict[str, tuple[int, int, Callable[..., float]]] = {
    **{
        name: (1, 1, getattr(math, name))
        for name in (
            "sqrt", "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin",
            "acos", "atan", "sinh", "cosh", "tanh",
        )
    },
    "abs": (1, 1, abs),
    "ceil": (1, 1, lambda a: float(math.ceil(a))),
    "floor": (1, 1, lambda a: float(math.floor(a))),
    "round": (1, 1, _round),
    "trunc": (1, 1, lambda a: float(math.trunc(a))),
    "frac": (1, 1, lambda a: a - math.trunc(a)),
    "sgn": (1, 1, lambda a: math.copysign(1.0, a) if a else 0.0),
    "not": (1, 1, lambda a: float(a == 0)),
    "pow": (2, 2, math.pow),
    "root": (2, 2, lambda a, b: math.pow(a, 1 / b)),
    "logn": (2, 2, lambda a, b: math.log(a) / math.log(b)),
    "hypot": (2, 2, math.hypot),
    "atan2": (2, 2, math.atan2),
    "clamp": (3, 3, lambda low, a, high: min(max(a, low), high)),
    "if": (3, 3, lambda condition, a, b: a if condition else b),
    "min": (1, 99, min),
    "max": (1, 99, max),
    "sum": (1, 99, lambda *a: math.fsum(a)),
    "avg": (1, 99, lambda *a: math.fsum(a) / len(a)),
    "mul": (1, 99, lambda *a: math.prod(a)),
}  # fmt: skip
"""Least and largest number of arguments of each function, and its meaning."""


def evaluate(text: str, variables: Mapping[str, float]) -> float:
    """Return the value of an expression.

    Raises:
        ConfigError: It is no expression, names something else, or has no finite value.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ConfigError(f"is longer than {_MOST_CHARACTERS:,} characters")
    reader = _Reader(text, variables)
    try:
        value = reader.expression(_CONDITIONAL)
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"cannot be computed: {error}") from error
    if reader.token is not None:
        raise ConfigError(f"has {reader.token!r} where it should end")
    if not math.isfinite(value):
        raise ConfigError("has no finite value")
    return value


class _Reader:
    """Reads an expression from left to right, and computes it on the way.

    Both values of a condition are computed; one that has no value counts as NaN.
    """

    def __init__(self, text: str, variables: Mapping[str, float]) -> None:
        self._text, self._variables = text, variables
        self._place = 0
        self._depth = 0
        self.kind: str | None = None
        self.token: str | None = None
        self._next()

    def expression(self, least: int) -> float:
        """Read signs of at least a precedence."""
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise ConfigError(f"is nested more than {_MOST_DEPTH} levels deep")
        value = self._value()
        while self.token is not None:
            sign = _OTHER_NAMES.get(self.token, self.token)
            if sign == "?" and least <= _CONDITIONAL:
                self._next()
                one = self.expression(_CONDITIONAL)
                self._expect(":")
                other = self.expression(_CONDITIONAL)
                value = one if value else other
                continue
            if sign not in _BINARY or _BINARY[sign][0] < least:
                break
            precedence, compute = _BINARY[sign]
            self._next()
            right = self.expression(precedence + (sign != "^"))
            value = _value_of(compute, value, right)
        self._depth -= 1
        return value

    def _value(self) -> float:
        kind, token = self.kind, self.token
        if token is None:
            raise ConfigError("ends where a value is expected")
        self._next()
        if token in ("-", "+"):
            value = self.expression(_UNARY)
            return -value if token == "-" else value
        if token == "(":
            value = self.expression(_CONDITIONAL)
            self._expect(")")
            return value
        if kind == "number":
            return float(token)
        if kind != "name":
            raise ConfigError(f"has {token!r} where a value is expected")
        if token in self._variables:
            return self._variables[token]
        if token in _FUNCTIONS and self.token == "(":
            return self._call(token)
        known = ", ".join(self._variables) or "none"
        what = "function" if self.token == "(" else "variable"
        raise ConfigError(f"has the unknown {what} {token[:40]!r}; known variables: {known}")

    def _call(self, name: str) -> float:
        self._expect("(")
        values = [self.expression(_CONDITIONAL)]
        while self.token == ",":
            self._next()
            values.append(self.expression(_CONDITIONAL))
        self._expect(")")
        least, most, compute = _FUNCTIONS[name]
        if not least <= len(values) <= most:
            raise ConfigError(f"gives {len(values)} values to {name}, which takes {least}")
        return _value_of(compute, *values)

    def _expect(self, token: str) -> None:
        if self.token != token:
            found = "ends" if self.token is None else f"has {self.token!r}"
            raise ConfigError(f"{found} where {token!r} is expected")
        self._next()

    def _next(self) -> None:
        rest = self._text[self._place :]
        if not rest.strip():
            self.kind = self.token = None
            return
        found = _TOKEN.match(rest)
        if found is None:
            raise ConfigError(f"has {rest.strip()[0]!r}, which is not supported")
        self._place += found.end()
        self.kind = found.lastgroup
        self.token = found[self.kind or 0]


def _value_of(compute: Callable[..., float], *values: float) -> float:
    """Return a value; NaN if there is none."""
    try:
        return compute(*values)
    except (ArithmeticError, ValueError):
        return math.nan
