"""A sequence-to-sequence model of Hugging Face transformers as teacher, from a folder on this machine.

Nothing is fetched, no code that comes with a model is run, and weights are read from safetensors only.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from fitformer.distillation.teacher import INSTALL, TeacherSource
from fitformer.errors import InputError, NotPossibleError

LENGTH_RATIO, LENGTH_OFFSET = 2.0, 10  # longest output, as a bundle has it by default
NO_LIMIT = 1 << 20  # tokenizers say some huge number when there is none
REASON = 160  # characters of another library's error that are passed on


class HuggingFaceTeacher:
    """A model of the classes behind ``AutoModelForSeq2SeqLM``: Marian, T5, BART, M2M-100, NLLB and others.

    Raises:
        InputError: transformers is missing, or the folder holds no such model, or not all of it.
    """

    def __init__(self, source: TeacherSource, *, device: str = "cpu") -> None:
        self._source, self._device = source, device
        with _quiet(), _one_line(source):
            self._tokenizer, model, info = _load(source)
        missing = sorted(info["missing_keys"])
        if missing:
            raise InputError(
                f"train.teacher: {source.folder}: its weights lack {missing[0]} and {len(missing) - 1} others, which "
                "would be random numbers"
            )
        # Half precision on a processor is slow, and for many layers not there at all.
        self._model = (model.float() if device == "cpu" else model).to(device).eval()
        self._limit, self._ends = self._longest(), self._end_ids()
        self._options = self._language_options()
        if self._tokenizer.pad_token_id is None:
            raise InputError(
                f"train.teacher: {source.folder}: its tokenizer has no padding token, so lines cannot be batched"
            )

    def translate(self, lines: Sequence[str]) -> list[str]:
        """See ``Teacher``; a line or an output that is too long for the model is left empty."""
        texts = [self._source.prefix + line for line in lines]
        lengths = [len(ids) for ids in self._tokenizer(texts)["input_ids"]] if texts else []
        order = sorted(
            (i for i in range(len(lines)) if lines[i] and lengths[i] <= self._limit), key=lengths.__getitem__
        )
        found = [""] * len(lines)
        for start in range(0, len(order), self._source.batch):
            batch = order[start : start + self._source.batch]
            with _one_line(self._source, "cannot translate"):
                translations = self._translate([texts[i] for i in batch])
            for i, text in zip(batch, translations, strict=True):
                found[i] = " ".join(text.split())
        return found

    @torch.inference_mode()
    def _translate(self, texts: list[str]) -> list[str]:
        """One batch."""
        inputs = self._tokenizer(texts, return_tensors="pt", padding=True).to(self._device)
        wanted = math.ceil(LENGTH_RATIO * inputs["input_ids"].shape[1]) + LENGTH_OFFSET
        with _quiet():
            outputs = self._model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                num_beams=self._source.beam,
                num_return_sequences=1,
                do_sample=False,
                max_new_tokens=min(wanted, self._limit - 1),
                **self._options,
            )
        decoded: list[str] = self._tokenizer.batch_decode(
            outputs, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        # The first token may be the mark of the end, which is what some models start from.
        ends = torch.isin(outputs[:, 1:], self._ends.to(outputs.device)).any(1).tolist()
        return [text if ended else "" for text, ended in zip(decoded, ends, strict=True)]

    def _end_ids(self) -> torch.Tensor:
        ids = self._model.generation_config.eos_token_id
        ids = self._tokenizer.eos_token_id if ids is None else ids
        if ids is None:
            raise InputError(
                f"train.teacher: {self._source.folder}: does not say which token ends a sentence (eos_token_id)"
            )
        return torch.tensor(ids if isinstance(ids, list) else [ids])

    def _longest(self) -> int:
        """Tokens that the model has positions for."""
        known = getattr(self._model.config, "max_position_embeddings", None), self._tokenizer.model_max_length
        return min([NO_LIMIT, *(int(limit) for limit in known if limit)])

    def _language_options(self) -> dict[str, Any]:
        """Tell a multilingual model its languages: the source to the tokenizer, the target as its first token."""
        if self._source.languages is None:
            return {}
        source, target = self._source.languages
        tokenizer = self._tokenizer
        ids = [self._language_id(code) for code in (source, target)]
        if hasattr(tokenizer, "src_lang"):
            tokenizer.src_lang = source
        return {"forced_bos_token_id": ids[1]}

    def _language_id(self, code: str) -> int:
        tokenizer = self._tokenizer
        with _one_line(self._source):
            known = getattr(tokenizer, "lang_code_to_id", None) or {}  # M2M-100, whose tokens are written __de__
            number = known.get(code, tokenizer.convert_tokens_to_ids(code))
        if number is None or number == tokenizer.unk_token_id:
            raise InputError(
                f"train.teacher_languages: '{code}' is no language of the teacher {self._source.folder}; its "
                "documentation lists them, such as eng_Latn (NLLB), de_DE (mBART), de (M2M-100)"
            )
        return int(number)


def _load(source: TeacherSource) -> tuple[Any, Any, dict[str, Any]]:
    """Tokenizer and model, and what was found of its weights."""
    try:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
        from transformers.utils import logging as messages
    except ImportError:
        raise InputError(f"train.teacher: {source.folder} is a Hugging Face model: {INSTALL}") from None
    library: Any = messages
    library.set_verbosity_error()
    library.disable_progress_bar()
    here = {"local_files_only": True, "trust_remote_code": False}
    tokenizer = AutoTokenizer.from_pretrained(source.folder, **here)
    model, info = AutoModelForSeq2SeqLM.from_pretrained(
        source.folder, use_safetensors=True, output_loading_info=True, **here
    )
    return tokenizer, model, info


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's advice to programmers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _one_line(source: TeacherSource, what: str = "not a model that can be loaded") -> Iterator[None]:
    """Turn whatever transformers raises about a folder into one line."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except torch.OutOfMemoryError:
        raise NotPossibleError(
            f"train.teacher: {source.folder}: not enough memory on the GPU; lower teacher_batch ({source.batch})"
        ) from None
    except Exception as error:
        reason = f"{type(error).__name__}: " + " ".join(str(error).split())
        shown = reason[:REASON] + ("..." if len(reason) > REASON else "")
        raise InputError(f"train.teacher: {source.folder}: {what} ({shown})") from None
