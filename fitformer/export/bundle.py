"""Writes a bundle: the folder that is all a user needs on the target (bundle format 1).

The folder appears whole or not at all. Golden outputs are computed by the runtime from the graphs just
written, so that ``fitformer verify`` on another machine compares like with like.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import fitformer
from fitformer.errors import InputError
from fitformer.export.graphs import EXPORTER_VERSION, FLOAT32, write_graphs
from fitformer.export.matrices import Matrices
from fitformer.models import Transformer
from fitformer.rundir import atomic_path, read_json, sha256, write_json
from fitformer.runtime.bundle import FACTS_FILE, FORMAT_VERSION, Bundle
from fitformer.runtime.decoding import EOS, DecodeSettings
from fitformer.runtime.lines import one_line
from fitformer.runtime.tokenizer import load_tokenizer
from fitformer.runtime.verify import golden_target

# Settings of one search that are the caller's business and not a bundle's default.
NOT_STORED = ("n_best", "min_length")
FIXED_BY_WRITING = ("files", "graphs", "architecture", "model", "precision", "golden", "format_version")


@dataclass(frozen=True)
class TokenizerFiles:
    """Tokenizer of a bundle: its kind as the runtime knows it, and one file per language (the same when joint).

    The kind ``subword-nmt`` also has ``codes`` (merges, unless the text is cut already) and flags as ``options``.
    """

    kind: str
    source: Path
    target: Path
    codes: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def write_bundle(
    folder: Path,
    *,
    model: Transformer,
    tokenizer: TokenizerFiles,
    source_language: str,
    target_language: str,
    decoding: DecodeSettings,
    golden_sources: Sequence[str],
    max_source_length: int | None = None,
    matrices: Matrices = FLOAT32,
    scores: dict[str, Any] | None = None,
    latency: Sequence[dict[str, Any]] = (),
    licence: str = "",
    training: dict[str, Any] | None = None,
) -> Bundle:
    """Write the bundle of a translation model and open it.

    Args:
        decoding: defaults for translating.
        golden_sources: lines whose greedy outputs are recorded; those without a token or too long are left out.
        max_source_length: most source tokens with eos; None for all the positions the model has.
        scores, latency, licence, training: facts to record; what is only known later is added by ``add_facts``.
    Raises:
        InputError: a tokenizer's vocabulary is not the model's.
        NotPossibleError: the folder cannot be written.
    """
    config, arch = model.config, model.arch
    with atomic_path(folder, is_dir=True) as temporary:
        graphs = {name: path.name for name, path in write_graphs(model, temporary, matrices=matrices).items()}
        names = _copy_tokenizer(tokenizer, temporary, taken={FACTS_FILE, *graphs.values()})
        files = sorted({*graphs.values(), *names.values()})
        facts: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "exporter_version": EXPORTER_VERSION,
            "fitformer_version": fitformer.__version__,
            "task": "translation",
            "source_language": source_language,
            "target_language": target_language,
            "architecture": arch.to_dict(),
            "architecture_text": arch.to_text(),
            "model": config.to_dict(),
            "precision": matrices.precision,
            "quantization": matrices.facts,
            "tokenizer": {"kind": tokenizer.kind, **names, **tokenizer.options},
            "graphs": graphs,
            "max_source_length": max_source_length or config.max_positions,
            "decoding": {key: value for key, value in asdict(decoding).items() if key not in NOT_STORED},
            "files": {name: sha256(temporary / name) for name in files},
            "golden": [],
            "scores": scores or {},
            "latency": list(latency),
            "licence": licence,
            "training": training or {},
        }
        write_json(temporary / FACTS_FILE, facts)
        facts["golden"] = _golden(Bundle.load(temporary, check=False), golden_sources)
        write_json(temporary / FACTS_FILE, facts)
    return Bundle.load(folder)


def add_facts(folder: Path, **facts: Any) -> Bundle:
    """Replace facts of a finished bundle, such as ``scores`` and ``latency``, and open it.

    Raises:
        InputError: a fact that describes the written files.
    """
    for name in facts:
        if name in FIXED_BY_WRITING:
            raise InputError(f"bundle: '{name}' describes the files as written and cannot be replaced")
    path = folder / FACTS_FILE
    write_json(path, read_json(path) | facts)
    return Bundle.load(folder)


def _copy_tokenizer(tokenizer: TokenizerFiles, folder: Path, *, taken: set[str]) -> dict[str, str]:
    """Copy the files; of different files with one name, each gets the part it plays in front.

    Raises:
        BundleError: one does not hold a tokenizer; it is named here, where it has the name that the user knows.
    """
    for path in dict.fromkeys((tokenizer.source, tokenizer.target)):
        load_tokenizer(tokenizer.kind, path, codes=tokenizer.codes, options=tokenizer.options)
    paths = {"source": tokenizer.source, "target": tokenizer.target}
    if tokenizer.codes is not None:
        paths["codes"] = tokenizer.codes
    names: dict[str, str] = {}
    for part, path in paths.items():
        clashes = taken | {other.name for other in paths.values() if other != path}
        names[part] = f"{part}.{path.name}" if path.name in clashes else path.name
        shutil.copyfile(path, folder / names[part])
    return names


def _golden(bundle: Bundle, lines: Sequence[str]) -> list[dict[str, Any]]:
    source, target = bundle.tokenizers()
    for side, held, size in (
        ("source", source.vocab_size, bundle.facts["model"]["source_vocab_size"]),
        ("target", target.vocab_size, bundle.facts["model"]["target_vocab_size"]),
    ):
        if held != size:
            raise InputError(
                f"bundle: the {side} tokenizer has {held} ids, the model {size}; they do not belong together"
            )
    model, settings = bundle.step_model(threads=1), bundle.decode_settings
    golden = []
    texts = [one_line(line) for line in lines]
    for text, ids in zip(texts, source.encode(texts), strict=True):
        if not 0 < len(ids) < bundle.max_source_length:
            continue
        output = golden_target(model, ids, settings, limit=bundle.max_target_length)
        entry = {"source": text, "source_ids": [*ids, EOS], "target_ids": output, "text": target.decode(output)}
        golden.append(entry)
    return golden
