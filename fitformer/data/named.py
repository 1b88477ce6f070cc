"""Public corpora by name: training text through the program ``mtdata``, test sets through sacreBLEU.

Both know where hundreds of corpora are published, in which form, and how to get plain lines out of them. What they
fetch is kept in the cache as two text files per corpus and is not fetched again. mtdata is called as a program, since
it needs other versions of libraries than fitformer does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitformer.data.corpus import CorpusFiles
from fitformer.data.homeassistant import cache_folder
from fitformer.errors import InputError, NotPossibleError, nearest
from fitformer.progress import say
from fitformer.rundir import atomic_path

OWN_FILES = "or name your own files as source and target in the recipe"
SIDES = ("source", "target")
SIGNATURE = "mtdata.signature.txt"
_DOWNLOAD = "import sys, sacrebleu.utils; sacrebleu.utils.download_test_set(sys.argv[1], sys.argv[2])"
_SECONDS = 600  # a test set is small


@dataclass(frozen=True)
class NamedCorpus:
    """One corpus of public ones, read one after the other: names of mtdata or of sacreBLEU's test sets.

    ``held_out``: it is a validation or test set, of which mtdata leaves nothing out.
    """

    source_language: str
    target_language: str
    mtdata: tuple[str, ...] = ()
    sacrebleu: tuple[str, ...] = ()
    held_out: bool = False

    def facts(self) -> dict[str, Any]:
        """The names, for ``stats.json``."""
        return {"mtdata": list(self.mtdata)} if self.mtdata else {"sacrebleu": list(self.sacrebleu)}

    def fetch(self) -> CorpusFiles:
        """Return the text files in the cache; fetch those that are not there.

        Raises:
            InputError: mtdata is not installed, or sacreBLEU knows no such test set or languages.
            NotPossibleError: a corpus cannot be fetched.
        """
        folders = [self._mtdata(name) for name in self.mtdata] + [self._sacrebleu(name) for name in self.sacrebleu]
        sources, targets = (tuple(folder / f"{side}.txt" for folder in folders) for side in SIDES)
        return CorpusFiles("parallel", self.source_language, self.target_language, source=sources, target=targets)

    @property
    def _pair(self) -> str:
        return f"{self.source_language}-{self.target_language}"

    def _folder(self, origin: str, name: str) -> Path:
        """Where a corpus is kept; of its name and languages nothing leads elsewhere."""
        kind = ".held-out" if self.held_out and origin == "mtdata" else ""
        return cache_folder() / origin / re.sub(r"[^\w.+-]", "_", f"{name}.{self._pair}{kind}")

    def _mtdata(self, name: str) -> Path:
        folder = self._folder("mtdata", name)
        if _is_there(folder):
            return folder
        program = shutil.which("mtdata")
        if program is None:
            raise InputError(
                f"mtdata: the corpus {name} is fetched by the program 'mtdata', which is not installed; "
                f"install it beside fitformer with 'pipx install mtdata', {OWN_FILES}"
            )
        say(f"fetching {name} once with mtdata (into {folder}); this can take long")
        with atomic_path(folder, is_dir=True) as temporary:
            got = temporary / "got"
            flag = "-ts" if self.held_out else "-tr"
            log = _run([program, "get", "-l", self._pair, flag, name, "--fail", "-o", str(got)], name)
            files = _files_of(got, name, "tests" if self.held_out else "train-parts", log)
            for side, file in zip(SIDES, files, strict=True):
                file.rename(temporary / f"{side}.txt")
            (got / SIGNATURE).rename(temporary / SIGNATURE)
            shutil.rmtree(got)
        return folder

    def _sacrebleu(self, name: str) -> Path:
        from sacrebleu.dataset import DATASETS

        if name not in DATASETS:
            raise InputError(f"sacrebleu: no test set '{name}'{nearest(name, DATASETS)}; 'sacrebleu --list' shows them")
        pairs = DATASETS[name].langpairs
        if self._pair not in pairs:
            raise InputError(f"sacrebleu: the test set {name} has no {self._pair}; it has {', '.join(sorted(pairs))}")
        folder = self._folder("sacrebleu", name)
        if _is_there(folder):
            return folder
        with atomic_path(folder, is_dir=True) as temporary:
            texts = self._texts(_sacrebleu_folder(), name)
            if texts is not None:
                _copy(texts, temporary)
                return folder
            say(f"fetching the test set {name} ({self._pair}) once with sacreBLEU (into {folder})")
            # Not into sacreBLEU's own folder: a download that is interrupted there is never taken up again.
            with tempfile.TemporaryDirectory(dir=temporary.parent, prefix=".sacrebleu.") as download:
                environment = {**os.environ, "SACREBLEU": download}
                log = _run([sys.executable, "-c", _DOWNLOAD, name, self._pair], name, environment, seconds=_SECONDS)
                texts = self._texts(Path(download), name)
                if texts is None:
                    raise NotPossibleError(f"{name} could not be fetched ({_last_line(log)}); {_AGAIN}")
                _copy(texts, temporary)
        return folder

    def _texts(self, root: Path, name: str) -> tuple[Path, Path] | None:
        """Source and first reference as sacreBLEU keeps them, ROOT/NAME/NAME.PAIR.FIELD; None where they are not.

        References are ``ref``, or ``ref-`` and a number or translator where a set has several.
        """
        folder, stem = root / name, f"{name.replace('/', '_')}.{self._pair}"
        source, references = folder / f"{stem}.src", sorted(folder.glob(f"{stem}.ref*"))
        return (source, references[0]) if source.is_file() and references else None


def _copy(texts: tuple[Path, Path], folder: Path) -> None:
    for side, text in zip(SIDES, texts, strict=True):
        shutil.copyfile(text, folder / f"{side}.txt")


def _is_there(folder: Path) -> bool:
    return all((folder / f"{side}.txt").is_file() for side in SIDES)


def _sacrebleu_folder() -> Path:
    given = os.environ.get("SACREBLEU")
    return Path(given) if given else Path.home() / ".sacrebleu"


def _run(
    command: list[str], name: str, environment: dict[str, str] | None = None, *, seconds: int | None = None
) -> str:
    """Run a program that fetches; return what it printed.

    Raises:
        NotPossibleError: it failed; the last line that it printed says why.
    """
    environment = {**(os.environ if environment is None else environment), "COLUMNS": "1000", "NO_COLOR": "1"}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            env=environment,
            timeout=seconds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotPossibleError(f"{name} could not be fetched ({error}); {_AGAIN}") from None
    if done.returncode:
        raise NotPossibleError(f"{name} could not be fetched ({_last_line(done.stdout)}); {_AGAIN}")
    return done.stdout


_AGAIN = f"check the name, connect to the network and run again, {OWN_FILES}"


def _files_of(got: Path, name: str, folder: str, log: str) -> list[Path]:
    """Source and target among what mtdata made: FOLDER/NAME.LANGUAGE, with languages as its signature spells them.

    mtdata writes ``eng`` and ``deu`` for ``en`` and ``de``, and a corpus may have a region too, such as ``eng_GB``.
    """
    problem = f"{name} could not be fetched: mtdata made no two files of the languages asked for"
    try:
        signature = (got / SIGNATURE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        signature = ""
    languages = re.search(r"-l (\S+)-(\S+)", signature)
    if languages is None:
        raise NotPossibleError(f"{problem} ({_last_line(log)})")
    found = {file.name.removeprefix(f"{name}."): file for file in sorted((got / folder).glob(f"{name}.*"))}
    chosen = []
    for language in languages.groups():
        same = [file for key, file in found.items() if key == language]
        same += [file for key, file in found.items() if key.split("_")[0] == language.split("_")[0]]
        chosen.extend(same[:1])
    if len(chosen) != 2 or chosen[0] == chosen[1]:
        errors = got / "errors.tsv"  # where a version without --fail puts them
        reason = errors.read_text(encoding="utf-8", errors="replace") if errors.is_file() else log
        raise NotPossibleError(f"{problem} ({_last_line(reason)})")
    return chosen


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[-1].split())[:300] if lines else "it printed nothing"
