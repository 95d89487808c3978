"""Commands and options that other packages provide, and what to install for them."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated, Any

from cyclopts import Parameter

from hpctwin.errors import ConfigError

__all__ = ["missing_command", "option_from"]


def missing_command(*words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Name the package that provides this command: `pip install hpctwin-papers`.

    Args:
        words: Further words of the command; ignored.
    """
    raise ConfigError(
        "experiment and incentives: package hpctwin-papers is not installed; run pip "
        "install hpctwin-papers"
    )


def option_from(package: str, option: str) -> Any:
    """Return the function of another package that reads an option of `hpctwin simulate`.

    Args:
        package: Package that provides it, by an entry point of the group ``hpctwin.options``.
        option: Name of the option, which is that of the entry point.

    Raises:
        ConfigError: The package is not installed, or cannot be imported.
    """
    points = metadata.entry_points(group="hpctwin.options", name=option)
    if not points:
        raise ConfigError(
            f"--{option}: package {package} is not installed; run pip install {package}"
        )
    try:
        return points[option].load()
    except Exception as error:
        raise ConfigError(
            f"--{option}: package {package} cannot be loaded ({error}); install it again"
        ) from error
