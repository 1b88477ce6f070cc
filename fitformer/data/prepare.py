"""The prepare stage: clean the corpus, learn the subword models, encode everything to memory-mapped arrays.

The corpus is streamed twice, so that the memory needed does not depend on its size: once from the input
files, when pairs are cleaned onto disk, and once from there, when they are encoded.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fitformer.data.builtin import BuiltinCorpus, builtin_pairs
from fitformer.data.cleaning import REASONS, Cleaner, CleaningSettings
from fitformer.data.corpus import CorpusFiles, read_pairs
from fitformer.data.encoding import Encoder, SplitWriter, encode_evaluation, encode_training
from fitformer.data.evaluation import EvaluationText, write_evaluation_text
from fitformer.data.lines import Meter
from fitformer.data.named import NamedCorpus
from fitformer.data.spool import Choice, Spool, choose, fill_spool, sample_pairs
from fitformer.data.subword_nmt import SAMPLE_CHARACTERS, check_given, learn_subword_nmt
from fitformer.data.tokenizer import TokenizerSettings, suggested_vocab_size, train_tokenizer
from fitformer.data.tokenizer_files import TokenizerSource
from fitformer.errors import DataError, InputError
from fitformer.progress import Progress, say
from fitformer.rundir import disk_error, sha256, write_json

Corpus = CorpusFiles | BuiltinCorpus | NamedCorpus

NOT_STATED = "not stated"  # the licence, when the user does not say
EVALUATION_SPLITS = ("valid", "test")


@dataclass(frozen=True)
class PrepareSettings:
    """Everything that decides what the prepare stage writes.

    ``valid`` and ``test``: None takes the built-in corpus's own split where it has one; else
    ``held_out_pairs`` pairs of the training corpus are held out for each (None: a twentieth of it, at most
    1,000). ``valid_every`` N: the validation set is every N-th pair that cleaning kept, equal ones counted.
    ``max_tokens`` bounds an encoded sentence, end mark included: a longer training pair is dropped, a
    longer evaluation sentence is cut in the arrays. ``seed`` decides which pairs are held out. ``licence`` is
    the licence of the data as the user states it. ``given_tokenizer`` is used as it is, and none is learned.
    """

    train: Corpus
    source_language: str
    target_language: str
    valid: Corpus | None = None
    test: Corpus | None = None
    valid_every: int | None = None
    held_out_pairs: int | None = None
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    given_tokenizer: TokenizerSource | None = None
    cleaning: CleaningSettings = field(default_factory=CleaningSettings)
    max_tokens: int = 256
    seed: int = 1
    licence: str = ""
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens < 2:
            raise InputError(f"max_tokens: {self.max_tokens} leaves no room for a token and the end mark")
        if self.valid_every is not None and (self.valid_every < 2 or self.valid is not None):
            raise InputError(f"valid_every: {self.valid_every} must be at least 2, and needs no other validation set")
        if self.held_out_pairs is not None and self.held_out_pairs < 1:
            raise InputError(f"held_out_pairs: {self.held_out_pairs} is not a positive number")

    def evaluation(self, split: str) -> Corpus | None:
        """The corpus of ``split`` ("valid" or "test"); None means it is held out from the training corpus."""
        given: Corpus | None = getattr(self, split)
        if split == "valid" and self.valid_every is not None:
            return None
        if given is None and isinstance(self.train, BuiltinCorpus):
            return self.train.sibling(split)
        return given


def prepare(settings: PrepareSettings, out_dir: Path) -> dict[str, Any]:
    """Write tokenizers, arrays, evaluation texts and ``stats.json`` into ``out_dir``; return the statistics.

    Raises:
        DataError: the corpus cannot be used (see ``read_pairs``) or no pair is left after cleaning.
        NotPossibleError: the disk is full, or a corpus cannot be fetched.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(out_dir)
    if settings.given_tokenizer is None and settings.tokenizer.kind == "subword-nmt":
        check_given(settings.tokenizer, (settings.source_language, settings.target_language))
    fetched, names = _fetch(settings)
    try:
        return _prepare(fetched, out_dir, names)
    except OSError as error:
        raise disk_error(out_dir, error) from error


