"""Atomic writing: whatever fails, a path holds the old content or the new, never a part, and nothing is left beside."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitformer import rundir
from fitformer.errors import InputError, NotPossibleError
from fitformer.rundir import atomic_path, disk_error, publish, read_json, sha256, write_json, write_text

OLD, NEW = {"a.txt": "old", "sub/b.txt": "old too"}, {"a.txt": "new", "c.txt": "new too"}


class Stopped(BaseException):
    """As KeyboardInterrupt: no Exception."""


def put(path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)


def tree(path: Path) -> dict[str, str] | str | None:
    if path.is_dir():
        return {str(p.relative_to(path)): p.read_text() for p in sorted(path.rglob("*")) if p.is_file()}
    return path.read_text() if path.exists() else None


class FailAt:
    """Counts the calls of everything that changes the disk and makes the ``number``-th one fail."""

    def __init__(self, number: int, error: BaseException) -> None:
        self.number, self.error, self.calls = number, error, 0

    def step(self) -> None:
        self.calls += 1
        if self.calls == self.number:
            raise self.error

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for owner, name in (
            (rundir.tempfile, "mkstemp"),
            (rundir.tempfile, "mkdtemp"),
            (rundir, "_sync"),
            (rundir.os, "replace"),
            (Path, "chmod"),
        ):
            patch.setattr(owner, name, self.before(getattr(owner, name)))

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            self.step()
            return function(*args, **keywords)

        return call


ERRORS = [
    OSError(errno.ENOSPC, "no space"),
    OSError(errno.EIO, "broken"),
    PermissionError(errno.EACCES, "no"),
    RuntimeError("a bug"),
    Stopped(),
]


@pytest.mark.parametrize("exists", [False, True], ids=["new", "replaced"])
@pytest.mark.parametrize("is_dir", [False, True], ids=["file", "folder"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_fails_the_content_is_the_old_or_the_new_and_nothing_is_left(
    error: BaseException, is_dir: bool, exists: bool
) -> None:
    failed = [fails_at(number, error, is_dir, exists) for number in range(1, 20)]
    assert any(failed)
    assert not failed[-1]  # every step had its turn


def fails_at(number: int, error: BaseException, is_dir: bool, exists: bool) -> bool:
    """Write with an error at one step and check what is left; return whether there were so many steps."""
    old, new = (OLD, NEW) if is_dir else ("old", "new")
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        path = Path(name) / "folder" / "artefact"
        if exists:
            put(path, OLD) if is_dir else (path.parent.mkdir(), path.write_text("old"))
        fail, before = FailAt(number, error), old if exists else None
        fail.install(patch)
        try:
            with atomic_path(path, is_dir=is_dir) as temporary:
                fail.step()
                put(temporary, NEW) if is_dir else temporary.write_text("new")
                fail.step()
            raised = False
        except BaseException as caught:
            raised = True
            if isinstance(error, OSError) and error.errno != errno.EIO:
                assert isinstance(caught, NotPossibleError)
            else:
                assert caught is error
        patch.undo()
        assert raised == (fail.calls >= number)
        assert tree(path) in ((before, new) if raised else (new,))
        leftovers = {item.name for item in path.parent.iterdir()} if path.parent.exists() else set()
        assert leftovers <= {"artefact"}
        return raised


@pytest.mark.parametrize("error", [*ERRORS, InputError("bad text"), KeyboardInterrupt()])
@pytest.mark.parametrize("is_dir", [False, True])
def test_an_error_of_the_writer_changes_nothing(tmp_path: Path, error: BaseException, is_dir: bool) -> None:
    path = tmp_path / "artefact"
    put(path, OLD) if is_dir else path.write_text("old")
    before = tree(path)
    with pytest.raises(BaseException) as caught, atomic_path(path, is_dir=is_dir) as temporary:
        put(temporary, NEW) if is_dir else temporary.write_text("new")
        assert tree(path) == before  # not yet
        raise error
    assert isinstance(caught.value, NotPossibleError) or caught.value is error
    assert tree(path) == before
    assert [item.name for item in tmp_path.iterdir()] == ["artefact"]


def test_a_folder_replaces_one_with_other_files(tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    for files in (OLD, NEW, OLD):
        with atomic_path(path, is_dir=True) as temporary:
            put(temporary, files)
        assert tree(path) == files
    assert [item.name for item in tmp_path.iterdir()] == ["bundle"]


def test_what_a_kill_left_of_a_replacement_does_no_harm(tmp_path: Path) -> None:
    """Killed between the two renames the old folder lies aside; the next replacement removes it."""
    path = tmp_path / "bundle"
    put(tmp_path / ".bundle.old.tmp", OLD)
    put(path, OLD)
    with atomic_path(path, is_dir=True) as temporary:
        put(temporary, NEW)
    assert tree(path) == NEW
    assert [item.name for item in tmp_path.iterdir()] == ["bundle"]


def test_a_file_can_take_the_place_of_a_folder_only_by_is_dir(tmp_path: Path) -> None:
    put(tmp_path / "a", OLD)
    with pytest.raises(NotPossibleError, match="cannot be written"), atomic_path(tmp_path / "a") as temporary:
        temporary.write_text("new")
    assert tree(tmp_path / "a") == OLD
    (tmp_path / "b").write_text("old")
    with atomic_path(tmp_path / "b", is_dir=True) as temporary:
        put(temporary, NEW)
    assert tree(tmp_path / "b") == NEW


def test_missing_folders_above_are_made(tmp_path: Path) -> None:
    write_text(tmp_path / "a/b/c.txt", "text")
    assert tree(tmp_path / "a/b/c.txt") == "text"


def test_a_file_in_the_place_of_a_folder_above_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    for path in (tmp_path / "a/b.txt", tmp_path / "a/b/c.txt"):
        with pytest.raises(NotPossibleError, match=r"a/.*: cannot be written") as caught:
            write_text(path, "text")
        assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.name != "posix", reason="permission bits")
def test_written_files_and_folders_can_be_read_by_others(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "text")
    with atomic_path(tmp_path / "b", is_dir=True) as temporary:
        put(temporary, NEW)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o755


def test_everything_is_synced_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut could leave an empty file under the final name."""
    events: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(rundir.os, "fsync", lambda handle: (events.append(_name_of(handle)), fsync(handle))[1])
    monkeypatch.setattr(rundir.os, "replace", lambda *names: (events.append("rename"), replace(*names))[1])
    with atomic_path(tmp_path / "bundle", is_dir=True) as temporary:
        put(temporary, {"a.txt": "1", "sub/b.txt": "2"})
        name = temporary.name
    renamed = events.index("rename")
    assert set(events[:renamed]) == {"a.txt", "sub", "b.txt", name}
    assert events[renamed + 1 :] == [tmp_path.name]


