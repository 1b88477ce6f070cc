"""``fitformer import hat-latency`` and ``hat-predictor``: what HAT knew of devices, for searches of today."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from fitformer.cli import options
from fitformer.cli.files import check_output
from fitformer.cli.output import print_json, print_table
from fitformer.errors import InputError
from fitformer.progress import say

HEADS = {
    "mape": ("MAPE %", 2),
    "rmse_ms": ("RMSE ms", 2),
    "r2": ("R2", 4),
    "r2_within_depth": ("R2 within a depth", 3),
    "kendall_tau": ("Kendall tau", 3),
    "within_5": ("within 5 %", 1),
    "within_10": ("within 10 %", 1),
}


def hat_latency(
    file: Annotated[Path, typer.Argument(metavar="CSV", help="One of HAT's latency data sets, *_all.csv.")],
    device: Annotated[str, typer.Option("--device", metavar="NAME", help="What the latencies were measured on.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for the data set.")],
    splits: Annotated[int, typer.Option("--splits", min=1, max=1000, help="Shuffled 80/10/10 splits.")] = 10,
    no_mlp: Annotated[bool, typer.Option("--no-mlp", help="Leave HAT's network out: seconds, not minutes.")] = False,
    ablation: Annotated[
        int, typer.Option("--ablation", metavar="N", min=0, help="Compare 1, 3 and 5 hidden layers on N of the splits.")
    ] = 0,
    lat_norm: Annotated[
        float | None,
        typer.Option("--lat-norm", metavar="MS", help="Divisor of latencies for HAT's network; by default HAT's own."),
    ] = None,
    threads: options.Threads = 1,
    as_json: options.AsJson = False,
) -> None:
    """Import a latency data set of the original HAT and compare HAT's predictor with fitformer's on it.

    Blocks of rows that were measured while the device was slow are found and flagged; the predictor that is written is
    fitted without them, and a recipe can search with it (`devices.NAME.predictor`). The figures are means over seeded
    splits, on all rows and on the clean ones. Killed, the same command goes on.
    """
    from fitformer.hat import data_set
    from fitformer.hat.latency_data import read_latency_data
    from fitformer.hat.slow_blocks import find_slow_blocks, slow_rows
    from fitformer.hat.study import StudySettings, study

    if not device.strip():
        raise InputError("--device: give the device a name")
    if ablation > splits:
        raise InputError(f"--ablation: {ablation} is more than --splits ({splits})")
    if no_mlp and ablation:
        raise InputError(
            f"--ablation: {ablation} splits of HAT's network, and --no-mlp leaves it out; give one of the two"
        )
    data = read_latency_data(file)
    norm = _lat_norm(lat_norm, device, file, data.median_ms)
    data_set.open_folder(output, file)
    blocks = find_slow_blocks(data.totals, data.encoder_ms, data.decoder_ms)
    slow = slow_rows(blocks, len(data))
    for block in blocks:
        say(f"rows {block.first}-{block.last} are {100 * block.excess:.0f} % slower than the others explain: left out")
    mlp = {"mlp": None} if no_mlp else {}
    settings = StudySettings(splits=splits, ablation_splits=ablation, lat_norm_ms=norm, threads=threads, **mlp)
    facts: dict[str, Any] = {
        "device": device,
        "rows": len(data),
        "slow_rows": int(slow.sum()),
        "slow_blocks": [block.to_dict() for block in blocks],
        "study": study(data, slow, settings, folder=output),
    }
    data_set.write(output, data, slow, facts, source=file)
    if as_json:
        print_json({"input": file, "output": output, **facts})
    else:
        _print(facts)
        print(f"\npredictor  {output / data_set.PREDICTOR}")


def hat_predictor(
    file: Annotated[Path, typer.Argument(metavar="FILE.pt", help="A predictor that HAT's code saved.")],
    lat_norm: Annotated[
        float,
        typer.Option("--lat-norm", metavar="MS", help="HAT's divisor: TITAN Xp 200, Xeon 300, Raspberry Pi 5000."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The predictor, as JSON.")],
    feature_norm: Annotated[
        str | None,
        typer.Option("--feature-norm", metavar="N,...", help="Ten divisors; by default HAT's 640,6,2048,6,640,6,..."),
    ] = None,
    device: Annotated[str | None, typer.Option("--device", metavar="NAME", help="What it predicts for.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Import a latency predictor of the original HAT; nothing that is in the file is ever run.

    The normalisers are not in HAT's file: they must be those of its training, or every latency is wrong. A recipe
    searches with it as `devices.NAME.predictor`, for a device that is not at hand.
    """
    check_output(output, file)
    from fitformer.hat.released_predictor import read_released_predictor
    from fitformer.latency import try_predictor
    from fitformer.latency.mlp_predictor import HAT_FEATURE_NORM
    from fitformer.space import SearchSpace

    norm = HAT_FEATURE_NORM if feature_norm is None else _ten_numbers(feature_norm)
    if not math.isfinite(lat_norm) or lat_norm <= 0:
        raise InputError(f"--lat-norm: {lat_norm:g} must be above 0, in milliseconds")
    card = {"name": device or file.stem, "source": file.name}
    predictor = read_released_predictor(file, lat_norm_ms=lat_norm, feature_norm=norm, device=card)
    try:
        tried = try_predictor(predictor, SearchSpace.preset("hat-latency"))
    except InputError as error:
        raise InputError(f"{file}: {error}; are --lat-norm and --feature-norm those of its training?") from None
    predictor.save(output)
    document = {
        "input": file,
        "output": output,
        "device": card["name"],
        "hidden_layers": predictor.num_hidden_layers,
        "parameters": predictor.num_parameters,
        "feature_norm": list(norm),
        "lat_norm_ms": lat_norm,
        "smallest_ms": tried["smallest_ms"],
        "largest_ms": tried["largest_ms"],
    }
    if as_json:
        print_json(document)
        return
    print(f"{card['name']}: {predictor.num_hidden_layers} hidden layers, {predictor.num_parameters:,} parameters")
    print(
        f"predicts {tried['smallest_ms']:.4g} ms for the smallest and {tried['largest_ms']:.4g} ms for the largest "
        "architecture of hat-latency"
    )
    print(f"wrote {output}")


