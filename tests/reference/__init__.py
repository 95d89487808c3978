"""A plain, slow simulator written from ``docs/reference/rules``: what the compiled engine must agree with.

Everything is spelled out as the page has it, with lists and objects, and what can be computed anew
is not remembered. Where the page can be read in two ways, a comment that begins with "Read:" says
how it is read here.
"""

from __future__ import annotations

from tests.reference.jobs import JobView, Order, fcfs
from tests.reference.results import Pass, ReferenceJob
from tests.reference.simulate import simulate_reference

__all__ = ["JobView", "Order", "Pass", "ReferenceJob", "fcfs", "simulate_reference"]
