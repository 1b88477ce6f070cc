"""Measuring: every architecture once, in an order of its own, and a slow phase of the device leaves no trace."""

import random
from dataclasses import replace

import pytest

from fitformer.errors import InputError
from fitformer.latency import Measured, MeasureSettings, choose_architectures, measure
from fitformer.latency.measuring import usual


@pytest.fixture
def run(tmp_path, space, conditions):
    """Measure ``count`` architectures on ``device`` into records.csv of this test's folder."""

    def run(device, count=30, **settings) -> Measured:
        return measure(
            choose_architectures(space, count, seed=0),
            device,
            space.largest(),
            tmp_path / "records.csv",
            conditions,
            settings=MeasureSettings(**settings),
            pause=lambda seconds: None,
            now=lambda: "2026-01-01T00:00:00+00:00",
            quiet=True,
        )

    return run


def worst_error(device, measured):
    return max(abs(record.latency_ms / device.true_ms(record.arch) - 1) for record in measured.records)


def test_a_steady_device_is_measured_exactly_and_each_architecture_once(run, make_device, space):
    device = make_device()
    measured = run(device, correct=False)
    assert worst_error(device, measured) < 1e-12
    assert (measured.drifted, measured.repeated, measured.reused, measured.ignored) == (0, 0, 0, 0)
    timed_once = [arch for arch in device.timed if arch != space.largest()]
    assert len(timed_once) == len(set(timed_once)) == 29
    assert [record.index for record in measured.records] == list(range(30))
    assert measured.reference_ms == pytest.approx(device.true_ms(space.largest()))


