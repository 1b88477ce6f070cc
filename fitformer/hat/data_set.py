"""Writes one of HAT's latency data sets as fitformer's: a folder of records, device, predictor and figures.

``records.csv`` holds HAT's columns with the number of each row, the sum of its times and the flag ``slow``; per-layer
architectures cannot be recovered from the averages. ``predictor.json`` is fitted to the rows that are not slow.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from fitformer.errors import InputError
from fitformer.hat.latency_data import COLUMNS, HatLatencyData
from fitformer.hat.slow_blocks import Flags
from fitformer.hat.study import TRAININGS
from fitformer.latency import LatencyPredictor
from fitformer.latency.quality import cross_validate_features
from fitformer.rundir import disk_error, read_json, sha256, write_json, write_text

RECORDS, DEVICE, PREDICTOR = "records.csv", "device.json", "predictor.json"
QUALITY, STUDY = "quality.json", "study.json"
FILES = (RECORDS, DEVICE, PREDICTOR, QUALITY, STUDY, TRAININGS)


def open_folder(folder: Path, source: Path) -> None:
    """Make the folder before the work is done.

    Raises:
        InputError: it is a file, or holds something else, such as the data set of another file than ``source``.
        NotPossibleError: it cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; give a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = [path.name for path in folder.iterdir() if path.name not in FILES and not path.name.startswith(".")]
    except OSError as error:
        raise disk_error(folder, error) from error
    if others:
        raise InputError(f"{folder}: holds other files ({', '.join(sorted(others)[:3])}); give a folder of its own")
    card = folder / DEVICE
    if card.exists() and read_json(card).get("source_sha256") != sha256(source):
        raise InputError(f"{folder}: holds the data set of another file; give a folder of its own")


def write(folder: Path, data: HatLatencyData, slow: Flags, facts: dict[str, Any], *, source: Path) -> None:
    """Write the data set; each file is whole or not there, and ``study.json`` comes last.

    Args:
        slow: rows that the predictor is fitted without.
        facts: content of ``study.json``; its ``device`` names the device.
        source: the file that the data are from.
    """
    clean = data.rows(~slow)
    card = {"name": facts["device"], "measured_by": "HAT", "source": source.name, "source_sha256": sha256(source)}
    quality = cross_validate_features(clean.totals, clean.encoder_ms, clean.decoder_ms, clean.depths)
    predictor = LatencyPredictor.fit_features(clean.totals, clean.encoder_ms, clean.decoder_ms)
    write_text(folder / RECORDS, _records(data, slow))
    write_json(folder / DEVICE, card)
    write_json(folder / QUALITY, quality.to_dict())
    predictor.for_device(card).save(folder / PREDICTOR)
    write_json(folder / STUDY, facts)


def _records(data: HatLatencyData, slow: Flags) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["row", *COLUMNS, "latency_ms", "slow"])
    times = (data.encoder_ms, data.decoder_ms, data.encoder_std_ms, data.decoder_std_ms, data.latency_ms)
    for row in range(len(data)):
        writer.writerow([row, *data.averages[row].tolist(), *(float(part[row]) for part in times), int(slow[row])])
    return stream.getvalue()