def _ten_numbers(text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != 10 or not all(math.isfinite(number) and number > 0 for number in numbers):
        raise InputError(f"--feature-norm: '{text}' must be ten numbers above 0, such as 640,6,2048,6,640,6,2048,6,6,2")
    return numbers


def _lat_norm(given: float | None, device: str, file: Path, median_ms: float) -> float:
    from fitformer.hat.mlp import published_lat_norm

    if given is not None and (not math.isfinite(given) or given <= 0):
        raise InputError(f"--lat-norm: {given:g} must be above 0, in milliseconds")
    return given or published_lat_norm(device) or published_lat_norm(file.name) or median_ms


def _print(facts: dict[str, Any]) -> None:
    result = facts["study"]
    print(f"{facts['device']}: {facts['rows']:,} rows, {facts['slow_rows']:,} of them measured while it was slow")
    print(f"held-out figures, means over {result['splits']} splits:\n")
    titles = {"default": "fitformer's", "default_50": "fitformer's, 50 samples", "mlp": "HAT's network"}
    rows = []
    for subset, words in (("all", "all rows"), ("clean", "clean rows")):
        if subset == "clean" and not facts["slow_rows"]:
            continue
        entry = result["rows"][subset]
        rows += [[f"{words}: {titles[key]}", *_cells(entry[key])] for key in titles if key in entry]
    print_table(rows, header=["", *(head for head, _ in HEADS.values())])
    if "ablation" in result:
        print(f"\nHAT's network on the clean rows, {result['ablation_splits']} splits:\n")
        rows = [[name, *_cells(figures)] for name, figures in result["ablation"].items()]
        print_table(rows, header=["", *(head for head, _ in HEADS.values())])


def _cells(figures: dict[str, float | None]) -> list[str]:
    values = [(figures[name], digits) for name, (_, digits) in HEADS.items()]
    return ["-" if value is None else f"{value:.{digits}f}" for value, digits in values]
