"""``fitformer profile``: how large a search space is, and what its smallest and largest architecture cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fitformer.cli import options
from fitformer.cli.output import print_json, print_table
from fitformer.errors import InputError
from fitformer.rundir import read_json
from fitformer.space import Architecture, SearchSpace, counting

ASSUMED_VOCAB_SIZE = 8000
MOST_LENGTH = 100_000
OPERATOR_TITLES = {
    "embeddings": "embeddings",
    "attention_projections": "attention projections",
    "attention_products": "attention products",
    "feed_forward": "feed-forward",
    "output_layer": "output layer",
    "other": "other",
}


@dataclass(frozen=True)
class Subject:
    """What is profiled, and the facts of a recipe that its cost depends on."""

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
        str | None, typer.Option("--preset", metavar="NAME", help="... or the name of a space that fitformer brings.")
    ] = None,
    length: Annotated[
        str, typer.Option("--length", metavar="N,...", help="Tokens per side for Mult-Adds; one or several.")
    ] = str(counting.HAT_LENGTH),
    by_operator: Annotated[
        bool, typer.Option("--by-operator", help="Say what parameters and Mult-Adds go to.")
    ] = False,
    beam: Annotated[
        int, typer.Option("--beam", min=1, help="Hypotheses decoded at once, in the convention total.")
    ] = 1,
    vocab_size: Annotated[
        int | None, typer.Option("--vocab-size", min=4, help="By default the recipe's, or that of its prepared run.")
    ] = None,
    overrides: options.Settings = None,
    run: options.RunFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Count a space's architectures, and parameters and Mult-Adds of the smallest and the largest.

    Two conventions: hat is what HAT's tables print (no embeddings, no output layer, one teacher-forced pass), total
    is all that a device holds and does (token by token with caches, output layer and beam).
    """
    lengths = _lengths(length)
    if (recipe is None) == (preset is None):
        raise InputError(f"give either a recipe or --preset NAME (presets: {', '.join(SearchSpace.preset_names())})")
    if preset is not None:
        sizes = (vocab_size or ASSUMED_VOCAB_SIZE,) * 2
        space = SearchSpace.preset(preset)
        subject = Subject(preset, space, _extremes(space), sizes, "given" if vocab_size else "assumed")
    else:
        assert recipe is not None
        subject = _of_recipe(recipe, overrides or [], run, vocab_size)
    document = _document(subject, lengths, beam, by_operator)
    if as_json:
        print_json(document)
    else:
        _print(document)


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


def _of_recipe(path: Path, overrides: list[str], folder: Path | None, vocab_size: int | None) -> Subject:
    from fitformer.recipe import load_recipe

    recipe = load_recipe(path, overrides)
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


def _document(subject: Subject, lengths: list[int], beam: int, by_operator: bool) -> dict[str, Any]:
    return {
        "name": subject.name,
        "size": subject.space.size() if subject.space else 1,
        "dimensions": subject.space.to_dict() if subject.space else None,
        "vocab_size": dict(zip(("source", "target"), subject.vocab_sizes, strict=True)),
        "vocab_size_from": subject.vocab_from,
        "share_embeddings": subject.share_embeddings,
        "beam": beam,
        "architectures": [
            {
                "name": name,
                "architecture": arch.to_text(),
                "conventions": _conventions(subject, arch, lengths, beam, by_operator),
            }
            for name, arch in subject.architectures.items()
        ],
    }


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
    parameters: dict[str, Any] = {"parameters": counts[0].parameters.total}
    if by_operator:
        parameters["parameters_by_operator"] = counts[0].parameters.to_dict()
    entries = []
    for length, count in zip(lengths, counts, strict=True):
        entry: dict[str, Any] = {"length": length, "macs": count.macs.total, "flops": count.flops}
        if by_operator:
            entry["macs_by_operator"] = count.macs.to_dict()
        entries.append(entry)
    return {**parameters, "lengths": entries}


def _print(document: dict[str, Any]) -> None:
    if document["dimensions"]:
        print(f"space {document['name']}: {document['size']:,} architectures")
        rows = [[name, " ".join(map(str, choices))] for name, choices in document["dimensions"].items()]
        print_table([[f"  {name}", choices] for name, choices in rows], figures=False)
        print()
    vocab, origin = document["vocab_size"], document["vocab_size_from"]
    sizes = f"{vocab['source']:,}" if vocab["source"] == vocab["target"] else f"{vocab['source']:,}/{vocab['target']:,}"
    note = "; --vocab-size gives another" if origin == "assumed" else ""
    print(f"vocabulary {sizes} ({origin}{note}), embeddings shared: {document['share_embeddings']}")
    print(f"beam in the convention total: {document['beam']}\n")
    for entry in document["architectures"]:
        print(f"{entry['name']}: {entry['architecture']}")
    for convention in ("hat", "total"):
        print()
        _print_convention(convention, document["architectures"])


def _print_convention(convention: str, architectures: list[dict[str, Any]]) -> None:
    sides = [entry["conventions"][convention] for entry in architectures]
    rows: list[list[str]] = [["parameters", *(_millions(side["parameters"]) for side in sides)]]
    rows += _operator_rows([side.get("parameters_by_operator") for side in sides])
    for index, entry in enumerate(sides[0]["lengths"]):
        rows.append(
            [f"Mult-Adds, {entry['length']} tokens", *(_millions(side["lengths"][index]["macs"]) for side in sides)]
        )
        rows += _operator_rows([side["lengths"][index].get("macs_by_operator") for side in sides])
    print_table(rows, header=[f"convention {convention}", *(entry["name"] for entry in architectures)])


def _operator_rows(parts: list[dict[str, int] | None]) -> list[list[str]]:
    present = [part for part in parts if part is not None]
    return [
        [f"  {title}", *(_millions(part[name]) for part in present)]
        for name, title in OPERATOR_TITLES.items()
        if any(part[name] for part in present)
    ]


def _millions(count: int) -> str:
    return f"{count / 1e6:,.3f} M"
