"""Moses tokens: text cut into words and marks, and put together again, by sacremoses.

The tokens are those of Moses' ``tokenizer.perl`` with its escapes (``&apos;``, ``&quot;``, ``&amp;`` ...), which most
published translation models of the years before SentencePiece read and write.
"""

from __future__ import annotations

import re
from typing import Any

from fitformer.errors import InputError

INSTALL = "pip install 'fitformer[subword-nmt]'"


class Moses:
    """Tokenises and detokenises lines of one language.

    Args:
        language: code such as ``de``; of ``pt-BR`` the part before the mark counts. Moses' rules for abbreviations
            and apostrophes depend on it; a language it does not know is treated as English.
        lowercase: lower-case the tokens, as IWSLT'14 is prepared: after tokenising, so that abbreviations are known.
        normalise: first Moses' ``normalize-punctuation.perl``.
        aggressive_hyphens: ``a-b`` becomes ``a @-@ b`` (Moses' option ``-a``), as in WMT'14 English-French.
    Raises:
        InputError: sacremoses is not installed.
    """

    def __init__(
        self, language: str, *, lowercase: bool = False, normalise: bool = False, aggressive_hyphens: bool = False
    ) -> None:
        try:
            from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
        except ImportError:
            raise InputError(f"Moses tokens need sacremoses: {INSTALL}") from None
        language = re.split("[-_]", language.lower())[0] or "en"
        self._tokenizer: Any = MosesTokenizer(lang=language)
        self._detokenizer: Any = MosesDetokenizer(lang=language)
        self._normaliser: Any = MosesPunctNormalizer(lang=language) if normalise else None
        self._lowercase, self._aggressive = lowercase, aggressive_hyphens

    def tokenise(self, line: str) -> str:
        """Tokens of ``line`` with single spaces between them."""
        if self._normaliser is not None:
            line = self._normaliser.normalize(line)
        text = str(
            self._tokenizer.tokenize(line, aggressive_dash_splits=self._aggressive, return_str=True, escape=True)
        )
        return text.lower() if self._lowercase else text

    def detokenise(self, text: str) -> str:
        """The text of tokens: spaces and escapes undone."""
        return str(self._detokenizer.detokenize(text.split(), unescape=True))
