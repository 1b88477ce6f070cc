"""Does preparing a corpus need more memory when the corpus is larger? Peak memory and speed at several sizes.

Generated parallel text (written-out numbers, dates and times) goes to plain files; each size is then prepared in a
fresh process, whose peak resident memory is read from the operating system. A table for people goes to stderr; the
last line on stdout is one JSON document.

    python benchmarks/prepare_memory.py                         # 50,000, 500,000 and 5,000,000 pairs (3 GB of disk)
    python benchmarks/prepare_memory.py --pairs 50000 500000
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fitformer.data.corpus import CorpusFiles
from fitformer.data.prepare import PrepareSettings, prepare
from fitformer.data.written_numbers import number_pairs
from fitformer.device import device_card

SIZES = (50_000, 500_000, 5_000_000)


def main() -> None:
    """Read the options, measure every size, print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=SIZES, help="corpus sizes to measure")
    parser.add_argument("--folder", type=Path, help="where the text and arrays go for the time being")
    parser.add_argument("--prepare", type=Path, nargs=3, metavar=("SOURCE", "TARGET", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        print(json.dumps(prepare_once(*options.prepare)))
        return
    results = []
    print(f"{'pairs':>10} {'peak MiB':>9} {'seconds':>8} {'pairs/s':>8} {'vocabulary':>10}", file=sys.stderr)
    for size in options.pairs:
        result = measure(size, options.folder)
        results.append(result)
        print(
            f"{size:>10,} {result['peak_mib']:>9.0f} {result['seconds']:>8.1f} {result['pairs_per_second']:>8,.0f} "
            f"{result['vocab_size']:>10,}",
            file=sys.stderr,
        )
    print(json.dumps({"benchmark": "prepare_memory", "results": results, "device": device_card(1)}))


def measure(size: int, folder: Path | None) -> dict[str, Any]:
    """Generate ``size`` pairs, prepare them in a fresh process, return its figures."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        source, target = Path(name) / "train.en", Path(name) / "train.de"
        with source.open("w", encoding="utf-8") as sources, target.open("w", encoding="utf-8") as targets:
            for english, german in number_pairs(size, seed=1):
                sources.write(english + "\n")
                targets.write(german + "\n")
        command = [sys.executable, __file__, "--prepare", str(source), str(target), str(Path(name) / "out")]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"pairs": size, **result, "pairs_per_second": round(size / result["seconds"])}


def prepare_once(source: Path, target: Path, out: Path) -> dict[str, Any]:
    """Prepare one corpus in this process; return seconds, peak memory (imports included) and what came out."""
    corpus = CorpusFiles("parallel", "en", "de", source=(source,), target=(target,))
    began = time.monotonic()
    stats = prepare(PrepareSettings(corpus, "en", "de", quiet=True), out)
    return {
        "seconds": round(time.monotonic() - began, 2),
        "peak_mib": round(peak_mib(), 1),
        "kept": stats["train"]["pairs"],
        "repeated": stats["train"]["dropped"]["repeated"],
        "vocab_size": stats["vocab_size"]["source"],
    }


def peak_mib() -> float:
    """Largest resident memory of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10  # bytes there, KiB elsewhere


if __name__ == "__main__":
    main()
