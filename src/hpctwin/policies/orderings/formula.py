"""Orderings written as a formula, such as ``-(wait/walltime)**3*nodes``."""

from __future__ import annotations

import ast
import copy
import dataclasses
import math
import re
from functools import lru_cache
from typing import Any

from hpctwin.engine.compile.compile_errors import syntax_tree
from hpctwin.engine.compile.policy_views import JobView
from hpctwin.errors import PolicyError
from hpctwin.model.arguments import check_arguments
from hpctwin.policies.orderings.ordering import Ordering, ordering
from hpctwin.policies.orderings.shape import power_of

__all__ = ["FUNCTIONS", "PBS_NAMES", "formula", "is_formula"]

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
            f"formula {body!r}: {ast.unparse(node.func)!r} is not a function here; "
            f"there are {', '.join(FUNCTIONS)}"
        )
    names = {*JobView._fields, *PBS_NAMES, *FUNCTIONS, "now"}
    if isinstance(node, ast.Name) and node.id not in names:
        fields = ", ".join((*JobView._fields, "now", *PBS_NAMES))
        raise PolicyError(f"formula {body!r}: there is no {node.id!r}; there are {fields}")


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
