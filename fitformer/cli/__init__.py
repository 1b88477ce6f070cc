"""The commands. They read options, call the rooms below and print; all work is done elsewhere."""

from __future__ import annotations

import sys

STOPPED = 130


def main() -> None:
    """The console script. An interrupt is one line from the first moment on, while the commands are loaded, too."""
    try:
        from fitformer.cli.app import app

        app()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr, flush=True)
        sys.exit(STOPPED)
