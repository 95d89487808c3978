"""What an ordering's code may do: each wrong one is refused by file and line wherever it comes in."""

from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest

from hpctwin import Cluster, Workload, simulate
from hpctwin.cli import main
from hpctwin.errors import PolicyError
from hpctwin.policies import find_ordering, find_power, make_policy, ordering, parse_policy
from hpctwin.policies.check import check_ordering
from tests.policies.test_orderings import NOW, job

# What is in the file above `def order(now, job):`, its body, the line that is told, and what.
WRONG: dict[str, tuple[str, str, int, str]] = {
    "random": ("import random", "return job.nodes + random.random()", 3, "random.random, which draws"),
    "a name of random": (
        "from random import random as weight", "return job.nodes * weight()", 3, "which draws random",
    ),
    "numpy.random": (
        "import numpy as np", "x = job.nodes\n    return x + np.random.rand()", 4,
        "np.random.rand, which draws random",
    ),
    "numpy.random by another way": (
        "from numpy import random as r", "f = r\n    return f.rand()", 3, "r, which draws random",
    ),
    "a generator of NumPy": (
        "import numpy as np\nrng = np.random.default_rng(1)", "return job.nodes + rng.random()", 4,
        "reads 'rng' from outside the function, a Generator",
    ),
    "time": ("import time", "return job.submit + time.time()", 3, "time.time, which reads the clock"),
    "a clock by its name": (
        "from time import perf_counter", "return perf_counter()", 3, "perf_counter, which reads the",
    ),
    "datetime": (
        "from datetime import datetime", "return datetime.now().timestamp()", 3, "reads the clock",
    ),
    "os": ("import os", "return job.nodes if os.getpid() > 9 else 0.0", 3, "asks the operating"),
    "id": ("", "return id(job) + job.nodes", 3, "id, which is a memory address"),
    "hash": ("", "return hash(job.nodes)", 3, "hash, which differs from run to run for text"),
    "memory as it was": (
        "import numpy as np", "return np.empty(1)[0] + job.nodes", 3,
        "np.empty, which returns uninitialized memory",
    ),
    "import": ("", "import math\n    return math.sqrt(job.nodes)", 3, "imports math: put the import"),
    "global": (
        "last = 0.0", "global last\n    last = last + 1\n    return last", 4,
        "sets the global 'last'",
    ),
    "a global that another changes": (
        "calls = 0\ndef bump():\n    global calls\n    calls += 1", "return job.nodes + calls", 6,
        "reads the global 'calls', which 'bump' (line 4) changes",
    ),
    "a list outside": ("weights = [1.0, 2.0]", "return weights[0] * job.nodes", 3, "make it a tuple"),
    "an array outside": (
        "import numpy as np\nw = np.ones(3)", "return w[0] * job.nodes", 4,
        "'w' from outside the function, a ndarray",
    ),
    "an object outside": (
        "from types import SimpleNamespace\nmy = SimpleNamespace(w=2.0)", "return my.w * job.nodes", 4,
        "reads 'my' from outside the function, a SimpleNamespace",
    ),
    "with": ("", "with open('x') as f:\n        return 1.0", 3, "has a `with`: a score must not open"),
    "f-string": ("", "return float(f'{job.nodes}1')", 3, "builds text (an f-string)"),
    "yield": ("", "yield job.nodes", 2, "has a `yield`: it must return one number"),
    "a generator": ("", "return sum(x for x in (job.nodes, 1.0))", 3, "has a generator: write a loop"),
    "try": (
        "", "try:\n        return 1 / job.nodes\n    except ZeroDivisionError:\n        return 0.0", 5,
        "has a `try`: test the condition",
    ),
    "a lambda with a default": ("", "f = lambda x, k=[]: x\n    return f(job.nodes)", 3, "default argument"),
    "nonlocal": (
        "", "n = 0\n    def f():\n        nonlocal n\n        n += 1\n    f()\n    return n", 6,
        "sets 'n' of the enclosing function",
    ),
    "a class": ("", "class A:\n        pass\n    return job.nodes", 3, "defines a class"),
    "what is set on it": ("", "job.nodes = 3.0\n    return now", 3, "sets the attribute 'nodes'"),
    "print": ("", "print(job.nodes)\n    return now", 3, "print, which is called millions"),
    "a helper that is not compiled": (
        "def half(x):\n    return x / 2", "return half(job.nodes)", 4,
        "calls 'half', which is not compiled: put `@njit` above it (from numba import njit)",
    ),
    "a helper that draws": (
        "import random\nfrom numba import njit\n@njit\ndef f(x):\n    return x + random.random()",
        "return f(job.nodes)", 5, "in 'f', uses random.random, which draws random",
    ),
    "a helper's helper": (
        "from numba import njit\ndef g(x):\n    return x\n@njit\ndef f(x):\n    return g(x)",
        "return f(job.nodes)", 6, "in 'f', calls 'g', which is not compiled",
    ),
    "threads": (
        "from numba import njit\n@njit(parallel=True)\ndef f(x):\n    return x", "return f(job.nodes)", 6,
        "compiled with parallel=True",
    ),
    "itself": ("", "return 0.0 if now < 1 else order(now - 1, job)", 3, "calls itself as 'order'"),
    "another module": (
        "import json", "return len(json.dumps(job.nodes))", 3, "'json.dumps', which is not compiled",
    ),
    "what NumPy lacks": (
        "import numpy as np", "return np.sqrroot(job.nodes)", 3, "np.sqrroot, which does not exist",
    ),
    "a field that is not there": ("", "x = 1\n    return job.size * x", 4, "a job has no field 'size'"),
}  # fmt: skip
SIGNED = {
    "async def": ("async def order(now, job):\n    return job.nodes\n", 1, "is an `async def`"),
    "a default": ("def order(now, job=None):\n    return now\n", 1, "has an argument with a default"),
    "three arguments": ("def order(now, job, k):\n    return k\n", 1, "exactly two arguments"),
    "a closure over a list": (
        "def outer():\n    seen = []\n    def order(now, job):\n        return len(seen)\n"
        "    return order\norder = outer()\n", 4, "reads 'seen' from outside the function, a list",
    ),
    "a closure over a counter": (
        "def outer():\n    n = 0\n    def order(now, job):\n        nonlocal n\n        n += 1\n"
        "        return n\n    return order\norder = outer()\n", 5, "'n' of the enclosing function",
    ),
}  # fmt: skip
COMPILED = {
    "a text": ("return str(job.nodes)", 3, "it returns Literal[str]"),
    "nothing": ("x = job.nodes", 3, "it returns none, not a number"),
    "two numbers": ("return job.nodes, now", 3, "it returns UniTuple(float64 x 2)"),
    "of two kinds": ("x = 1.0\n    if now > 3:\n        x = 'a'\n    return x", 6, "Cannot unify"),
    "a name that is nowhere": ("return nowhere(job.nodes)", 3, "uses 'nowhere', which is not defined"),
    "a method that numbers lack": ("return job.nodes.bit_length()", 3, "Unknown attribute 'bit_length'"),
}  # fmt: skip
RIGHT: dict[str, tuple[str, str, float]] = {
    "math": ("import math", "return math.sqrt(job.nodes)", 4.0),
    "a name of math": ("from math import log2 as lg", "return lg(job.nodes)", 4.0),
    "NumPy": ("import numpy as np", "return np.sqrt(job.nodes) + np.float64(1)", 5.0),
    "an array of its own": (
        "import numpy as np", "a = np.zeros(3)\n    a[1] = job.nodes\n    return a.sum()", 16.0,
    ),
    "constants": ("W = 2.0\nN = (1, 2.0)", "return W * job.nodes + N[1]", 34.0),
    "a compiled helper": (
        "from numba import njit\nW = 2\n@njit\ndef half(x, by=2):\n    return W * x / by",
        "return half(job.nodes)", 16.0,
    ),
    "a helper defined below": ("", "return half(job.nodes)\nfrom numba import njit\n@njit\ndef half(x):\n"
        "    return x / 2", 8.0),
    "a function within": ("", "def f(x):\n        return 2 * x\n    return f(job.nodes)", 32.0),
    "a list within": ("", "return sum([x * 2 for x in (job.nodes, 1.0)])", 34.0),
    "loops and conditions": (
        "", "x = 0.0\n    for i in range(4):\n        if i % 2:\n            x += job.nodes\n    return x",
        32.0,
    ),
    "built-in functions": ("", "return max(abs(-job.nodes), round(now), 2 ** 3) - int(1.5)", 999.0),
    "an array that cannot change": (
        "import numpy as np\nW = np.arange(3.0)\nW.flags.writeable = False", "return W[2] * job.nodes", 32.0,
    ),
    "fields by number": ("", "return job[0]", 100.0),
    "a compiled ordering": (
        "from numba import njit\n@njit", "return job.nodes", 16.0,
    ),
}  # fmt: skip


