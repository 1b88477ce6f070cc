"""What a model needs beyond its architecture."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from fitformer.errors import InputError

SHARED_EMBEDDINGS = ("all", "decoder", "none")


@dataclass(frozen=True)
class TransformerConfig:
    """Vocabularies, norm placement and regularisation of a Transformer.

    ``share_embeddings``: ``all`` = one table for source, target and output; ``decoder`` = target and output share one;
    ``none`` = three tables. The reference widths are those of the SuperTransformer (0 = the model's own): its
    sinusoidal position table serves every width (first columns), and dropout is scaled by ``width / reference``.
    """

    source_vocab_size: int
    target_vocab_size: int
    share_embeddings: str = "all"
    pre_norm: bool = True
    max_positions: int = 512
    encoder_reference_dim: int = 0
    decoder_reference_dim: int = 0
    dropout: float = 0.1
    attention_dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.share_embeddings not in SHARED_EMBEDDINGS:
            raise InputError(
                f"model.share_embeddings: '{self.share_embeddings}' must be one of {', '.join(SHARED_EMBEDDINGS)}"
            )
        if self.share_embeddings == "all" and self.source_vocab_size != self.target_vocab_size:
            raise InputError("model.share_embeddings: 'all' needs one vocabulary for both languages (joint tokenizer)")

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TransformerConfig:
        """Read the JSON form; fields that a newer version added are refused.

        Raises:
            InputError: an unknown field.
        """
        unknown = sorted(set(data) - {field.name for field in fields(cls)})
        if unknown:
            raise InputError(f"model: unknown fields {unknown}; the file was written by a newer fitformer")
        return cls(**data)
