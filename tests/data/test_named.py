"""Public corpora by name: fetched once, whole or not at all, the right way round; one line for what cannot be had.

No network: a program of the name mtdata stands in for the real one and lays out its files as mtdata 0.5.1 does, and
sacreBLEU finds its test sets in its own cache.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitformer.data import named
from fitformer.data.corpus import read_pairs
from fitformer.data.named import NamedCorpus
from fitformer.data.prepare import PrepareSettings, prepare
from fitformer.data.tokenizer import TokenizerSettings
from fitformer.errors import InputError, NotPossibleError
from fitformer.rundir import sha256

EUROPARL, NEWSTEST = "Statmt-europarl-9-deu-eng", "Statmt-newstest_deen-2014-deu-eng"

# As mtdata: languages become three letters; parts are named by their identifiers, whose languages may be in another
# order than was asked for; the signature tells what was asked for, in three letters. Each call leaves a line in CALLS.
FAKE = """#!{python}
import gzip, pathlib, sys
arguments = sys.argv[1:]
with open({calls!r}, "a") as calls:
    print(*arguments, file=calls)
assert arguments[0] == "get" and "--fail" in arguments
out = pathlib.Path(arguments[arguments.index("-o") + 1])
pair = [{{"en": "eng", "de": "deu"}}[l] for l in arguments[arguments.index("-l") + 1].split("-")]
(flag,) = {{"-tr", "-ts"}} & set(arguments)
name = arguments[arguments.index(flag) + 1]
parts = out / {{"-tr": "train-parts", "-ts": "tests"}}[flag]
print("20260101 INFO  some log")
if "europarl-99" in name:
    print("Traceback ...")
    print(f"Exception: Could not find {{name}}; try mtdata list", file=sys.stderr)
    sys.exit(1)
parts.mkdir(parents=True)
if "broken" in name:
    (out / "errors.tsv").write_text(f"{{name}}\\tthe server said no\\n")
else:
    region = "_GB" if "british" in name else ""
    text = {{"eng": "the dog sleeps {{}} .", "deu": "der Hund schläft {{}} ."}}
    for language in ("deu", "eng"):
        ending = language + (region if language == "eng" else "")
        lines = "".join(text[language].format(i) + "\\n" for i in range(40))
        (parts / f"{{name}}.{{ending}}").write_text(lines, encoding="utf-8")
(parts / f".valid.{{name}}").touch()
(out / "references.bib").touch()
(out / "mtdata.signature.txt").write_text("mtdata get -l " + "-".join(pair) + f" --train {{name}} -o <out-dir>\\n")
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FITFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SACREBLEU", str(tmp_path / "sacrebleu"))
    return tmp_path / "cache"


