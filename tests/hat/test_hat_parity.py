"""Against the original HAT code: what it computed for SubTransformers of two SuperTransformers and of a trained toy."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fitformer.export import TorchStepModel, graph_bytes
from fitformer.hat.checkpoint import Checkpoint
from fitformer.hat.configuration import parse_configuration, read_configuration
from fitformer.hat.dictionary import check_dictionaries
from fitformer.hat.selection import read_search_space, sub_architecture
from fitformer.hat.weights import ROWS, reordered, super_transformer
from fitformer.models import SuperTransformer, Transformer
from fitformer.runtime.decoding import DecodeSettings, StepModel, beam_search
from fitformer.runtime.session import OnnxStepModel
from fitformer.runtime.subword_nmt import SubwordNmtTokenizer
from fitformer.runtime.translator import pad_batch
from fitformer.space import Architecture, counting
from fitformer.tasks.loss import projected_cross_entropy

HAT_PAD = 1
CLOSE = 1e-5
BEAMS = [("gen_beam5_lenpen1.0.txt", 5, 1.0), ("gen_beam4_lenpen0.6.txt", 4, 0.6)]
LoadFixture = Callable[[str], dict[str, Any]]

cases = pytest.mark.parametrize("case", range(4), ids=["full", "narrow encoder", "narrow decoder", "shallow encoder"])
fixtures = pytest.mark.parametrize("name", ["shared_embed", "diff_super_dims"])


def to_our_ids(ids: Tensor) -> Tensor:
    ours = {theirs: mine for mine, theirs in enumerate(ROWS)}
    return torch.tensor([[ours.get(token, token) for token in row] for row in ids.tolist()])


def right_padded(ids: Tensor, values: Tensor) -> Tensor:
    """Values ``[B, S, ...]`` that belong to left-padded ids, moved as the ids are."""
    return torch.stack([row.roll(-int((i == HAT_PAD).sum()), 0) for i, row in zip(ids, values, strict=True)])


def in_our_order(logits: Tensor) -> Tensor:
    return reordered(logits.transpose(0, -1)).transpose(0, -1)


class Case:
    """One SubTransformer of a fixture: ours, and what the original computed."""

    def __init__(self, fixture: dict[str, Any], number: int) -> None:
        self.expected = fixture["cases"][number]
        checkpoint = Checkpoint(Path("fixture.pt"), fixture["args"], fixture["state_dict"])
        self.model: SuperTransformer = super_transformer(checkpoint)
        self.arch = sub_architecture(checkpoint, parse_configuration(self.expected["config"]), Path("case"))
        self.model.set_active(self.arch)
        self.plain: Transformer = self.model.extract(self.arch).eval()
        self.hat_source = fixture["src"]
        self.source = to_our_ids(right_padded(self.hat_source, self.hat_source))
        self.decoder_input, self.target = to_our_ids(fixture["prev"]), to_our_ids(fixture["target"])
        self.real = self.target != 0


def with_encoder_outputs(model: Transformer, source: Tensor, decoder_input: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Logits, and what every encoder layer gave out on the way."""
    outputs: list[Tensor] = []

    def note(layer: torch.nn.Module, inputs: Any, output: Tensor) -> None:
        outputs.append(output)

    hooks = [layer.register_forward_hook(note) for layer in model.encoder_layers]
    logits = model(source, decoder_input)
    for hook in hooks:
        hook.remove()
    return logits, outputs


@pytest.fixture
def make_case(load_fixture: LoadFixture) -> Callable[[str, int], Case]:
    return lambda name, number: Case(load_fixture(name), number)


@fixtures
@cases
@torch.no_grad()
def test_encoder_outputs_logits_and_losses_are_the_originals(
    make_case: Callable[[str, int], Case], name: str, case: int
) -> None:
    made = make_case(name, case)
    expected, real, tokens = made.expected, made.real, made.source != 0
    assert (made.source != 0).any(1).all() and int(real.sum()) == expected["ntokens"]
    for model in (made.model, made.plain):
        logits, outputs = with_encoder_outputs(model, made.source, made.decoder_input)
        theirs = [right_padded(made.hat_source, layer.transpose(0, 1)) for layer in expected["encoder_out_all"]]
        # The layers that a shallow encoder does not have repeat its last output.
        outputs += [outputs[-1]] * (len(theirs) - len(outputs))
        for mine, original in zip(outputs, theirs, strict=True):
            torch.testing.assert_close(mine[tokens], original[tokens], rtol=CLOSE, atol=CLOSE)
        final = right_padded(made.hat_source, expected["encoder_out"].transpose(0, 1))
        torch.testing.assert_close(outputs[-1][tokens], final[tokens], rtol=CLOSE, atol=CLOSE)
        torch.testing.assert_close(logits[real], in_our_order(expected["logits"])[real], rtol=CLOSE, atol=CLOSE)
        hidden = model.features(made.source, made.decoder_input)[real]
        loss, nll = projected_cross_entropy(hidden, model.output_weight(), made.target[real], smoothing=0.1)
        assert loss.item() == pytest.approx(expected["loss_sum"], rel=1e-5)
        assert nll.item() == pytest.approx(expected["nll_sum"], rel=1e-5)


@fixtures
@cases
def test_logits_step_by_step_are_the_originals_in_both_engines(
    make_case: Callable[[str, int], Case], name: str, case: int
) -> None:
    made = make_case(name, case)
    graphs = graph_bytes(made.plain)
    original = in_our_order(made.expected["incremental_logits"]).numpy()
    engines: list[StepModel[Any]] = [
        TorchStepModel(made.plain),
        OnnxStepModel(graphs["encoder"], graphs["decoder"], threads=1, start_id=made.plain.config.start_id),
    ]
    assert (made.decoder_input[:, 0] == made.plain.config.start_id).all()
    for engine in engines:
        state = engine.encode(made.source.numpy())
        for position, column in enumerate(made.decoder_input.t().numpy()):
            logits, state = engine.step(state, np.ascontiguousarray(column), position)
            real = made.real[:, position].numpy()
            np.testing.assert_allclose(logits[real], original[real, position], rtol=CLOSE, atol=CLOSE)


