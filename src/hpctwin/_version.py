"""The version of hpctwin, defined only here."""

__version__ = "0.1.0"
