"""``fitformer compare``: two bundles on the same lines, with the odds that their difference is chance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fitformer.cli import options
from fitformer.cli.evaluate import LegacyBleu, measure, read_pairs
from fitformer.cli.output import milliseconds, print_json, print_table, score, size

if TYPE_CHECKING:
    from fitformer.runtime.bundle import Bundle

KEPT = ("bleu", "chrf", "legacy_bleu", "sentences_per_s", "batch_size", "latency_ms", "decoding")


def compare(
    first: Annotated[Path, typer.Argument(metavar="BUNDLE", help="One bundle ...")],
    second: Annotated[Path, typer.Argument(metavar="BUNDLE", help="... and another.")],
    source: options.SourceFile,
    reference: options.ReferenceFile,
    legacy_bleu: LegacyBleu = False,
    beam: options.Beam = None,
    length_penalty: options.LengthPenalty = None,
    batch_size: options.BatchSize = None,
    threads: options.Threads = 1,
    as_json: options.AsJson = False,
) -> None:
    """Compare two bundles on the same lines: scores with a paired bootstrap, latency and size side by side."""
    from fitformer.runtime.bundle import Bundle
    from fitformer.runtime.hat_bleu import paired_hat_bleu
    from fitformer.runtime.scores import paired_bootstrap

    bundles = [Bundle.load(first), Bundle.load(second)]
    sources, references = read_pairs(source, reference)
    found = []
    for bundle in bundles:
        settings = options.decode_settings(bundle, beam=beam, length_penalty=length_penalty)
        facts = measure(
            bundle,
            sources,
            references,
            settings=settings,
            threads=threads,
            batch_size=batch_size,
            legacy_bleu=legacy_bleu,
        )
        found.append(facts)
    test = paired_bootstrap(found[0]["translations"], found[1]["translations"], references)
    document: dict[str, Any] = {
        "sentences": len(sources),
        "bundles": [_facts(bundle, facts) for bundle, facts in zip(bundles, found, strict=True)],
        "difference": test,
        "device": found[0]["device"],
    }
    if legacy_bleu:
        document["legacy_difference"] = paired_hat_bleu(found[0]["tokenised"], found[1]["tokenised"])
    if as_json:
        print_json(document)
    else:
        _print(document)


def _facts(bundle: Bundle, facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "bundle": bundle.path,
        "precision": bundle.precision,
        "bytes": sum(file.stat().st_size for file in bundle.path.iterdir() if file.is_file()),
        **{key: facts[key] for key in KEPT if key in facts},
    }


def _print(document: dict[str, Any]) -> None:
    first, second = document["bundles"]
    rows = [
        ["BLEU", *(score(side["bleu"]) for side in (first, second))],
        ["chrF", *(score(side["chrf"]) for side in (first, second))],
        *_legacy_row(first, second),
        ["latency, median", *(milliseconds(side["latency_ms"]["median"]) for side in (first, second))],
        ["lines/s", *(f"{side['sentences_per_s']:.1f}" for side in (first, second))],
        ["size", *(size(side["bytes"]) for side in (first, second))],
        ["precision", *(side["precision"] for side in (first, second))],
    ]
    print_table(rows, header=["", str(first["bundle"]), str(second["bundle"])])
    for name, key in (("BLEU", "difference"), ("Tokenised BLEU (HAT)", "legacy_difference")):
        if key in document:
            _print_difference(name, document[key], document["sentences"])


def _legacy_row(*sides: dict[str, Any]) -> list[list[Any]]:
    if "legacy_bleu" not in sides[0]:
        return []
    return [["BLEU, tokenised (HAT)", *(score(side["legacy_bleu"]) for side in sides)]]


def _print_difference(name: str, test: dict[str, Any], sentences: int) -> None:
    print()
    print(
        f"{name} differs by {test['difference']:+.2f} on {sentences:,} lines; "
        f"by chance alone with p = {test['p_value']:.3f} (paired bootstrap, {test['samples']} samples)"
    )
    print(test["signature"])
