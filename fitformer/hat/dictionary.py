"""The dictionaries of a checkpoint: which word each row stands for. They are files of their own, and soon mixed up."""

from __future__ import annotations

from pathlib import Path

from fitformer.errors import InputError
from fitformer.models import TransformerConfig
from fitformer.runtime.subword_nmt import FIRST_WORD, SEPARATOR, read_dictionary

PADDING = "madeupword"  # fairseq fills a dictionary with such words up to a multiple of eight


def check_dictionaries(source: Path, target: Path, config: TransformerConfig) -> tuple[list[str], list[str]]:
    """Words of both dictionaries, which must have a row each in the tables of the model.

    Raises:
        InputError: a file is missing or no dictionary (with the line), has another number of words than the table has
            rows, or the two differ although the model has one table for both.
    """
    words = read_dictionary(source), read_dictionary(target)
    for path, found, rows, side in (
        (source, words[0], config.source_vocab_size, "encoder"),
        (target, words[1], config.target_vocab_size, "decoder"),
    ):
        if FIRST_WORD + len(found) != rows:
            raise InputError(
                f"{path}: {len(found)} lines give {FIRST_WORD + len(found)} ids, but the checkpoint has {rows} "
                f"({side}.embed_tokens.weight); is it the dictionary of another model?"
            )
    if config.share_embeddings == "all" and words[0] != words[1]:
        line = next(i for i, pair in enumerate(zip(*words, strict=True), start=1) if pair[0] != pair[1])
        raise InputError(
            f"{target}:{line}: differs from {source}, but the checkpoint has one table for both (share_all_embeddings)"
        )
    return words


def short_lines(words: list[str], count: int) -> list[str]:
    """Lines of one, two, three ... words of a dictionary, for trying a model out where there is no text."""
    whole = [word for word in words if SEPARATOR not in word and not word.startswith(PADDING)] or words
    lines, start = [], 0
    for length in range(1, count + 1):
        lines.append(" ".join(whole[(start + i) % len(whole)] for i in range(length)))
        start += length
    return lines
