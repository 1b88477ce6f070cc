"""What all tests share: one thread, no chance in property tests, a small prepared corpus, the folder of real data."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

# Before anything imports torch or onnxruntime; subprocesses inherit it.
os.environ["OMP_NUM_THREADS"] = "1"

import pytest
from hypothesis import settings

# A shell that starts the tests in the background ignores interrupts for them and for all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("fitformer", deadline=None, derandomize=True, database=None)
settings.load_profile("fitformer")

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _one_torch_thread() -> Iterator[None]:
    """Undo what a test or the code under test set; tests that need no torch do not load it."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    yield


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real corpora and of HAT's artefacts; the test is skipped where there is none."""
    folder = Path(os.environ.get("FITFORMER_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}: set FITFORMER_DATA to the folder of real data")
    return folder


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared corpus of 700 generated pairs with a joint vocabulary of 400 pieces. Do not write into it."""
    from fitformer.data.builtin import BuiltinCorpus
    from fitformer.data.prepare import PrepareSettings, prepare
    from fitformer.data.tokenizer import TokenizerSettings

    folder = tmp_path_factory.mktemp("corpus") / "prepare"
    corpus = BuiltinCorpus("numbers", size=800, seed=1)
    tokenizer = TokenizerSettings(vocab_size=400)
    prepare(PrepareSettings(corpus, "en", "de", held_out_pairs=50, tokenizer=tokenizer, quiet=True), folder)
    return folder
