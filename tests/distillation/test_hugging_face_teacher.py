"""A Hugging Face model from a local folder teaches, without a network, without code of its own, without pickles."""

from __future__ import annotations

import json
import pickle
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fitformer.distillation import TeacherSource
from fitformer.distillation.hugging_face import HuggingFaceTeacher
from fitformer.errors import InputError

LINES = ["w4 w5 w6", "w7", "", "w8 w9 w10 w11 w12 w13 w14", "w15 w16", "w29 w28 w27 w26", "w5 w5 w5 w5 w5"]


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a teacher must not use the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def copy(marian: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(marian, tmp_path / "copy"))


def open_(folder: Path, **settings: Any) -> HuggingFaceTeacher:
    source = TeacherSource(folder, **settings)
    source.check("en", "de")
    return HuggingFaceTeacher(source)


def test_translations_are_those_of_the_model_one_line_at_a_time(marian: Path) -> None:
    from transformers import MarianMTModel, PreTrainedTokenizerFast

    model, tokenizer = MarianMTModel.from_pretrained(marian).eval(), PreTrainedTokenizerFast.from_pretrained(marian)
    found = open_(marian, beam=3, batch=4).translate(LINES)
    assert len(found) == len(LINES)
    assert sum(map(bool, found)) >= 3
    for line, text in zip(LINES, found, strict=True):
        if not line:
            assert text == ""
            continue
        ids = tokenizer(line, return_tensors="pt")["input_ids"]
        output = model.generate(ids, num_beams=3, do_sample=False, max_new_tokens=2 * ids.shape[1] + 10)[0]
        ended = 3 in output[1:]  # what runs on to the longest length has gone astray
        assert text == (tokenizer.decode(output, skip_special_tokens=True) if ended else "")


def test_a_line_does_not_depend_on_its_batch(marian: Path) -> None:
    alone = [open_(marian, batch=1).translate([line])[0] for line in LINES]
    assert open_(marian, batch=len(LINES)).translate(LINES) == alone


def test_a_prefix_is_written_before_every_line(marian: Path) -> None:
    assert open_(marian, prefix="w20 w21 ").translate(["w4", "w5"]) == open_(marian).translate(
        ["w20 w21 w4", "w20 w21 w5"]
    )


def test_a_line_longer_than_the_model_is_left_empty(marian: Path) -> None:
    found = open_(marian).translate([" ".join(["w4"] * 40), *LINES])
    assert found[0] == ""
    assert found[1:] == open_(marian).translate(LINES)
    assert open_(marian).translate([]) == []


def test_languages_are_told_to_a_multilingual_model(
    make_multilingual: Callable[[Path], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    german = make_multilingual(tmp_path / "m2m")
    teacher = open_(tmp_path / "m2m", beam=1, languages=("eng_Latn", "deu_Latn"))
    firsts = []
    generate = teacher._model.generate

    def note(**options: Any) -> torch.Tensor:
        outputs: torch.Tensor = generate(**options)
        firsts.extend(outputs[:, 1].tolist())
        return outputs

    monkeypatch.setattr(teacher._model, "generate", note)
    teacher.translate(["w4 w5", "w6"])
    assert firsts == [german, german]
    with pytest.raises(InputError, match="teacher_languages: 'deu' is no language of the teacher"):
        open_(tmp_path / "m2m", languages=("eng_Latn", "deu"))


def test_another_model_has_another_identity_and_the_same_one_elsewhere_has_not(marian: Path, copy: Path) -> None:
    identity = TeacherSource(marian).identity
    assert TeacherSource(copy).identity == identity
    (copy / "README.md").write_text("about this model")
    assert TeacherSource(copy).identity == identity
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "model.safetensors").write_bytes(bytes(weights))
    assert TeacherSource(copy).identity != identity


class Marker:
    """A pickle of this writes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.write_text, (self.path, "ran"))


def test_weights_in_a_pickle_are_never_read(copy: Path, tmp_path: Path) -> None:
    (copy / "model.safetensors").unlink()
    marker = tmp_path / "marker"
    for name in ("pytorch_model.bin", "training_args.bin"):
        (copy / name).write_bytes(pickle.dumps(Marker(marker)))
    with pytest.raises(InputError, match=r"train.teacher: .*copy: has no \*\.safetensors"):
        open_(copy)
    with pytest.raises(InputError, match="not a model that can be loaded"):  # nor past the check
        HuggingFaceTeacher(TeacherSource(copy))
    assert not marker.exists()


def test_code_that_comes_with_a_model_is_not_run(copy: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    (copy / "modeling_own.py").write_text(f"open({str(marker)!r}, 'w')\nclass Own: pass\n")
    config = json.loads((copy / "config.json").read_text())
    own = dict.fromkeys(("AutoConfig", "AutoModelForSeq2SeqLM"), "modeling_own.Own")
    config |= {"model_type": "own", "auto_map": own}
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="not a model that can be loaded") as caught:
        open_(copy)
    assert "\n" not in str(caught.value)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b"{"),
        ("config.json", b'{"model_type": "bert"}'),
        ("model.safetensors", b""),
        ("model.safetensors", b"\xff" * 64),
        ("tokenizer.json", b"{}"),
    ],
    ids=["half a config", "another kind of model", "no weights", "senseless weights", "no tokenizer"],
)
def test_a_damaged_model_is_one_line(copy: Path, name: str, content: bytes) -> None:
    (copy / name).write_bytes(content)
    with pytest.raises(InputError, match=r"train\.teacher: ") as caught:
        open_(copy)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_weights_that_are_not_all_there_are_not_made_up(copy: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(copy / "model.safetensors")
    gone = next(name for name in weights if name.endswith("decoder.layers.0.fc1.weight"))
    del weights[gone]
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"its weights lack .*fc1\.weight"):
        open_(copy)


def test_a_model_that_does_not_fit_its_tokenizer_is_one_line(copy: Path) -> None:
    tokenizer = json.loads((copy / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["w4"] = 900  # the model knows 30
    (copy / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(InputError, match=r"train\.teacher: .*cannot translate \(IndexError") as caught:
        open_(copy).translate(["w4 w5"])
    assert "\n" not in str(caught.value)


def test_a_model_without_an_end_or_without_padding_is_one_line(copy: Path, tmp_path: Path) -> None:
    shutil.copytree(copy, tmp_path / "endless")
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        path = tmp_path / "endless" / name
        known = json.loads(path.read_text())
        path.write_text(json.dumps({key: value for key, value in known.items() if not key.startswith("eos_token")}))
    with pytest.raises(InputError, match=r"train\.teacher: .*which token ends a sentence"):
        open_(tmp_path / "endless")
    path = copy / "tokenizer_config.json"
    known = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in known.items() if key != "pad_token"}))
    with pytest.raises(InputError, match=r"train\.teacher: .*no padding token"):
        open_(copy)


def test_without_transformers_one_line_says_what_to_install(marian: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "transformers"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr("fitformer.distillation.teacher.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'fitformer\[teacher\]'"):
        TeacherSource(marian).check("en", "de")
    with pytest.raises(InputError, match=r"pip install 'fitformer\[teacher\]'"):
        HuggingFaceTeacher(TeacherSource(marian))


def test_folders_without_a_teacher_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for name, message in (("none", "no such folder"), ("file", "is not a folder"), ("empty", "no bundle")):
        with pytest.raises(InputError, match=f"train.teacher: .*{name}.*{message}"):
            TeacherSource(tmp_path / name).check("en", "de")
