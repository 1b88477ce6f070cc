"""Two plain baselines that a translation model must beat before its scores mean anything.

*Copy the source* scores what the two languages share (names, numbers, loan words). *Copy the translation of the most
similar training sentence* scores how much of the test set a lookup in the training text would already answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fitformer.data.arrays import TokenArrays
from fitformer.data.evaluation import read_evaluation_text
from fitformer.data.tokenizer_files import prepared_tokenizers
from fitformer.errors import DataError, InputError
from fitformer.progress import Progress
from fitformer.runtime.scores import score_translations
from fitformer.runtime.tokenizer import Tokenizer

NGRAMS = (2, 4)  # characters, within words
HASHED_NGRAMS = 1 << 18
MOST_PAIRS = 500_000  # training pairs that are looked through; of more, evenly spaced ones
COUNTED_SENTENCES = 50_000  # sentences that document frequencies are counted on
CHUNK_SENTENCES = 4096
CHUNK_CELLS = 4_000_000  # similarities held at a time
SIMILARITY_DIGITS = 6  # differences beyond are rounding, so that equals tie on every machine


def copy_source(sources: Sequence[str]) -> list[str]:
    """Return the sources themselves as translations."""
    return list(sources)


def nearest_translation(
    train_sources: Sequence[str], train_targets: Sequence[str], sources: Sequence[str], *, quiet: bool = True
) -> list[str]:
    """Return for each source the translation of the most similar training source.

    Similarity is the cosine of TF-IDF vectors of character n-grams. The training text is read in chunks, so both
    sequences may decode their text on demand. Of equally similar sentences the first wins; a source that shares
    nothing with any gets the first training translation.

    Raises:
        InputError: no training sentences, or not as many targets as sources.
    """
    if not train_sources or len(train_sources) != len(train_targets):
        raise InputError(
            f"nearest translation: {len(train_sources)} training sources and {len(train_targets)} targets "
            "must be as many, and at least one"
        )
    if not sources:
        return []
    vectors = _Vectors(train_sources)
    queries = vectors.of(sources).T.tocsc()
    best = np.full(len(sources), -1.0)
    found = np.zeros(len(sources), dtype=np.int64)
    size = max(1, min(CHUNK_SENTENCES, CHUNK_CELLS // len(sources)))
    with Progress("baselines", len(train_sources), unit="pairs", quiet=quiet) as progress:
        for start, chunk in _chunks(train_sources, size):
            similar = np.round((vectors.of(chunk) @ queries).toarray(), SIMILARITY_DIGITS)
            nearest = similar.argmax(axis=0)  # the first of equals
            similarity = similar[nearest, np.arange(len(sources))]
            better = similarity > best
            best[better], found[better] = similarity[better], start + nearest[better]
            progress.update(start + len(chunk))
    return [train_targets[int(index)] for index in found]


def baseline_scores(
    prepared: Path, split: str = "test", *, max_pairs: int = MOST_PAIRS, quiet: bool = False
) -> dict[str, Any]:
    """Score both baselines on a split of a prepared corpus.

    Args:
        prepared: folder of the prepare stage; the training text is decoded from its arrays.
        split: "valid" or "test".
        max_pairs: most training pairs to look through; of more, evenly spaced ones are taken.
    Returns:
        ``split``, ``sentences``, ``train_pairs`` (looked through), and for ``copy_source`` and
        ``nearest_translation`` what ``score_translations`` returns: ``bleu`` and ``chrf`` with interval and signature.
    Raises:
        DataError: a file of the prepare stage is missing or damaged.
    """
    tokenizers = _tokenizers(prepared)
    train = [DecodedText(prepared / f"train.{side}", tokenizers[side], most=max_pairs) for side in tokenizers]
    sources, references = _evaluation(prepared, split)
    return {
        "split": split,
        "sentences": len(sources),
        "train_pairs": len(train[0]),
        "copy_source": score_translations(copy_source(sources), references),
        "nearest_translation": score_translations(
            nearest_translation(train[0], train[1], sources, quiet=quiet), references
        ),
    }


class DecodedText(Sequence[str]):
    """The text of encoded sentences, decoded when it is asked for; of more than ``most`` sentences evenly spaced ones.

    Raises:
        DataError: the arrays are missing or damaged.
    """

    def __init__(self, prefix: Path, tokenizer: Tokenizer, *, most: int = MOST_PAIRS) -> None:
        self._arrays, self._tokenizer = TokenArrays(prefix), tokenizer
        self._indices = _evenly_spaced(len(self._arrays), most)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: Any) -> Any:
        """One sentence, or a list of them for a slice."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._tokenizer.decode(self._arrays[int(self._indices[index])].tolist())


class _Vectors:
    """TF-IDF vectors of character n-grams, hashed so that memory does not grow with the corpus; rows of length 1.

    Smooth inverse document frequencies, ln((1 + n) / (1 + df)) + 1, as in scikit-learn's TfidfTransformer.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        from sklearn.feature_extraction.text import HashingVectorizer  # slow to import, needed here alone

        self._counter = HashingVectorizer(
            analyzer="char_wb",
            ngram_range=NGRAMS,
            n_features=HASHED_NGRAMS,
            alternate_sign=False,
            norm=None,
            dtype=np.float32,
        )
        chosen = _evenly_spaced(len(texts), COUNTED_SENTENCES)
        occurs = np.zeros(HASHED_NGRAMS, dtype=np.int64)
        for start in range(0, len(chosen), CHUNK_SENTENCES):
            rows = self._counter.transform([texts[int(i)] for i in chosen[start : start + CHUNK_SENTENCES]])
            occurs += np.bincount(rows.indices, minlength=HASHED_NGRAMS)
        self._idf = (np.log((1 + len(chosen)) / (1 + occurs)) + 1).astype(np.float32)

    def of(self, texts: Sequence[str]) -> Any:
        """Sparse rows, [texts, n-grams]."""
        from sklearn.preprocessing import normalize

        rows = self._counter.transform(list(texts))
        rows.data *= self._idf[rows.indices]
        return normalize(rows, copy=False)


def _chunks(texts: Sequence[str], size: int) -> Iterator[tuple[int, Sequence[str]]]:
    for start in range(0, len(texts), size):
        yield start, texts[start : start + size]


def _evenly_spaced(count: int, most: int) -> npt.NDArray[np.int64]:
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)


def _tokenizers(prepared: Path) -> dict[str, Tokenizer]:
    return dict(zip(("source", "target"), prepared_tokenizers(prepared), strict=True))


def _evaluation(prepared: Path, split: str) -> tuple[list[str], list[str]]:
    try:
        pairs = list(read_evaluation_text(prepared, split))
    except FileNotFoundError as error:
        raise DataError(f"{error.filename}: no such file; run the prepare stage again") from None
    return [source for source, _ in pairs], [target for _, target in pairs]
