"""Fixtures and hooks of the core's tests, which these tests use too."""

from tests.conftest import golden, pytest_configure, pytest_generate_tests, traces

__all__ = ["golden", "pytest_configure", "pytest_generate_tests", "traces"]
