"""Reads a latency data set in the form in which HAT releases them: one line per SubTransformer, 14 columns.

A line holds the ten averages that HAT's predictor is given, then mean and standard deviation of the milliseconds of
encoder and decoder. The lists of layers behind the averages are not in the file. Nothing is ever evaluated: a cell is
a number or the file is refused.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fitformer.errors import DataError
from fitformer.latency.features import HAT_FEATURE_NAMES, Floats, features_from_hat

COLUMNS = (
    *HAT_FEATURE_NAMES,
    "latency_mean_encoder",
    "latency_mean_decoder",
    "latency_std_encoder",
    "latency_std_decoder",
)
_WHOLE = {"encoder_embed_dim", "encoder_layer_num", "decoder_embed_dim", "decoder_layer_num"}
_TIMES = {"latency_mean_encoder", "latency_mean_decoder"}
_SPREADS = {"latency_std_encoder", "latency_std_decoder"}
MOST = 1e9  # of any cell: far above what is real, far below what overflows a product of three


@dataclass(frozen=True)
class HatLatencyData:
    """Rows in the order of the file, which is the order of measurement; times in milliseconds.

    Attributes:
        averages: HAT's ten features, [rows, 10] in the order of ``HAT_FEATURE_NAMES``.
        encoder_ms, decoder_ms, encoder_std_ms, decoder_std_ms: [rows].
    """

    averages: Floats
    encoder_ms: Floats
    decoder_ms: Floats
    encoder_std_ms: Floats
    decoder_std_ms: Floats

    def __len__(self) -> int:
        return len(self.averages)

    @property
    def totals(self) -> Floats:
        """What fitformer predicts from, [rows, features]."""
        return features_from_hat(self.averages)

    @property
    def latency_ms(self) -> Floats:
        """Encoder and decoder together, [rows]."""
        total: Floats = self.encoder_ms + self.decoder_ms
        return total

    @property
    def median_ms(self) -> float:
        """Median of encoder and decoder together."""
        return float(np.median(self.latency_ms))

    @property
    def depths(self) -> NDArray[np.int64]:
        """Decoder layers, [rows]."""
        return self.averages[:, HAT_FEATURE_NAMES.index("decoder_layer_num")].astype(np.int64)

    def rows(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> HatLatencyData:
        """The chosen rows alone."""
        parts = (self.averages, self.encoder_ms, self.decoder_ms, self.encoder_std_ms, self.decoder_std_ms)
        return HatLatencyData(*(part[chosen] for part in parts))


def read_latency_data(path: Path) -> HatLatencyData:
    """Read one of HAT's ``<data set>_<device>_all.csv``.

    Raises:
        DataError: the file is missing, not UTF-8, has other columns, no rows, or a cell that is no number in its
            range; the message names file, line and column.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            table = np.array(list(_rows(path, csv.reader(stream, strict=True))), dtype=np.float64)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder, not a latency file") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a text file ({error})") from None
    if not len(table):
        raise DataError(f"{path}: holds no measurements below its header")
    return HatLatencyData(table[:, : len(HAT_FEATURE_NAMES)], *table[:, len(HAT_FEATURE_NAMES) :].T)


def _rows(path: Path, reader: Iterator[list[str]]) -> Iterator[list[float]]:
    number = 0
    while True:
        number += 1
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            raise DataError(f"{path}:{number}: not a line of numbers ({error})") from None
        if number == 1:
            if tuple(cell.strip() for cell in cells) != COLUMNS:
                raise DataError(f"{path}:1: other columns than HAT's latency files have: {', '.join(COLUMNS)}")
        elif len(cells) != len(COLUMNS):
            raise DataError(f"{path}:{number}: {len(cells)} cells instead of {len(COLUMNS)}; is the file whole?")
        else:
            yield [_number(path, number, name, cell) for name, cell in zip(COLUMNS, cells, strict=True)]
    if number == 1:
        raise DataError(f"{path}: empty; the first line must name the columns {', '.join(COLUMNS)}")


def _number(path: Path, line: int, name: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    positive = 0 < value <= MOST
    good = 0 <= value <= MOST if name in _SPREADS else positive if name in _TIMES else positive and value >= 1
    if not good or (name in _WHOLE and value != int(value)):
        allowed = "0 or more" if name in _SPREADS else "above 0" if name in _TIMES else "1 or more"
        kind = "a whole number" if name in _WHOLE else "a number"
        raise DataError(f"{path}:{line}: {name} is '{cell[:40]}'; it must be {kind}, {allowed}")
    return value
