"""Orderings written as a formula, and how their scores change while a job waits.

The engine need not score all pending jobs at each event if scores over time are lines, lines with
one bend, or lines to a power. A fair-share factor must then move all jobs of a label by the same
amount. This module proves it for sums, products and quotients; other expressions count as unknown.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from hpctwin.engine.compile.compile_errors import syntax_tree
from hpctwin.engine.compile.policy_modules import JobView
from hpctwin.errors import PolicyError
from hpctwin.guesses import near
from hpctwin.model.arguments import check_arguments
from hpctwin.policies.score import Ordering, ordering

__all__ = ["FUNCTIONS", "PBS_NAMES", "formula", "is_formula", "power_of"]

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
            return _constant_shape([left, right]) or _combined(node, left, right)
        case ast.Call(func=ast.Name(id=name)):
            return _called(name, [_shape(one) for one in node.args])
    return _constant_shape(
        [_shape(n) for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]
    )


def _constant_shape(shapes: list[_Shape | None]) -> _Shape | None:
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
    return _constant_shape(shapes)


PBS_NAMES = {
    "eligible_time": "(now - job.eligible)",
    "ncpus": "(max(job.cores, 1.0) * job.nodes)",
    "ngpus": "(job.gpus * job.nodes)",
    "mem": "(job.memory_gb * job.nodes)",
    "nodect": "job.nodes",
    "job_priority": "job.priority",
    "queue_priority": "job.partition_priority",
    "fairshare_factor": "job.fairshare",
}
"""Names of PBS's job_sort_formula, with their meaning; ``mem`` is in GB."""

FUNCTIONS = {
    **{
        name: getattr(math, name)
        for name in ("sqrt", "log", "log2", "log10", "exp", "floor", "ceil", "pow")
    },
    "min": min,
    "max": max,
    "abs": abs,
}

_ALLOWED = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare, ast.BoolOp, ast.Call, ast.Name,
    ast.Constant, ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.expr_context,
)  # fmt: skip


def is_formula(text: str) -> bool:
    """Return whether a text can only be a formula."""
    if text.startswith("pbs:"):
        # The scheduler with this name has settings after the colon.
        return re.match(r"pbs:\s*\w+\s*=(?!=)", text) is None
    return any(sign in text for sign in "+*/%()<>") or text.startswith("-") or " - " in text


@check_arguments()
@lru_cache(maxsize=256)
def formula(text: str) -> Ordering:
    """Make an ordering from a formula; equal formulas are compiled once.

    Args:
        text: An expression of the fields of `JobView`, ``now``, the names in `PBS_NAMES`, numbers,
            ``+ - * / // % **``, comparisons, ``a if b else c`` and the functions in `FUNCTIONS`;
            the smallest value comes first. With the prefix ``pbs:``, the largest does, as in PBS.

    Raises:
        PolicyError: The text is not such a formula; the message shows the wrong part.
    """
    body = text.removeprefix("pbs:").strip()
    try:
        tree = syntax_tree(body, "eval")
    except SyntaxError as error:
        at = f" at column {error.offset}" if error.offset else ""
        raise PolicyError(f"formula {body!r} cannot be read{at}: {error.msg}") from error
    for node in ast.walk(tree):
        _check(node, body)
    for node in ast.walk(tree):
        _check_constant(node, body)
    tree = ast.fix_missing_locations(_Names().visit(tree))
    assert isinstance(tree, ast.Expression)
    sign = "-" if text.startswith("pbs:") else ""
    source = f"def score(now, job):\n    return float({sign}({ast.unparse(tree)}))\n"
    scope: dict[str, Any] = dict(FUNCTIONS)
    exec(compile(source, f"<formula {body}>", "exec"), scope)
    made: Ordering = ordering(scope["score"], name=text)
    return dataclasses.replace(made, summary=f"formula {text}", power=power_of(tree.body))


def _check(node: ast.AST, body: str) -> None:
    if not isinstance(node, _ALLOWED):
        raise PolicyError(
            f"formula {body!r}: {ast.unparse(node)!r} is not allowed; use numbers, names, "
            f"+ - * / // % **, comparisons, 'a if b else c' and {', '.join(FUNCTIONS)}"
        )
    if isinstance(node, ast.Constant) and not isinstance(node.value, (int, float)):
        raise PolicyError(f"formula {body!r}: {node.value!r} is not a number")
    if isinstance(node, ast.Call) and (
        not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS or node.keywords
    ):
        raise PolicyError(
            f"formula {body!r}: {ast.unparse(node.func)!r} is not a supported function; use one "
            f"of {', '.join(FUNCTIONS)}"
        )
    names = {*JobView._fields, *PBS_NAMES, *FUNCTIONS, "now"}
    if isinstance(node, ast.Name) and node.id not in names:
        fields = (*JobView._fields, "now", *PBS_NAMES)
        raise PolicyError(
            f"formula {body!r}: unknown field {node.id!r}.{near(node.id, fields)} Known: {', '.join(fields)}"
        )


def _check_constant(node: ast.AST, body: str) -> None:
    """Compute what does not depend on the job: its error would be that of all jobs."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mod)):
        if _constant(node.right, body) == 0:
            raise PolicyError(
                f"formula {body!r}: {ast.unparse(node)!r} divides by 0, which gives infinity or NaN "
                "for every job"
            )
    elif isinstance(node, ast.expr):
        _constant(node, body)


def _constant(node: ast.expr, body: str) -> float | None:
    """Return the value of an expression without names of the job; None if it has any."""
    called = {id(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}
    if any(isinstance(n, ast.Name) and id(n) not in called for n in ast.walk(node)):
        return None
    if isinstance(node, (ast.Name, ast.Compare, ast.BoolOp)):
        return None
    # As floats, as the engine computes them: 9**9**9 fails at once and not after hours.
    source = ast.unparse(_Floats().visit(copy.deepcopy(node)))
    try:
        value = eval(source, {"__builtins__": {}}, dict(FUNCTIONS))
        return float(value)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise PolicyError(
            f"formula {body!r}: {ast.unparse(node)!r} cannot be computed: {error.args[-1]}"
        ) from error


class _Floats(ast.NodeTransformer):
    """Write all numbers as floats."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, (int, float)):
            return ast.Constant(float(node.value))
        return node


class _Names(ast.NodeTransformer):
    """Write fields of the job as ``job.field``, and PBS's names as their expressions."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in JobView._fields:
            return _expression(f"job.{node.id}")
        if node.id in PBS_NAMES:
            return _expression(PBS_NAMES[node.id])
        return node


def _expression(source: str) -> ast.expr:
    tree = syntax_tree(source, "eval")
    assert isinstance(tree, ast.Expression)
    return tree.body