def _name_of(handle: int) -> str:
    return Path(os.readlink(f"/proc/self/fd/{handle}")).name if Path("/proc/self/fd").exists() else "?"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_says_so(code: int) -> None:
    error = disk_error(Path("run/x"), OSError(code, "text"))
    assert isinstance(error, NotPossibleError)
    assert str(error) == "run/x: no space left on the disk; nothing was overwritten, free some and run again"


def test_another_error_of_the_system_stays_what_it_is() -> None:
    original = OSError(errno.EIO, "broken")
    assert disk_error(Path("x"), original) is original


# -- JSON and checksums -----------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_json_round_trips(value: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "x.json"
        write_json(path, value)
        assert read_json(path) == value


def test_json_is_readable_text(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"name": "Grüße"})
    assert (tmp_path / "x.json").read_bytes() == '{\n  "name": "Grüße"\n}\n'.encode()


def test_what_is_no_json_is_not_written(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", 1)
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"a": object()})
    assert read_json(tmp_path / "x.json") == 1
    assert [item.name for item in tmp_path.iterdir()] == ["x.json"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_json(tmp_path / "x.json")
    assert str(caught.value) == f"{tmp_path / 'x.json'}: no such file"


def test_a_file_truncated_anywhere_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"name": "Grüße", "numbers": [1, 2.5], "nothing": None})
    whole = path.read_bytes()
    for length in range(len(whole) - 1):  # without its last newline it is still whole
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"x\.json: not a whole JSON file") as caught:
            read_json(path)
        assert "\n" not in str(caught.value)


@given(st.binary(max_size=20))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "x.json"
        path.write_bytes(content)
        try:
            expected = json.loads(content.decode())
        except ValueError:
            with pytest.raises(InputError, match=r"x\.json"):
                read_json(path)
        else:
            assert read_json(path) == expected or expected != expected


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1])
def test_checksums_are_sha256(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x" * size)
    assert sha256(path) == hashlib.sha256(b"x" * size).hexdigest()


@pytest.mark.parametrize("there_before", [False, True])
def test_a_published_folder_is_moved_whole_into_place(tmp_path: Path, there_before: bool) -> None:
    if there_before:
        (tmp_path / "bundle").mkdir()
        (tmp_path / "bundle" / "old").write_text("old")
    (tmp_path / ".bundle.unchecked").mkdir()
    (tmp_path / ".bundle.unchecked" / "new").write_text("new")
    publish(tmp_path / ".bundle.unchecked", tmp_path / "bundle")
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == ["bundle", "bundle/new"]


def test_publishing_that_fails_is_one_line_and_loses_neither_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("new", "bundle"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(rundir, "_sync_tree", full)
    with pytest.raises(NotPossibleError, match="bundle: no space left on the disk"):
        publish(tmp_path / "new", tmp_path / "bundle")
    assert {path.parent.name: path.read_text() for path in tmp_path.glob("*/file")} == {
        "new": "new",
        "bundle": "bundle",
    }
