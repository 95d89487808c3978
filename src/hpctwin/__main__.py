"""``python -m hpctwin``."""

from hpctwin.cli import main

main()
