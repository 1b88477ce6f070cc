"""How long does it take to decode a sentence: fitformer's graphs in float32 and int8 against other engines.

All engines run the same randomly initialised weights on the same random sentences with the same threads and
produce the same number of tokens by greedy search. They take turns in a random order, round by round, so that a
machine that becomes slower for a while slows all of them; a ratio is the median over rounds of the ratios within a
round. Engines:

- ``fp32``, ``int8``: what fitformer exports, in ONNX Runtime with the decode loop that ships;
- ``int8-dynamic``: the same graphs with ONNX Runtime's per-tensor dynamic quantization, whose results depend on
  batch mates;
- ``torch``: PyTorch (eager) with cached keys and values and the same decode loop;
- ``ct2-fp32``, ``ct2-int8``: CTranslate2, if it is installed and can take the architecture (one head count per model,
  attention as wide as the model, last encoder layer only).

A table goes to stderr, the last line on stdout is one JSON document.

    python benchmarks/decode.py                                     # a plain Transformer, 3+3 layers of width 256
    python benchmarks/decode.py --preset multi30k --seed 3          # an architecture drawn from a search space
    python benchmarks/decode.py --architecture "enc 128: 256/128/4 | dec 128: 256/128/4/4@0" --batch-size 16
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fitformer.compress import BlockwiseInt8
from fitformer.device import device_card
from fitformer.export import TorchStepModel, graph_bytes
from fitformer.export.builder import FUSED_DOMAIN, GraphBuilder
from fitformer.export.matrices import FloatMatrices, Matrices, array
from fitformer.models import Transformer, TransformerConfig
from fitformer.runtime.decoding import EOS, Ids, greedy
from fitformer.runtime.session import OnnxStepModel
from fitformer.runtime.translator import pad_batch
from fitformer.space import Architecture, SearchSpace

PLAIN = "enc 256: 512/256/4 512/256/4 512/256/4 | dec 256: 512/256/4/4@2 512/256/4/4@2 512/256/4/4@2"
Engine = Callable[[Ids, int], list[list[int]]]  # source ids and number of tokens to target ids


def main() -> None:
    """Read the options, time the engines in turns, print the table and the JSON line."""
    options = _options()
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    arch = _architecture(options)
    config = TransformerConfig(
        options.vocab,
        options.vocab,
        pre_norm=not options.post_norm,
        max_positions=2 + max(options.source_length, options.target_length),
    )
    model = Transformer(config, arch).eval()
    with tempfile.TemporaryDirectory() as folder:
        engines, notes = build_engines(model, options.threads, Path(folder))
        source = np.random.default_rng(options.seed).integers(
            4, options.vocab, (options.batch_size, options.source_length)
        )
        source[:, -1] = EOS
        rounds = time_in_turns(engines, source, options.target_length, options.rounds, options.repeats)
    print_and_report(arch, rounds, notes, options)


def build_engines(model: Transformer, threads: int, folder: Path) -> tuple[dict[str, Engine], list[str]]:
    """Every engine that can run ``model``, and why others cannot."""
    engines: dict[str, Engine] = {}
    matrices: dict[str, Matrices] = {
        "fp32": FloatMatrices(),
        "int8": BlockwiseInt8(),
        "int8-dynamic": DynamicInt8(),
    }
    for name, kind in matrices.items():
        graphs = graph_bytes(model, matrices=kind)
        engines[name] = _looped(OnnxStepModel(graphs["encoder"], graphs["decoder"], threads=threads))
    engines["torch"] = _looped(TorchStepModel(model))
    try:
        import ctranslate2
    except ImportError:
        return engines, ["CTranslate2 is not installed (pip install ctranslate2)"]
    if not _is_plain(model.arch):
        return engines, ["CTranslate2 cannot take this architecture"]
    converted = str(convert_to_ctranslate2(model, folder))
    for compute_type in ("float32", "int8"):
        translator = ctranslate2.Translator(
            converted, compute_type=compute_type, inter_threads=1, intra_threads=threads
        )
        engines[f"ct2-{'fp32' if compute_type == 'float32' else compute_type}"] = _translated(translator)
    equal = _same_outputs(model, ctranslate2.Translator(converted, compute_type="float32"))
    return engines, [f"CTranslate2 float32 gives PyTorch's tokens for {equal} of 20 sentences"]


def time_in_turns(
    engines: dict[str, Engine], source: Ids, target_length: int, rounds: int, repeats: int
) -> dict[str, list[float]]:
    """Milliseconds per decoding of the batch, one figure per engine and round (the median of ``repeats``)."""
    times: dict[str, list[float]] = {name: [] for name in engines}
    order, rng = list(engines), random.Random(0)
    for number in range(-1, rounds):  # the first round is a warm-up
        rng.shuffle(order)
        for name in order:
            engines[name](source, target_length)
            taken = []
            for _ in range(repeats):
                begin = time.perf_counter()
                engines[name](source, target_length)
                taken.append(1e3 * (time.perf_counter() - begin))
            if number >= 0:
                times[name].append(median(taken))
    return times


def print_and_report(
    arch: Architecture, rounds: dict[str, list[float]], notes: list[str], options: argparse.Namespace
) -> None:
    """The table for people and the JSON line for programs."""
    lengths = f"{options.source_length} tokens in, {options.target_length} out, greedy"
    print(arch.to_text(), file=sys.stderr)
    print(
        f"vocabulary {options.vocab}, batch {options.batch_size}, {lengths}, {options.threads} thread(s)",
        file=sys.stderr,
    )
    print(f"{'engine':14} {'ms':>9} {'fp32 / engine':>14}", file=sys.stderr)
    results = {}
    for name, taken in rounds.items():
        ratio = median(base / own for base, own in zip(rounds["fp32"], taken, strict=True))
        results[name] = {"ms": round(median(taken), 4), "speed_against_fp32": round(ratio, 3)}
        print(f"{name:14} {median(taken):9.3f} {ratio:14.2f}", file=sys.stderr)
    for note in notes:
        print(note, file=sys.stderr)
    settings = {key: value for key, value in vars(options).items() if key not in ("architecture", "preset")}
    facts = {"architecture": arch.to_text(), **settings, "engines": results, "notes": notes}
    print(json.dumps(facts | {"device": device_card(options.threads)}))


class DynamicInt8(FloatMatrices):
    """ONNX Runtime's dynamic quantization: 8-bit weights with a scale per output, one activation scale per tensor."""

    precision = "int8"
    fuses_attention = False

    def linear(
        self, graph: GraphBuilder, x: str, weight: Tensor, bias: Tensor, name: str, *, relu: bool = False
    ) -> str:
        """See ``Matrices``."""
        product = self._multiply(graph, x, weight, name if not relu else f"{name}.product", bias)
        return graph.node("Relu", [product], name) if relu else product

    def logits(self, graph: GraphBuilder, h: str, table: Tensor, name: str, *, shared: str | None) -> str:
        """See ``Matrices``."""
        return self._multiply(graph, h, table, name, None)

    def _multiply(self, graph: GraphBuilder, x: str, weight: Tensor, name: str, bias: Tensor | None) -> str:
        values = array(weight)
        scales = np.maximum(np.abs(values).max(1), np.float32(1e-9)) / np.float32(127)
        levels = np.rint(values / scales[:, None]).astype(np.int8).T
        inputs = [x, graph.weight(f"{name}.int8", levels), graph.weight(f"{name}.scale", scales)]
        if bias is not None:
            inputs += ["", graph.weight(f"{name}.bias", array(bias))]
        return graph.node("DynamicQuantizeMatMul", inputs, name, domain=FUSED_DOMAIN)


