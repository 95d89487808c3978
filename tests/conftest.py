"""Fixtures that all tests share."""

from __future__ import annotations

import gc
import os
import zlib
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from tests.engine import examples as of_the_engine
from tests.examples import examples
from tests.rms import slurm_roots
from tests.rms.slurm_cluster import SlurmCluster

SERVICES = ("slurm", "redis", "browser")
# Tests fill the cores already: threads of PyTorch and BLAS would keep each other waiting, at full load.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Compiling and a busy machine make single examples slow without anything being wrong.
hypothesis.settings.register_profile(
    "random",
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
# The same examples in each run: what fails, fails for all. benchmarks/properties.py looks for others.
hypothesis.settings.register_profile(
    "fixed",
    hypothesis.settings.get_profile("random"),
    derandomize=True,
    max_examples=(of_the_engine.examples if of_the_engine.BOUNDS else examples)(100),
)
hypothesis.settings.load_profile("fixed")


def pytest_configure(config: pytest.Config) -> None:
    """Where examples are to be the same, none are taken from the modules that happen to be imported.

    Hypothesis tries constants of the sources it finds loaded, so what a test tries would depend on which ran
    before it in its process.
    """
    if config.getoption("--hypothesis-profile", None) is None:
        providers.is_local_module_file = lambda path: False


def pytest_runtest_setup(item: pytest.Item) -> None:
    """With array bounds checked other examples are tried than without: what both runs try adds up."""
    test = getattr(item, "obj", None)
    fixed = item.config.getoption("--hypothesis-profile", None) is None
    if of_the_engine.BOUNDS and fixed and hypothesis.is_hypothesis_test(test):
        hypothesis.seed(zlib.crc32(item.nodeid.encode()))(test)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `slurm_version` on each version of Slurm that its mark names, or on all."""
    if "slurm_version" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("slurm")
        versions = (mark and mark.args) or slurm_roots.VERSIONS
        metafunc.parametrize("slurm_version", versions, scope="module")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules that wait for services and clocks are spread among those that compute.

    Of both, those with slow tests come first: in the end processes take each other's tests, and none is to
    be left alone with one that takes a minute.
    """
    for item in items:
        if item.get_closest_marker("slurm") and "slurm_version" not in item.fixturenames:
            raise pytest.UsageError(f"{item.nodeid}: a test marked slurm must use slurm_version")
        # A busy machine may keep a service waiting for longer than it allows: what fails twice, has failed.
        if any(item.get_closest_marker(service) for service in SERVICES):
            item.add_marker(pytest.mark.flaky(reruns=1))
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    modules = sorted(dict.fromkeys(item.path for item in items), key=lambda path: path not in slow)
    live = [path for path in modules if path.parent.name in ("twin", "rms", "facility")]
    others = [path for path in modules if path not in live]
    place = {
        path: (number + 0.5) / len(group)
        for group in (live, others)
        for number, path in enumerate(group)
    }
    items.sort(key=lambda item: place[item.path])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what Slurm's daemons wrote last beside a test that failed."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("slurm")
    if report.failed and report.when == "call" and isinstance(cluster, SlurmCluster):
        logs = [path for path in cluster.folder.glob("slurm*.log") if path.stat().st_size]
        for log in sorted(logs, key=lambda path: path.stat().st_mtime)[-3:]:
            report.sections.append((log.name, log.read_text(errors="replace")[-3000:]))
    return report


def pytest_collection_finish() -> None:
    """What was imported stays: looking through it for garbage again and again takes time."""
    gc.collect()
    gc.freeze()


def _folder(variable: str, remedy: str) -> Path:
    value = os.environ.get(variable)
    if value and Path(value).is_dir():
        return Path(value)
    message = f"{variable} is {value!r}, which is no folder: {remedy}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def lacking(message: str) -> None:
    """A service that a test needs is not here: that fails where services are required, else skips."""
    if os.environ.get("CI") or os.environ.get("HPCTWIN_SERVICES") == "required":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of real traces."""
    return _folder(
        "HPCTWIN_TRACES",
        "set it to a folder with swf/…; `hpctwin workload download NAME` gets public logs",
    )


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of other simulators' outputs."""
    return _folder("HPCTWIN_GOLDEN", "set it to the folder of other simulators' outputs")


@pytest.fixture(scope="session")
def batsim() -> Path:
    """The folder of Batsim's repository, of any release; optional also in CI."""
    folder = os.environ.get("HPCTWIN_BATSIM")
    if not folder:
        pytest.skip("HPCTWIN_BATSIM names no copy of github.com/oar-team/batsim")
    return Path(folder)
