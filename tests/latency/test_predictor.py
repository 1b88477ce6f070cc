"""The predictor: exact on a linear device, honest about noise, whole in its file."""

import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from fitformer.errors import InputError, NotPossibleError
from fitformer.latency import LatencyPredictor, Quality, check_useful, cross_validate
from fitformer.latency.cost_model import CostModel
from fitformer.latency.quality import quality_of


def errors_of(predictor, device, architectures):
    return [abs(predictor.predict_ms(arch) / device.true_ms(arch) - 1) for arch in architectures]


@pytest.fixture
def unseen(space):
    rng = random.Random(99)
    return [space.sample(rng) for _ in range(100)]


def test_a_linear_device_is_recovered_from_forty_samples(make_records, make_device, unseen):
    predictor = LatencyPredictor.fit(make_records(40))
    assert max(errors_of(predictor, make_device(), unseen)) < 1e-3
    encoder, decoder = predictor.predict_parts(unseen[0])
    assert (encoder, decoder) == pytest.approx(make_device().true_parts(unseen[0]), rel=1e-2)


def test_noise_of_two_percent_is_averaged_out(make_records, make_device, unseen):
    predictor = LatencyPredictor.fit(make_records(50, noise=0.02))
    assert np.mean(errors_of(predictor, make_device(), unseen)) < 0.02


def test_a_few_spoiled_samples_do_not_bend_the_fit(make_records, make_device, unseen):
    records = make_records(50, noise=0.005)
    spoiled = [replace(r, decoder_ms=1.5 * r.decoder_ms) if i % 10 == 0 else r for i, r in enumerate(records)]
    assert np.mean(errors_of(LatencyPredictor.fit(spoiled), make_device(), unseen)) < 0.01


def test_more_work_never_costs_less_time(make_records, space):
    predictor = LatencyPredictor.fit(make_records(12, noise=0.2))
    rng = random.Random(5)
    for _ in range(50):
        arch = space.sample(rng)
        larger = replace(arch, decoder_ffn_dim=tuple(2 * f for f in arch.decoder_ffn_dim), decoder_embed_dim=128)
        assert predictor.predict_ms(larger) >= predictor.predict_ms(arch) > 0


def test_fewer_samples_than_features_still_fit(make_records, make_device):
    records = make_records(6)
    predictor = LatencyPredictor.fit(records)
    assert max(errors_of(predictor, make_device(), [record.arch for record in records])) < 0.05


def test_a_saved_predictor_predicts_the_same_and_knows_where_it_comes_from(tmp_path, make_records, conditions, unseen):
    path = tmp_path / "predictor.json"
    fitted = LatencyPredictor.fit(make_records(30, noise=0.02), device={"cpu": "simulated", "threads": 1})
    fitted.save(path)
    loaded = LatencyPredictor.load(path, conditions=conditions)
    assert loaded == fitted
    assert [loaded.predict_ms(arch) for arch in unseen] == [fitted.predict_ms(arch) for arch in unseen]
    content = json.loads(path.read_text())
    assert content["unit"] == "ms per batch" and content["device"]["cpu"] == "simulated"
    assert content["conditions"]["exporter_version"] == 1


def test_a_predictor_of_another_exporter_or_version_is_refused(tmp_path, make_records, conditions):
    path = tmp_path / "predictor.json"
    LatencyPredictor.fit(make_records(10)).save(path)
    with pytest.raises(InputError, match="other conditions"):
        LatencyPredictor.load(path, conditions=replace(conditions, exporter_version=2))
    content = json.loads(path.read_text())
    for change in ({"format_version": 2}, {"range": {}}, {"encoder": {}}, {"samples": [{}]}, {"calibration": "x"}):
        path.write_text(json.dumps(content | change))
        with pytest.raises(InputError, match=r"predictor\.json: .*run measure again"):
            LatencyPredictor.load(path)
    path.write_text("[]")
    with pytest.raises(InputError, match=r"predictor\.json"):
        LatencyPredictor.load(path)


def test_new_measurements_move_the_prediction_where_they_were_taken(make_records, make_device, unseen):
    device = make_device()
    predictor = LatencyPredictor.fit(make_records(40))
    slower = {arch: 1.06 * device.true_ms(arch) for arch in unseen[:5]}
    updated = predictor.update(slower)
    assert updated.num_samples == 45
    for arch in unseen[:5]:
        assert updated.predict_ms(arch) == pytest.approx(slower[arch], rel=0.02)
    assert updated.conditions == predictor.conditions
    assert predictor.update({}) is predictor


