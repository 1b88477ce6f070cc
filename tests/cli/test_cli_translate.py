"""One line in, one line out, whatever the lines hold, wherever they come from and go to."""

from __future__ import annotations

import gzip
import json
import os
import pty
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitformer.cli.translate import format_line
from fitformer.runtime.translator import Output, Translation

MakeBundle = Callable[..., Path]
Command = Callable[..., Any]


def test_every_line_gives_one_line_and_an_empty_line_stays_empty(cli: Command, make_bundle: MakeBundle) -> None:
    result = cli("translate", make_bundle(), stdin="ich bin da\n\nhier\n   \nw1. w2,\n")
    assert (result.exit_code, result.stdout) == (0, "ich bin da\n\nhier\n\nw1. w2,\n")


@pytest.mark.parametrize(
    "text",
    [b"", b"\n", b"\n\n\n", b"hier", b"hier\r\nda\r\n", b"\xef\xbb\xbfhier\nda", "hier\u2028da\x0bda\x85da\n".encode()],
)
def test_the_number_of_lines_is_kept(cli: Command, make_bundle: MakeBundle, text: bytes) -> None:
    result = cli("translate", make_bundle(), stdin=text)
    lines = text.count(b"\n") + (text != b"" and not text.endswith(b"\n"))
    assert result.exit_code == 0
    assert result.stdout_bytes.count(b"\n") == lines == len(result.stdout_bytes.splitlines())


def test_crlf_and_a_missing_last_line_end_change_nothing(cli: Command, make_bundle: MakeBundle) -> None:
    bundle = make_bundle()
    plain = cli("translate", bundle, stdin=b"ich\nda\n").stdout
    assert plain == "ich\nda\n"
    assert cli("translate", bundle, stdin=b"ich\r\nda").stdout == plain


def test_files_give_what_streams_give(cli: Command, make_bundle: MakeBundle, tmp_path: Path) -> None:
    bundle = make_bundle()
    (tmp_path / "in.txt").write_bytes(b"ich bin\nda\n")
    with gzip.open(tmp_path / "in.txt.gz", "wb") as stream:
        stream.write(b"ich bin\nda\n")
    for name in ("in.txt", "in.txt.gz"):
        result = cli("translate", bundle, "-i", tmp_path / name, "-o", tmp_path / "out.txt")
        assert (result.exit_code, result.stdout) == (0, "")
        assert (tmp_path / "out.txt").read_bytes() == b"ich bin\nda\n"
    assert cli("translate", bundle, "-i", "-", "-o", "-", stdin="ich bin\nda\n").stdout == "ich bin\nda\n"


