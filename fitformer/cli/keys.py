"""The keys of every command's ``--json`` document: the only list, tested against real output and printed into the docs.

``a.b`` is key ``b`` of the object ``a``, ``a[].b`` the same for each object of the list ``a``; a final ``?`` marks a
key that is only there under the condition its meaning names. Below a key whose meaning names another place (such as
the device card) nothing more is listed.
"""

from __future__ import annotations

from typing import Any

SCORE = {
    "score": "the score, 0 to 100",
    "interval": "95 % bootstrap interval, [low, high]",
    "signature": "sacreBLEU's signature: exactly how it was computed",
}


def _score(name: str, meaning: str, *, optional: bool = False) -> dict[str, str]:
    mark = "?" if optional else ""
    return {f"{name}.{key}{mark}": f"{meaning}: {text}" for key, text in SCORE.items()}


def _convention(name: str, meaning: str) -> dict[str, str]:
    keys = {
        "params": f"parameters: {meaning}",
        "macs": "Mult-Adds for one sentence of the first length",
        "flops": "two per Mult-Add",
        "params_by_operator?": "parameters by operator (only with --by-operator)",
        "params_share_by_operator?": "the same in percent",
        "lengths[].length": "source and target tokens; one entry per length asked for",
        "lengths[].macs": "Mult-Adds for one sentence of that length",
        "lengths[].flops": "two per Mult-Add",
        "lengths[].macs_by_operator?": "Mult-Adds by operator (only with --by-operator)",
        "lengths[].macs_share_by_operator?": "the same in percent",
    }
    entries = {f"architectures[].conventions.{name}.{key}": text for key, text in keys.items()}
    alone = {key.removesuffix("?"): text for key, text in keys.items()}
    return entries | {f"conventions.{name}.{key}?": f"{text}; only for one architecture" for key, text in alone.items()}


def _cost(prefix: str) -> dict[str, str]:
    return {
        f"{prefix}.device_hours": "hours times GPUs; without a GPU, hours of the machine; killed sessions count",
        f"{prefix}.kwh": "energy, with the power usage effectiveness of the recipe's section cost",
        f"{prefix}.co2_kg": "kilograms of CO2",
        f"{prefix}.price": "price of so many hours in a cloud",
        f"{prefix}.currency": "of the price",
        f"{prefix}.basis": "'measured', 'estimated' or 'partly measured': where the energy is from",
    }


REHEARSED = {
    "stage": "supernet or train (one entry for each that is still to be done)",
    "architecture": "what was rehearsed: the space's largest architecture, or the recipe's",
    "params": "parameters of the whole model",
    "memory.weights": "bytes",
    "memory.gradients": "bytes",
    "memory.optimizer": "bytes of Adam's moments",
    "memory.activations": "bytes at the recipe's batch_tokens: activations and everything else",
    "memory.total": "the sum",
    "memory.basis": "'measured', or 'estimated' by a rule of thumb: where activations are from",
    "memory.process_peak": "most memory that the process held, programs included; null where it was not rehearsed",
    "device": "cpu or cuda",
    "precision": "fp32 or bf16",
    "rehearsed_tokens": "tokens of the one batch per update; fewer than batch_tokens for want of memory; 0 = none",
    "losses": "mean loss per target token of each update, in nats",
    "pass_seconds": "forward and backward of that batch, the fastest; null where it was not rehearsed",
    "optimizer_seconds": "clipping and one optimizer step; null where it was not rehearsed",
    "batch_tokens": "of the recipe",
    "accumulate": "of the recipe",
    "updates": "of the recipe",
    "trainings": "how many are to be done: one per target",
    "average_share": "Mult-Adds of an average update per those of the rehearsed one; time is scaled by it",
    "flops_per_update": "floating-point operations of an average update",
    "seconds_per_update": "of an average update on this machine; null where it was not rehearsed",
    "here": "cost of the whole training on this machine; null where it was not rehearsed: device_hours, kwh, ...",
    "gpu": "the same by Mult-Adds on one GPU, see gpu_assumed",
}
DEVICE = "the device card: processor, cores, threads, governor, memory, system, versions, date"
DECODING = "beam, length_penalty, n_best, max_length_ratio, max_length_offset, no_repeat_ngram, min_length"