def test_an_architecture_beyond_the_measured_range_is_flagged(make_records, space):
    predictor = LatencyPredictor.fit(make_records(40))
    assert predictor.outside_range(make_records(40)[7].arch) == []
    wide = replace(space.largest(), decoder_embed_dim=512)
    assert "decoder.width" in predictor.outside_range(wide)


def test_records_that_cannot_be_compared_are_not_fitted_together(make_records):
    records = make_records(10)
    with pytest.raises(InputError, match="different conditions"):
        LatencyPredictor.fit([*records[:5], *(replace(r, threads=2) for r in records[5:])])
    with pytest.raises(InputError, match="no measurement"):
        LatencyPredictor.fit([])


def test_cross_validation_of_a_linear_device_is_nearly_perfect(make_records):
    quality = cross_validate(make_records(40))
    assert quality.mape < 0.5 and quality.kendall_tau > 0.97 and quality.r2 > 0.999
    assert quality.r2_within_depth is not None and quality.r2_within_depth > 0.999
    assert (quality.within_5, quality.within_10) == (100.0, 100.0)
    assert quality.baseline_mape > 20
    check_useful(quality)
    assert "rank correlation" in quality.summary()


def test_cross_validation_is_the_same_every_time_and_survives_json(make_records):
    records = make_records(20, noise=0.05)
    quality = cross_validate(records)
    assert cross_validate(records) == quality
    assert Quality.from_dict(json.loads(json.dumps(quality.to_dict()))) == quality


@pytest.mark.parametrize("seed", range(8))
def test_latencies_that_do_not_belong_to_their_architectures_are_refused(make_records, seed):
    records = make_records(40, seed=seed)
    shuffled = random.Random(seed).sample(records, len(records))
    pairs = zip(records, shuffled, strict=True)
    mixed = [replace(a, encoder_ms=b.encoder_ms, decoder_ms=b.decoder_ms) for a, b in pairs]
    with pytest.raises(NotPossibleError, match="no better than predicting the mean"):
        check_useful(cross_validate(mixed))


def test_equal_latencies_for_all_are_refused(make_records):
    with pytest.raises(NotPossibleError, match="no better"):
        check_useful(cross_validate([replace(r, encoder_ms=1.0, decoder_ms=20.0) for r in make_records(20)]))


def test_too_few_measurements_cannot_be_judged(make_records):
    with pytest.raises(NotPossibleError, match="4 measured architectures are too few"):
        cross_validate(make_records(4))


def test_the_figures_of_a_hand_computed_case():
    measured, predicted = np.array([10.0, 20.0, 30.0, 40.0]), np.array([12.0, 20.0, 30.0, 37.0])
    quality = quality_of(measured, predicted, np.array([1, 1, 2, 2]), np.full(4, 20.0))
    assert quality.mape == pytest.approx(100 * (0.2 + 0.075) / 4)
    assert quality.rmse_ms == pytest.approx(math.sqrt(13 / 4))
    assert quality.r2 == pytest.approx(1 - 13 / 500)
    assert quality.r2_within_depth == pytest.approx(1 - 13 / 100)
    assert (quality.within_5, quality.within_10) == (50.0, 75.0)
    assert quality.baseline_mape == pytest.approx(100 * (1 + 0 + 1 / 3 + 0.5) / 4)
    assert quality.kendall_tau == pytest.approx(1.0) and quality.chance == pytest.approx(1 / 24)


def test_a_cost_model_without_features_is_the_best_single_number():
    times = np.array([1.0, 1.0, 1.0, 1.0, 3.0])
    model = CostModel.fit((), np.empty((5, 0)), times)
    assert model.constant == pytest.approx(1.0, abs=0.01)


def test_a_cost_model_does_not_depend_on_the_units():
    rng = np.random.default_rng(0)
    table = rng.uniform(1, 5, (30, 3))
    times = table @ np.array([1.0, 0.0, 2.0]) + 1 + 0.1 * rng.normal(size=30)
    units = np.array([1e6, 1.0, 1e-6])
    plain = CostModel.fit("abc", table, times)
    scaled = CostModel.fit("abc", table * units, 1e-3 * times)
    np.testing.assert_allclose(scaled.predict(table * units), 1e-3 * plain.predict(table), rtol=1e-6)
