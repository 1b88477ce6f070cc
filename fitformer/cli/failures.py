"""From an exception to one line on stderr and an exit code: 2 for a user's mistake, 1 for what could not be done.

Anything else is a fault of fitformer's own and keeps its traceback.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

import typer

from fitformer.cli.output import print_json
from fitformer.errors import InputError, NotPossibleError, nearest

WRONG_INPUT, NOT_POSSIBLE, INTERRUPTED, BROKEN_PIPE = 2, 1, 130, 141
# The class itself lives in another module from one typer to the next.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
FIT_MODULES = ("torch", "onnx", "pydantic", "yaml", "safetensors", "sklearn", "plotly", "tensorboardX", "polib")
RANKS = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")  # torchrun's and those of MPIs
WRONG_PATH = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def report_failure(error: BaseException, words: Sequence[str] = (), *, can_continue: bool = False) -> int:
    """Print the line for ``error`` and return the exit code.

    Args:
        words: the command line; with ``--json`` in it, the failure is also a document on stdout.
        can_continue: the command may be run again to go on where it was interrupted.
    Raises:
        The error itself when it is none that a user can cause.
    """
    if isinstance(error, BrokenPipeError):
        _silence_stdout()
        return BROKEN_PIPE
    known = _explained(error, words, can_continue)
    if known is None:
        raise error
    line, code = known
    if isinstance(error, USAGE_ERROR) and any(os.environ.get(name, "0") != "0" for name in RANKS):
        return code  # several processes were started with one command line: the main one says it
    print(f"error: {line}" if code != INTERRUPTED else line, file=sys.stderr, flush=True)
    try:
        if "--json" in words:
            print_json({"error": line, "exit_code": code})
        sys.stdout.flush()
    except OSError:
        _silence_stdout()
    return code


def exit_code(error: BaseException) -> int:
    """The exit code that ``report_failure`` would return; 1 for a fault of fitformer's own."""
    known = _explained(error, (), False)
    return BROKEN_PIPE if isinstance(error, BrokenPipeError) else known[1] if known else 1


def _explained(error: BaseException, words: Sequence[str], can_continue: bool) -> tuple[str, int] | None:
    if isinstance(error, InputError):
        return one_line(str(error)), WRONG_INPUT
    if isinstance(error, NotPossibleError):
        return one_line(str(error)), NOT_POSSIBLE
    if isinstance(error, USAGE_ERROR):
        return _usage(error, words), WRONG_INPUT
    if isinstance(error, KeyboardInterrupt):
        return ("stopped; run the same command again to continue" if can_continue else "stopped"), INTERRUPTED
    if isinstance(error, ModuleNotFoundError):
        module = (error.name or "").partition(".")[0]
        if module in (*FIT_MODULES, "accelerate"):
            return f"this needs {module}, which is not installed: pip install 'fitformer[fit]'", WRONG_INPUT
        return None
    if isinstance(error, MemoryError) or _asked_for_too_much(error):
        return "not enough memory; use a smaller batch size or a smaller model", NOT_POSSIBLE
    return _operating_system(error) if isinstance(error, OSError) else None


def _asked_for_too_much(error: BaseException) -> bool:
    """Whether PyTorch or ONNX Runtime got no memory; both say so in words only."""
    words = str(error).lower()
    return any(
        phrase in words for phrase in ("can't allocate memory", "cannot allocate memory", "failed to allocate memory")
    )


def _operating_system(error: OSError) -> tuple[str, int]:
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes | os.PathLike) else ""
    if error.errno in FULL_DISK:
        return f"{where}no space left on the disk; free some and run again", NOT_POSSIBLE
    if error.errno == errno.EBADF and not where:
        return "standard input or output is closed", NOT_POSSIBLE
    reason = error.strerror or str(error)
    code = WRONG_INPUT if isinstance(error, WRONG_PATH) else NOT_POSSIBLE
    return f"{where}{reason[:1].lower()}{reason[1:]}", code


def _usage(error: Exception, words: Sequence[str]) -> str:
    """A wrong command line in one line: what is wrong, the nearest spelling, where to read more."""
    message = one_line(str(getattr(error, "format_message", error.__str__)())).rstrip(".")
    context = getattr(error, "ctx", None)
    option = getattr(error, "option_name", None)
    if hasattr(error, "possibilities") and option:
        known = [name for parameter in context.command.params for name in parameter.opts] if context else []
        message = f"no such option {option}{nearest(str(option), known)}"
    names = getattr(getattr(error, "param", None), "opts", [])
    value = _value_given(names, words)
    if value is not None and value not in message:
        message = f"{message} (got '{value}')"
    command = context.command_path if context else "fitformer"
    return f"{message[:1].lower()}{message[1:]}; see {command} --help"


def _value_given(names: Sequence[str], words: Sequence[str]) -> str | None:
    """The value of an option on the command line, as ``--name value`` or ``--name=value``."""
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.startswith("-") and name in names:
            return value if equals else next(iter(words[index + 1 :]), None)
    return None


def one_line(text: str) -> str:
    """``text`` with every run of white space as one space."""
    return " ".join(text.split())


def _silence_stdout() -> None:
    """Point stdout at nothing, or Python complains once more when it exits."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # not a real file, as in a test
        return
