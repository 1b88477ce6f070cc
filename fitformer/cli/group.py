"""What the command and its sub-commands share: an unknown word is answered with the nearest one, no word with help."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from fitformer.errors import InputError, nearest


class HelpfulGroup(TyperGroup):
    """A group of commands that offers the nearest spelling."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the subcommand, or offer the nearest one."""
        if self.get_command(ctx, args[0]) is None:
            names = self.list_commands(ctx)
            prefix = ctx.command_path.partition(" ")[2]
            word = f"{prefix} {args[0]}".strip()
            raise InputError(f"no command '{word}'{nearest(args[0], names)}; there are: {', '.join(names)}")
        return super().resolve_command(ctx, args)


def help_unless_subcommand(ctx: typer.Context) -> None:
    """Print the help to stderr and leave with exit code 2 where no subcommand was given."""
    if ctx.invoked_subcommand is None:
        with contextlib.redirect_stdout(sys.stderr):  # typer's own rich help is printed while it is asked for
            print(ctx.get_help())
        raise typer.Exit(2)
