"""The predictor on the latency data released with HAT: 2,000 SubTransformers each, of which it may see 50.

The files hold HAT's ten averages; totals are recovered from them. "Clean" leaves out the contiguous blocks of rows that
were measured while the device was slow.
"""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fitformer.errors import NotPossibleError
from fitformer.hat.latency_data import HatLatencyData, read_latency_data
from fitformer.hat.slow_blocks import find_slow_blocks, slow_rows
from fitformer.latency.predictor import LatencyPredictor
from fitformer.latency.quality import check_useful, cross_validate_features

DATA = Path(os.environ.get("FITFORMER_DATA", Path(__file__).parents[3] / "shared" / "data")) / "hat" / "latency"
# Held-out MAPE in percent, mean of ten splits: 50 samples of all rows, 50 of the clean rows, 80 % of the clean rows. A
# hair above what was found; HAT's own predictor trained on 1,600 reaches 4.7, 1.0, 4.8, 5.8, 2.1 and 6.6 on all rows.
CEILINGS = {
    "wmt14ende_cpu_raspberrypi": (2.6, 0.95, 0.9),
    "wmt14enfr_cpu_raspberrypi": (0.63, 0.63, 0.58),
    "wmt14ende_cpu_xeon": (5.2, 5.2, 4.9),
    "wmt14ende_gpu_titanxp": (5.4, 3.0, 2.85),
    "wmt14enfr_gpu_titanxp": (1.8, 1.8, 1.7),
    "iwslt14deen_gpu_titanxp": (6.1, 1.85, 1.75),
}

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no HAT latency files in {DATA} (set FITFORMER_DATA)")


@cache
def read(name: str, *, clean: bool) -> HatLatencyData:
    data = read_latency_data(DATA / f"{name}_all.csv")
    if not clean:
        return data
    return data.rows(~slow_rows(find_slow_blocks(data.totals, data.encoder_ms, data.decoder_ms), len(data)))


def held_out_mape(name, count, *, clean):
    data = read(name, clean=clean)
    table, encoder, decoder = data.totals, data.encoder_ms, data.decoder_ms
    measured = encoder + decoder
    errors = []
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(len(table))
        train, test = order[: count or int(0.8 * len(order))], order[-len(order) // 10 :]
        predictor = LatencyPredictor.fit_features(table[train], encoder[train], decoder[train])
        errors.append(np.mean(np.abs(predictor.predict_features(table[test]) / measured[test] - 1)))
    return 100 * float(np.mean(errors))


@pytest.mark.parametrize("name", CEILINGS)
def test_fifty_samples_are_enough(name):
    all_rows, clean_rows, _ = CEILINGS[name]
    assert held_out_mape(name, 50, clean=False) < all_rows
    assert held_out_mape(name, 50, clean=True) < clean_rows


@pytest.mark.slow
@pytest.mark.parametrize("name", CEILINGS)
def test_many_samples_gain_little_more(name):
    assert held_out_mape(name, 0, clean=True) < CEILINGS[name][2]


@pytest.mark.parametrize("name", CEILINGS)
def test_a_real_device_passes_and_its_shuffled_times_do_not(name):
    data = read(name, clean=False)
    table, encoder, decoder, depths = data.totals, data.encoder_ms, data.decoder_ms, data.depths
    rng = np.random.default_rng(0)
    chosen, mixed = rng.permutation(len(table))[:50], rng.permutation(50)
    table, encoder, decoder, depths = table[chosen], encoder[chosen], decoder[chosen], depths[chosen]
    check_useful(cross_validate_features(table, encoder, decoder, depths))
    with pytest.raises(NotPossibleError, match="no better than predicting the mean"):
        check_useful(cross_validate_features(table, encoder[mixed], decoder[mixed], depths))
