"""``fitformer profile``: how large a search space is, and what architectures cost in parameters and Mult-Adds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fitformer.cli import options
from fitformer.cli.importing import EncoderLayers, QkvDim, read_sub_transformer
from fitformer.cli.output import print_json
from fitformer.cli.profile_tables import print_profile
from fitformer.errors import InputError, nearest
from fitformer.rundir import read_json
from fitformer.space import Architecture, SearchSpace, counting

ASSUMED_VOCAB_SIZE = 8000
MOST_LENGTH = 100_000
HAT_VOCAB_SIZE = 32_768  # of HAT's WMT'14 English-German models
SHARE = ("all", "decoder", "none")


@dataclass(frozen=True)
class Subject:
    """What is profiled, and the facts beside the architectures that their cost depends on."""

    name: str
    space: SearchSpace | None
    architectures: dict[str, Architecture]
    vocab_sizes: tuple[int, int]
    vocab_from: str
    share_embeddings: str = "all"
    pre_norm: bool = True


def profile(
    recipe: Annotated[Path | None, typer.Argument(metavar="RECIPE", help="A recipe with a space ...")] = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", metavar="NAME", help="... or the name of a space that fitformer brings ..."),
    ] = None,
    hat_config: Annotated[
        list[Path] | None,
        typer.Option(
            "--hat-config", metavar="FILE", help="... or a SubTransformer of the original HAT; one or several."
        ),
    ] = None,
    length: Annotated[
        str, typer.Option("--length", metavar="N,...", help="Tokens per side for Mult-Adds; one or several.")
    ] = str(counting.HAT_LENGTH),
    by_operator: Annotated[
        bool, typer.Option("--by-operator", help="Say what parameters and Mult-Adds go to, with shares in percent.")
    ] = False,
    beam: Annotated[
        int, typer.Option("--beam", min=1, help="Hypotheses decoded at once, in the convention total.")
    ] = 1,
    vocab_size: Annotated[
        int | None, typer.Option("--vocab-size", min=4, help="By default the recipe's, or that of its prepared run.")
    ] = None,
    share_embeddings: Annotated[
        str | None,
        typer.Option(
            "--share-embeddings", metavar="WHICH", help="all, decoder or none; by default the recipe's or all."
        ),
    ] = None,
    encoder_layers: EncoderLayers = None,
    qkv_dim: QkvDim = None,
    overrides: options.Settings = None,
    run: options.RunFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Count a space's architectures, and parameters and Mult-Adds of the smallest and the largest, or of HAT's files.

    Two conventions: hat is what HAT's tables print (no embeddings, no output layer, one teacher-forced pass), total
    is all that a device holds and does (token by token with caches, output layer and beam).
    """
    lengths = _lengths(length)
    if [recipe is None, preset is None, not hat_config].count(False) != 1:
        names = ", ".join(SearchSpace.preset_names())
        raise InputError(f"give either a recipe, --preset NAME (presets: {names}) or --hat-config FILE")
    if recipe is None and (overrides or run):
        raise InputError("--set and --run belong to a recipe; give one")
    if share_embeddings is not None and share_embeddings not in SHARE:
        hint = nearest(share_embeddings, SHARE)
        raise InputError(f"--share-embeddings: '{share_embeddings}' must be one of {', '.join(SHARE)}{hint}")
    if not hat_config and (encoder_layers or qkv_dim):
        raise InputError("--encoder-layers and --qkv-dim belong to --hat-config; a recipe or preset says them itself")
    if preset is not None:
        sizes = (vocab_size or ASSUMED_VOCAB_SIZE,) * 2
        space = SearchSpace.preset(preset)
        subject = Subject(preset, space, _extremes(space), sizes, "given" if vocab_size else "assumed")
    elif hat_config:
        subject = _of_hat(hat_config, encoder_layers, qkv_dim, vocab_size)
    else:
        assert recipe is not None
        subject = _of_recipe(recipe, overrides or [], run, vocab_size)
    if share_embeddings is not None:
        subject = replace(subject, share_embeddings=share_embeddings)
    document = _document(subject, lengths, beam, by_operator)
    if as_json:
        print_json(document)
    else:
        print_profile(document)


def _lengths(text: str) -> list[int]:
    try:
        lengths = [int(part) for part in text.split(",")]
    except ValueError:
        lengths = []
    if not lengths or min(lengths) < 1 or max(lengths) > MOST_LENGTH:
        raise InputError(
            f"--length: '{text}' must be one or several whole numbers from 1 to {MOST_LENGTH}, for example 10,30"
        )
    return lengths


def _extremes(space: SearchSpace) -> dict[str, Architecture]:
    return {"smallest": space.smallest(), "largest": space.largest()}


