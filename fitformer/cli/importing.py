"""``fitformer import``: what the original HAT code made becomes fitformer's own, and configurations go back, too."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fitformer.cli import options
from fitformer.cli.files import check_output
from fitformer.cli.group import HelpfulGroup, help_unless_subcommand
from fitformer.cli.import_checkpoint import hat_checkpoint
from fitformer.cli.import_latency import hat_latency, hat_predictor
from fitformer.cli.output import print_json
from fitformer.errors import InputError
from fitformer.progress import say
from fitformer.rundir import write_text
from fitformer.space import Architecture, SearchSpace

importing = typer.Typer(
    cls=HelpfulGroup,
    help="Read checkpoints, configurations and latency data of the original HAT.",
    rich_markup_mode="markdown",
)

EncoderLayers = Annotated[
    int | None,
    typer.Option(
        "--encoder-layers", min=1, help="Encoder layers of the SuperTransformer; by default what the file says, else 6."
    ),
]
QkvDim = Annotated[
    int | None,
    typer.Option("--qkv-dim", min=1, help="Width of queries, keys, values; by default what the file says, else 512."),
]


@importing.callback(invoke_without_command=True)
def _root(ctx: typer.Context) -> None:
    help_unless_subcommand(ctx)


importing.command("hat-checkpoint")(hat_checkpoint)
importing.command("hat-latency")(hat_latency)
importing.command("hat-predictor")(hat_predictor)


@dataclass(frozen=True)
class Configuration:
    """What a file holds, and who wrote it."""

    content: Architecture | SearchSpace
    origin: str  # "hat" or "fitformer"


@importing.command("hat-config")
def hat_config(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="HAT's YAML, or a fitformer architecture or space.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write here, not to stdout; .txt for the one-line form."),
    ] = None,
    encoder_layers: EncoderLayers = None,
    qkv_dim: QkvDim = None,
    as_json: options.AsJson = False,
) -> None:
    """Translate a configuration between HAT and fitformer, in the direction that the file asks for.

    A SubTransformer of HAT (YAML options, or its two-level dictionary) becomes a fitformer architecture: JSON, or the
    one-line form that a recipe's `architecture:` takes. The choice lists of a SuperTransformer become a `space:`.
    An architecture (JSON, the line, or a run's `best.json`) or a space of fitformer becomes HAT's YAML. There and
    back is exact.
    """
    check_output(output, file)
    found = read_either(file, encoder_layers=encoder_layers, qkv_dim=qkv_dim)
    text, document = _translated(found, output)
    if output is not None:
        write_text(output, text)
    if as_json:
        print_json({"input": file, "from": found.origin, **document, "output": output})
    elif output is None:
        print(text, end="")
    else:
        print(f"wrote {output}")


def read_either(path: Path, *, encoder_layers: int | None = None, qkv_dim: int | None = None) -> Configuration:
    """Read an architecture or a space in HAT's form or in ours.

    Raises:
        InputError: the file is missing, or none of these; the message names the file, the option and what is allowed.
    """
    from fitformer.hat import choices
    from fitformer.hat import configuration as hat
    from fitformer.hat import options as hat_options

    text = hat_options.read_small(path)
    if text.lstrip().startswith("enc "):
        return Configuration(_named(path, Architecture.from_text, text), "fitformer")
    data = hat_options.read_options(path)
    ours = data.get("architecture", data) if "text" in data else data
    if isinstance(ours, dict) and {"encoder_qkv_dim", "decoder_qkv_dim"} & set(ours):
        reader = SearchSpace.from_dict if {"encoder_num_layers", "decoder_num_layers"} & set(ours) else _from_dict
        return Configuration(_named(path, reader, ours), "fitformer")
    if hat.is_sub(data):
        return Configuration(read_sub_transformer(path, encoder_layers=encoder_layers, qkv_dim=qkv_dim), "hat")
    if any(str(key).replace("_", "-").endswith("-choice") for key in data):
        given = data if qkv_dim is None else {**data, "qkv-dim": qkv_dim}
        return Configuration(choices.parse_search_space(given, str(path)), "hat")
    hat.parse_configuration(data, str(path))  # says what is missing
    raise AssertionError("unreachable")


def read_sub_transformer(path: Path, *, encoder_layers: int | None = None, qkv_dim: int | None = None) -> Architecture:
    """Read a SubTransformer's file; raises as ``read_either``."""
    from fitformer.hat import configuration as hat

    config = hat.read_configuration(path)
    known = encoder_layers or config.super_encoder_layers
    if known is None and config.encoder_layers < hat.ENCODER_LAYERS and set(config.decoder_arbitrary) != {-1}:
        say(f"{path}: a SuperTransformer of {hat.ENCODER_LAYERS} encoder layers is assumed (--encoder-layers)")
    try:
        return hat.to_architecture(config, qkv_dim=qkv_dim, encoder_layers=encoder_layers)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _from_dict(data: dict[str, Any]) -> Architecture:
    return Architecture.from_dict(data)


def _named(path: Path, read: Any, value: Any) -> Any:
    try:
        return read(value)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _translated(found: Configuration, output: Path | None) -> tuple[str, dict[str, Any]]:
    """The text to write, and the document's part about it."""
    from fitformer.hat import choices
    from fitformer.hat import configuration as hat
    from fitformer.hat import options as hat_options

    content = found.content
    if isinstance(content, SearchSpace):
        document = {"kind": "space", "size": content.size(), "space": content.to_dict()}
        options = content.to_dict() if found.origin == "hat" else choices.from_search_space(content)
        if output is not None and output.suffix == ".json":
            return json.dumps(options, indent=2) + "\n", document
        return hat_options.format_options(options), document
    document = {"kind": "architecture", "architecture": content.to_dict(), "text": content.to_text()}
    if found.origin == "fitformer":
        return hat_options.format_options(hat.from_architecture(content)), document
    if output is None or output.suffix == ".txt":
        return content.to_text() + "\n", document
    return json.dumps(content.to_dict(), indent=2) + "\n", document
