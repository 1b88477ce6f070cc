"""Training of the SentencePiece subword models from a bounded sample of the corpus."""

from __future__ import annotations

import io
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import sentencepiece

from fitformer.data.batches import BOS, EOS, PAD, UNK
from fitformer.data.normalise import normalisation_rules
from fitformer.errors import InputError
from fitformer.rundir import atomic_path

NUM_BYTES = 256  # pieces taken by the byte fallback
SMALLEST_VOCABULARY, LARGEST_VOCABULARY = 400, 32_000

# What software texts keep untranslated: {name}, {{name}}, ${name}, %{name}, %s, %1$d, %(name)s, <b>, </b>, <a
# href="...">, &nbsp;. A space as printf flag is left out on purpose: "5 % der" is German, not a placeholder.
_PLACEHOLDER = re.compile(
    r"[$%#]?\{\{?[^{}\s<>]{0,60}\}\}?"
    r"|%(?:\d+\$)?(?:\([A-Za-z_]\w{0,40}\))?[-+#0]?(?:\d{1,3})?(?:\.\d{1,2})?[sdifguxXeEr@](?![A-Za-z])"
    r"|</?[A-Za-z][\w:-]{0,30}(?:\s+[\w:-]+=[^<>]{0,200})?\s?/?>"
    r"|&(?:[A-Za-z]{2,10}|\#\d{2,6});"
)
_MOST_COUNTED = 100_000  # distinct placeholders counted at a time, so that memory is bounded


@dataclass(frozen=True)
class TokenizerSettings:
    """How the subword models are made.

    ``vocab_size`` None: chosen from the size of the corpus. ``placeholders``: keep what looks like
    ``{name}``, ``%s`` or ``<b>`` whole, at most ``max_placeholders`` kinds, the most frequent ones first.
    ``sample_characters`` bounds the text a model is trained on, and with it the memory.

    For the kind ``subword-nmt`` ``vocab_size`` is the number of merges, and these matter in place of the rest:
    ``moses``, ``lowercase``, ``normalise`` and ``aggressive_hyphens`` as in ``runtime.moses``, and files that are given
    instead of learned.
    """

    kind: str = "unigram"
    joint: bool = True
    vocab_size: int | None = None
    byte_fallback: bool = True
    character_coverage: float = 0.9995
    user_defined_symbols: tuple[str, ...] = ()
    placeholders: bool = True
    max_placeholders: int = 200
    sample_characters: int = 6_000_000
    moses: bool = False
    lowercase: bool = False
    normalise: bool = False
    aggressive_hyphens: bool = False
    codes: Path | None = None
    source_dictionary: Path | None = None
    target_dictionary: Path | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("unigram", "bpe", "subword-nmt"):
            raise InputError(f"tokenizer.kind: '{self.kind}' is not one of unigram, bpe, subword-nmt")
        if self.vocab_size is not None and self.vocab_size < 8:
            raise InputError(f"tokenizer.vocab_size: {self.vocab_size} is too small; give at least 8, or none")
        if not 0.9 <= self.character_coverage <= 1.0:
            raise InputError(f"tokenizer.character_coverage: {self.character_coverage} is not between 0.9 and 1")
        for symbol in self.user_defined_symbols:
            if not symbol or any(char.isspace() for char in symbol[:1] + symbol[-1:]):
                raise InputError(f"tokenizer.user_defined_symbols: {symbol!r} is empty or begins or ends with a space")