def _of_hat(paths: list[Path], encoder_layers: int | None, qkv_dim: int | None, vocab_size: int | None) -> Subject:
    found = {path.stem: read_sub_transformer(path, encoder_layers=encoder_layers, qkv_dim=qkv_dim) for path in paths}
    if len(found) < len(paths):
        raise InputError("--hat-config: two files have the same name; give each once")
    sizes, origin = (vocab_size or HAT_VOCAB_SIZE,) * 2, "given" if vocab_size else "assumed"
    return Subject(" ".join(found), None, found, sizes, origin, pre_norm=False)  # HAT's models are post-norm


def _of_recipe(path: Path, overrides: list[str], folder: Path | None, vocab_size: int | None) -> Subject:
    from fitformer.recipe import load_recipe

    recipe = load_recipe(path, overrides)
    if recipe.bundle is not None:
        return _of_bundle(recipe.name, recipe.bundle, vocab_size)
    fixed, space = recipe.fixed_architecture(), recipe.search_space()
    if space is not None:
        architectures = _extremes(space)
    else:
        assert fixed is not None
        architectures = {"given": fixed}
    tokenizer = recipe.prepare.tokenizer
    stats = (folder or Path("runs") / recipe.name) / "prepare" / "stats.json"
    if vocab_size or tokenizer.vocab_size:
        sizes, origin = (vocab_size or tokenizer.vocab_size or 0,) * 2, "given" if vocab_size else "recipe"
    elif stats.exists():
        prepared = read_json(stats)["vocab_size"]
        sizes, origin = (prepared["source"], prepared["target"]), "run"
    else:
        sizes, origin = (ASSUMED_VOCAB_SIZE,) * 2, "assumed"
    share = recipe.model.share_embeddings or ("all" if tokenizer.joint else "decoder")
    return Subject(recipe.name, space, architectures, sizes, origin, share, recipe.model.pre_norm)


def _of_bundle(name: str, path: Path, vocab_size: int | None) -> Subject:
    """The model that a recipe trains on."""
    from fitformer.runtime.bundle import Bundle

    bundle = Bundle.load(path)
    model, arch = bundle.facts["model"], Architecture.from_dict(bundle.facts.get("architecture", {}))
    sizes = model["source_vocab_size"], int(model.get("target_vocab_size", model["source_vocab_size"]))
    sizes, origin = ((vocab_size,) * 2, "given") if vocab_size else (sizes, "bundle")
    share, pre_norm = model.get("share_embeddings", "all"), bool(model.get("pre_norm", True))
    return Subject(name, None, {"given": arch}, sizes, origin, share, pre_norm)


def _document(subject: Subject, lengths: list[int], beam: int, by_operator: bool) -> dict[str, Any]:
    architectures = [
        {
            "name": name,
            "architecture": arch.to_text(),
            "conventions": _conventions(subject, arch, lengths, beam, by_operator),
        }
        for name, arch in subject.architectures.items()
    ]
    document = {
        "name": subject.name,
        "size": subject.space.size() if subject.space else len(architectures),
        "dimensions": subject.space.to_dict() if subject.space else None,
        "vocab_size": dict(zip(("source", "target"), subject.vocab_sizes, strict=True)),
        "vocab_size_from": subject.vocab_from,
        "share_embeddings": subject.share_embeddings,
        "beam": beam,
        "architectures": architectures,
    }
    if len(architectures) == 1:
        document["conventions"] = architectures[0]["conventions"]
    return document


def _conventions(
    subject: Subject, arch: Architecture, lengths: list[int], beam: int, by_operator: bool
) -> dict[str, Any]:
    source, target = subject.vocab_sizes
    hat = [counting.hat(arch, source_length=length, target_length=length) for length in lengths]
    total = [
        counting.total(
            arch,
            source_vocab_size=source,
            target_vocab_size=target,
            share_embeddings=subject.share_embeddings,
            pre_norm=subject.pre_norm,
            source_length=length,
            target_length=length,
            beam=beam,
        )
        for length in lengths
    ]
    return {name: _convention(counts, lengths, by_operator) for name, counts in (("hat", hat), ("total", total))}


def _convention(counts: list[counting.Counts], lengths: list[int], by_operator: bool) -> dict[str, Any]:
    first = counts[0]
    convention: dict[str, Any] = {"params": first.parameters.total, "macs": first.macs.total, "flops": first.flops}
    if by_operator:
        convention["params_by_operator"] = first.parameters.to_dict()
        convention["params_share_by_operator"] = _shares(first.parameters)
    convention["lengths"] = []
    for length, count in zip(lengths, counts, strict=True):
        entry: dict[str, Any] = {"length": length, "macs": count.macs.total, "flops": count.flops}
        if by_operator:
            entry["macs_by_operator"] = count.macs.to_dict()
            entry["macs_share_by_operator"] = _shares(count.macs)
        convention["lengths"].append(entry)
    return convention


def _shares(operators: counting.Operators) -> dict[str, float]:
    """Parts in percent of the total."""
    return {name: round(100 * part / operators.total, 3) for name, part in operators.to_dict().items()}
