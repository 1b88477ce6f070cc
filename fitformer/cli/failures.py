"""From an exception to one line on stderr and an exit code: 2 for a user's mistake, 1 for what could not be done.

Anything else is a fault of fitformer's own and keeps its traceback.
"""

from __future__ import annotations

import errno
import os
import sys

import typer

from fitformer.cli.output import print_json
from fitformer.errors import InputError, NotPossibleError, nearest

WRONG_INPUT, NOT_POSSIBLE, INTERRUPTED, BROKEN_PIPE = 2, 1, 130, 141
# The class itself lives in another module from one typer to the next.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
FIT_MODULES = frozenset(
    "defusedxml onnx plotly polib pydantic sacremoses safetensors sklearn tensorboardX torch yaml".split()
)
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def report_failure(error: BaseException, *, as_json: bool = False, can_continue: bool = False) -> int:
    """Print the line for ``error`` (with ``as_json`` also as a document on stdout) and return the exit code.

    Args:
        can_continue: the command may be run again to go on where it was interrupted.
    Raises:
        The error itself when it is none that a user can cause.
    """
    if isinstance(error, BrokenPipeError):
        _silence_stdout()
        return BROKEN_PIPE
    known = _explained(error, can_continue)
    if known is None:
        raise error
    line, code = known
    print(f"error: {line}" if code != INTERRUPTED else line, file=sys.stderr, flush=True)
    if as_json:
        print_json({"error": line, "exit_code": code})
    return code


def _explained(error: BaseException, can_continue: bool) -> tuple[str, int] | None:
    if isinstance(error, InputError):
        return one_line(str(error)), WRONG_INPUT
    if isinstance(error, NotPossibleError):
        return one_line(str(error)), NOT_POSSIBLE
    if isinstance(error, USAGE_ERROR):
        return _usage(error), WRONG_INPUT
    if isinstance(error, KeyboardInterrupt):
        return ("stopped; run the same command again to continue" if can_continue else "stopped"), INTERRUPTED
    if isinstance(error, ModuleNotFoundError):
        module = (error.name or "").partition(".")[0]
        if module in FIT_MODULES:
            return f"this needs {module}, which is not installed: pip install 'fitformer[fit]'", WRONG_INPUT
        return None
    if isinstance(error, MemoryError):
        return "not enough memory; use a smaller batch size or a smaller model", NOT_POSSIBLE
    return _operating_system(error) if isinstance(error, OSError) else None


def _operating_system(error: OSError) -> tuple[str, int]:
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes | os.PathLike) else ""
    if error.errno in FULL_DISK:
        return f"{where}no space left on the disk; free some and run again", NOT_POSSIBLE
    reason = error.strerror or str(error)
    if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError | FileExistsError):
        return f"{where}{reason[:1].lower()}{reason[1:]}", WRONG_INPUT
    return f"{where}{reason[:1].lower()}{reason[1:]}", NOT_POSSIBLE


def _usage(error: Exception) -> str:
    """A wrong command line in one line: what is wrong, the nearest spelling, where to read more."""
    message = one_line(str(getattr(error, "format_message", error.__str__)())).rstrip(".")
    context = getattr(error, "ctx", None)
    option = getattr(error, "option_name", None)
    if hasattr(error, "possibilities") and option:
        known = [name for parameter in context.command.params for name in parameter.opts] if context else []
        message = f"no such option {option}{nearest(str(option), known)}"
    command = context.command_path if context else "fitformer"
    return f"{message[:1].lower()}{message[1:]}; see {command} --help"


def one_line(text: str) -> str:
    """``text`` with every run of white space as one space."""
    return " ".join(text.split())


def _silence_stdout() -> None:
    """Point stdout at nothing, or Python complains about the closed pipe once more when it exits."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # not a real file, as in a test
        return