@pytest.mark.parametrize("every", [1, 2, 3, 4, 5])
def test_the_reference_is_timed_between_blocks_of_the_chosen_size(run, make_device, space, every):
    device = make_device()
    chosen = 30
    run(device, chosen, reference_every=every)
    blocks = -(-chosen // every)
    # Three at the start, one after every block, and the reference is an architecture of the list itself.
    assert device.timed.count(space.largest()) == 3 + blocks + 1


def test_the_order_follows_the_seed_and_nothing_else(tmp_path, make_device, space, conditions):
    def order(seed, architectures):
        device, settings = make_device(), MeasureSettings(seed=seed)
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.csv"
        measure(architectures, device, space.largest(), path, conditions, settings=settings, quiet=True)
        return device.timed

    architectures = choose_architectures(space, 12, seed=0)
    assert order(1, architectures) == order(1, architectures)
    assert order(1, architectures) != order(2, architectures)


def test_a_throttled_phase_is_noticed_and_repeated(run, make_device):
    device = make_device(slowness=lambda n: 1.4 if 18 <= n < 24 else 1.0)
    measured = run(device, correct=False)
    assert measured.repeated > 0 and measured.drifted == 0
    assert worst_error(device, measured) < 1e-12


def test_a_run_that_begins_throttled_ends_with_clean_data(run, make_device):
    device = make_device(slowness=lambda n: 1.4 if n < 16 else 1.0, noise=0.004)
    measured = run(device)
    assert measured.drifted == 0
    assert worst_error(device, measured) < 0.03


@pytest.mark.parametrize("onset", [8, 15, 22, 30, 36, 40, 44])
def test_a_device_that_becomes_slow_for_good_is_timed_a_bounded_number_of_times_and_ends_at_one_level(
    run, make_device, onset
):
    device = make_device(slowness=lambda n: 1.0 if n < onset else 1.3)
    measured = run(device, max_repeats=2)
    assert len(device.timed) < 3 * (30 + 30) + 3
    ratios = [record.latency_ms / device.true_ms(record.arch) for record in measured.records]
    assert max(ratios) / min(ratios) == pytest.approx(1)  # this slowness is the same for all parts: the ratio is exact


def test_a_slow_end_is_flagged_and_corrected(run, make_device):
    device = make_device(slowness=lambda n: 1.0 if n < 38 else 1.3)
    measured = run(device, max_repeats=1)
    assert {record.drifted: round(1 / record.correction, 9) for record in measured.records} == {False: 1.0, True: 1.3}
    assert worst_error(device, measured) < 1e-9


def test_without_correction_the_slow_records_are_at_least_flagged(run, make_device):
    device = make_device(slowness=lambda n: 1.0 if n < 38 else 1.3)
    measured = run(device, max_repeats=1, correct=False)
    wrong = {r.architecture for r in measured.records if abs(r.latency_ms / device.true_ms(r.arch) - 1) > 0.03}
    assert wrong == {record.architecture for record in measured.records if record.drifted}
    assert 0 < len(wrong) < 10


def test_drift_below_the_tolerance_is_corrected(run, make_device):
    device = make_device(slowness=lambda n: 1 + 0.025 * (n % 40 > 20))
    measured = run(device, reference_every=1)
    uncorrected = [r.latency_ms / r.correction / device.true_ms(r.arch) - 1 for r in measured.records]
    corrected = [r.latency_ms / device.true_ms(r.arch) - 1 for r in measured.records]
    spread = max(corrected) - min(corrected)
    assert measured.repeated == 0
    assert spread < 0.6 * (max(uncorrected) - min(uncorrected))


def test_a_killed_run_measures_only_what_is_missing(run, make_device, space):
    class Killed(Exception):
        pass

    first = make_device()

    def die_later(arch):
        if len(first.timed) == 17:
            raise Killed
        return first(arch)

    with pytest.raises(Killed):
        run(die_later)
    second = make_device()
    measured = run(second)
    assert len(measured.records) == 30 and measured.reused >= 9
    again = set(second.timed) & set(first.timed) - {space.largest()}
    assert len(again) < 3  # at most the block that was under way
    third = make_device()
    assert run(third).records == measured.records
    assert third.timed == []


def test_more_architectures_extend_an_old_file(run, make_device):
    few = run(make_device(), 10)
    device = make_device()
    many = run(device, 20)
    assert many.reused == 10
    assert {r.architecture for r in few.records} < {r.architecture for r in many.records}


def test_records_of_an_older_exporter_are_measured_again(run, make_device, tmp_path, space, conditions):
    run(make_device(), 10)
    newer = replace(conditions, exporter_version=2)
    architectures = choose_architectures(space, 10, seed=0)
    path = tmp_path / "records.csv"
    measured = measure(architectures, make_device(), space.largest(), path, newer, quiet=True)
    assert (measured.reused, measured.ignored, len(measured.records)) == (0, 10, 10)


def test_the_user_is_told_about_drift_in_one_line(tmp_path, make_device, space, conditions, capsys):
    device = make_device(slowness=lambda n: 1.0 if n < 12 else 1.3)
    settings = MeasureSettings(max_repeats=0)
    architectures = choose_architectures(space, 12, seed=0)
    measure(architectures, device, space.largest(), tmp_path / "r.csv", conditions, settings=settings)
    told = [line for line in capsys.readouterr().err.splitlines() if "drifted" in line]
    assert len(told) == 1 and "usual speed" in told[0]


def test_usual_is_the_undisturbed_level():
    assert usual([14.0, 14.1, 13.9, 10.0, 10.1], 0.03) == pytest.approx(10.05)
    assert usual([10.0, 10.1, 9.9, 10.0, 14.0, 14.0, 14.0], 0.03) == 10.0
    assert usual([9.0, 10.0, 10.1, 9.9, 10.0, 10.1, 10.0], 0.03) == 10.0  # one fast moment is no norm
    assert usual([7.0], 0.03) == 7.0


def test_chosen_architectures_are_different_and_hold_both_ends(space):
    chosen = choose_architectures(space, 50, seed=4)
    assert len(set(chosen)) == 50
    assert chosen[:2] == [space.smallest(), space.largest()]
    assert chosen == choose_architectures(space, 50, seed=4) != choose_architectures(space, 50, seed=5)
    assert all(map(space.contains, chosen))


def test_a_tiny_space_gives_all_it_has(space):
    tiny = replace(space, **{name: choices[:1] for name, choices in space.to_dict().items()})
    assert len(choose_architectures(replace(tiny, decoder_ffn_dim=(128, 256)), 50, seed=0)) == 2


@pytest.mark.parametrize(
    "wrong", [{"reference_every": 0}, {"reference_every": 6}, {"drift_tolerance": 0.0}, {"max_repeats": -1}]
)
def test_a_bad_setting_is_named(wrong):
    (name,) = wrong
    with pytest.raises(InputError, match=f"measure.{name}"):
        MeasureSettings(**wrong)


def test_random_disturbances_leave_no_large_error(tmp_path, make_device, space, conditions):
    rng = random.Random(11)
    slow = {start + k for start in rng.sample(range(120), 5) for k in range(rng.randint(2, 8))}
    device = make_device(slowness=lambda n: 1.4 if n in slow else 1.0, noise=0.003)
    architectures = choose_architectures(space, 40, seed=1)
    measured = measure(
        architectures, device, space.largest(), tmp_path / "r.csv", conditions, pause=lambda s: None, quiet=True
    )
    errors = sorted(abs(record.latency_ms / device.true_ms(record.arch) - 1) for record in measured.records)
    assert errors[-3] < 0.03  # a disturbance that both begins and ends inside one block is invisible to the reference