def test_a_named_pipe_is_read_once(shell: Command, make_bundle: MakeBundle, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    bundle = make_bundle()
    with subprocess.Popen(["sh", "-c", f"printf 'ich\\nda\\n' > {tmp_path}/pipe"]):
        done = shell("translate", bundle, "-i", tmp_path / "pipe")
    assert (done.returncode, done.stdout) == (0, b"ich\nda\n")


def test_a_file_may_be_translated_in_place(cli: Command, make_bundle: MakeBundle, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"ich\r\nbin")
    assert cli("translate", make_bundle(), "-i", file, "-o", file).exit_code == 0
    assert file.read_bytes() == b"ich\nbin\n"


def test_a_link_stays_a_link(cli: Command, make_bundle: MakeBundle, tmp_path: Path) -> None:
    (tmp_path / "real.txt").touch()
    (tmp_path / "link.txt").symlink_to("real.txt")
    assert cli("translate", make_bundle(), "-o", tmp_path / "link.txt", stdin="da").exit_code == 0
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "da\n"


def test_a_device_is_written_to_and_not_replaced(cli: Command, make_bundle: MakeBundle) -> None:
    assert cli("translate", make_bundle(), "-o", os.devnull, stdin="da").exit_code == 0
    assert Path(os.devnull).is_char_device()


def test_columns_of_n_best_and_scores(cli: Command, make_bundle: MakeBundle) -> None:
    bundle = make_bundle()
    result = cli("translate", bundle, "--n-best", 3, "--scores", stdin="ich bin\n\n")
    first, second = result.stdout.split("\n")[:2]
    assert second == ""
    columns = first.split("\t")
    assert len(columns) == 6 and columns[1] == "ich bin"
    scores = [float(score) for score in columns[::2]]
    assert scores == sorted(scores, reverse=True) and scores[0] <= 0
    assert cli("translate", bundle, "--n-best", 2, stdin="ich bin").stdout.count("\t") == 1


def test_a_short_list_is_filled_so_that_columns_can_be_cut_out() -> None:
    translation = Translation((Output("a", -0.5, -1.0),))
    assert format_line(translation, n_best=3, scores=True) == "-0.5000\ta\t\t\t\t"
    assert format_line(translation, n_best=3, scores=False) == "a\t\t"
    assert format_line(Translation((Output("", 0.0, 0.0),)), n_best=3, scores=True) == ""


def test_options_reach_the_search(document: Command, make_bundle: MakeBundle) -> None:
    bundle = make_bundle()
    options = ["--beam", 3, "--length-penalty", 0.6, "--no-repeat-ngram", 2, "--max-length-ratio", 1.5]
    decoding = document("translate", bundle, *options, stdin="da")["decoding"]
    assert (decoding["beam"], decoding["length_penalty"]) == (3, 0.6)
    assert (decoding["no_repeat_ngram"], decoding["max_length_ratio"]) == (2, 1.5)
    assert document("translate", bundle, stdin="da")["decoding"]["beam"] == 1
    assert document("translate", bundle, "--n-best", 4, stdin="da")["decoding"]["beam"] == 4


def test_batch_size_changes_nothing(cli: Command, make_bundle: MakeBundle) -> None:
    bundle = make_bundle()
    text = "".join(f"w{i % 10} ich{' bin' * (i % 5)}\n" for i in range(40))
    outputs = {cli("translate", bundle, "--batch-size", size, stdin=text).stdout for size in (1, 3, 64)}
    assert outputs == {text}


def test_json_with_an_output_file_names_it(document: Command, make_bundle: MakeBundle, tmp_path: Path) -> None:
    facts = document("translate", make_bundle(), "-o", tmp_path / "out.txt", stdin="ich\nda\n")
    assert (facts["lines"], facts["output"]) == (2, str(tmp_path / "out.txt"))
    assert (tmp_path / "out.txt").read_text() == "ich\nda\n"


def test_json_holds_the_translations(document: Command, make_bundle: MakeBundle) -> None:
    facts = document("translate", make_bundle(), stdin="ich\n\n")
    assert [entry["outputs"][0]["text"] for entry in facts["translations"]] == ["ich", ""]


def test_json_keeps_stdout_to_itself_when_it_is_named_as_the_output(document: Command, make_bundle: MakeBundle) -> None:
    assert len(document("translate", make_bundle(), "-o", "-", stdin="ich\nda\n")["translations"]) == 2


def test_too_long_a_line_is_split_with_a_warning(cli: Command, make_bundle: MakeBundle) -> None:
    line = " ".join(["ich bin hier da."] * 100).replace("da.", "w1.")
    result = cli("translate", make_bundle(), stdin=f"{line}\nda\n")
    assert result.stdout.splitlines() == [line, "da"]
    assert "line 1: 400 tokens" in result.stderr


# -- what cannot be done ----------------------------------------------------------------------------------------------


def test_a_line_that_is_not_utf8_is_named_and_nothing_is_written(
    refusal: Command, make_bundle: MakeBundle, tmp_path: Path
) -> None:
    bundle, source, output = make_bundle(), tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(b"ich\nbin\n\xff\xfeda\nhier\n")
    output.write_text("old\n")
    line = refusal(2, "translate", bundle, "-i", source, "-o", output)
    assert f"{source}:3: not UTF-8" in line
    assert output.read_text() == "old\n"
    assert "in.txt:3" in refusal(2, "translate", bundle, "-i", source)
    assert "stdin:2: not UTF-8" in refusal(2, "translate", bundle, stdin=b"ich\n\xff\n")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["-i", "nowhere.txt"], "nowhere.txt: no such file"),
        (["-i", "."], "is a folder"),
        (["-i", "broken.gz"], "broken.gz: not a whole gzip file"),
        (["-i", "flipped.gz"], "flipped.gz: not a whole gzip file"),
        (["-o", "nowhere/out.txt"], "the folder nowhere does not exist"),
        (["-o", "."], "is a folder"),
        (["--beam", "0"], "--beam"),
        (["--beam", "zero"], "'zero'"),
        (["--n-best", "4", "--beam", "2"], "n_best: 4 is more than beam (2)"),
        (["--threads", "0"], "--threads"),
        (["--threads", "100000"], "--threads"),
        (["--beam", "100000"], "beam: 100000 is too large"),
        (["--length-penalty", "nan"], "length_penalty"),
        (["--beem", "2"], "did you mean '--beam'?"),
    ],
)
def test_wrong_options_are_one_line_that_names_them(
    refusal: Command,
    make_bundle: MakeBundle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    named: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.gz").write_bytes(b"no gzip")
    flipped = bytearray(gzip.compress(bytes(range(256)) * 9))
    flipped[20] ^= 255
    Path("flipped.gz").write_bytes(flipped)
    bundle = make_bundle()
    before = sorted(tmp_path.iterdir())
    assert named in refusal(2, "translate", bundle, *options, stdin="da")
    assert sorted(tmp_path.iterdir()) == before


def test_what_is_no_bundle_is_refused(refusal: Command, make_bundle: MakeBundle, tmp_path: Path) -> None:
    assert "no such folder" in refusal(2, "translate", tmp_path / "nothing")
    assert "fitformer.json: no such file" in refusal(2, "translate", tmp_path)
    bundle = make_bundle()
    assert "not a folder" in refusal(2, "translate", bundle / "fitformer.json")
    (bundle / "vocabulary").write_text("changed")
    assert "checksum differs" in refusal(2, "translate", bundle)
    (bundle / "vocabulary").unlink()
    assert "file is missing" in refusal(2, "translate", bundle)


# -- in a process of its own ------------------------------------------------------------------------------------------


def test_a_full_disk_is_one_line_and_exit_code_1(shell: Command, make_bundle: MakeBundle, tmp_path: Path) -> None:
    if not Path("/dev/full").is_char_device():
        pytest.skip("needs /dev/full")
    bundle = make_bundle()
    with open("/dev/full", "wb") as full:
        to_stdout = shell("translate", bundle, input=b"da\n", stdout=full)
        a_report = shell("devices", stdout=full)
    to_file = shell("translate", bundle, "-o", "/dev/full", input=b"da\n")
    for done in (to_stdout, a_report, to_file):
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
        assert b"no space left on the disk" in done.stderr


def test_an_output_that_outgrows_the_disk_leaves_the_old_file(
    shell: Command, make_bundle: MakeBundle, tmp_path: Path
) -> None:
    output = tmp_path / "out.txt"
    output.write_text("old\n")
    done = shell(
        "translate",
        make_bundle(),
        "-o",
        output,
        input=b"ich bin da\n" * 400,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)),
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert b"no space left" in done.stderr
    assert output.read_text() == "old\n"
    assert list(tmp_path.glob(".*")) == []


