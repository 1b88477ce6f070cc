"""A run folder as the stages leave it, made in a moment: real writers where they need no model, invented figures."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitformer.compress.decide import decide
from fitformer.latency import Conditions, LatencyDataset, LatencyPredictor, LatencyRecord, cross_validate
from fitformer.rundir import write_json, write_text
from fitformer.search import Candidate, Finalist, History
from fitformer.search.front import write_front
from fitformer.space import Architecture, SearchSpace
from fitformer.stages import STAGES, Stage

MakeRun = Callable[..., Path]
CONDITIONS = Conditions(threads=1, batch_size=1, beam=1, source_length=14, target_length=15, exporter_version=1)
CARD = {
    "name": "cpu",
    "cpu": "Imaginary Processor X1",
    "cores": 2,
    "threads": 1,
    "governor": "performance",
    "memory_gib": 8.0,
    "system": "Linux-6.1",
    "machine": "x86_64",
    "python": "3.11.9",
    "versions": {"fitformer": "0.1.0", "onnxruntime": "1.20.0", "numpy": "2.1.0"},
    "date": "2026-11-30T12:00:00+00:00",
}
_SEARCHED = {"generations": 4, "generations_without_gain": 1, "rounds": 1, "measured": 5, "predictor_error": 2.1}
PAIRS = [
    ("A man in a blue shirt stands on a ladder.", "Ein Mann in einem blauen Hemd steht auf einer Leiter."),
    ("Two dogs run over the grass.", "Zwei Hunde laufen über das Gras."),
    ("A little girl climbs into a wooden playhouse.", "Ein kleines Mädchen klettert in ein Spielhaus aus Holz."),
]


def cost(arch: Architecture) -> float:
    """Milliseconds of an imaginary device."""
    encoder = arch.encoder_embed_dim * (sum(arch.encoder_ffn_dim) + 2 * sum(arch.encoder_qkv_dim)) / 4e5
    decoder = arch.decoder_embed_dim * (sum(arch.decoder_ffn_dim) + 4 * sum(arch.decoder_qkv_dim)) / 6e4
    return 0.4 + encoder + decoder + 0.5 * arch.decoder_num_layers


def loss(arch: Architecture, rng: random.Random) -> float:
    """A loss that falls with latency, as losses do."""
    return 2.2 + 2.5 / (cost(arch) + 1.5) + rng.gauss(0, 0.012)


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """``make_run(until=STAGE, targets=[...], fixed=False, ...)`` writes a run folder and returns its path."""

    def make(
        *,
        until: str = "report",
        targets: tuple[str, ...] = ("cpu@50%",),
        fixed: bool = False,
        name: str = "fake-run",
        evaluated: int = 200,
    ) -> Path:
        run = tmp_path / name
        space = SearchSpace.preset("small")
        last = STAGES.index(until)
        _recipe(run, targets, fixed)
        _prepare(run)
        if not fixed and last >= STAGES.index("supernet"):
            _supernet(run, space)
        if not fixed and last >= STAGES.index("measure"):
            for device in {target.partition("@")[0] for target in targets}:
                _measure(run, device, space)
        for target in targets:
            arch = space.sample(random.Random(target))
            limit = cost(space.largest()) * (0.5 if target.endswith("50%") else 0.4)
            if not fixed and last >= STAGES.index("search"):
                arch = _search(run, target, space, limit, evaluated)
            if last >= STAGES.index("train"):
                _train(run, target, arch)
            if last >= STAGES.index("compress"):
                _compress(run, target, arch)
            if last >= STAGES.index("export"):
                _export(run, target, arch, None if fixed else limit)
        return run

    return make


def _done(run: Path, stage: str, part: str, inputs: dict[str, Any], facts: dict[str, Any], seconds: float) -> None:
    Stage(run, stage, part).perform(inputs, lambda folder: {**facts, "seconds": seconds})


def _recipe(run: Path, targets: tuple[str, ...], fixed: bool) -> None:
    listed = [{"device": t.partition("@")[0], "latency": t.partition("@")[2]} for t in targets]
    what = (
        {"architecture": "enc 64: 128/64/2 | dec 64: 128/64/2/2@0"} if fixed else {"space": "small", "targets": listed}
    )
    write_text(run / "recipe.yaml", json.dumps({"name": run.name, "seed": 7, **what}, indent=1) + "\n")


def _prepare(run: Path) -> None:
    split = {"pairs": 3, "tokens": {"source": 30, "target": 33}, "median_lengths": {"source": 14.0, "target": 15.0}}
    dropped = {"empty": 2, "too_long": 0, "ratio": 11, "too_many_tokens": 0, "in_evaluation": 4, "repeated": 321}
    stats = {
        "source_language": "en",
        "target_language": "de",
        "licence": "CC BY 4.0",
        "vocab_size": {"source": 4000, "target": 4000},
        "median_lengths": {"source": 14.0, "target": 15.0},
        "tokenizer": {"kind": "unigram", "joint": True, "kept_whole": ["{name}", "<b>", "</b>", "%s"]},
        "train": {**split, "read": 20338, "pairs": 20000, "dropped": dropped, "held_out": 0},
        "valid": {**split, "read": 3, "dropped": {"empty": 0}, "held_out": False},
        "test": {**split, "read": 3, "dropped": {"empty": 0}, "held_out": False},
        "inputs": {"train": {"/data/train.en": "ab" * 32, "/data/train.de": "cd" * 32}},
    }
    write_json(run / "prepare" / "stats.json", stats)
    for name in ("valid", "test"):
        for side, lines in zip(("source", "target"), zip(*PAIRS, strict=True), strict=True):
            write_text(run / "prepare" / f"{name}.{side}.txt", "".join(f"{line}\n" for line in lines))
    _done(run, "prepare", "", {"data": {}}, stats, 12.5)


def _log(folder: Path, names: list[str], updates: int) -> None:
    rng, lines = random.Random(1), []
    for update in range(50, updates + 1, 50):
        value = 2.6 + 6 * 0.5 ** (update / 300) + rng.gauss(0, 0.03)
        figures = {"learning_rate": 2e-3 * min(update / 400, (400 / update) ** 0.5), "epoch": update // 200}
        speed = {"target_tokens": 900 * update, "tokens_per_s": 6000 + rng.gauss(0, 60), "seconds": 0.15 * update}
        lines.append({"update": update, "loss": value, **figures, **speed})
        if update % 500 == 0:
            lines.append({"update": update, "valid": {n: value - 0.2 + 0.1 * i for i, n in enumerate(names)}})
    write_text(folder / "log.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def _supernet(run: Path, space: SearchSpace) -> None:
    _log(run / "supernet", ["largest", "smallest", "drawn 1", "drawn 2"], 5000)
    write_json(run / "supernet" / "model.json", {"config": {}, "space": space.to_dict()})
    facts = {"updates": 5000, "target_tokens": 4_500_000, "epochs": 9, "averaged": 5, "valid": {"largest": 2.41}}
    settings = {"updates": 5000, "batch_tokens": 1024, "learning_rate": 2e-3, "dropout": 0.1}
    _done(run, "supernet", "", {"seed": 7, "supernet": settings}, facts, 1800.0)


def _measure(run: Path, device: str, space: SearchSpace) -> None:
    folder, rng, records = run / "measure" / device, random.Random(2), []
    chosen = [space.smallest(), space.largest(), *(space.sample(rng) for _ in range(28))]
    for index, arch in enumerate(dict.fromkeys(chosen)):
        slow = 1.3 if index == 20 else 1.0
        before, after = (4.0 * slow * rng.gauss(1, 0.008) for _ in range(2))
        milliseconds = cost(arch) * rng.gauss(1, 0.02)
        records.append(
            LatencyRecord(
                architecture=arch.to_text(),
                encoder_ms=0.3 * milliseconds,
                decoder_ms=0.7 * milliseconds,
                latency_ms=milliseconds,
                std_ms=0.01 * milliseconds,
                min_ms=0.98 * milliseconds,
                repeats=20,
                **CONDITIONS.to_dict(),
                reference_before_ms=before,
                reference_after_ms=after,
                correction=8.0 / (before + after),
                drifted=slow > 1,
                attempt=1,
                index=index,
                timestamp=f"2026-11-30T12:{index:02d}:00+00:00",
            )
        )
    LatencyDataset(folder / "records.csv", CONDITIONS).append(records)
    LatencyPredictor.fit(records, device=CARD).save(folder / "predictor.json")
    write_json(folder / "device.json", CARD)
    write_json(folder / "quality.json", cross_validate(records).to_dict())
    facts = {
        "largest_ms": cost(space.largest()),
        "reference_ms": 4.0,
        "drifted": 1,
        "repeated": 2,
        "reused": 0,
        "ignored": 0,
    }
    _done(run, "measure", device, {"measure": {"drift_tolerance": 0.05}}, facts, 300.0)


def _search(run: Path, target: str, space: SearchSpace, limit: float, evaluated: int) -> Architecture:
    folder, rng = run / "search" / target, random.Random(3)
    history = History(folder / "history.jsonl")
    seen: dict[Architecture, None] = {}
    while len(seen) < evaluated:
        seen[space.sample(rng)] = None
    for number, arch in enumerate(seen):
        if cost(arch) <= 1.15 * limit:
            history.append(Candidate(arch, loss(arch, rng), cost(arch), number // 50))
    write_front(folder / "front.json", history.candidates)
    within = sorted((c for c in history.candidates if c.predicted_ms <= 0.97 * limit), key=lambda c: c.order)[:5]
    finalists = [
        Finalist(c.architecture, c.valid_loss, c.predicted_ms, c.predicted_ms * rng.uniform(0.96, 1.02), 1)
        for c in within
    ]
    winner = min((f for f in finalists if f.measured_ms <= limit), key=lambda f: f.valid_loss)
    write_json(folder / "candidates.json", [finalist.to_dict() for finalist in finalists])
    best = {**winner.to_dict(), "architecture": winner.architecture.to_dict(), "text": winner.architecture.to_text()}
    write_json(folder / "best.json", {**best, "limit_ms": limit})
    _done(
        run, "search", target, {"search": {"margin": 0.03}}, _SEARCHED | {"evaluations": len(history.candidates)}, 600.0
    )
    return winner.architecture


def _train(run: Path, target: str, arch: Architecture) -> None:
    folder = run / "train" / target
    _log(folder, ["loss", "nll"], 2000)
    write_json(folder / "model.json", {"config": {}, "architecture": arch.to_dict()})
    facts = {
        "updates": 2000,
        "target_tokens": 1_800_000,
        "epochs": 4,
        "averaged": 1,
        "valid": {"loss": 2.3, "nll": 1.5},
    }
    _done(run, "train", target, {"seed": 7, "train": {"updates": 2000, "start": "inherited"}}, facts, 700.0)


def _compress(run: Path, target: str, arch: Architecture) -> None:
    decision = decide(
        fp32_ms=cost(arch), int8_ms=cost(arch) / 1.6, fp32_bleu=33.4, int8_bleu=33.3, allowed_loss=0.3
    ).to_dict()
    decision["bytes"] = {"fp32": 12_300_000, "int8": 4_100_000}
    write_json(run / "compress" / target / "decision.json", decision)
    write_json(run / "compress" / target / "int8" / "fitformer.json", {"precision": "int8"})
    _done(run, "compress", target, {"compress": {}}, decision, 90.0)


def _score(value: float, signature: str) -> dict[str, Any]:
    return {"score": value, "interval": [value - 1.2, value + 1.2], "signature": signature}


def _scores(bleu: float, chrf: float) -> dict[str, Any]:
    return {
        "bleu": _score(bleu, "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.4.3"),
        "chrf": _score(chrf, "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.4.3"),
    }


def _export(run: Path, target: str, arch: Architecture, limit: float | None) -> None:
    folder = run / "export" / target
    for name in ("encoder.onnx", "decoder.onnx", "joint.model"):
        write_text(folder / name, "x" * 1000)
    measured = {
        "latency_ms": cost(arch) / 1.6,
        "encoder_ms": cost(arch) / 6,
        "decoder_ms": cost(arch) / 2,
        "std_ms": 0.03,
    }
    scores = _scores(33.1, 58.2) | {
        "legacy_bleu": _score(34.2, "nrefs:1|case:mixed|eff:no|tok:none|smooth:none|version:2.4.3|text:moses.de"),
        "lowercase_bleu": _score(35.6, "nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:2.4.3"),
    }
    bundle: dict[str, Any] = {
        "format_version": 1,
        "exporter_version": 1,
        "fitformer_version": "0.1.0",
        "task": "translation",
        "source_language": "en",
        "target_language": "de",
        "architecture": arch.to_dict(),
        "architecture_text": arch.to_text(),
        "precision": "int8",
        "max_source_length": 256,
        "decoding": {
            "beam": 4,
            "length_penalty": 1.0,
            "max_length_ratio": 2.0,
            "max_length_offset": 10,
            "no_repeat_ngram": 0,
        },
        "files": dict.fromkeys(("encoder.onnx", "decoder.onnx", "joint.model"), "ef" * 32),
        "golden": [{"source": source, "text": text} for source, text in PAIRS],
        "scores": {"test": {"sentences": 1000, **scores}},
        "latency": [
            {
                "precision": "int8",
                **measured,
                "limit_ms": limit,
                "threads": 1,
                "batch_size": 1,
                "beam": 1,
                "source_length": 14,
                "target_length": 15,
                "warmup": 3,
                "repeats": 20,
                "device": CARD,
            }
        ],
        "licence": "CC BY 4.0",
        "training": {"seed": 7},
    }
    write_json(folder / "fitformer.json", bundle)
    samples = [{"source": s, "reference": r, "translation": r.replace("Ein ", "Der ")} for s, r in PAIRS]
    write_text(folder / "test.translations.txt", "".join(f"{sample['translation']}\n" for sample in samples))
    logits = {"max_logit_difference": 3e-6, "next_token_agreement": 1.0}
    fp32 = {
        "greedy": {"equal": 200, "ties": 0, "different": 0},
        "beam": {"equal": 199, "ties": 1, "different": 0, "size": 4},
    }
    int8 = {
        "greedy": {"equal": 183, "ties": 0, "different": 17},
        "beam": {"equal": 176, "ties": 0, "different": 24, "size": 4},
    }
    evaluation = {
        "sentences_per_s": 210.0,
        "seconds": 4.8,
        "batch_size": 16,
        "latency_ms": {"mean": 9.1, "median": 8.8, "sentences": 100},
        "decoding": bundle["decoding"],
        "device": CARD,
    }
    facts = {
        "check": {
            "fp32": {"sentences": 200, "left_out": 0, "precision": "fp32", **fp32, **logits},
            "int8": {
                "sentences": 200,
                "left_out": 0,
                "precision": "int8",
                **int8,
                **logits,
                "next_token_agreement": 0.991,
            },
        },
        "latency": bundle["latency"][0],
        "limit_ms": limit,
        "precision": "int8",
        "scores": {"sentences": 1000, **scores, **evaluation},
        "baselines": _baselines(),
        "samples": samples,
        "bundle_bytes": 3000,
    }
    _done(run, "export", target, {"export": {}}, facts, 60.0)


def _baselines() -> dict[str, Any]:
    return {
        "split": "test",
        "sentences": 1000,
        "train_pairs": 20000,
        "copy_source": _scores(0.5, 15.8),
        "nearest_translation": _scores(7.7, 32.6),
    }
