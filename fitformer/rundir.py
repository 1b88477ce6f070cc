"""How files are written and read: atomically, so that a crash never leaves half an artefact in place of a good one."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fitformer.errors import InputError, NotPossibleError


@contextmanager
def atomic_path(path: Path, *, is_dir: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it is synced and renamed over it, on error removed.

    Raises:
        NotPossibleError: the disk is full or the folder cannot be written; ``path`` is left as it was.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_dir:
            temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
        else:
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
            os.close(handle)
            temporary = Path(name)
        yield temporary
        temporary.chmod(0o755 if is_dir else 0o644)  # readable by others, whatever the writer put there
        _sync_tree(temporary)
        if is_dir and path.exists():
            _replace_dir(temporary, path)
        else:
            os.replace(temporary, path)
        _sync(path.parent)
    except OSError as error:
        raise disk_error(path, error) from error
    finally:
        if temporary is not None:
            _remove(temporary)


def disk_error(path: Path, error: OSError) -> Exception:
    """Turn an operating system's refusal to write ``path`` into the one-line error a user reads."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return NotPossibleError(f"{path}: no space left on the disk; nothing was overwritten, free some and run again")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        return NotPossibleError(f"{path}: cannot be written ({error.strerror})")
    return error


def _replace_dir(new: Path, path: Path) -> None:
    # A folder cannot be renamed over a non-empty one: the old is moved aside first and comes back if that fails.
    aside = path.with_name(f".{path.name}.old.tmp")
    _remove(aside)
    os.replace(path, aside)
    try:
        os.replace(new, path)
    except BaseException:
        os.replace(aside, path)
        raise
    _remove(aside)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync_tree(path: Path) -> None:
    for item in [*path.rglob("*"), path] if path.is_dir() else [path]:
        _sync(item)


def _sync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":  # Windows cannot open a folder; renames there are durable enough
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` as UTF-8, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, obj: Any) -> None:
    """Write ``obj`` to ``path`` as indented JSON, atomically."""
    write_text(path, json.dumps(obj, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON from ``path``.

    Raises:
        InputError: the file is missing or is not whole JSON; the message names it.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: not a whole JSON file ({error})") from None


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def folder_bytes(folder: Path) -> int:
    """Size of all files below a folder, in bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def publish(folder: Path, destination: Path) -> None:
    """Move a finished folder, which stands beside it, into the place of ``destination``, atomically.

    Raises:
        NotPossibleError: the disk is full or the folder cannot be written; both are left as they were.
    """
    try:
        _sync_tree(folder)
        if destination.exists():
            _replace_dir(folder, destination)
        else:
            os.replace(folder, destination)
        _sync(destination.parent)
    except OSError as error:
        raise disk_error(destination, error) from error
