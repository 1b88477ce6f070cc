"""A fit killed at any moment is finished by the same command, with the same weights as one that was not.

Acceptance runs kill the real command with SIGKILL at random moments inside each stage; the oracle is an uninterrupted
run of the same recipe. Latencies differ from run to run, so ``records.csv`` and ``best.json`` are given to both where
weights that follow from them are compared.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fitformer.rundir import sha256
from fitformer.stages import DONE

TARGET = "cpu@70%"
RECIPE = """
name: killed
seed: 3
data: {source_language: en, target_language: de, builtin: numbers, builtin_pairs: 3000, held_out_pairs: 60}
prepare: {tokenizer: {vocab_size: 400}}
space:
  encoder_embed_dim: [64, 32]
  decoder_embed_dim: [64, 32]
  encoder_num_layers: [2, 1]
  decoder_num_layers: [2, 1]
  encoder_ffn_dim: [128, 64]
  encoder_qkv_dim: [64, 32]
  encoder_num_heads: [4, 2]
  decoder_ffn_dim: [128, 64]
  decoder_qkv_dim: [64, 32]
  decoder_self_heads: [4, 2]
  decoder_cross_heads: [4, 2]
  decoder_cross_span: [1, 2]
targets: [{device: cpu, latency: 70%}]
supernet: {updates: 500, batch_tokens: 256, warmup: 50, validate_every: 50, average_last: 3, threads: 1}
measure: {architectures: 40, warmup: 1, repeats: 20, drift_tolerance: 0.5, source_length: 12, target_length: 40}
search: {population_size: 24, num_parents: 6, num_mutations: 10, num_crossovers: 8, num_generations: 8, margin: 0.1}
train: {updates: 400, batch_tokens: 256, warmup: 20, validate_every: 50, average_last: 3, threads: 1}
compress: {int8: false}
export: {beam: 1, check_sentences: 20}
"""


def start(recipe: Path, run: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "fitformer", "fit", str(recipe), "--run", str(run), *options]
    with (run.parent / f"{run.name}.log").open("ab") as log:
        return subprocess.Popen(command, stderr=log, stdout=log, env={**os.environ, "OMP_NUM_THREADS": "1"})


def finish(recipe: Path, run: Path, *options: str) -> None:
    code = start(recipe, run, *options).wait(timeout=500)
    assert code == 0, (run.parent / f"{run.name}.log").read_text()[-3000:]


def kill_inside(recipe: Path, run: Path, stage: Path, delay: float) -> bool:
    """Start the command, wait until ``stage`` has begun, kill it ``delay`` seconds later; False if it was faster."""
    process = start(recipe, run)
    while not stage.exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(delay)
    was_done = (stage / DONE).exists()
    process.send_signal(signal.SIGKILL)
    process.wait()
    return not was_done


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_killed_fit_finishes_with_the_weights_of_an_uninterrupted_one(tmp_path: Path) -> None:
    recipe = tmp_path / "killed.yaml"
    recipe.write_text(RECIPE)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(recipe, whole, "--until", "supernet")

    rng = random.Random(7)
    hits = {}
    for stage, part in (("supernet", ""), ("measure", "cpu"), ("search", TARGET), ("train", TARGET)):
        folder = killed / stage / part if part else killed / stage
        hits[stage] = sum(kill_inside(recipe, killed, folder, rng.uniform(0.1, 1.5)) for _ in range(3))
    finish(recipe, killed)
    assert hits["supernet"] and hits["search"] and hits["train"], f"no kill fell into a stage: {hits}"
    assert sha256(killed / "supernet/weights.safetensors") == sha256(whole / "supernet/weights.safetensors")

    # The decisions of the killed run, then its training without a kill.
    for stage in ("measure", "search"):
        shutil.copytree(killed / stage, whole / stage)
    finish(recipe, whole, "--until", "train")
    assert sha256(killed / f"train/{TARGET}/weights.safetensors") == sha256(
        whole / f"train/{TARGET}/weights.safetensors"
    )
    assert (killed / "report/index.html").exists()
    assert not list(killed.rglob("*.tmp")), "leftovers of a kill"