@pytest.fixture
def calls(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The fake program is on the PATH; returns what it was called with."""
    folder, log = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()
    (folder / "mtdata").write_text(FAKE.format(python=sys.executable, calls=str(log)), encoding="utf-8")
    (folder / "mtdata").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return lambda: log.read_text().splitlines() if log.exists() else []


def pairs(corpus: NamedCorpus) -> list[tuple[str, str]]:
    return list(read_pairs(corpus.fetch()))


def refusal(kind: type[Exception], corpus: NamedCorpus) -> str:
    with pytest.raises(kind) as caught:
        corpus.fetch()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- mtdata -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [EUROPARL, "Statmt-british-1-deu-eng_GB"])
def test_the_sides_are_those_asked_for_whatever_the_order_of_the_corpus(
    calls: Callable[[], list[str]], name: str
) -> None:
    english = ("the dog sleeps 0 .", "der Hund schläft 0 .")
    assert pairs(NamedCorpus("en", "de", mtdata=(name,)))[0] == english
    assert pairs(NamedCorpus("de", "en", mtdata=(name,)))[0] == english[::-1]


def test_a_corpus_is_fetched_once(calls: Callable[[], list[str]], cache: Path) -> None:
    corpus = NamedCorpus("en", "de", mtdata=(EUROPARL,))
    first = corpus.fetch()
    assert corpus.fetch() == first and len(calls()) == 1
    assert first.source[0].read_text(encoding="utf-8").startswith("the dog")
    folder = cache / "mtdata" / f"{EUROPARL}.en-de"
    assert {path.name for path in folder.iterdir()} == {"source.txt", "target.txt", "mtdata.signature.txt"}


def test_several_corpora_keep_their_order(calls: Callable[[], list[str]]) -> None:
    names = (NEWSTEST, EUROPARL)
    found = NamedCorpus("en", "de", mtdata=names).fetch()
    assert [path.parent.name for path in found.source] == [f"{name}.en-de" for name in names]


def test_held_out_text_is_asked_for_as_such_and_kept_apart(calls: Callable[[], list[str]]) -> None:
    """Of training text mtdata leaves out noise, of test sets nothing."""
    held_out = NamedCorpus("en", "de", mtdata=(NEWSTEST,), held_out=True).fetch()
    training = NamedCorpus("en", "de", mtdata=(NEWSTEST,)).fetch()
    assert held_out.source != training.source
    assert [f" {flag} {NEWSTEST} " in call for flag, call in zip(("-ts", "-tr"), calls(), strict=True)] == [True, True]


def test_a_missing_program_is_one_line_that_says_what_to_install(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    line = refusal(InputError, NamedCorpus("en", "de", mtdata=(EUROPARL,)))
    assert "pipx install mtdata" in line and "your own files" in line and EUROPARL in line


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Statmt-europarl-99-deu-eng", "Exception: Could not find Statmt-europarl-99-deu-eng; try mtdata list"),
        ("Statmt-broken-1-deu-eng", "the server said no"),
    ],
)
def test_a_failed_fetch_says_why_and_leaves_nothing(
    calls: Callable[[], list[str]], cache: Path, name: str, reason: str
) -> None:
    line = refusal(NotPossibleError, NamedCorpus("en", "de", mtdata=(name,)))
    assert name in line and reason in line
    assert list((cache / "mtdata").iterdir()) == []


def test_the_languages_lead_to_no_other_folder(cache: Path) -> None:
    corpus = NamedCorpus("../../en", "de", mtdata=(EUROPARL,))
    assert corpus._folder("mtdata", EUROPARL).parent == cache / "mtdata"


# -- sacreBLEU --------------------------------------------------------------------------------------------------------


def fill(folder: Path, name: str, *, pair: str = "en-de", reference: str = "ref") -> None:
    """Text as sacreBLEU leaves it in its cache."""
    stem = f"{name.replace('/', '_')}.{pair}"
    (folder / name).mkdir(parents=True, exist_ok=True)
    for field, text in (("src", "the dog {} ."), (reference, "der Hund {} .")):
        (folder / name / f"{stem}.{field}").write_text("".join(text.format(i) + "\n" for i in range(30)))


def no_program(*arguments: Any, **_: Any) -> Any:
    raise AssertionError(f"called {arguments}")


def test_a_test_set_that_sacrebleu_has_is_copied_without_a_network(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named, "_run", no_program)
    fill(tmp_path / "sacrebleu", "wmt14/full")
    corpus = NamedCorpus("en", "de", sacrebleu=("wmt14/full",), held_out=True)
    assert pairs(corpus)[3] == ("the dog 3 .", "der Hund 3 .")
    for path in (tmp_path / "sacrebleu" / "wmt14" / "full").iterdir():
        path.unlink()
    assert len(pairs(corpus)) == 30, "it is in fitformer's cache now"
    assert {path.name for path in (cache / "sacrebleu").iterdir()} == {"wmt14_full.en-de"}


def test_of_several_references_the_first_is_taken(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "_run", no_program)
    fill(tmp_path / "sacrebleu", "wmt21", reference="ref-A")
    assert pairs(NamedCorpus("en", "de", sacrebleu=("wmt21",)))[0] == ("the dog 0 .", "der Hund 0 .")


def test_a_download_goes_through_a_folder_of_its_own(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(command: list[str], name: str, environment: dict[str, str], *, seconds: int) -> str:
        assert command[-2:] == [name, "en-de"]
        fill(Path(environment["SACREBLEU"]), name)
        return ""

    monkeypatch.setattr(named, "_run", download)
    assert len(pairs(NamedCorpus("en", "de", sacrebleu=("wmt13",)))) == 30
    assert {path.name for path in (cache / "sacrebleu").iterdir()} == {"wmt13.en-de"}


def test_without_a_network_a_test_set_is_one_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = "import sys; sys.exit('urllib.error.URLError: <urlopen error no network>')"
    monkeypatch.setattr(named, "_DOWNLOAD", failing)
    line = refusal(NotPossibleError, NamedCorpus("en", "de", sacrebleu=("wmt14",)))
    assert "wmt14 could not be fetched (urllib.error.URLError: <urlopen error no network>)" in line
    assert "your own files" in line
    assert list((cache / "sacrebleu").iterdir()) == []


def test_unknown_test_sets_and_languages_are_named(cache: Path) -> None:
    line = refusal(InputError, NamedCorpus("en", "de", sacrebleu=("wmt14/ful",)))
    assert "no test set 'wmt14/ful' (did you mean 'wmt14/full'?)" in line
    line = refusal(InputError, NamedCorpus("en", "xx", sacrebleu=("wmt14",)))
    assert "has no en-xx; it has cs-en, de-en" in line


# -- prepared ---------------------------------------------------------------------------------------------------------


def test_prepare_fetches_and_records_names_and_checksums(calls: Callable[[], list[str]], tmp_path: Path) -> None:
    fill(tmp_path / "sacrebleu", "wmt13")
    settings = PrepareSettings(
        train=NamedCorpus("en", "de", mtdata=(EUROPARL,)),
        valid=NamedCorpus("en", "de", sacrebleu=("wmt13",), held_out=True),
        test=NamedCorpus("en", "de", mtdata=(NEWSTEST,), held_out=True),
        source_language="en",
        target_language="de",
        tokenizer=TokenizerSettings(vocab_size=300),
        quiet=True,
    )
    with pytest.raises(InputError, match="no training pair"):  # all of it is in the test set, too
        prepare(settings, tmp_path / "out")
    other = PrepareSettings(**{**vars(settings), "test": settings.valid})
    stats = prepare(other, tmp_path / "out")
    assert stats["fetched"]["train"] == {"mtdata": [EUROPARL]}
    assert stats["fetched"]["valid"] == {"sacrebleu": ["wmt13"]}
    assert stats["train"]["pairs"] == 40 and stats["valid"]["pairs"] == 30
    for path, checksum in stats["inputs"]["train"].items():
        assert sha256(Path(path)) == checksum