def write(folder: Path, above: str, body: str) -> Path:
    path = folder / "mine.py"
    path.write_text(f"{above}\ndef order(now, job):\n    {body}\n")
    return path


def refused_everywhere(
    path: Path, line: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In Python, in a policy as text, as a candidate, and on the command line: one line, no traceback."""
    where = f"{path}, line {line}: ordering '"
    text = f"{path}:order"
    ways = (
        lambda: find_ordering(text).compiled,
        lambda: make_policy(text, "none").compile(),
        lambda: parse_policy(f"fcfs+easy:2/{text}").compile(),
        lambda: ordering(loaded(path).order).compiled,
    )
    for way in ways:
        with pytest.raises(PolicyError) as raised:
            way()
        said = str(raised.value)
        assert said.startswith(where), said
        assert told in said
    with pytest.raises(SystemExit) as ended:
        main(["policy", "check", text])
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert where in err
    assert len(err.splitlines()) == 1


def loaded(path: Path) -> Any:
    module = ModuleType("mine")
    exec(compile(path.read_text(), str(path), "exec"), vars(module))
    return module


@pytest.mark.parametrize("name", WRONG)
def test_an_ordering_that_is_no_function_of_the_job_is_rejected_by_file_and_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    above, body, line, told = WRONG[name]
    path = write(tmp_path, above, body)
    refused_everywhere(path, line, told, capsys)


@pytest.mark.parametrize("name", SIGNED)
def test_a_function_of_the_wrong_kind_is_rejected_by_file_and_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, line, told = SIGNED[name]
    path = tmp_path / "mine.py"
    path.write_text(text)
    refused_everywhere(path, line, told, capsys)


@pytest.mark.parametrize("name", COMPILED)
def test_code_that_cannot_be_compiled_is_reported_by_file_and_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body, line, told = COMPILED[name]
    refused_everywhere(write(tmp_path, "", body), line, told, capsys)


@pytest.mark.parametrize("name", RIGHT)
def test_valid_code_is_compiled_and_gives_the_same_as_python(name: str, tmp_path: Path) -> None:
    above, body, score = RIGHT[name]
    made = find_ordering(f"{write(tmp_path, above, body)}:order")
    assert made.compiled(NOW, job()) == pytest.approx(score)
    assert "fine" in check_ordering(made)


def test_a_closure_over_numbers_is_right() -> None:
    def made(weight: float) -> Any:
        return ordering(lambda now, job: weight * job.nodes, name="weighted")

    assert [made(w).compiled(NOW, job()) for w in (1.0, 2.0)] == [16, 32]


def test_a_global_changed_after_the_ordering_was_made_is_reported(tmp_path: Path) -> None:
    module = loaded(write(tmp_path, "W = 2.0", "return W * job.nodes"))
    made = ordering(module.order)
    assert make_policy(made).order.compiled(NOW, job()) == 32
    module.W = 3.0
    with pytest.raises(
        PolicyError, match=r"line 2: .*'W' was 2.0 when the function was registered and is 3.0 now"
    ):
        make_policy(made)
    assert find_ordering(module.order).compiled(NOW, job()) == 48


@pytest.mark.parametrize(
    "what", [max, print, 7, None, random.Random(1).random, "".join, lambda *args: 1.0]
)
def test_a_function_without_two_arguments_is_no_ordering(what: Any) -> None:
    with pytest.raises(PolicyError, match="ordering"):
        find_ordering(what)


def test_an_object_that_is_called_is_no_ordering() -> None:
    from functools import partial

    class Scorer:
        def __call__(self, now: float, job: Any) -> float:
            return 1.0

    for what in (Scorer(), partial(max, 1)):
        with pytest.raises(PolicyError, match="must be a Python function"):
            find_ordering(what)


def test_a_variable_that_some_path_does_not_set_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path, "", "if job.nodes > 3:\n        x = 1.0\n    return x")
    with pytest.raises(PolicyError, match=r"'x'.*set it on every path through"):
        check_ordering(find_ordering(f"{path}:order"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import sys\nsys.exit(3)\n", r"mine\.py fails to load"),
        ("def order(now, job:\n", r"mine\.py, line 1: not valid Python: '\(' was never closed"),
        ("1 / 0\n", r"mine\.py fails to load"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_reported(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    for find in (find_ordering, find_power):
        with pytest.raises(PolicyError, match=told):
            find(f"{path}:order")


def test_a_plug_in_that_cannot_be_loaded_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    point = metadata.EntryPoint("theirs", "no_such_module:order", "hpctwin.orderings")
    monkeypatch.setattr(metadata, "entry_points", lambda group: metadata.EntryPoints([point]))
    with pytest.raises(PolicyError, match=r"'theirs' \(no_such_module:order\) fails"):
        find_ordering("theirs")


def test_the_same_simulation_twice_gives_the_same_with_a_custom_helper() -> None:
    @numba.njit
    def aged(wait: float) -> float:
        return np.floor(wait / 10) * WEIGHT

    @ordering
    def mine(now: float, job: Any) -> float:
        return job.nodes - aged(job.wait)

    workload = Workload.build(
        submit_s=range(40),
        runtime_s=[7 + i % 13 for i in range(40)],
        nodes=[1 + i % 5 for i in range(40)],
    )
    runs = [simulate(workload, Cluster.uniform(6), order=mine).jobs for _ in range(2)]
    assert runs[0].equals(runs[1])


WEIGHT = 0.5


def test_read_only_arrays_are_indexed_by_labels_without_a_cast() -> None:
    workload = Workload.build(
        submit_s=[0, 0, 0], runtime_s=[10] * 3, nodes=[1] * 3, user=["c", "b", "a"]
    )
    weights = np.array([2.0, 3.0, 1.0])  # of a, b and c
    weights.flags.writeable = False

    def lightest(now: float, job: Any) -> float:
        return weights[job.user]

    assert simulate(workload, 1, ordering(lightest)).jobs["start_s"].to_list() == [0, 20, 10]
    assert "stays sorted" in check_ordering(ordering(lightest))

    def by_size(now: float, job: Any) -> float:
        return weights[job.nodes]

    with pytest.raises(PolicyError, match=r"an index is not a whole number: write int\(…\)"):
        _ = ordering(by_size).compiled
