"""Analysis of how a formula's scores change while a job waits.

The engine need not score all pending jobs at each event if scores over time are lines, lines with
one bend, or lines to a power. A fair-share factor must then move all jobs of a label by the same
amount. This module proves it for sums, products and quotients; other expressions count as unknown.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

__all__ = ["power_of"]

_TIME = {"now", "wait"}
_SHARED = {"fairshare", "usage"}


@dataclass(frozen=True)
class _Shape:
    """Change of an expression over time.

    Args:
        number: Whether it is the same for all jobs and times.
        bends: Maximum number of bends of its line over time; -1 if it does not change with time.
        power: Exponent of the line.
        shared: Whether one of its terms is a fair-share factor times a number.
    """

    number: bool = False
    bends: int = -1
    power: float = 1.0
    shared: bool = False

    @property
    def constant(self) -> bool:
        """Whether it is the same at all times."""
        return self.bends < 0 and not self.shared


def power_of(expression: ast.expr) -> float:
    """Return the exponent of scores that are lines over time, or lines with one bend.

    It is 0 if this cannot be shown.

    Args:
        expression: Expression of ``now``, fields of ``job``, numbers and functions.
    """
    shape = _shape(expression)
    return 0.0 if shape is None else shape.power


def _shape(node: ast.expr) -> _Shape | None:
    match node:
        case ast.Constant():
            return _Shape(number=True)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _Shape(bends=0 if name in _TIME else -1, shared=name in _SHARED)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
            return _shape(node.operand)
        case ast.BinOp():
            left, right = _shape(node.left), _shape(node.right)
            if left is None or right is None:
                return None
            return _constant([left, right]) or _combined(node, left, right)
        case ast.Call(func=ast.Name(id=name)):
            return _called(name, [_shape(one) for one in node.args])
    return _constant([_shape(n) for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)])


def _constant(shapes: list[_Shape | None]) -> _Shape | None:
    """Return the shape of a combination of constants; None if a part is not constant."""
    if any(shape is None or not shape.constant for shape in shapes):
        return None
    return _Shape(number=all(shape is not None and shape.number for shape in shapes))


def _combined(node: ast.BinOp, left: _Shape, right: _Shape) -> _Shape | None:
    match node.op:
        case ast.Add() | ast.Sub():
            bends = max(left.bends, 0) + max(right.bends, 0)
            if bends > 1 or left.power != 1.0 or right.power != 1.0:
                return None
            if left.bends < 0 and right.bends < 0:
                bends = -1
            return _Shape(bends=bends, shared=left.shared or right.shared)
        case ast.Mult() | ast.Div():
            if isinstance(node.op, ast.Mult) and left.constant:
                left, right = right, left
            if not right.constant or (left.shared and not right.number):
                return None
            return replace(left, number=False)
        case ast.Pow():
            power = node.right.value if isinstance(node.right, ast.Constant) else None
            plain = left.bends == 0 and left.power == 1.0 and not left.shared
            if plain and isinstance(power, int | float) and power > 0:
                return _Shape(power=float(power), bends=0)
    return None


def _called(name: str, shapes: list[_Shape | None]) -> _Shape | None:
    if name in ("min", "max") and len(shapes) == 2:
        one, other = shapes
        if one is not None and other is not None and not (one.constant and other.constant):
            plain = max(one.bends, other.bends) == 0 and one.power == other.power == 1.0
            return _Shape(bends=1) if plain and not (one.shared or other.shared) else None
    return _constant(shapes)
