"""Do two processes of one thread each train faster than one process of two threads?

    python benchmarks/processes.py --minutes 1

Trains one model on random batches of one shape, as the training loop does it: in one process with one thread, in one
process with two threads, and in two processes with one thread each that learn from half of every batch and sum their
gradients over gloo. Printed are target tokens per second, and for the two processes also the share of the time that
goes into summing. The ways take turns, so that drift touches all alike; medians over the rounds. Run it on an idle
machine. The last line on stdout is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

import torch

from fitformer.device import device_card
from fitformer.models import Transformer, TransformerConfig
from fitformer.space import Architecture
from fitformer.tasks.loss import projected_cross_entropy
from fitformer.training.precision import compute_dtype
from fitformer.training.processes import ALONE, Processes, SeveralProcesses


@dataclass(frozen=True)
class Way:
    """Processes, and threads of each."""

    processes: int
    threads: int

    @property
    def name(self) -> str:
        """``2 processes x 1 thread``."""
        plural = "es" if self.processes > 1 else ""
        return f"{self.processes} process{plural} x {self.threads} thread{'s' if self.threads > 1 else ''}"


WAYS = (Way(1, 1), Way(1, 2), Way(2, 1))


def main() -> None:
    """Measure all ways in turn and print; or, started by this, be one of the processes of a way."""
    options = _options()
    if options.threads:
        _train(options)
        return
    rates: dict[Way, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way in WAYS:
            rates[way].append(_start(way, options))
    results = [
        {
            "processes": way.processes,
            "threads": way.threads,
            **{key: statistics.median(found[key] for found in rates[way]) for key in rates[way][0]},
        }
        for way in WAYS
    ]
    for way, row in zip(WAYS, results, strict=True):
        print(
            f"{way.name:>24}: {row['target_tokens_per_s']:8.0f} target tokens/s, {100 * row['summing']:3.0f} % of the "
            f"time in summing; {row['without_summing']:8.0f} without it"
        )
    shown = {key: value for key, value in vars(options).items() if key not in ("threads", "seconds")}
    print(json.dumps({"options": shown, "results": results, "device": device_card(2)}))


def _start(way: Way, options: argparse.Namespace) -> dict[str, float]:
    """Train one way for its part of the time; what the main process found."""
    seconds = 60 * options.minutes / options.rounds / len(WAYS)
    words = [sys.executable, __file__, "--threads", str(way.threads), "--seconds", str(seconds)]
    for name in ("embed_dim", "layers", "vocab", "batch_tokens", "length"):
        words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    world = {"WORLD_SIZE": way.processes, "LOCAL_WORLD_SIZE": way.processes, "MASTER_PORT": _free_port()}
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": str(way.threads)}
    common |= {name: str(value) for name, value in world.items()}
    started = [
        subprocess.Popen(words, env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE)
        for rank in range(way.processes)
    ]
    outputs = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit(f"{way.name}: a process failed")
    found: dict[str, float] = json.loads(outputs[0])
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _train(options: argparse.Namespace) -> None:
    """One process: train for the given seconds after a warm-up; the main one prints what it came to."""
    processes: Processes = SeveralProcesses() if int(os.environ["WORLD_SIZE"]) > 1 else ALONE
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = Transformer(TransformerConfig(options.vocab, options.vocab), _architecture(options)).train()
    dtype = compute_dtype("auto", "cpu")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    parameters = list(model.parameters())
    share = options.batch_tokens // options.length // processes.count
    source, target = (torch.randint(4, options.vocab, (share, options.length)) for _ in range(2))
    tokens, update, summing, begin = target.numel() * processes.count, 0, 0.0, time.perf_counter()
    warmup = 5
    while True:
        if update == warmup:
            summing, begin = 0.0, time.perf_counter()
        update += 1
        model.mask_pool.start_update(processes.seed(1), update)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is torch.bfloat16):
            hidden = model.features(source, target)
        weight = model.output_weight()
        loss, _ = projected_cross_entropy(hidden.flatten(0, 1), weight, target.flatten(), smoothing=0.1, dtype=dtype)
        (loss / tokens).backward()
        before = time.perf_counter()
        processes.sum_gradients(parameters, float(loss.detach()))
        summing += time.perf_counter() - before
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        spent = time.perf_counter() - begin
        if processes.agree(float(update > warmup + 2 and spent >= options.seconds)):
            break
    if processes.is_main:
        done = tokens * (update - warmup)
        share_of_summing = summing / spent if processes.count > 1 else 0.0
        found = {
            "target_tokens_per_s": done / spent,
            "summing": share_of_summing,
            "without_summing": done / spent / (1 - share_of_summing),
        }
        print(json.dumps(found), flush=True)
        processes.end(0)
    else:
        processes.wait()


def _architecture(options: argparse.Namespace) -> Architecture:
    dim, layers = options.embed_dim, options.layers
    return Architecture(
        dim, dim, *((width,) * layers for width in (2 * dim, dim, 4, 2 * dim, dim, 4, 4)), ((layers - 1,),) * layers
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3.0, help="for all ways together")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--embed-dim", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=7800)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--threads", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=0.0, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