def _remove_leftovers(folder: Path) -> None:
    """Delete what a killed run left half-written."""
    for path in folder.glob(".spool.*"):
        shutil.rmtree(path, ignore_errors=True)
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def _fetch(settings: PrepareSettings) -> tuple[PrepareSettings, dict[str, Any]]:
    """Replace corpora that have a name by their files; return the names too."""
    corpora = {split: getattr(settings, split) for split in ("train", *EVALUATION_SPLITS)}
    named = {split: corpus for split, corpus in corpora.items() if isinstance(corpus, NamedCorpus)}
    files: dict[str, Any] = {split: corpus.fetch() for split, corpus in named.items()}
    return replace(settings, **files), {split: corpus.facts() for split, corpus in named.items()}


def _prepare(settings: PrepareSettings, out_dir: Path, names: dict[str, Any]) -> dict[str, Any]:
    texts = {name: _evaluation_text(settings, name, out_dir) for name in EVALUATION_SPLITS}
    given = {name: text for name, text in texts.items() if text is not None}
    with tempfile.TemporaryDirectory(dir=out_dir, prefix=".spool.") as folder:
        cleaner = Cleaner(settings.cleaning)
        spool = _fill(settings, cleaner, Path(folder))
        if not len(spool):
            raise DataError(_nothing_left(cleaner))
        held_out_splits = [name for name in EVALUATION_SPLITS if name not in given]
        if settings.valid_every is not None:
            held_out_splits.remove("valid")
            if len(spool) < settings.valid_every:
                raise DataError(f"valid_every: {settings.valid_every} is more than the {len(spool)} pairs kept")
        choice = choose(
            spool,
            frozenset().union(*(text.source_digests for text in given.values())),
            drop_duplicates=settings.cleaning.drop_duplicates,
            drop_evaluation_sources=settings.cleaning.drop_evaluation_sources,
            hold_out={name: _held_out_pairs(settings, len(spool)) for name in held_out_splits},
            valid_every=settings.valid_every,
        )
        encoder, tokenizer_facts = _train_tokenizers(settings, spool, choice, out_dir)
        train, held_out = encode_training(
            spool, choice, encoder, out_dir, max_tokens=settings.max_tokens, quiet=settings.quiet
        )
    splits: dict[str, dict[str, Any]] = {"train": _train_facts(cleaner, train, held_out)}
    for name in EVALUATION_SPLITS:
        if name in given:
            writer = encode_evaluation(out_dir, name, encoder, max_tokens=settings.max_tokens)
            splits[name] = {
                "read": given[name].read,
                "dropped": {"empty": given[name].empty},
                "held_out": False,
            }
        else:
            writer = held_out[name]
            splits[name] = {"read": writer.num_pairs, "dropped": {}, "held_out": True}
        splits[name] |= writer.facts()
    stats = _stats(settings, splits, tokenizer_facts, out_dir) | ({"fetched": names} if names else {})
    write_json(out_dir / "stats.json", stats)
    return stats


def _pairs(corpus: Corpus, meter: Meter | None = None) -> Iterator[tuple[str, str]]:
    if isinstance(corpus, BuiltinCorpus):
        return builtin_pairs(corpus)
    assert isinstance(corpus, CorpusFiles), "fetched before"
    return read_pairs(corpus, meter=meter)


def _evaluation_text(settings: PrepareSettings, split: str, out_dir: Path) -> EvaluationText | None:
    corpus = settings.evaluation(split)
    return None if corpus is None else write_evaluation_text(out_dir, split, _pairs(corpus), seed=settings.seed)


def _fill(settings: PrepareSettings, cleaner: Cleaner, folder: Path) -> Spool:
    corpus, meter = settings.train, Meter()
    if isinstance(corpus, BuiltinCorpus):
        total, unit = corpus.size_hint(), "pairs"
    else:
        assert isinstance(corpus, CorpusFiles), "fetched before"
        total, unit = sum(path.stat().st_size for path in corpus.paths if path.is_file()), "bytes"
    with Progress("prepare: read and clean", total, unit=unit, quiet=settings.quiet) as progress:

        def report() -> None:
            progress.update(cleaner.seen if unit == "pairs" else meter.bytes_read, pairs=cleaner.seen)

        spool = fill_spool(folder, _pairs(corpus, meter), cleaner, seed=settings.seed, report=report)
        progress.update(total, pairs=cleaner.seen)
    return spool


