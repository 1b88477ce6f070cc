"""A device that is not at hand: its latency comes from a predictor made elsewhere, and nobody pretends to measure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fitformer.errors import InputError, NotPossibleError
from fitformer.latency import AnyPredictor, load_predictor, try_predictor
from fitformer.pipeline.run import Run
from fitformer.pipeline.timing import conditions_of, limit_of
from fitformer.progress import say
from fitformer.recipe import Target
from fitformer.rundir import sha256, write_json
from fitformer.space import Architecture

MOST_NAMED = 4  # features in a message


def is_at_hand(run: Run, device: str) -> bool:
    """Whether latencies of the device are measured here."""
    return run.recipe.devices[device].predictor is None


def adopt_predictor(run: Run, device: str) -> dict[str, Any]:
    """The stage ``measure`` of such a device: take the given predictor, after trying it on the space.

    Its own conditions (batch, beam, lengths, threads) are what the limit is understood in. Where they are unknown or
    others than those of the recipe, that is said and recorded.

    Raises:
        InputError: the file is missing or no predictor, or it cannot predict this space.
    """
    given = _given_path(run, device)

    def work(folder: Path) -> dict[str, Any]:
        predictor, tried = _tried(run, device)
        note = _about_conditions(run, device, predictor)
        for line in (note, _about_range(tried)):
            if line:
                say(f"measure {device}: {line}")
        write_json(folder / "device.json", predictor.device)
        predictor.save(folder / "predictor.json")
        return {
            "predictor": str(given),
            "conditions": predictor.conditions.to_dict() if predictor.conditions else None,
            "conditions_note": note,
            **tried,
        }

    inputs = {
        "device": run.recipe.devices[device].model_dump(exclude={"predictor"}),
        **predictor_inputs(run, device),
        "space": run.space.to_dict(),
    }
    return run.stage("measure", device).perform(inputs, work)


def check_predictors(run: Run) -> None:
    """Find out before hours of training whether the given predictors will do.

    Raises:
        InputError: as ``adopt_predictor``.
    """
    for device in dict.fromkeys(target.device for target in run.recipe.targets):
        if is_at_hand(run, device):
            continue
        if run.recipe.space is None:
            _loaded(run, device)
        elif not run.stage("measure", device).is_done:
            _tried(run, device)


def _loaded(run: Run, device: str) -> AnyPredictor:
    predictor_inputs(run, device)  # says what is wrong with the path
    try:
        return load_predictor(_given_path(run, device))
    except InputError as error:
        raise InputError(f"devices.{device}.predictor: {error}") from None


def _tried(run: Run, device: str) -> tuple[AnyPredictor, dict[str, Any]]:
    predictor = _loaded(run, device)
    try:
        return predictor, try_predictor(predictor, run.space, seed=run.recipe.seed)
    except InputError as error:
        raise InputError(f"devices.{device}.predictor: {_given_path(run, device)}: {error}") from None


def not_measured(run: Run, device: str) -> str:
    """Why a latency of this device was not measured, for records and people."""
    name = _given_path(run, device).name
    return f"{device} is not at hand; its latency is predicted by {name} (devices.{device}.predictor)"


def predicted_latency(run: Run, target: Target, arch: Architecture) -> dict[str, Any]:
    """What is known of the finished model's latency on the target's device: ``predicted_ms``, ``limit_ms``, ``why``.

    Raises:
        NotPossibleError: the model is predicted to break the limit, as a fixed architecture may.
    """
    stage = run.stage("measure", target.device)
    searched = run.recipe.space is not None
    predictor = load_predictor(stage.folder / "predictor.json") if searched else _loaded(run, target.device)
    predicted_ms, limit_ms = predictor.predict_ms(arch), limit_of(run, target)
    if predicted_ms > limit_ms:
        raise NotPossibleError(
            f"export: the model is predicted to take {predicted_ms:.4g} ms on {target.device}, over the limit of "
            f"{limit_ms:.4g} ms; raise the limit or give a smaller architecture"
        )
    why = not_measured(run, target.device)
    say(f"export: predicted {predicted_ms:.4g} ms, limit {limit_ms:.4g} ms; not measured: {why}")
    return {"device": target.device, "predicted_ms": predicted_ms, "limit_ms": limit_ms, "not_measured": why}


def _given_path(run: Run, device: str) -> Path:
    path = run.recipe.devices[device].predictor
    assert path is not None, f"{device} is at hand"
    return path


def predictor_inputs(run: Run, device: str) -> dict[str, str]:
    """The given predictor's content as an input of stages; nothing where the device is at hand.

    Raises:
        InputError: the file is missing.
    """
    if is_at_hand(run, device):
        return {}
    path = _given_path(run, device)
    try:
        return {f"devices.{device}.predictor, SHA-256": sha256(path)}
    except OSError as error:
        raise InputError(f"devices.{device}.predictor: {path}: {error.strerror or error}") from None


def _about_conditions(run: Run, device: str, predictor: AnyPredictor) -> str | None:
    wanted = conditions_of(run, device).to_dict()
    if predictor.conditions is None:
        return (
            "the predictor does not say under which batch size, beam, lengths and threads its latencies hold; the "
            "limit is understood in its own terms"
        )
    have = predictor.conditions.to_dict()
    changed = [f"{name} {have[name]} (here {value})" for name, value in wanted.items() if have[name] != value]
    if not changed:
        return None
    return f"the predictor's latencies, and so the limit, hold for {', '.join(changed)}"


def _about_range(tried: dict[str, Any]) -> str | None:
    if not tried["outside"]:
        return None
    names = tried["outside_features"]
    features = ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if names[MOST_NAMED:] else "")
    return (
        f"{tried['outside']:.0f} % of the space lie outside what the predictor was fitted to ({features}); such "
        "latencies are extrapolated"
    )
