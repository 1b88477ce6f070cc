"""Options and arguments that several commands share, so that they read and mean the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fitformer.runtime.bundle import Bundle
    from fitformer.runtime.decoding import DecodeSettings

MOST_THREADS = 1024

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document as the last line of stdout; all else on stderr.")
]
BundlePath = Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder that 'fitformer export' writes.")]
RecipePath = Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe; 'fitformer init' writes one.")]
RunFolder = Annotated[
    Path | None, typer.Option("--run", metavar="DIR", help="Folder of the run; by default runs/NAME of the recipe.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a setting of the recipe.")
]
SourceFile = Annotated[Path, typer.Option("--source", metavar="FILE", help="Lines to translate; plain or .gz.")]
ReferenceFile = Annotated[Path, typer.Option("--reference", metavar="FILE", help="Their translations, line by line.")]
Beam = Annotated[int | None, typer.Option("--beam", min=1, help="Hypotheses kept per line; 1 is greedy search.")]
LengthPenalty = Annotated[
    float | None, typer.Option("--length-penalty", help="Above 1 favours longer, below 1 shorter translations.")
]
NoRepeatNgram = Annotated[
    int | None, typer.Option("--no-repeat-ngram", min=0, help="Never repeat so many tokens in a row; 0 = may repeat.")
]
MaxLengthRatio = Annotated[
    float | None, typer.Option("--max-length-ratio", min=0.0, help="Most target tokens per source token.")
]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", min=1, help="Lines translated together; by default 16, for int8 1.")
]
Threads = Annotated[int, typer.Option("--threads", min=1, max=MOST_THREADS, help="Processor threads.")]


def decode_settings(bundle: Bundle, **options: Any) -> DecodeSettings:
    """The bundle's own settings with the given options in their place; ``None`` leaves a setting as it is.

    More outputs than hypotheses cannot be had, so ``n_best`` widens the beam unless ``beam`` is given, too.

    Raises:
        InputError: values that cannot be, such as more outputs than the given beam.
    """
    from dataclasses import replace

    given = {name: value for name, value in options.items() if value is not None}
    own = bundle.decode_settings
    if "n_best" in given and "beam" not in given:
        given["beam"] = max(own.beam, given["n_best"])
    return replace(own, **given)
