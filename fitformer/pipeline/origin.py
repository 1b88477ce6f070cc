"""Other models that a recipe builds on: the bundle it trains on (fine-tuning), and the teacher it learns from."""

from __future__ import annotations

from typing import Any

from fitformer.data.tokenizer_files import TokenizerSource
from fitformer.distillation import TeacherSource
from fitformer.errors import InputError
from fitformer.export.read_weights import read_config
from fitformer.recipe import Recipe
from fitformer.runtime.bundle import Bundle


def open_origin(recipe: Recipe) -> Bundle:
    """The bundle that a recipe with ``bundle`` trains on.

    Raises:
        BundleError: it cannot be used.
        InputError: it is of other languages, or the recipe's texts are longer than its model has positions for.
    """
    assert recipe.bundle is not None
    bundle = Bundle.load(recipe.bundle)
    config, _ = read_config(bundle)
    for side in ("source", "target"):
        found, wanted = bundle.facts.get(f"{side}_language"), getattr(recipe.data, f"{side}_language")
        if found != wanted:
            raise InputError(
                f"data.{side}_language: is '{wanted}', but the {side} language of the bundle {bundle.path} is '{found}'"
            )
    lengths = {
        "prepare.max_tokens": recipe.prepare.max_tokens,
        "measure.source_length": recipe.measure.source_length,
        "measure.target_length": recipe.measure.target_length,
    }
    for name, length in lengths.items():
        if length is not None and length > config.max_positions:
            raise InputError(
                f"{name}: {length} is more than the {config.max_positions} tokens that the model of the bundle "
                f"{bundle.path} has positions for; it was made to read {bundle.max_source_length}"
            )
    return bundle


def teacher_source(recipe: Recipe) -> TeacherSource | None:
    """The teacher of a recipe's training; ``None`` where the text itself teaches.

    Raises:
        InputError: it cannot be used.
    """
    settings, data = recipe.train, recipe.data
    if settings.teacher is None:
        return None
    source = TeacherSource(
        settings.teacher,
        beam=settings.teacher_beam,
        batch=settings.teacher_batch,
        prefix=settings.teacher_prefix,
        languages=settings.teacher_languages,
    )
    source.check(data.source_language, data.target_language)
    return source


def tokenizer_of(bundle: Bundle) -> TokenizerSource:
    """The tokenizer files of a bundle."""
    entry = dict(bundle.facts["tokenizer"])
    kind, codes = str(entry.pop("kind", None)), entry.pop("codes", None)
    source, target = (bundle.file(entry.pop(side, None)) for side in ("source", "target"))
    return TokenizerSource(kind, source, target, None if codes is None else bundle.file(codes), entry)


def origin_facts(bundle: Bundle) -> dict[str, Any]:
    """What is recorded about the bundle whose weights a training began with."""
    return {
        "folder": str(bundle.path),
        "name": bundle.name,
        "identity": bundle.identity,
        "precision": bundle.precision,
        "dequantised": bundle.precision != "fp32",
        "licence": bundle.facts.get("licence") or "not stated",
    }
