"""How fast training is: target tokens per second, and the share of the machine's own matrix-multiplication rate.

    python benchmarks/training.py [--threads N] [--embed-dim D] [--layers N] [--vocab V] [--batch-tokens N]

Each row trains the same architecture on the same random batch: in the SuperTransformer (elastic leaves, every dimension
sliced from a model half as wide again) and extracted, in float32 and, where the processor has it, bfloat16. The rate is
what this machine reaches on one 2048 x 2048 product in the same number format and with as many threads. Work is
counted as 6 operations per weight and token (2 forward, 4 backward) for all matrices, the output layer included, and
the attention products. Rows take turns, so that drift touches all alike; medians of many. Run it on an idle machine.
The last line on stdout is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass

import torch

from fitformer.device import device_card
from fitformer.models import SuperTransformer, Transformer, TransformerConfig
from fitformer.space import Architecture, SearchSpace
from fitformer.tasks.loss import projected_cross_entropy
from fitformer.training.precision import compute_dtype


@dataclass
class Row:
    """One way to train, with the seconds of each of its steps."""

    name: str
    model: Transformer
    dtype: torch.dtype
    seconds: list[float]

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4, fused=True)

    def step(self, source: torch.Tensor, target: torch.Tensor, update: int) -> None:
        """One update as the training loop makes it."""
        begin = time.perf_counter()
        self.model.mask_pool.start_update(1, update)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.dtype is torch.bfloat16):
            hidden = self.model.features(source, target)
        weight = self.model.output_weight()
        loss, _ = projected_cross_entropy(
            hidden.flatten(0, 1), weight, target.flatten(), smoothing=0.1, dtype=self.dtype
        )
        (loss / target.numel()).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.seconds.append(time.perf_counter() - begin)


def main() -> None:
    """Parse the options, time, print."""
    options = _options()
    torch.set_num_threads(options.threads)
    arch, super_space = _architectures(options)
    config = TransformerConfig(options.vocab, options.vocab, dropout=0.1)
    dtypes = [torch.float32]
    if compute_dtype("auto", "cpu") is torch.bfloat16:
        dtypes.append(torch.bfloat16)
    rows = []
    for dtype in dtypes:
        sliced = SuperTransformer(config, super_space).train()
        sliced.set_active(arch)
        rows += [Row("extracted", sliced.extract(arch), dtype, []), Row("SuperTransformer", sliced, dtype, [])]
    sentences = options.batch_tokens // options.length
    source, target = (torch.randint(4, options.vocab, (sentences, options.length)) for _ in range(2))
    for update in range(options.warmup + options.repeats):
        for row in rows:
            row.step(source, target, update)
    rates = {dtype: _matrix_rate(dtype) for dtype in dtypes}
    work = _operations(arch, options.vocab, sentences, options.length)
    results = []
    for row in rows:
        seconds = statistics.median(row.seconds[options.warmup :])
        results.append(
            {
                "model": row.name,
                "dtype": str(row.dtype).removeprefix("torch."),
                "ms": 1e3 * seconds,
                "target_tokens_per_s": target.numel() / seconds,
                "gflops": work / seconds / 1e9,
                "share_of_matrix_rate": work / seconds / rates[row.dtype],
            }
        )
    _print(results, rates, options, arch)


def _architectures(options: argparse.Namespace) -> tuple[Architecture, SearchSpace]:
    dim, layers = options.embed_dim, options.layers
    wide, heads = dim + dim // 2, 4
    encoder = SearchSpace(
        (wide, dim), (wide, dim), (layers,), (layers,), (2 * wide, 2 * dim), (wide, dim), (heads,),
        (2 * wide, 2 * dim), (wide, dim), (heads,), (heads,), (1,),
    )  # fmt: skip
    return encoder.smallest(), encoder


def _operations(arch: Architecture, vocab: int, sentences: int, length: int) -> float:
    """Floating-point operations of one training step."""
    d, tokens = arch.encoder_embed_dim, sentences * length
    weights = sum(4 * d * q + 2 * d * f for q, f in zip(arch.encoder_qkv_dim, arch.encoder_ffn_dim, strict=True))
    weights += sum(8 * d * q + 2 * d * f for q, f in zip(arch.decoder_qkv_dim, arch.decoder_ffn_dim, strict=True))
    attention = sum(2 * length * q for q in (*arch.encoder_qkv_dim, *arch.decoder_qkv_dim, *arch.decoder_qkv_dim))
    return 6.0 * tokens * (weights + attention + vocab * d)


def _matrix_rate(dtype: torch.dtype, size: int = 2048, repeats: int = 15) -> float:
    """Operations per second of one large square product, the best of many."""
    a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        torch.mm(a, b)
        seconds.append(time.perf_counter() - begin)
    return 2 * size**3 / min(seconds)


def _print(
    results: list[dict[str, float | str]],
    rates: dict[torch.dtype, float],
    options: argparse.Namespace,
    arch: Architecture,
) -> None:
    print(f"{arch.to_text()}, vocabulary {options.vocab}, {options.threads} threads")
    for dtype, rate in rates.items():
        print(f"matrix multiplication in {str(dtype).removeprefix('torch.')}: {rate / 1e9:.0f} GFLOP/s")
    for row in results:
        print(
            f"{row['model']:>16} {row['dtype']:>8}: {row['ms']:7.1f} ms, {row['target_tokens_per_s']:7.0f} tokens/s, "
            f"{100 * float(row['share_of_matrix_rate']):3.0f} % of the rate"
        )
    document = {
        "architecture": arch.to_text(),
        "options": vars(options),
        "results": results,
        "device": device_card(options.threads),
    }
    print(json.dumps(document))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--embed-dim", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=7800)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=30)
    return parser.parse_args()


if __name__ == "__main__":
    main()
