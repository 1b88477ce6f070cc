"""The ``fitformer`` command: which subcommands there are, and the one place where their failures become exit codes.

Each command imports what it needs when it runs, so that ``translate``, ``evaluate``, ``compare``, ``verify``,
``status`` and ``devices`` work where only the runtime is installed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from fitformer import __version__
from fitformer.cli.compare import compare
from fitformer.cli.devices import devices
from fitformer.cli.evaluate import evaluate
from fitformer.cli.failures import USAGE_ERROR, report_failure
from fitformer.cli.fit import STAGE_HELP, fit, stage_command
from fitformer.cli.group import HelpfulGroup, help_unless_subcommand
from fitformer.cli.importing import importing
from fitformer.cli.init import init
from fitformer.cli.profile import profile
from fitformer.cli.status import status
from fitformer.cli.translate import translate
from fitformer.cli.verify import verify

FITTING, USING, LOOKING = "Fit a model", "Use a bundle", "Look around"
IMPORTING = "Import original HAT artefacts"


def _fill_closed_streams() -> None:
    """Give every standard stream that was closed (``>&-``) a file, or the next file opened would take its place.

    What is lost must not be lost in silence: reading the one and writing the other fails. Only messages may vanish.
    """
    for name, mode, access in (("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, access), mode, encoding="utf-8", closefd=False))


class CommandGroup(HelpfulGroup):
    """Turns every failure a user can cause into one line on stderr and an exit code."""

    _words: Sequence[str] = ()

    def main(self, args: Sequence[str] | None = None, *others: Any, **extra: Any) -> Any:
        """Run a command line and leave with its exit code."""
        self._words = sys.argv[1:] if args is None else list(args)
        _fill_closed_streams()
        for stream in (sys.stdout, sys.stderr):
            # A terminal that cannot show a character shows another in its place instead of ending the command.
            with contextlib.suppress(AttributeError, ValueError):
                stream.reconfigure(errors="replace")  # type: ignore[union-attr]
        extra |= {"standalone_mode": False, "prog_name": "fitformer"}
        try:
            result = super().main(args, *others, **extra)
        except USAGE_ERROR as error:
            result = report_failure(error, self._words)
        sys.exit(result if isinstance(result, int) else 0)

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Read the command line."""
        try:
            return super().make_context(*args, **extra)
        except KeyboardInterrupt as error:
            raise typer.Exit(report_failure(error, self._words)) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, where a full disk or a closed pipe behind stdout still becomes one line
            return result
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, typer.Exit | typer.Abort):
                raise
            can_continue = ctx.invoked_subcommand == "fit" or ctx.invoked_subcommand in STAGE_HELP
            code = report_failure(error, self._words, can_continue=can_continue)
        raise typer.Exit(code)


app = typer.Typer(
    cls=CommandGroup,
    help="fitformer fits a Transformer to your hardware: text, a device and a limit in, a verified bundle out.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fitformer {__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def _root(
    ctx: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    help_unless_subcommand(ctx)


app.command(rich_help_panel=FITTING)(init)
app.command(rich_help_panel=FITTING)(fit)
for _stage, _help in STAGE_HELP.items():
    app.command(_stage, help=_help, rich_help_panel=FITTING)(stage_command(_stage))
app.command(rich_help_panel=USING)(translate)
app.command(rich_help_panel=USING)(evaluate)
app.command(rich_help_panel=USING)(compare)
app.command(rich_help_panel=USING)(verify)
app.command(rich_help_panel=LOOKING)(status)
app.command(rich_help_panel=LOOKING)(profile)
app.command(rich_help_panel=LOOKING)(devices)
app.add_typer(importing, name="import", rich_help_panel=IMPORTING)
