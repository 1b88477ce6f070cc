"""Every failure a user can cause is one line and the contract's exit code; our own faults keep their traceback."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import typer

from fitformer.cli import failures
from fitformer.cli.app import app
from fitformer.cli.fit import STAGE_HELP
from fitformer.cli.keys import ERROR_KEYS, JSON_KEYS
from fitformer.errors import BundleError, InputError, NotPossibleError

Command = Callable[..., Any]


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InputError("train.rate: too high"), 2, "error: train.rate: too high"),
        (BundleError("b: not\na bundle"), 2, "error: b: not a bundle"),
        (NotPossibleError("cannot be reached"), 1, "error: cannot be reached"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/a/b"), 1, "error: /a/b: no space left on the disk"),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), 1, "error: no space left on the disk"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "x"), 2, "error: x: no such file or directory"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 2, "error: x: permission denied"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "x"), 2, "error: x: is a directory"),
        (OSError(errno.EIO, "Input/output error", "x"), 1, "error: x: input/output error"),
        (ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn"), 2, "pip install 'fitformer[fit]'"),
        (MemoryError(), 1, "error: not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 9"), 1, "error: not enough memory"),
        (OSError(errno.EBADF, "Bad file descriptor"), 1, "error: standard input or output is closed"),
        (KeyboardInterrupt(), 130, "stopped"),
    ],
)
def test_each_kind_has_its_line_and_code(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, line: str
) -> None:
    assert failures.report_failure(error) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert line in captured.err and captured.err.count("\n") == 1


def test_a_closed_pipe_is_silent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_silence_stdout", lambda: None)
    assert failures.report_failure(BrokenPipeError()) == 141
    assert capsys.readouterr() == ("", "")


def test_an_interrupted_run_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    failures.report_failure(KeyboardInterrupt(), can_continue=True)
    assert capsys.readouterr().err == "stopped; run the same command again to continue\n"


@pytest.mark.parametrize(
    "error", [KeyError("x"), AssertionError(), ModuleNotFoundError("no x", name="x"), ValueError()]
)
def test_our_own_faults_are_not_hidden(error: Exception) -> None:
    with pytest.raises(type(error)):
        failures.report_failure(error)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["transalte"], "no command 'transalte' (did you mean 'translate'?)"),
        (["xyz"], "no command 'xyz'; there are: init, fit"),
        (["fit"], "missing argument 'RECIPE'; see fitformer fit --help"),
        (["evaluate", "x", "--source"], "'--source' requires an argument"),
        (["evaluate", "x", "--sorce", "y"], "no such option --sorce (did you mean '--source'?)"),
        (["verify", "x", "--threads=none"], "(got 'none')"),
        (["verify", "x", "y"], "unexpected extra argument"),
        (["--verion"], "no such option --verion (did you mean '--version'?)"),
    ],
)
def test_a_wrong_command_line_is_one_line_with_the_nearest_spelling(
    refusal: Command, words: list[str], named: str
) -> None:
    assert named in refusal(2, *words)


def test_with_json_a_failure_is_a_document_too(cli: Command) -> None:
    for words in (["verify", "nowhere", "--json"], ["transalte", "--json"], ["verify", "--json", "x", "--threads=0"]):
        result = cli(*words)
        assert result.exit_code == 2
        document = json.loads(result.stdout)
        assert set(document) == set(ERROR_KEYS)
        assert document["exit_code"] == 2
        assert result.stderr == f"error: {document['error']}\n"


def test_without_a_command_there_is_help(cli: Command) -> None:
    result = cli()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "translate" in result.stderr and "Usage" in result.stderr


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["fit", "--help"], ["translate", "-h"], ["--version"]])
def test_help_and_version_are_no_failures(cli: Command, words: list[str]) -> None:
    result = cli(*words)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["import", "hat-confg", "x"], "no command 'import hat-confg' (did you mean 'hat-config'?); there are: "),
        (["import", "hat-config"], "missing argument 'FILE'; see fitformer import hat-config --help"),
        (["import", "hat-config", "x", "--outptu", "y"], "no such option --outptu (did you mean '--output'?)"),
        (["import", "hat-config", "nowhere.yml"], "nowhere.yml: no such file"),
    ],
)
def test_commands_of_a_group_fail_in_one_line_too(refusal: Command, words: list[str], named: str) -> None:
    assert named in refusal(2, *words)


def test_a_group_without_a_command_shows_its_help(cli: Command) -> None:
    result = cli("import")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "hat-config" in result.stderr and "Usage" in result.stderr


def test_every_command_has_json_and_a_help_for_every_option() -> None:
    group: Any = typer.main.get_command(app)
    assert set(group.commands) == {*(key.split()[0] for key in JSON_KEYS), *STAGE_HELP}
    nested = [(f"import {name}", command) for name, command in group.commands["import"].commands.items()]
    assert nested
    for name, command in [*group.commands.items(), *nested]:
        assert command.help, name
        if hasattr(command, "commands"):
            continue
        assert "--json" in {option for parameter in command.params for option in parameter.opts}, name
        for parameter in command.params:
            assert parameter.help or parameter.name == "help", f"{name} {parameter.name}"


@pytest.mark.parametrize("moment", ["fitformer.cli.app", "rich.text", "fitformer.cli.fit"])
def test_an_interrupt_while_the_command_is_loaded_is_one_line(moment: str) -> None:
    code = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {moment!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from fitformer.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "devices"], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")


def test_an_interrupt_before_the_subcommand_is_no_traceback() -> None:
    code = (
        "import fitformer.cli.app as module\n"
        "def interrupt(*_): raise KeyboardInterrupt\n"
        "module.CommandGroup.parse_args = interrupt\n"
        "from fitformer.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "devices"], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "stopped")


def test_a_fault_of_our_own_shows_a_traceback_and_exit_code_1() -> None:
    code = "import fitformer.cli.devices as d; d.device_card = None; from fitformer.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "devices"], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"Traceback" in done.stderr