@cases
def test_parameters_are_as_many_as_the_original_counts(make_case: Callable[[str, int], Case], case: int) -> None:
    """It counts no embeddings, and fails where encoder and decoder of the SuperTransformer are of different width."""
    made = make_case("shared_embed", case)
    assert counting.hat(made.arch).parameters.total == made.expected["params_numel"]
    layers = [p for key, p in made.plain.named_parameters() if ".layers." in key]
    assert sum(p.numel() for p in layers) == made.expected["params_numel"]
    assert make_case("diff_super_dims", case).expected["params_numel"] == -1


# -- the trained toy --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def toy_model(toy_checkpoint: Checkpoint) -> SuperTransformer:
    return super_transformer(toy_checkpoint)


def test_words_have_the_ids_of_fairseq(toy: Path, toy_model: SuperTransformer) -> None:
    source, _ = check_dictionaries(toy / "dict.de.txt", toy / "dict.en.txt", toy_model.config)
    assert len(source) + 4 == toy_model.config.source_vocab_size == 96
    assert source[:2] == ["w42", "w10"] and source[-2:] == ["madeupword0000", "madeupword0001"]
    tokenizer = SubwordNmtTokenizer(toy / "dict.de.txt")
    assert tokenizer.encode(["w42 w10 nothing madeupword0001"]) == [[4, 5, 1, 95]]


@torch.no_grad()
def test_validation_losses_are_those_that_the_original_printed(
    toy: Path, toy_checkpoint: Checkpoint, toy_model: SuperTransformer
) -> None:
    facts = json.loads((toy / "expected.json").read_text())
    source, target = (
        SubwordNmtTokenizer(toy / f"dict.{side}.txt").encode((toy / f"valid.{side}").read_text().splitlines())
        for side in ("de", "en")
    )
    sources, targets = (torch.from_numpy(pad_batch(ids)) for ids in (source, target))
    start = torch.full((len(targets), 1), toy_model.config.start_id)
    real = targets != 0
    space = read_search_space(toy_checkpoint)
    for name, arch in (("largest_arbitrary1", space.largest()), ("smallest_arbitrary1", space.smallest())):
        last = arch.encoder_num_layers - 1
        toy_model.set_active(replace(arch, decoder_cross_layers=((last, last - 1),) * arch.decoder_num_layers))
        hidden = toy_model.features(sources, torch.cat((start, targets[:, :-1]), 1))[real]
        sums = projected_cross_entropy(hidden, toy_model.output_weight(), targets[real], smoothing=0.1)
        assert int(real.sum()) == facts["valid_tokens"]
        for kind, value in zip(("loss", "nll"), sums, strict=True):
            bits = float(value) / facts["valid_tokens"] / math.log(2)
            assert bits == pytest.approx(facts["valid_loss_bits_per_token"][name][kind], rel=2e-6), (name, kind)


@pytest.mark.parametrize(("file", "beam", "length_penalty"), BEAMS)
def test_beam_search_finds_the_originals_hypotheses_with_its_scores(
    toy: Path, toy_checkpoint: Checkpoint, toy_model: SuperTransformer, file: str, beam: int, length_penalty: float
) -> None:
    arch = sub_architecture(toy_checkpoint, read_configuration(toy / "toy_sub2.yml"), toy / "toy_sub2.yml")
    model = toy_model.extract(arch)
    graphs = graph_bytes(model)
    engines: list[StepModel[Any]] = [
        TorchStepModel(model),
        OnnxStepModel(graphs["encoder"], graphs["decoder"], threads=1, start_id=model.config.start_id),
    ]
    source, target = (SubwordNmtTokenizer(toy / f"dict.{side}.txt") for side in ("de", "en"))
    ids = source.encode((toy / "test.de").read_text().splitlines())
    expected = original_outputs(toy / file)
    settings = DecodeSettings(beam=beam, length_penalty=length_penalty, min_length=1)
    for engine in engines:
        found = beam_search(engine, pad_batch(ids), settings, [200] * len(ids))
        for number, hypotheses in enumerate(found):
            text, score, token_scores = expected[number]
            assert target.decode(hypotheses[0].ids) == text
            assert hypotheses[0].score == pytest.approx(score, abs=1e-4)
            assert hypotheses[0].token_log_probs == pytest.approx(token_scores, abs=1e-4)


def original_outputs(path: Path) -> dict[int, tuple[str, float, list[float]]]:
    """Text, score and per-token scores by sentence, of ``generate.py``'s H and P lines."""
    found: dict[int, tuple[str, float, list[float]]] = {}
    texts: dict[int, tuple[str, float]] = {}
    for line in path.read_text().splitlines():
        kind, *fields = line.split("\t")
        number = int(kind[2:])
        if kind.startswith("H-"):
            texts[number] = fields[1], float(fields[0])
        elif kind.startswith("P-"):
            found[number] = (*texts[number], [float(value) for value in fields[0].split()])
    assert len(found) == 100
    return found


def test_an_extracted_architecture_is_what_the_configuration_says(toy: Path, toy_checkpoint: Checkpoint) -> None:
    arch = sub_architecture(toy_checkpoint, read_configuration(toy / "toy_sub2.yml"), toy / "toy_sub2.yml")
    assert arch == Architecture.from_text("enc 32: 64/32/4 32/32/2 64/32/4 | dec 40: 64/32/4/2@2,1,0 32/32/2/4@2,1")