FIT = {
    "run": "folder of the run",
    "targets[].target": "name of the target, DEVICE@LIMIT",
    "targets[].bundle": "folder of the bundle",
    "targets[].limit_ms": "the limit in milliseconds; null where there is none",
    "targets[].measured_ms": "latency of the finished bundle on the device",
    "targets[].precision": "fp32 or int8",
    **_score("targets[].scores.bleu", "BLEU on the test set"),
    **_score("targets[].scores.chrf", "chrF on the test set"),
    "targets[].baselines": "split, sentences, train_pairs, and BLEU and chrF of copy_source and nearest_translation",
    "targets[].samples[].source": "an unseen line",
    "targets[].samples[].reference": "its translation by a person",
    "targets[].samples[].translation": "its translation by the bundle",
    **_cost("cost"),
    "cost.basis_line": "the same in words",
    "cost.stages[].stage": "a stage with its device or target, and its own share of the above",
    **_cost("cost.stages[]"),
    "report": "the HTML page; null before the stage report",
}

JSON_KEYS: dict[str, dict[str, str]] = {
    "fit": FIT,
    "fit --dry-run": {
        "run": "folder of the run",
        "stages[].stage": "a stage, with its device or target",
        "stages[].state": "'done', 'begun' or 'to do'",
        "space.size?": "exact number of architectures (not for a recipe with a fixed architecture)",
        "space.largest?": "the largest architecture in its one-line form",
        "space.smallest?": "the smallest",
        "missing_files": "files of the recipe that are not there; none once the text is prepared",
        "rehearsal.updates": "updates that each model made",
        "rehearsal.lengths.source": "mean tokens of a generated source sentence, its end mark included",
        "rehearsal.lengths.target": "the same of a target sentence",
        "rehearsal.lengths.from": "'run' (prepared text), 'recipe' (section measure) or 'assumed'",
        "rehearsal.vocab_size.source": "source vocabulary",
        "rehearsal.vocab_size.target": "target vocabulary",
        "rehearsal.vocab_size.from": "'run', 'recipe' or 'assumed'",
        **{f"rehearsal.models[].{key}?": meaning for key, meaning in REHEARSED.items()},
        "rehearsal.here": "cost of all trainings on this machine, as in fit; null where one was not rehearsed",
        "rehearsal.gpu": "the same by Mult-Adds on one GPU",
        "rehearsal.gpu_assumed": "the GPU that 'gpu' stands for",
    },
    "init": {"recipe": "the file that was written"},
    "translate": {
        "lines": "number of lines",
        "seconds": "time for all of them, without loading the bundle",
        "decoding": DECODING,
        "output?": "the file that was written (only with --output)",
        "translations[].outputs[].text?": "a translation, best first (without --output)",
        "translations[].outputs[].score?": "log-probability over length to the power of the length penalty, or null",
        "translations[].outputs[].log_prob?": "its natural-log probability; null for greedy search without --scores",
        "translations[].parts?": "parts that a line too long for the model was split into; else 1",
    },
    "evaluate": {
        "bundle": "folder of the bundle",
        "sentences": "number of lines",
        **_score("bleu", "BLEU of plain text"),
        **_score("chrf", "chrF of plain text"),
        **_score("legacy_bleu", "BLEU of lower-cased, tokenised text (only with --legacy-bleu)", optional=True),
        **_score("tokenised_bleu", "the same against a given file (only with --tokenised-reference)", optional=True),
        "sentences_per_s": "lines per second in batches",
        "seconds": "time for all lines in batches",
        "batch_size": "lines per batch",
        "latency_ms.mean": "milliseconds per line, one at a time, tokenization included",
        "latency_ms.median": "the same, median",
        "latency_ms.sentences": "number of lines timed",
        "decoding": DECODING,
        "device": DEVICE,
    },
    "compare": {
        "sentences": "number of lines",
        "bundles[].bundle": "folder of a bundle, in the order given",
        "bundles[].precision": "fp32 or int8",
        "bundles[].bytes": "size on the disk",
        **_score("bundles[].bleu", "BLEU"),
        **_score("bundles[].chrf", "chrF"),
        "bundles[].sentences_per_s": "lines per second in batches",
        "bundles[].batch_size": "lines per batch",
        "bundles[].latency_ms": "mean, median and sentences, as in evaluate",
        "bundles[].decoding": DECODING,
        "difference.bleu_a": "BLEU of the first",
        "difference.bleu_b": "BLEU of the second",
        "difference.difference": "second minus first",
        "difference.interval_a": "95 % bootstrap interval of the first",
        "difference.interval_b": "95 % bootstrap interval of the second",
        "difference.p_value": "how often resampling alone gives such a difference, in either direction",
        "difference.signature": "sacreBLEU's signature",
        "difference.samples": "bootstrap samples",
        "device": DEVICE,
    },
    "verify": {
        "bundle": "folder of the bundle",
        "files": "number of files, all unchanged",
        "golden": "number of golden translations, all the same",
        "latency[].recorded_ms?": "latency in the bundle's record (one entry per record)",
        "latency[].measured_ms?": "latency measured now",
        "latency[].limit_ms?": "limit of the record, or null",
        "latency[].same_device?": "whether this is the processor of the record",
        "latency[].kept?": "whether the limit is kept; null where it does not apply",
        "device": DEVICE,
    },
    "status": {
        "run": "folder of the run",
        "stages[].stage": "name of a stage",
        "stages[].part": "the device or target, or empty",
        "stages[].state": "'done', 'begun', 'to do', or 'skipped' (searching stages of a fixed architecture)",
        "stages[].update": "last logged update of a training that is not done; else null",
        "stages[].seconds": "time it took, all sessions together; null before it is done",
        "stages[].finished": "when it was done; null before",
        "stages[].bytes": "size on the disk",
        **_cost("stages[].cost"),
        **_cost("cost"),
        "cost.basis_line": "the same in words",
        "cost.rates_line": "the constants that were used",
        "seconds": "time of all finished stages",
        "bytes": "size of the run on the disk",
        "bundles": "folders of the finished bundles",
        "report": "the HTML page; null before there is one",
        "deletable[].path?": "a file or folder that may be deleted (one entry each)",
        "deletable[].bytes?": "its size",
        "deletable[].why?": "why it may",
    },
    "profile": {
        "name": "the recipe's, the preset's or the files'",
        "size": "exact number of architectures",
        "dimensions": "choices of each dimension; null where there is no space",
        "vocab_size.source": "source vocabulary",
        "vocab_size.target": "target vocabulary",
        "vocab_size_from": "'given', 'recipe', 'run' or 'assumed'",
        "share_embeddings": "all, decoder or none",
        "beam": "hypotheses decoded at once in the convention total",
        "architectures[].name": "smallest, largest, given, or the name of the file",
        "architectures[].architecture": "its one-line form",
        **_convention("hat", "of all layers, without embeddings, output layer and last norms"),
        **_convention("total", "everything"),
    },
    "devices": {
        "device": DEVICE,
        "energy.measured": "parts whose energy this machine measures: cpu, ram, gpu; may be empty",
        "energy.note": "why no more; empty where all is measured",
        "recipe_devices[].name?": "a device of the recipe (only with --recipe)",
        "recipe_devices[].threads?": "its threads",
        "recipe_devices[].targets?": "the recipe's targets on it",
    },
    "import hat-config": {
        "input": "the file that was read",
        "from": "whose form it has: 'hat' or 'fitformer'; it was translated into the other",
        "kind": "'architecture' or 'space'",
        "architecture?": "the architecture, fields as in a run's best.json (only for one)",
        "text?": "its one-line form (only for an architecture)",
        "space?": "choices of each dimension (only for a space)",
        "size?": "exact number of its architectures (only for a space)",
        "output": "the file that was written; null without --output",
    },
}
ERROR_KEYS = {"error": "the line that stderr shows", "exit_code": "2 wrong usage or input, 1 could not be done"}