def _held_out_pairs(settings: PrepareSettings, cleaned: int) -> int:
    return settings.held_out_pairs or min(1000, max(1, cleaned // 20))


def _nothing_left(cleaner: Cleaner) -> str:
    reasons = ", ".join(f"{reason} {count}" for reason, count in cleaner.dropped.items())
    return f"no training pair is left of the {cleaner.seen} read ({reasons}); see the cleaning settings"


def _train_tokenizers(
    settings: PrepareSettings, spool: Spool, choice: Choice, out_dir: Path
) -> tuple[Encoder, dict[str, Any]]:
    if settings.given_tokenizer is not None:
        return settings.given_tokenizer.install(out_dir, settings.source_language, settings.target_language)
    wanted = settings.tokenizer
    if wanted.kind == "subword-nmt":
        return learn_subword_nmt(
            sample_pairs(spool, choice, SAMPLE_CHARACTERS),
            wanted,
            out_dir,
            languages=(settings.source_language, settings.target_language),
            merges=wanted.vocab_size or suggested_vocab_size(spool.source_characters + spool.target_characters),
            quiet=settings.quiet,
        )
    symbols = spool.placeholders.most_frequent(wanted.max_placeholders) if wanted.placeholders else []
    sample = list(sample_pairs(spool, choice, wanted.sample_characters))
    if not sample:
        raise DataError("no training pair is left after holding out the validation and test set; give more text")
    texts = {"source": [source for source, _ in sample], "target": [target for _, target in sample]}
    characters = {"source": 2 * spool.source_characters, "target": 2 * spool.target_characters}
    if wanted.joint:
        texts = {"joint": texts["source"] + texts["target"]}
        characters = {"joint": spool.source_characters + spool.target_characters}
    sizes: dict[str, int] = {}
    for name, sentences in texts.items():
        size = wanted.vocab_size or suggested_vocab_size(characters[name])
        path = out_dir / f"{name}.model"
        sizes[name] = train_tokenizer(path, sentences, wanted, vocab_size=size, symbols=symbols)
        if wanted.vocab_size and sizes[name] != size and not settings.quiet:
            why = "characters, bytes and symbols need more" if sizes[name] > size else "the text supports no more"
            say(f"tokenizer.vocab_size: {name}.model has {sizes[name]} pieces instead of {size}: {why}")
    names = {side: "joint" if wanted.joint else side for side in ("source", "target")}
    facts = {
        "kind": wanted.kind,
        "joint": wanted.joint,
        "models": {side: f"{name}.model" for side, name in names.items()},
        "vocab_size": {side: sizes[name] for side, name in names.items()},
        "sample_pairs": len(sample),
        "kept_whole": list(dict.fromkeys([*wanted.user_defined_symbols, *symbols])),
    }
    return Encoder(*(out_dir / f"{names[side]}.model" for side in ("source", "target"))), facts


def _train_facts(cleaner: Cleaner, train: SplitWriter, held_out: dict[str, SplitWriter]) -> dict[str, Any]:
    dropped: Counter[str] = cleaner.dropped + train.dropped
    if not train.num_pairs:
        raise DataError(f"no training pair is left of the {cleaner.seen} read ({dict(dropped)})")
    return {
        "read": cleaner.seen,
        "dropped": {reason: dropped[reason] for reason in REASONS},
        "held_out": sum(writer.num_pairs for writer in held_out.values()),
        **train.facts(),
    }


def _stats(
    settings: PrepareSettings, splits: dict[str, dict[str, Any]], tokenizer: dict[str, Any], out_dir: Path
) -> dict[str, Any]:
    corpora = {"train": settings.train} | {name: settings.evaluation(name) for name in EVALUATION_SPLITS}
    inputs: dict[str, Any] = {}
    for name, corpus in corpora.items():
        if isinstance(corpus, CorpusFiles):
            inputs[name] = {str(path): sha256(path) for path in corpus.paths}
        elif corpus is not None:
            inputs[name] = corpus.facts()
    licence = settings.licence
    if licence in ("", NOT_STATED) and isinstance(settings.train, BuiltinCorpus):
        licence = settings.train.licence
    files = sorted(path for path in out_dir.iterdir() if path.suffix in (".model", ".bin", ".idx", ".txt"))
    return {
        "source_language": settings.source_language,
        "target_language": settings.target_language,
        "licence": licence or NOT_STATED,
        "vocab_size": tokenizer["vocab_size"],
        "median_lengths": splits["train"]["median_lengths"],
        "tokenizer": tokenizer,
        **splits,
        "inputs": inputs,
        "checksums": {path.name: sha256(path) for path in files},
    }
