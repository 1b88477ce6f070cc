"""Imports a checkpoint of the original HAT: one of its SubTransformers becomes a bundle, the SuperTransformer a run.

The texts that come with it are read as the model reads them: with its dictionaries, and the codes and rules that its
training text was cut with. A folder appears whole or not at all, and never in the place of another.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from fitformer.errors import InputError
from fitformer.export.bundle import TokenizerFiles, write_bundle
from fitformer.export.check import check_export
from fitformer.hat.checkpoint import Checkpoint, read_checkpoint
from fitformer.hat.configuration import read_configuration
from fitformer.hat.dictionary import check_dictionaries, short_lines
from fitformer.hat.selection import depth_warning, read_search_space, sub_architecture, warnings_about
from fitformer.hat.weights import max_positions, super_transformer
from fitformer.models import SuperTransformer
from fitformer.pipeline.hat_original import (
    Original,
    Pair,
    first_lines,
    language_warnings,
    languages,
    missing_text,
    text_warnings,
    tokenizers,
)
from fitformer.pipeline.learning import prepare, supernet_inputs, validation_losses, watched_architectures
from fitformer.pipeline.run import MODEL, Run, model_config, training_task
from fitformer.pipeline.tour import RECIPE, write_recipe
from fitformer.progress import say
from fitformer.recipe import Recipe, parse_recipe
from fitformer.rundir import atomic_path, sha256, write_json
from fitformer.runtime.decoding import DecodeSettings
from fitformer.space import SearchSpace, counting
from fitformer.training.checkpoint import WEIGHTS, unique_parameters, write_tensors

GOLDEN_SENTENCES = 8
# fairseq's defaults for generating, with which HAT's scores were made: at most 200 tokens whatever the source.
DECODING = DecodeSettings(beam=5, length_penalty=1.0, max_length_ratio=0.0, max_length_offset=200, min_length=1)
LATENCY = "50%"  # of the largest architecture; a target to begin with


def import_bundle(original: Original, configuration: Path, folder: Path) -> dict[str, Any]:
    """Write the SubTransformer that ``configuration`` describes as a bundle, checked against PyTorch.

    Golden outputs and the check are of the validation text's source lines; without it, of the dictionary's words.

    Returns:
        Facts for the user: architecture, parameters, the check, warnings.
    Raises:
        InputError: a file cannot be used, they do not belong together, or ``folder`` exists; nothing is written.
        NotPossibleError: the bundle does not decode as PyTorch does, or the folder cannot be written.
    """
    _check(original, folder)
    config = read_configuration(configuration)
    checkpoint = read_checkpoint(original.checkpoint)
    arch = sub_architecture(checkpoint, config, configuration)
    model = super_transformer(checkpoint).extract(arch).eval()
    words = check_dictionaries(original.source_dictionary, original.target_dictionary, model.config)
    source, target = languages(checkpoint, original)
    tokenizer, _ = tokenizers(original, (source, target))
    texts = short_lines(words[0], GOLDEN_SENTENCES)
    if original.valid_source is not None:
        texts = first_lines(original.valid_source)
    warnings = [*warnings_about(checkpoint, config), *language_warnings(checkpoint, original)]
    warnings += text_warnings(original, words[0], (source, target))
    with atomic_path(folder, is_dir=True) as temporary:
        bundle = write_bundle(
            temporary,
            model=model,
            tokenizer=TokenizerFiles(
                "subword-nmt",
                original.source_dictionary,
                original.target_dictionary,
                original.codes,
                original.tokenizer_options,
            ),
            source_language=source,
            target_language=target,
            decoding=DECODING,
            golden_sources=texts[:GOLDEN_SENTENCES],
            max_source_length=max_positions(checkpoint, "source"),
            training={"imported": _origin(checkpoint), "configuration": configuration.name},
        )
        say(f"import: the bundle is written; checking it against PyTorch on {len(texts)} lines")
        check = check_export(model, bundle, tokenizer.encode(texts), beam=DECODING.beam)
    return {
        "kind": "bundle",
        "output": folder,
        "languages": [source, target],
        "vocab_size": {"source": model.config.source_vocab_size, "target": model.config.target_vocab_size},
        "architecture": arch.to_text(),
        "params": {
            "hat": counting.hat(arch).parameters.total,
            "total": sum(parameter.numel() for parameter in model.parameters()),
        },
        "golden": len(bundle.facts["golden"]),
        "check": check,
        "warnings": warnings,
    }


def import_run(original: Original, folder: Path) -> dict[str, Any]:
    """Write the SuperTransformer as a run folder: a recipe, and the stages prepare and supernet finished.

    Returns:
        Facts for the user: recipe, space, validation losses of the watched architectures, warnings.
    Raises:
        InputError: a file cannot be used, they do not belong together, there is no text, it is the checkpoint of a
            SubTransformer, or ``folder`` exists; nothing is written.
        NotPossibleError: the folder cannot be written.
    """
    _check(original, folder)
    if original.valid is None and original.train is None:
        raise InputError(
            "--valid-source: missing; a run needs text: 'search' ranks architectures by their loss on the validation "
            "text, and 'train' learns from --train-source (give --config for a bundle, which needs none)"
        )
    checkpoint = read_checkpoint(original.checkpoint)
    if checkpoint.sub_options:
        raise InputError(
            f"{original.checkpoint}: the checkpoint of a SubTransformer ({next(iter(checkpoint.sub_options))} is set), "
            "in which other architectures were not trained; give its configuration as --config"
        )
    space, whole = read_search_space(checkpoint), super_transformer(checkpoint)
    words = check_dictionaries(original.source_dictionary, original.target_dictionary, whole.config)
    warnings = language_warnings(checkpoint, original) + missing_text(original)
    warnings += text_warnings(original, words[0], languages(checkpoint, original))
    warnings += filter(None, [depth_warning(checkpoint, space)])
    recipe = _recipe(original, checkpoint, whole, space)
    with atomic_path(folder, is_dir=True) as temporary:
        run = Run(recipe, temporary)
        write_recipe(run)
        prepare(run)
        facts = run.stage("supernet").perform(
            supernet_inputs(run), lambda stage: _write_supernet(run, stage, checkpoint, whole)
        )
    return {
        "kind": "run",
        "output": folder,
        "languages": list(languages(checkpoint, original)),
        "vocab_size": {"source": whole.config.source_vocab_size, "target": whole.config.target_vocab_size},
        "recipe": folder / RECIPE,
        "space": {
            "size": space.size(),
            "largest": space.largest().to_text(),
            "smallest": space.smallest().to_text(),
        },
        "params": {
            "hat": counting.hat(space.largest()).parameters.total,
            "total": sum(parameter.numel() for parameter in whole.parameters()),
        },
        "valid": facts["valid"],
        "warnings": warnings,
    }


def _write_supernet(run: Run, folder: Path, checkpoint: Checkpoint, whole: SuperTransformer) -> dict[str, Any]:
    """Weights and facts as a training leaves them, in the shape of the space's largest architecture."""
    space, settings, seed = run.space, run.recipe.supernet, run.recipe.seed
    config = replace(
        model_config(run, settings),
        encoder_reference_dim=whole.config.encoder_reference_dim,
        decoder_reference_dim=whole.config.decoder_reference_dim,
    )
    model = SuperTransformer(config, space)
    # Leading slices of the whole: the choices may stop short of what was stored.
    model.load_state_dict(whole.extract(space.largest()).state_dict())
    write_json(folder / MODEL, {"config": config.to_dict(), "space": space.to_dict()})
    write_tensors(folder / WEIGHTS, unique_parameters(model))
    task = training_task(run, settings)
    say("supernet: validation losses of the imported weights")
    losses = validation_losses(model.to(task.device), task, watched_architectures(space, seed))
    return {"imported": _origin(checkpoint), "valid": losses}


