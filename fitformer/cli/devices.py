"""``fitformer devices``: this machine, and the devices of a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fitformer.cli import options
from fitformer.cli.output import print_json, print_table
from fitformer.cost import power
from fitformer.device import available_threads, device_card


def devices(
    recipe: Annotated[
        Path | None, typer.Option("--recipe", metavar="RECIPE", help="Also show the devices of this recipe.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show the device card of this machine, as it is recorded with every latency, and a recipe's devices."""
    threads = available_threads()
    document: dict[str, Any] = {"device": device_card(threads), "energy": power.available()}
    if recipe is not None:
        document["recipe_devices"] = _recipe_devices(recipe)
    if as_json:
        print_json(document)
        return
    card = document["device"]
    versions = ", ".join(f"{name} {version}" for name, version in card["versions"].items())
    print_table(
        [
            ["processor", card["cpu"]],
            ["processors", f"{card['cores']}, of which {threads} may be used"],
            ["governor", card["governor"]],
            ["memory", "unknown" if card["memory_gib"] is None else f"{card['memory_gib']} GiB"],
            ["system", card["system"]],
            ["python", card["python"]],
            ["packages", versions],
            ["energy", _energy(document["energy"])],
        ],
        figures=False,
    )
    if recipe is None:
        return
    print()
    rows = [[d["name"], d["threads"], ", ".join(d["targets"]) or "-"] for d in document["recipe_devices"]]
    print_table(rows, header=["device", "threads", "targets"])


def _energy(found: dict[str, Any]) -> str:
    names = {"cpu": "processors", "ram": "memory", "gpu": "GPUs"}
    measured = ", ".join(names[part] for part in found["measured"])
    return "; ".join(part for part in (f"measured: {measured}" if measured else "not measured", found["note"]) if part)


def _recipe_devices(path: Path) -> list[dict[str, Any]]:
    from fitformer.recipe import load_recipe

    recipe = load_recipe(path)
    return [
        {
            "name": name,
            "threads": device.threads,
            "targets": [t.name for t in recipe.targets if t.device == name],
        }
        for name, device in recipe.devices.items()
    ]