def test_a_reader_that_goes_away_ends_it_without_a_word(make_bundle: MakeBundle, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_bytes(b"ich bin da\n" * 50_000)
    command = [sys.executable, "-m", "fitformer", "translate", str(make_bundle()), "-i", str(source)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"ich bin da\n"
        process.stdout.close()
        errors = process.stderr.read()
    assert (process.returncode, errors) == (141, b"")


def test_somebody_who_types_gets_an_answer_to_each_line(make_bundle: MakeBundle) -> None:
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "fitformer", "translate", str(make_bundle())]
    with subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in (b"ich bin da\n", b"hier\n"):
            os.write(controller, line)
            assert process.stdout.readline() == line
        os.write(controller, b"\x04")
        assert process.wait(60) == 0
    os.close(controller)
    os.close(terminal)


def test_a_program_gets_an_answer_to_each_line_with_a_batch_of_one(make_bundle: MakeBundle) -> None:
    command = [sys.executable, "-m", "fitformer", "translate", str(make_bundle()), "--batch-size", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        for line in (b"ich bin da\n", b"\n", b"hier\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline() == line
        process.stdin.close()
        assert process.wait(60) == 0


def test_an_interrupt_stops_it_in_one_line_and_leaves_the_old_file(make_bundle: MakeBundle, tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    output.write_text("old\n")
    words = ["translate", str(make_bundle()), "--batch-size", "1", "-o", str(output)]
    command = [sys.executable, "-m", "fitformer", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"da\n")
        process.stdin.flush()
        for _ in range(600):  # until it has written the first line to its temporary file
            if any(file.stat().st_size for file in tmp_path.glob(".out.txt.*")):
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
    assert (process.returncode, errors) == (130, b"stopped\n")
    assert output.read_text() == "old\n"
    assert list(tmp_path.glob(".*")) == []


def test_output_is_utf8_whatever_the_locale(shell: Command, make_bundle: MakeBundle, tmp_path: Path) -> None:
    bundle = make_bundle("sentencepiece")
    source = tmp_path / "in.txt"
    source.write_text("the cat \u00e4\u20ac\U0001f600\n", encoding="utf-8")
    command = [sys.executable, "-m", "fitformer", "translate", str(bundle), "-i", str(source)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert done.stdout == source.read_bytes()
    document = subprocess.run([*command, "--json"], env=environment, capture_output=True, check=True).stdout
    assert json.loads(document)["translations"][0]["outputs"][0]["text"] == source.read_text(encoding="utf-8").strip()


def test_an_empty_file_gives_an_empty_output_and_no_message(
    cli: Command, make_bundle: MakeBundle, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").touch()
    result = cli("translate", make_bundle(), "-i", tmp_path / "empty.txt")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(("closed", "code"), [("<&-", 1), (">&-", 1), ("2>&-", 0)])
def test_a_closed_standard_stream_is_no_traceback(
    make_bundle: MakeBundle, tmp_path: Path, closed: str, code: int
) -> None:
    (tmp_path / "in.txt").write_text("ich\n")
    words = [sys.executable, "-m", "fitformer", "translate", str(make_bundle())]
    script = f'"$@" {"<in.txt" if closed != "<&-" else ""} {closed}'
    done = subprocess.run(["sh", "-c", script, "sh", *words], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == code
    assert done.stderr in ([b""] if closed == "2>&-" else [b"error: standard input or output is closed\n"])
    assert done.stdout == (b"ich\n" if code == 0 else b"")