def convert_to_ctranslate2(model: Transformer, folder: Path) -> Path:
    """Write the weights of a plain architecture as a CTranslate2 model; a token's text is its id."""
    from ctranslate2.specs import transformer_spec

    arch, config = model.arch, model.config
    layers = arch.encoder_num_layers, arch.decoder_num_layers
    spec = transformer_spec.TransformerSpec.from_config(layers, arch.encoder_num_heads[0], pre_norm=config.pre_norm)
    for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        embeddings = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embeddings.weight = array(stack.embed_tokens.active_parameters()["weight"])
        side.scale_embeddings = True
        side.position_encodings.encodings = array(stack.positions[:, : stack.embed_tokens.active_dim])
        if config.pre_norm:
            _fill(side.layer_norm, stack.norm, norm=True)
        for target, layer in zip(side.layer, stack.layers, strict=True):
            _fill_attention(target.self_attention, [layer.self_attn.in_proj, layer.self_attn.out_proj])
            _fill(target.self_attention.layer_norm, layer.self_attn_norm, norm=True)
            if stack is model.decoder:
                cross = layer.cross_attn
                _fill_attention(target.attention, [cross.q_proj, cross.kv_proj, cross.out_proj])
                _fill(target.attention.layer_norm, layer.cross_attn_norm, norm=True)
            _fill(target.ffn.layer_norm, layer.ffn_norm, norm=True)
            _fill(target.ffn.linear_0, layer.fc1)
            _fill(target.ffn.linear_1, layer.fc2)
    spec.decoder.projection.weight = array(model.output_weight())
    words = ["<pad>", "<unk>", "<s>", "</s>", *map(str, range(4, config.target_vocab_size))]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization=None)
    spec.save(str(folder))
    return folder


