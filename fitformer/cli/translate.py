"""``fitformer translate``: one line in, one line out, always."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fitformer.cli import files, options
from fitformer.cli.output import print_json
from fitformer.progress import Progress, say

if TYPE_CHECKING:
    from fitformer.runtime.translator import Translation

Input = Annotated[
    Path | None, typer.Option("--input", "-i", metavar="FILE", help="Lines to translate; by default from stdin.")
]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where they go; else to stdout.")]
NBest = Annotated[int, typer.Option("--n-best", min=1, help="Translations per line, best first, with tabs between.")]
Scores = Annotated[bool, typer.Option("--scores", help="Before each translation its score and a tab; 0 is the best.")]


def translate(
    bundle: options.BundlePath,
    source: Input = None,
    output: Output = None,
    beam: options.Beam = None,
    length_penalty: options.LengthPenalty = None,
    no_repeat_ngram: options.NoRepeatNgram = None,
    max_length_ratio: options.MaxLengthRatio = None,
    n_best: NBest = 1,
    scores: Scores = False,
    batch_size: options.BatchSize = None,
    threads: options.Threads = 1,
    as_json: options.AsJson = False,
) -> None:
    """Translate lines: one line in, one line out, always; an empty line stays empty.

    Input is UTF-8, plain or .gz. A file is checked before anything is translated, so that a line that is not UTF-8
    leaves no half-written output; from a pipe, the lines before it may be out already.
    """
    from fitformer.runtime.bundle import Bundle
    from fitformer.runtime.lines import read_lines
    from fitformer.runtime.translator import Translator

    loaded = Bundle.load(bundle)
    settings = options.decode_settings(
        loaded,
        beam=beam,
        length_penalty=length_penalty,
        no_repeat_ngram=no_repeat_ngram,
        max_length_ratio=max_length_ratio,
        n_best=n_best,
    )
    source, output = (None if path == files.STANDARD else path for path in (source, output))
    files.check_output(output)
    # What is no plain file (a pipe such as <(zcat ...)) can be read only once, so it is not counted beforehand.
    total = files.count_lines(source) if source is not None and not files.is_special(source) else None
    typed = source is None and sys.stdin.isatty()
    if typed:
        say("type a line and press Enter; Ctrl-D ends")
    # Somebody who types waits for each answer: no batch to be filled first.
    translator = Translator(loaded, threads=threads, batch_size=batch_size or (1 if typed else None))
    began = time.monotonic()
    kept: list[dict[str, Any]] | None = [] if as_json and output is None else None
    lines = 0
    with files.open_input(source) as reader, _sink(output, silent=kept is not None) as writer:
        texts = read_lines(reader, str(source or "stdin"))
        results = translator.translate(texts, settings, scores=scores)
        for translation in _watched(results, total, quiet=output is None and sys.stdout.isatty()):
            lines += 1
            if kept is not None:
                kept.append({"outputs": [asdict(item) for item in translation.outputs], "parts": translation.parts})
                continue
            writer.write(format_line(translation, n_best=n_best, scores=scores).encode() + b"\n")
            writer.flush()
    if as_json:
        facts = {"lines": lines, "seconds": round(time.monotonic() - began, 3), "decoding": asdict(settings)}
        extra = {"output": output} if kept is None else {"translations": kept}
        print_json({**facts, **extra})


def format_line(translation: Translation, *, n_best: int, scores: bool) -> str:
    """One line for one translation: ``n_best`` columns (pairs of columns with ``scores``), tabs between them.

    An empty line stays empty; a short list is filled with empty columns, so that columns can be cut out.
    """
    if not translation.text and len(translation.outputs) == 1:
        return ""
    columns: list[str] = []
    for output in translation.outputs[:n_best]:
        columns += [f"{output.score:.4f}", output.text] if scores else [output.text]
    width = n_best * (2 if scores else 1)
    return "\t".join(columns + [""] * (width - len(columns)))


def _sink(output: Path | None, *, silent: bool) -> Any:
    return nullcontext() if silent else files.open_output(output)


def _watched(results: Iterator[Translation], total: int | None, *, quiet: bool) -> Iterator[Translation]:
    """The results, with a progress bar where the number of lines is known and nothing else fills the terminal."""
    if not total or quiet:
        yield from results
        return
    with Progress("translate", total, unit="lines") as progress:
        for done, result in enumerate(results, start=1):
            yield result
            progress.update(done)