def undocumented(command: str, document: dict[str, Any]) -> tuple[set[str], set[str]]:
    """Keys of a real document that are not in the list, and keys of the list that it must have and has not."""
    listed = {key.removesuffix("?") for key in JSON_KEYS[command]}
    needed = {key for key in JSON_KEYS[command] if not key.endswith("?")}
    found = set(_flat(document))
    described = {key for key in found if any(_covers(name, key) for name in listed)}
    present = {name for name in needed if any(_covers(name, key) for key in found)}
    return found - described, needed - present


def _covers(name: str, key: str) -> bool:
    return key == name or key.startswith((f"{name}.", f"{name}[]"))


def markdown() -> str:
    """The lists as a page of the documentation."""
    lines = ["# What `--json` prints", ""]
    lines += ["The last line of stdout is one JSON document; everything else goes to stderr.", ""]
    lines += ["Each stage's own command prints what `fit` prints.", ""]
    for command, keys in {**JSON_KEYS, "a failure": ERROR_KEYS}.items():
        title = f"`fitformer {command}`" if command in JSON_KEYS else "When a command fails"
        lines += [f"## {title}", "", "| key | meaning |", "|---|---|"]
        lines += [f"| `{key.removesuffix('?')}` | {meaning} |" for key, meaning in keys.items()] + [""]
    return "\n".join(lines)


def _flat(value: Any, prefix: str = "") -> list[str]:
    if isinstance(value, dict) and value:
        return [key for name, item in value.items() for key in _flat(item, f"{prefix}.{name}" if prefix else name)]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [key for item in value for key in _flat(item, f"{prefix}[]")]
    return [prefix]


if __name__ == "__main__":
    print(markdown(), end="")
