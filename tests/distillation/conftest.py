"""Teachers that cost nothing: a function, and a tiny random Marian model with a tokenizer of words, made here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

WORDS = [f"w{i}" for i in range(4, 30)]
SPECIAL = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}


class FunctionTeacher:
    """Translates by a function of a line, and counts the lines it was given."""

    def __init__(self, function: Callable[[str], str]) -> None:
        self.function = function
        self.lines: list[str] = []

    def translate(self, lines: Sequence[str]) -> list[str]:
        self.lines += lines
        return [self.function(line) for line in lines]


def save_word_tokenizer(folder: Path, words: Sequence[str] = (), **options: Any) -> None:
    """A tokenizer of words that ends a line with ``</s>``, as the models do."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate([*SPECIAL.values(), *WORDS, *words])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 3)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL, **options)
    fast.save_pretrained(folder)


@pytest.fixture(scope="session")
def make_multilingual() -> Callable[[Path], int]:
    """Saves a tiny random M2M-100 model with the languages eng_Latn and deu_Latn; returns the id of the latter."""

    def make(folder: Path) -> int:
        from transformers import M2M100Config, M2M100ForConditionalGeneration

        size = len(SPECIAL) + len(WORDS) + 2
        config = M2M100Config(
            vocab_size=size, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=64,
            pad_token_id=0, bos_token_id=2, eos_token_id=3, decoder_start_token_id=3,
        )  # fmt: skip
        M2M100ForConditionalGeneration(config).save_pretrained(folder)
        save_word_tokenizer(folder, ["eng_Latn", "deu_Latn"])
        return size - 1

    return make


@pytest.fixture(scope="session")
def function_teacher() -> type[FunctionTeacher]:
    """The class of teachers that are a function."""
    return FunctionTeacher


@pytest.fixture(scope="session")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny random Marian model; the mark of the end is likely enough for most outputs to end."""
    from transformers import MarianConfig, MarianMTModel

    folder = tmp_path_factory.mktemp("marian") / "tiny-marian"
    torch.manual_seed(1)
    size = len(SPECIAL) + len(WORDS)
    config = MarianConfig(
        vocab_size=size, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=32, pad_token_id=0,
        bos_token_id=2, eos_token_id=3, decoder_start_token_id=0, forced_eos_token_id=None, init_std=0.5,
    )  # fmt: skip
    model = MarianMTModel(config)
    model.final_logits_bias[0, 3] = 4.0
    model.save_pretrained(folder)
    save_word_tokenizer(folder)
    return folder