def _recipe(original: Original, checkpoint: Checkpoint, whole: SuperTransformer, space: SearchSpace) -> Recipe:
    """A recipe that goes on from the imported model; its section ``supernet`` only says what later stages need."""
    config = whole.config
    source, target = languages(checkpoint, original)
    learning = {"dropout": config.dropout, "attention_dropout": config.attention_dropout}
    smoothing = checkpoint.args.get("label_smoothing")
    if isinstance(smoothing, int | float) and 0 <= smoothing < 1:
        learning["label_smoothing"] = float(smoothing)
    valid, train = original.valid, original.train
    data: dict[str, Any] = {"source_language": source, "target_language": target, "train": _corpus(train or valid)}
    if valid is not None:
        data["valid"] = _corpus(valid)
    if train is None:
        data["test"] = _corpus(valid)
    tokenizer = {
        "kind": "subword-nmt",
        "joint": original.source_dictionary == original.target_dictionary,
        "source_dictionary": str(original.source_dictionary.resolve()),
        "target_dictionary": str(original.target_dictionary.resolve()),
        **original.tokenizer_options,
    }
    if original.codes is not None:
        tokenizer["codes"] = str(original.codes.resolve())
    return parse_recipe(
        {
            "name": f"hat-{re.sub(r'[^A-Za-z0-9]', '', source)}-{re.sub(r'[^A-Za-z0-9]', '', target)}",
            "data": data,
            "prepare": {
                "tokenizer": tokenizer,
                "cleaning": {"drop_evaluation_sources": train is not None},
                "max_tokens": max(2, (config.max_positions - 16) // 2),  # as many positions as the original had
            },
            "model": {
                "pre_norm": config.pre_norm,
                "share_embeddings": config.share_embeddings,
                "start": "eos",
                "position_offset": config.position_offset,
                "norm_every_memory": config.norm_every_memory,
            },
            "space": space.to_dict(),
            "targets": [{"device": "cpu", "latency": LATENCY}],
            "supernet": learning,
            "train": learning,
            "export": {
                "beam": DECODING.beam,
                "length_penalty": DECODING.length_penalty,
                "max_length_ratio": DECODING.max_length_ratio,
                "max_length_offset": DECODING.max_length_offset,
            },
        },
        where=str(original.checkpoint),
    )


def _corpus(pair: Pair | None) -> dict[str, list[str]]:
    assert pair is not None
    return {"source": [str(pair[0].resolve())], "target": [str(pair[1].resolve())]}


def _origin(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "from": "hat",
        "checkpoint": checkpoint.path.name,
        "sha256": sha256(checkpoint.path),
        "arch": str(checkpoint.args.get("arch", "")),
    }


def _check(original: Original, folder: Path) -> None:
    for name in ("normalise", "aggressive_hyphens"):
        if getattr(original, name) and not original.moses:
            raise InputError(f"--{name.replace('_', '-')}: goes with --moses, which cuts plain text")
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"{folder}: exists, and nothing in it was changed; give a new folder as -o")
