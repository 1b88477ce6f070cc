"""The tables that ``fitformer profile`` prints for people."""

from __future__ import annotations

from typing import Any

from fitformer.cli.output import print_table

# N tokens, d width, V vocabulary: how each part grows.
OPERATOR_TITLES = {
    "embeddings": "embeddings",
    "attention_projections": "attention projections (N d^2)",
    "attention_products": "attention products (N^2 d)",
    "feed_forward": "feed-forward (N d^2)",
    "output_layer": "output layer (N d V)",
    "other": "norms and scalings (N d)",
}


def print_profile(document: dict[str, Any]) -> None:
    """Print the space, the architectures and what they cost under both conventions."""
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
    if "params_by_operator" in document["architectures"][0]["conventions"]["hat"]:
        for entry in document["architectures"]:
            for convention in ("hat", "total"):
                print()
                _print_operators(entry["name"], convention, entry["conventions"][convention])


def _print_convention(convention: str, architectures: list[dict[str, Any]]) -> None:
    sides = [entry["conventions"][convention] for entry in architectures]
    rows: list[list[str]] = [["parameters", *(_millions(side["params"]) for side in sides)]]
    for index, entry in enumerate(sides[0]["lengths"]):
        counts = [side["lengths"][index] for side in sides]
        rows.append([f"Mult-Adds, {entry['length']} tokens", *(_millions(count["macs"]) for count in counts)])
        rows.append([f"FLOPs, {entry['length']} tokens", *(_millions(count["flops"]) for count in counts)])
    print_table(rows, header=[f"convention {convention}", *(entry["name"] for entry in architectures)])


def _print_operators(name: str, convention: str, side: dict[str, Any]) -> None:
    """What parameters and Mult-Adds of one architecture go to: one column for each length."""
    columns = [(side["params_by_operator"], side["params_share_by_operator"])]
    columns += [(entry["macs_by_operator"], entry["macs_share_by_operator"]) for entry in side["lengths"]]
    rows = [
        [f"  {title}", *(_with_share(counts[key], shares[key]) for counts, shares in columns)]
        for key, title in OPERATOR_TITLES.items()
        if any(counts[key] for counts, _ in columns)
    ]
    rows.append(["  all", *(_millions(sum(counts.values())) + " " * 8 for counts, _ in columns)])
    lengths = [f"Mult-Adds, N = {entry['length']}" for entry in side["lengths"]]
    print_table(rows, header=[f"{name}, convention {convention}", "parameters", *lengths])


def _with_share(count: int, percent: float) -> str:
    return f"{_millions(count)} {percent:5.1f} %" if count else "-" + " " * 8


def _millions(count: int) -> str:
    return f"{count / 1e6:,.3f} M"
