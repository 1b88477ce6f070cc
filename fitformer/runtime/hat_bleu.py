"""BLEU as HAT reports it (Wang et al., ACL 2020; fairseq's ``compound_split_bleu.sh`` and ``score.py``).

Case-sensitive BLEU-4 without smoothing, of tokens with compounds split; ``<unk>`` in a reference matches nothing. The
tokens are Moses': those that the bundle itself reads and writes where it does, else those of its plain text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fitformer.errors import InputError
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.moses import Moses
from fitformer.runtime.scores import BOOTSTRAP_SAMPLES, check_pairs, pair_with, score_with
from fitformer.runtime.subword_nmt import UNKNOWN, SubwordNmtTokenizer
from fitformer.runtime.translator import Translation

ESCAPED_UNKNOWN = "<<unk>>"  # what fairseq prints for a word of a reference that it does not know
_COMPOUND = re.compile(r"(\S)-(\S)")


@dataclass(frozen=True)
class TokenisedLines:
    """Translations and references as tokens with spaces between them, and how they were made, for the signature."""

    hypotheses: list[str]
    references: list[str]
    text: str


def tokenise_for_bleu(bundle: Bundle, translations: Sequence[Translation], references: Sequence[str]) -> TokenisedLines:
    """Tokens of a bundle's translations and of their references.

    A bundle that reads Moses tokens (kind ``subword-nmt`` with ``moses``) gives its own, before they are put together
    again, and its references are treated as its text is; one that reads tokenised text has tokenised references; of all
    others the plain text is tokenised.

    Raises:
        InputError: sacremoses is needed and not installed.
    """
    language = str(bundle.facts.get("target_language") or "en")
    target = bundle.tokenizers()[1]
    plain = [translation.text for translation in translations]
    if not isinstance(target, SubwordNmtTokenizer):
        moses = Moses(language)
        return TokenisedLines(
            [moses.tokenise(line) for line in plain], [moses.tokenise(line) for line in references], f"moses.{language}"
        )
    own = [translation.outputs[0].tokens for translation in translations]
    hypotheses = [text if tokens is None else tokens for text, tokens in zip(plain, own, strict=True)]
    options = [name for name, value in bundle.facts["tokenizer"].items() if value is True and name != "moses"]
    text = ".".join(["as-given" if target.reads_tokens else f"moses.{language}", *sorted(options)])
    return TokenisedLines(hypotheses, [target.tokenise(line) for line in references], text)


def hat_bleu(lines: TokenisedLines, *, samples: int = BOOTSTRAP_SAMPLES) -> dict[str, Any]:
    """BLEU of tokens as HAT reports it: ``{"score", "interval", "signature"}`` as in ``score_translations``.

    Raises:
        InputError: no lines, or not as many references as hypotheses.
    """
    check_pairs(lines.hypotheses, lines.references)
    hypotheses, references = _compounds(lines.hypotheses), _escaped(_compounds(lines.references))
    scored = score_with(_metric(), hypotheses, references, samples)
    return scored | {"signature": _signature(scored["signature"], lines.text)}


def paired_hat_bleu(a: TokenisedLines, b: TokenisedLines, *, samples: int = BOOTSTRAP_SAMPLES) -> dict[str, Any]:
    """``scores.paired_bootstrap`` by ``hat_bleu``.

    Raises:
        InputError: the two sides tokenise the references in different ways, so that their scores do not compare.
    """
    if a.references != b.references:
        raise InputError(
            f"the two bundles' tokens are not of one kind ({a.text} and {b.text}), so their tokenised BLEU does not "
            "compare; their BLEU of plain text does"
        )
    references = _escaped(_compounds(a.references))
    paired = pair_with(_metric(), _compounds(a.hypotheses), _compounds(b.hypotheses), references, samples)
    return paired | {"signature": _signature(paired["signature"], a.text)}


def split_compounds(line: str) -> str:
    """Make a word of its own of the hyphen between two characters, with the marks of fairseq's script.

    As there, a match takes both characters: of ``a-b-c`` only the first hyphen is split.
    """
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", line)


def _compounds(lines: Sequence[str]) -> list[str]:
    return [split_compounds(line) for line in lines]


def _escaped(references: Sequence[str]) -> list[str]:
    return [" ".join(ESCAPED_UNKNOWN if word == UNKNOWN else word for word in line.split()) for line in references]


def _metric() -> Any:
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(tokenize="none", smooth_method="none", force=True)


def _signature(signature: str, text: str) -> str:
    return f"{signature}|text:{text}|compounds:split"