class PlaceholderCounter:
    """Counts what looks like a placeholder or a tag, in bounded memory."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, text: str) -> None:
        """Count the placeholders of one sentence."""
        if "{" in text or "%" in text or "<" in text or "&" in text:
            self.counts.update(placeholders(text))
            if len(self.counts) > _MOST_COUNTED:
                self.counts = Counter(dict(self.counts.most_common(_MOST_COUNTED // 2)))

    def most_frequent(self, number: int) -> list[str]:
        """Return at most ``number`` placeholders, the most frequent first and equals by spelling."""
        return sorted(self.counts, key=lambda text: (-self.counts[text], text))[:number]


def placeholders(text: str) -> list[str]:
    """Return the placeholders and tags in ``text``, in order."""
    return _PLACEHOLDER.findall(text)


def suggested_vocab_size(characters: int) -> int:
    """Vocabulary size for a corpus of so many characters (both sides together), a multiple of 8.

    A cube root through 5,000 pieces at 4 million characters (29,000 image captions in two languages): it
    passes the sizes in common use, about 10,000 at 160,000 sentences of talks and 32,000 at 4.5 million of
    news.
    """
    size = 5000 * (characters / 4e6) ** (1 / 3)
    return int(min(max(size, SMALLEST_VOCABULARY), LARGEST_VOCABULARY)) // 8 * 8


def train_tokenizer(
    path: Path,
    sentences: Iterable[str],
    settings: TokenizerSettings,
    *,
    vocab_size: int,
    symbols: Iterable[str] = (),
) -> int:
    """Train one SentencePiece model on ``sentences`` and write it to ``path``; return its true number of
    pieces.

    The ids are pad 0, unk 1, bos 2, eos 3. The number of pieces is lower than ``vocab_size`` when the text
    does not support so many, and higher when the characters, bytes and symbols alone need more. Training is
    deterministic.

    Raises:
        InputError: ``sentences`` holds nothing to learn from.
    """
    whole = list(dict.fromkeys([*settings.user_defined_symbols, *symbols]))
    sample = list(sentences)
    if not any(sample):
        raise InputError("tokenizer: the corpus has no text to learn subwords from")
    model = _fit(sample, settings, whole, max(vocab_size, _least_vocabulary(sample, settings, whole)))
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    with atomic_path(path) as temporary:
        temporary.write_bytes(model)
    return int(processor.get_piece_size())


def _fit(sample: list[str], settings: TokenizerSettings, symbols: list[str], vocab_size: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "normalisation.tsv"
        rules.write_text(normalisation_rules(), encoding="utf-8")
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sample),
            model_writer=model,
            model_type=settings.kind,
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            byte_fallback=settings.byte_fallback,
            character_coverage=settings.character_coverage,
            user_defined_symbols=[symbol.replace(" ", "\u2581") for symbol in symbols],  # as spaces are written inside
            normalization_rule_tsv=str(rules),
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            max_sentence_length=1 << 20,  # bytes; sentences that are too long were dropped before
            num_threads=4,  # a constant: the sums of the training depend on it, and so would the model
            minloglevel=2,
        )
    return _without_rule_path(model.getvalue())


def _least_vocabulary(sample: list[str], settings: TokenizerSettings, symbols: list[str]) -> int:
    """Pieces that have to be there: four special ones, bytes, symbols, covered characters, and a few real
    subwords.
    """
    counts: Counter[str] = Counter()
    for sentence in sample:
        counts.update(sentence)
    wanted, covered, needed = settings.character_coverage * sum(counts.values()), 0, 0
    for _, count in counts.most_common():
        if covered >= wanted:
            break
        covered += count
        needed += 1
    return 4 + NUM_BYTES * settings.byte_fallback + len(symbols) + needed + 16


def _without_rule_path(model: bytes) -> bytes:
    """Remove the path of the temporary rule file from a serialised model: it differs each time and is
    nobody's business.

    A model is a protocol buffer; its normaliser (field 3) holds the path as field 6, beside the compiled
    rules.
    """
    parts = []
    for number, payload, raw in _fields(model):
        if number == 3:
            kept = b"".join(raw for number, _, raw in _fields(payload) if number != 6)
            raw = b"\x1a" + _varint(len(kept)) + kept
        parts.append(raw)
    return b"".join(parts)


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield number, payload and whole encoding of each field of a protocol buffer message."""
    position = 0
    while position < len(message):
        start = position
        key, position = _read_varint(message, position)
        kind = key & 7
        if kind == 0:
            _, end = _read_varint(message, position)
        elif kind == 2:
            length, position = _read_varint(message, position)
            end = position + length
        else:
            end = position + {1: 8, 5: 4}[kind]
        yield key >> 3, message[position:end], message[start:end]
        position = end


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])
