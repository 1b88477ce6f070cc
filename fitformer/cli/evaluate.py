"""``fitformer evaluate``: scores and speed of a bundle on lines with references."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fitformer.cli import files, options
from fitformer.cli.output import milliseconds, print_json, print_table, score
from fitformer.errors import InputError
from fitformer.progress import Progress

if TYPE_CHECKING:
    from fitformer.runtime.bundle import Bundle
    from fitformer.runtime.decoding import DecodeSettings

LegacyBleu = Annotated[
    bool,
    typer.Option(
        "--legacy-bleu", help="Also BLEU as HAT reports it: case-sensitive, on Moses tokens, with compounds split."
    ),
]
LowercaseBleu = Annotated[
    bool,
    typer.Option(
        "--lowercase-bleu", help="Also BLEU of lower-cased, normalised, tokenised text, as Multi30k papers report it."
    ),
]
TokenisedReference = Annotated[
    Path | None,
    typer.Option(
        "--tokenised-reference",
        metavar="FILE",
        help="As --lowercase-bleu, against an official lower-cased, normalised, tokenised file.",
    ),
]
KeepTranslations = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Keep the translations in this file.")
]


def evaluate(
    bundle: options.BundlePath,
    source: options.SourceFile,
    reference: options.ReferenceFile,
    legacy_bleu: LegacyBleu = False,
    lowercase_bleu: LowercaseBleu = False,
    tokenised_reference: TokenisedReference = None,
    output: KeepTranslations = None,
    beam: options.Beam = None,
    length_penalty: options.LengthPenalty = None,
    no_repeat_ngram: options.NoRepeatNgram = None,
    max_length_ratio: options.MaxLengthRatio = None,
    batch_size: options.BatchSize = None,
    threads: options.Threads = 1,
    as_json: options.AsJson = False,
) -> None:
    """Score a bundle: BLEU and chrF with intervals and signatures, sentences per second, latency per sentence."""
    from fitformer.runtime.bundle import Bundle

    loaded = Bundle.load(bundle)
    settings = options.decode_settings(
        loaded,
        beam=beam,
        length_penalty=length_penalty,
        no_repeat_ngram=no_repeat_ngram,
        max_length_ratio=max_length_ratio,
    )
    if as_json and output == files.STANDARD:
        raise InputError("--output: '-' and --json cannot both have stdout; name a file")
    files.check_output(output, source, reference, tokenised_reference)
    sources, references = read_pairs(source, reference)
    official = files.read_text(tokenised_reference) if tokenised_reference else None
    if official is not None and len(official) != len(sources):
        raise InputError(f"{tokenised_reference}: {len(official)} lines, but {source} has {len(sources)}")
    facts = measure(
        loaded,
        sources,
        references,
        settings=settings,
        threads=threads,
        batch_size=batch_size,
        legacy_bleu=legacy_bleu,
        lowercase_bleu=lowercase_bleu,
    )
    translations = facts.pop("translations")
    facts.pop("tokenised", None)
    if official is not None:
        facts["tokenised_bleu"] = official_bleu(loaded, translations, official)
    if output is not None:
        with files.open_output(output) as writer:
            writer.write("".join(f"{line}\n" for line in translations).encode())
    if as_json:
        print_json({"bundle": bundle, **facts})
        return
    _print(facts)


def read_pairs(source: Path, reference: Path) -> tuple[list[str], list[str]]:
    """Lines of both files.

    Raises:
        InputError: they are not of the same length, or empty.
    """
    sources, references = files.read_text(source), files.read_text(reference)
    if len(sources) != len(references):
        raise InputError(f"{source}: {len(sources)} lines, but {reference} has {len(references)}; they must pair up")
    if not sources:
        raise InputError(f"{source}: no lines")
    return sources, references


def measure(bundle: Bundle, sources: list[str], references: list[str], **options: Any) -> dict[str, Any]:
    """``runtime.evaluate`` under a progress bar, with the translations."""
    from fitformer.runtime.evaluate import evaluate as evaluate_bundle

    settings: DecodeSettings = options.pop("settings")
    with Progress(f"evaluate {bundle.path.name}", len(sources), unit="lines") as progress:
        watched = files.WatchedLines(sources, progress)
        return evaluate_bundle(bundle, watched, references, settings=settings, keep_translations=True, **options)


def official_bleu(bundle: Bundle, translations: list[str], official: list[str]) -> dict[str, Any]:
    """BLEU of the translations, lower-cased, normalised and tokenised, against lines that already are."""
    from fitformer.runtime.scores import lowercase_tokenise, lowercase_tokenised_bleu

    language = str(bundle.facts.get("target_language", "en"))
    return lowercase_tokenised_bleu(lowercase_tokenise(translations, language), official)


SCORE_TITLES = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "legacy_bleu": "BLEU, tokenised (HAT)",
    "lowercase_bleu": "BLEU, lower-cased and tokenised",
    "tokenised_bleu": "BLEU, against the tokenised file",
}


def _print(facts: dict[str, Any]) -> None:
    scores = {title: facts[name] for name, title in SCORE_TITLES.items() if name in facts}
    latency, decoding, device = facts["latency_ms"], facts["decoding"], facts["device"]
    print_table([[title, score(entry)] for title, entry in scores.items()])
    print()
    print_table(
        [
            ["lines", f"{facts['sentences']:,}"],
            ["beam", decoding["beam"]],
            ["speed", f"{facts['sentences_per_s']:.1f} lines/s in batches of {facts['batch_size']}"],
            ["latency", f"{milliseconds(latency['mean'])} mean, {milliseconds(latency['median'])} median"],
            ["device", f"{device['cpu']}, {device['threads']} of {device['cores']} processors"],
        ],
        figures=False,
    )
    print()
    for title, entry in scores.items():
        print(f"{title}: {entry['signature']}")
