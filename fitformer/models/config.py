"""What a model needs beyond its architecture."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from fitformer.errors import InputError

SHARED_EMBEDDINGS = ("all", "decoder", "none")
BOS, EOS = 2, 3


@dataclass(frozen=True)
class TransformerConfig:
    """Vocabularies, norm placement and regularisation of a Transformer.

    ``share_embeddings``: ``all`` = one table for source, target and output; ``decoder`` = target and output share one;
    ``none`` = three tables. The reference widths are those of the SuperTransformer (0 = the model's own): its
    sinusoidal position table serves every width (first columns), and dropout is scaled by ``width / reference``.

    The last three are for models of other origin. ``position_offset``: row of the sinusoid table that the first token
    has (HAT: 2). ``start_id``: id that the decoder starts from, begin or end of sentence (HAT: the end).
    ``norm_every_memory``: in pre-norm, every attended encoder output is normalised (HAT: only the first of a decoder
    layer's, that of the last encoder layer).
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
    position_offset: int = 0
    start_id: int = BOS
    norm_every_memory: bool = True

    def __post_init__(self) -> None:
        if self.share_embeddings not in SHARED_EMBEDDINGS:
            raise InputError(
                f"model.share_embeddings: '{self.share_embeddings}' must be one of {', '.join(SHARED_EMBEDDINGS)}"
            )
        if type(self.position_offset) is not int or self.position_offset < 0:
            raise InputError(f"model.position_offset: {self.position_offset!r} must be a whole number of at least 0")
        if self.start_id not in (BOS, EOS):
            raise InputError(f"model.start_id: {self.start_id!r} must be {BOS} (begin) or {EOS} (end of sentence)")
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
