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


HAT_BLEU = "BLEU of Moses tokens with compounds split, as HAT reports it"
DIFFERENCE = {
    "bleu_a": "BLEU of the first",
    "bleu_b": "BLEU of the second",
    "difference": "second minus first",
    "interval_a": "95 % bootstrap interval of the first",
    "interval_b": "95 % bootstrap interval of the second",
    "p_value": "how often resampling alone gives such a difference, in either direction",
    "signature": "sacreBLEU's signature",
    "samples": "bootstrap samples",
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
    "rehearsed_tokens": "tokens of the one batch per update; fewer than batch_tokens to save memory or time; 0 = none",
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
    "targets[].measured_ms": "latency of the finished bundle on the device; null where that is not at hand",
    "targets[].timed": "beam, batch_size, source_length and target_length that limit and measured latency are of",
    "targets[].scored.beam": "hypotheses per line with which the test set was translated",
    "targets[].scored.median_ms": "what a line of it took then, tokenization included",
    "targets[].predicted_ms": "its predicted latency where the device is not at hand; else null",
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

FIGURES = "mape, rmse_ms, r2, r2_within_depth (or null), kendall_tau, within_5, within_10 (percent)"
LATENCY_DATA = {
    "input": "the file that was read",
    "output": "the folder that was written",
    "device": "the name that was given",
    "rows": "rows of the file",
    "slow_rows": "rows in slow blocks, which the predictor was fitted without",
    "slow_blocks[].first?": "first row of a block that was measured while the device was slow, from 0 (one entry each)",
    "slow_blocks[].last?": "its last row",
    "slow_blocks[].rows?": "how many",
    "slow_blocks[].excess_percent?": "how much slower they are than the other rows explain, median",
    "study.splits": "shuffled 80/10/10 splits, over which all figures are means",
    "study.mlp_settings": "how HAT's network was trained, with lat_norm_ms; null with --no-mlp",
    "study.rows.all.rows": "rows that are split",
    "study.rows.all.default": f"fitformer's predictor: {FIGURES}",
    "study.rows.all.default_50": "the same, fitted to 50 rows of each training part",
    "study.rows.all.mlp?": "the same of HAT's network (not with --no-mlp)",
    "study.rows.clean": "the same as study.rows.all, slow blocks left out",
    "study.ablation_splits?": "splits of the ablation (only with --ablation)",
    "study.ablation?": "figures of HAT's network on the clean rows, by variant (only with --ablation)",
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
        "rehearsal.vocab_size.from": "'bundle', 'run', 'recipe' or 'assumed'",
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
        "translations[].outputs[].tokens?": "its Moses tokens, of a bundle that writes such; else null",
        "translations[].parts?": "parts that a line too long for the model was split into; else 1",
    },
    "evaluate": {
        "bundle": "folder of the bundle",
        "sentences": "number of lines",
        **_score("bleu", "BLEU of plain text"),
        **_score("chrf", "chrF of plain text"),
        **_score("legacy_bleu", f"{HAT_BLEU} (only with --legacy-bleu)", optional=True),
        **_score("lowercase_bleu", "BLEU of lower-cased, tokenised text (only with --lowercase-bleu)", optional=True),
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
        **_score("bundles[].legacy_bleu", f"{HAT_BLEU} (only with --legacy-bleu)", optional=True),
        **{f"difference.{key}": meaning for key, meaning in DIFFERENCE.items()},
        **{
            f"legacy_difference.{key}?": f"tokenised (only with --legacy-bleu): {meaning}"
            for key, meaning in DIFFERENCE.items()
        },
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
        "other_models[].part?": "target of a finished training that had to do with another model (one entry each)",
        "other_models[].role?": "'teacher' or 'bundle trained on'",
        "other_models[].name?": "the recipe that a bundle came from, or the name of the folder",
        "other_models[].folder?": "where it was",
        "other_models[].identity?": "a digest of its files",
        "other_models[].note?": "lines learned in a teacher's translation, or how a bundle's weights were read",
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
        "vocab_size_from": "'given', 'bundle', 'recipe', 'run' or 'assumed'",
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
    "import hat-latency": LATENCY_DATA,
    "import hat-predictor": {
        "input": "the file that was read",
        "output": "the predictor that was written",
        "device": "the name that was given, else the file's",
        "hidden_layers": "layers with a ReLU",
        "parameters": "weights and biases",
        "feature_norm": "divisors of HAT's ten features",
        "lat_norm_ms": "what the network's output is multiplied with",
        "smallest_ms": "prediction for the smallest architecture of the space hat-latency",
        "largest_ms": "prediction for the largest",
    },
    "import hat-checkpoint": {
        "checkpoint": "the file that was read",
        "kind": "'bundle' (with --config) or 'run'",
        "output": "the bundle or run folder that was written",
        "languages": "[source, target], from the checkpoint or the names of the dictionaries; 'und' where neither says",
        "vocab_size.source": "ids of the source side",
        "vocab_size.target": "ids of the target side",
        "params.hat": "parameters as HAT counts them: no embeddings, no output layer; of a run's largest architecture",
        "params.total": "all parameters of the bundle's model, or of the whole SuperTransformer",
        "architecture?": "the SubTransformer in its one-line form (only for a bundle)",
        "golden?": "number of golden translations recorded (only for a bundle)",
        "check.sentences?": "lines decoded in PyTorch and in the bundle (only for a bundle)",
        "check.left_out?": "lines that are too long for it",
        "check.precision?": "fp32",
        "check.greedy?": "numbers of lines: equal, ties, different",
        "check.beam?": "the same with a beam, and its size",
        "check.max_logit_difference?": "largest difference of a logit between the two",
        "check.next_token_agreement?": "share of positions with the same most probable token",
        "recipe?": "the recipe to go on with (only for a run)",
        "space.size?": "exact number of architectures (only for a run)",
        "space.largest?": "the largest architecture in its one-line form",
        "space.smallest?": "the smallest",
        "valid?": "validation losses of the imported weights by architecture, nats per token (only for a run)",
        "warnings": "what may be a mix-up or will be missed later, a line each",
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