def _fill(target: Any, leaf: Any, *, norm: bool = False) -> None:
    setattr(target, "gamma" if norm else "weight", array(leaf.weight))
    setattr(target, "beta" if norm else "bias", array(leaf.bias))


def _fill_attention(target: Any, leaves: list[Any]) -> None:
    for linear, leaf in zip(target.linear, leaves, strict=True):
        _fill(linear, leaf)


def _is_plain(arch: Architecture) -> bool:
    widths = {arch.encoder_embed_dim, arch.decoder_embed_dim, *arch.encoder_qkv_dim, *arch.decoder_qkv_dim}
    heads = {*arch.encoder_num_heads, *arch.decoder_self_heads, *arch.decoder_cross_heads}
    last = (arch.encoder_num_layers - 1,)
    return len(widths) == len(heads) == 1 and set(arch.decoder_cross_layers) == {last}


def _looped(model: Any) -> Engine:
    def decode(source: Ids, length: int) -> list[list[int]]:
        return greedy(model, source, max_lengths=[length] * len(source), ignore_eos=True)

    return decode


def _words(source: Ids) -> list[list[str]]:
    return [["</s>" if token == EOS else str(token) for token in row if token] for row in source.tolist()]


def _translated(translator: Any) -> Engine:
    def decode(source: Ids, length: int) -> list[list[int]]:
        found = translator.translate_batch(
            _words(source), beam_size=1, min_decoding_length=length, max_decoding_length=length
        )
        assert all(len(result.hypotheses[0]) == length for result in found)
        return [[0] * length for _ in found]

    return decode


def _same_outputs(model: Transformer, translator: Any) -> int:
    rng, equal = np.random.default_rng(0), 0
    for _ in range(20):
        source = pad_batch([rng.integers(4, model.config.source_vocab_size, 9).tolist()])
        expected = greedy(TorchStepModel(model), source, max_lengths=[9])[0]
        found = translator.translate_batch(
            _words(source), beam_size=1, max_decoding_length=9, suppress_sequences=[["<pad>"], ["<s>"]]
        )
        equal += found[0].hypotheses[0] == [str(token) for token in expected]
    return equal


def _architecture(options: argparse.Namespace) -> Architecture:
    if options.preset:
        return SearchSpace.preset(options.preset).sample(random.Random(options.seed))
    return Architecture.from_text(options.architecture)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", default=PLAIN, help="an architecture in its text form")
    parser.add_argument("--preset", help="draw the architecture from this search space instead")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--post-norm", action="store_true")
    parser.add_argument("--source-length", type=int, default=15)
    parser.add_argument("--target-length", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5, help="decodings per engine and round")
    return parser.parse_args()


if __name__ == "__main__":
    main()
