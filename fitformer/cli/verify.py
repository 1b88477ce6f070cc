"""``fitformer verify``: does a bundle do here what it did where it was made?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fitformer.cli import options
from fitformer.cli.output import milliseconds, print_json, print_table


def verify(
    bundle: options.BundlePath,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads", min=1, max=options.MOST_THREADS, help="Processor threads; by default those of each record."
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Check a bundle on this machine: files, golden translations, and the recorded latencies measured again.

    A latency is held to its limit only on the processor that it was recorded on.
    """
    from fitformer.runtime.bundle import Bundle
    from fitformer.runtime.verify import verify as verify_bundle

    # The checksums are compared by the check itself: a changed file is a failed check, not a wrong command line.
    facts = verify_bundle(Bundle.load(bundle, check=False), threads=threads)
    if as_json:
        print_json({"bundle": bundle, **facts})
    else:
        _print(facts)


def _print(facts: dict[str, Any]) -> None:
    print(f"{facts['files']} files are unchanged")
    print(f"{facts['golden']} golden translations are the same, token for token")
    if not facts["latency"]:
        print("no latency is recorded in this bundle")
        return
    rows = [
        [
            milliseconds(record["recorded_ms"]),
            milliseconds(record["measured_ms"]),
            milliseconds(record["limit_ms"]),
            _verdict(record),
        ]
        for record in facts["latency"]
    ]
    print()
    print_table(rows, header=["recorded", "measured now", "limit", ""])


def _verdict(record: dict[str, Any]) -> str:
    if record["kept"] is not None:
        return "kept"
    return "no limit" if record["limit_ms"] is None else "recorded on another processor"
