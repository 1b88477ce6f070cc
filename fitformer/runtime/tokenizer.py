"""Text to ids and back, by kind: SentencePiece models, a plain word list, or fairseq's dictionary with subword-nmt.

A kind is a name in a bundle (``tokenizer.kind``) and an entry in ``KINDS``; a new one is a class with
``encode`` and ``decode`` and a line there. The special ids are the same everywhere: pad 0, unk 1, bos 2, eos 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from fitformer.errors import BundleError, nearest
from fitformer.runtime.decoding import EOS, UNK
from fitformer.runtime.subword_nmt import SubwordNmtTokenizer

SPECIAL_WORDS = ("<pad>", "<unk>", "<s>", "</s>")


class Tokenizer(Protocol):
    """What the runtime asks of a tokenizer. Ids never hold bos or eos."""

    @property
    def vocab_size(self) -> int:
        """Number of ids, the special ones among them."""
        ...

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of every line."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of one output; special ids leave no trace but for unk."""
        ...


class SentencePieceTokenizer:
    """A SentencePiece model file; with byte fallback every character survives.

    Raises:
        BundleError: the file is missing or no SentencePiece model.
    """

    def __init__(self, path: Path) -> None:
        import sentencepiece  # here, so that timing a model on a board needs onnxruntime and numpy alone

        self._processor: Any = sentencepiece.SentencePieceProcessor()
        try:
            # From bytes: the library's own file reader prints to stderr and knows no non-ASCII paths on Windows.
            self._processor.LoadFromSerializedProto(path.read_bytes())
        except (OSError, RuntimeError) as error:
            raise BundleError(f"{path}: not a SentencePiece model that can be read ({_first_line(error)})") from error

    @property
    def vocab_size(self) -> int:
        """Number of pieces."""
        return int(self._processor.GetPieceSize())

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of every line; the best segmentation, no sampling."""
        return [list(ids) for ids in self._processor.EncodeAsIds(list(lines))] if lines else []

    def decode(self, ids: Sequence[int]) -> str:
        """Join pieces; bytes that are no UTF-8 become U+FFFD."""
        return str(self._processor.DecodeIds([int(i) for i in ids]))


class WordTokenizer:
    """Words between spaces, looked up in a list: a UTF-8 file with one word per line, its line number (from 0) its id.

    The first four lines are ``<pad>``, ``<unk>``, ``<s>``, ``</s>``. Unknown words become ``<unk>``.

    Raises:
        BundleError: the file is missing, not UTF-8, or its first lines are others.
    """

    def __init__(self, path: Path) -> None:
        try:
            text = path.read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BundleError(f"{path}: not a word list that can be read ({_first_line(error)})") from error
        self.words = text.removesuffix("\n").split("\n")
        if tuple(self.words[: len(SPECIAL_WORDS)]) != SPECIAL_WORDS:
            raise BundleError(f"{path}: a word list must begin with the lines {', '.join(SPECIAL_WORDS)}")
        self._ids = {word: i for i, word in enumerate(self.words) if i > EOS}

    @property
    def vocab_size(self) -> int:
        """Number of lines of the word list."""
        return len(self.words)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of the words of every line."""
        return [[self._ids.get(word, UNK) for word in line.split()] for line in lines]

    def decode(self, ids: Sequence[int]) -> str:
        """Words joined with single spaces."""
        return " ".join(self.words[i] for i in ids if i == UNK or EOS < i < len(self.words))

    @staticmethod
    def file_text(words: Iterable[str]) -> str:
        """Content of the vocabulary file for ``words`` (without the special ones)."""
        return "".join(f"{word}\n" for word in (*SPECIAL_WORDS, *words))


KINDS: dict[str, Callable[..., Tokenizer]] = {
    "sentencepiece": SentencePieceTokenizer,
    "words": WordTokenizer,
    "subword-nmt": SubwordNmtTokenizer,
}
# What a kind takes beside its file: a codes file, flags, and the language of the text.
SUBWORD_NMT_OPTIONS = ("moses", "lowercase", "normalise", "aggressive_hyphens")


def load_tokenizer(
    kind: str,
    path: Path,
    *,
    codes: Path | None = None,
    options: Mapping[str, Any] | None = None,
    language: str = "en",
) -> Tokenizer:
    """Open a tokenizer file of the given kind.

    Args:
        codes, options, language: for the kind ``subword-nmt``: the merges and flags of ``SubwordNmtTokenizer``.
    Raises:
        BundleError: unknown kind, a file that does not hold one, or options that the kind does not have.
    """
    if kind not in KINDS:
        raise BundleError(f"tokenizer kind: '{kind}' is unknown{nearest(kind, KINDS)}; known are {', '.join(KINDS)}")
    options = options or {}
    known = SUBWORD_NMT_OPTIONS if kind == "subword-nmt" else ()
    for name, value in options.items():
        if name not in known:
            raise BundleError(f"tokenizer: '{name}' is no option of the kind {kind}{nearest(name, known)}")
        if not isinstance(value, bool):
            raise BundleError(f"tokenizer: '{name}' is {value!r}, not true or false")
    if kind != "subword-nmt":
        if codes is not None:
            raise BundleError(f"tokenizer: the kind {kind} takes no codes ({codes.name})")
        return KINDS[kind](path)
    return KINDS[kind](path, codes=codes, language=language, **options)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
