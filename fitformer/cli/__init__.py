"""The commands. They read options, call the rooms below and print; all work is done elsewhere."""

from fitformer.cli.app import app, main

__all__ = ["app", "main"]
