"""Features are totals over the layers, and HAT's averages can be turned into them."""

import random

import numpy as np

from fitformer.latency.features import FEATURE_NAMES, HAT_FEATURE_NAMES, features, features_from_hat, hat_features
from fitformer.space import Architecture, SearchSpace


def test_features_of_a_small_architecture_by_hand():
    arch = Architecture.from_text("enc 10: 20/8/2 30/4/1 | dec 6: 5/4/2/1@1,0 7/8/1/4@1")
    assert dict(zip(FEATURE_NAMES, features(arch), strict=True)) == {
        "encoder.width": 10,
        "encoder.layers": 2,
        "encoder.feed_forward": 500,
        "encoder.projections": 120,
        "encoder.attention": 12,
        "encoder.heads": 3,
        "encoder.ffn_width": 50,
        "cross.projections": 10 * (4 * 2 + 8 * 1),
        "cross.attention": 16,
        "decoder.layers": 2,
        "cross.heads": 1 * 2 + 4 * 1,
        "cross.layers": 3,
        "decoder.width": 6,
        "decoder.layers_width": 12,
        "decoder.feed_forward": 72,
        "decoder.projections": 72,
        "decoder.attention": 12,
        "decoder.heads": 3,
        "decoder.ffn_width": 12,
    }
    expected = dict(zip(HAT_FEATURE_NAMES, [10, 2, 25, 1.5, 6, 2, 6, 1.5, 2.5, 1.5], strict=True))
    assert dict(zip(HAT_FEATURE_NAMES, hat_features(arch), strict=True)) == expected


def test_totals_recovered_from_averages_are_exact_but_for_the_product_of_two_means():
    space, rng = SearchSpace.preset("hat-latency"), random.Random(1)
    drawn = [space.sample(rng) for _ in range(50)]
    recovered = features_from_hat(np.array([hat_features(arch) for arch in drawn]), qkv_dim=512)
    exact = np.array([features(arch) for arch in drawn])
    kept = [index for index, name in enumerate(FEATURE_NAMES) if name != "cross.heads"]
    np.testing.assert_allclose(recovered[:, kept], exact[:, kept])


def test_larger_choices_never_lower_a_feature():
    space = SearchSpace.preset("multi30k")
    assert np.all(features(space.largest()) >= features(space.smallest()))
