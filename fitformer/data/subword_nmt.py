"""Learning what the tokenizer kind ``subword-nmt`` needs: merges (byte pair encoding) and fairseq's dictionaries.

As published recipes of the time prepare their text: Moses tokens, merges learned from both languages together (Sennrich
et al. 2016, by the package subword-nmt), and a dictionary of all pieces with the most frequent first, one for both
languages or one for each.
"""

from __future__ import annotations

import io
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from fitformer.data.encoding import Encoder
from fitformer.data.tokenizer import TokenizerSettings
from fitformer.data.tokenizer_files import TokenizerSource
from fitformer.errors import InputError
from fitformer.progress import say
from fitformer.runtime.moses import INSTALL, Moses
from fitformer.runtime.subword_nmt import FIRST_WORD, BytePairs, read_dictionary
from fitformer.runtime.tokenizer import SUBWORD_NMT_OPTIONS

SAMPLE_CHARACTERS = 100_000_000  # of the training text; words are counted, so that memory grows with the vocabulary

MULTIPLE = 8  # of which fairseq makes the number of ids, with words that occur nowhere

Words = Counter[str]


def learn_subword_nmt(
    pairs: Iterable[tuple[str, str]],
    settings: TokenizerSettings,
    folder: Path,
    *,
    languages: tuple[str, str],
    merges: int,
    quiet: bool = False,
) -> tuple[Encoder, dict[str, Any]]:
    """Learn merges and dictionaries from ``pairs``, as far as ``settings`` does not give them, and put them into
    ``folder``; return what encodes with them and the facts for ``stats.json``.

    Raises:
        InputError: subword-nmt or sacremoses is not installed, or there is no text to learn from.
        BundleError: a given file does not hold what it should.
    """
    options = {name: getattr(settings, name) for name in SUBWORD_NMT_OPTIONS if getattr(settings, name)}
    source, target, codes, count = settings.source_dictionary, settings.target_dictionary, settings.codes, 0
    with tempfile.TemporaryDirectory(dir=folder, prefix=".spool.") as temporary:
        if source is None or target is None:
            if not quiet:
                say("prepare: counts words")
            words, count = _count(pairs, settings, languages)
            if codes is None:
                codes = Path(temporary) / "codes"
                codes.write_text(learn_merges(words[0] + words[1], merges), encoding="utf-8", newline="\n")
            source, target = _write_dictionaries(Path(temporary), words, BytePairs(codes), joint=settings.joint)
        encoder, facts = TokenizerSource("subword-nmt", source, target, codes, options).install(folder, *languages)
    return encoder, facts | {"sample_pairs": count}


def check_given(settings: TokenizerSettings, languages: tuple[str, str]) -> None:
    """Look at the files that are given, and for the packages, before a large corpus is read.

    Raises:
        InputError: subword-nmt or sacremoses is not installed.
        BundleError: a file does not hold what it should.
    """
    for path in (settings.source_dictionary, settings.target_dictionary):
        if path is not None:
            read_dictionary(path)
    if settings.codes is not None:
        BytePairs(settings.codes)
    elif settings.source_dictionary is None:
        _learner()
    for language in languages:
        _tokeniser(settings, language)


def learn_merges(words: Words, merges: int) -> str:
    """At most ``merges`` merges learned from word counts, as the text of a codes file (version 0.2).

    Raises:
        InputError: subword-nmt is not installed, or no pair of characters occurs twice.
    """
    learn_bpe = _learner()
    counts = io.StringIO("".join(f"{word} {words[word]}\n" for word in _ranked(words)))
    codes = io.StringIO()
    with redirect_stderr(io.StringIO()):  # its progress bar, and "no pair has frequency >= 2"
        try:
            learn_bpe(counts, codes, merges, is_dict=True)
        except (ValueError, KeyError):  # what it makes of no pairs at all
            codes = io.StringIO("#version: 0.2\n")
    text = codes.getvalue()
    if text.count("\n") < 2:
        raise InputError("tokenizer: the text has no two characters that occur together twice; give more")
    return text


def _learner() -> Any:
    try:
        from subword_nmt.learn_bpe import learn_bpe
    except ImportError:
        raise InputError(f"tokenizer.kind: subword-nmt needs the package of this name: {INSTALL}") from None
    return learn_bpe


def _count(
    pairs: Iterable[tuple[str, str]], settings: TokenizerSettings, languages: tuple[str, str]
) -> tuple[tuple[Words, Words], int]:
    """How often each word and mark occurs on either side, and the number of pairs."""
    tokenisers = [_tokeniser(settings, language) for language in languages]
    words, count = (Counter[str](), Counter[str]()), 0
    for pair in pairs:
        count += 1
        for side, text in enumerate(pair):
            words[side].update(tokenisers[side](text).split())
    if not words[0] and not words[1]:
        raise InputError("tokenizer: the corpus has no text to learn subwords from")
    return words, count


def _tokeniser(settings: TokenizerSettings, language: str) -> Any:
    if settings.moses:
        return Moses(
            language,
            lowercase=settings.lowercase,
            normalise=settings.normalise,
            aggressive_hyphens=settings.aggressive_hyphens,
        ).tokenise
    return str.lower if settings.lowercase else str


def _write_dictionaries(folder: Path, words: tuple[Words, Words], bpe: BytePairs, *, joint: bool) -> tuple[Path, Path]:
    source, target = (_pieces(side, bpe) for side in words)
    if joint:
        source = target = source + target
    paths = (folder / "source", folder / ("source" if joint else "target"))
    for path, pieces in zip(paths, (source, target), strict=True):
        lines = [f"{piece} {pieces[piece]}\n" for piece in _ranked(pieces)]
        missing = -(len(lines) + FIRST_WORD) % MULTIPLE
        lines.extend(f"madeupword{i:04d} 0\n" for i in range(missing))
        path.write_text("".join(lines), encoding="utf-8", newline="\n")
    return paths


def _pieces(words: Words, bpe: BytePairs) -> Words:
    pieces: Words = Counter()
    for word, count in words.items():
        for piece in bpe.pieces([word]):
            pieces[piece] += count
    return pieces


def _ranked(words: Words) -> list[str]:
    """The most frequent first, equals by spelling."""
    return sorted(words, key=lambda word: (-words[word], word))
