"""The drawing says what the architecture is: widths in proportion, sizes and heads written in, one arrow each."""

from __future__ import annotations

import random
import re
from collections import Counter
from xml.etree import ElementTree

import pytest

from fitformer.report.drawing import COLUMN, GUTTER, draw, sizes
from fitformer.space import Architecture, SearchSpace

SVG = "{http://www.w3.org/2000/svg}"
PRESETS = ("small", "multi30k", "hat-iwslt", "hat-wmt")


def parse(arch: Architecture, space: SearchSpace | None = None) -> ElementTree.Element:
    return ElementTree.fromstring(draw(arch, space))


def rectangles(svg: ElementTree.Element, kind: str) -> list[float]:
    return [float(r.attrib["width"]) for r in svg.iter(f"{SVG}rect") if kind in r.attrib["class"].split()]


def samples() -> list[tuple[str, Architecture]]:
    rng = random.Random(5)
    return [(name, SearchSpace.preset(name).sample(rng)) for name in PRESETS for _ in range(5)]


@pytest.mark.parametrize(("preset", "arch"), samples())
def test_bars_are_as_wide_as_the_sizes_on_one_scale(preset: str, arch: Architecture) -> None:
    svg = parse(arch, SearchSpace.preset(preset))
    drawn = {
        "embedding": [arch.encoder_embed_dim, arch.decoder_embed_dim],
        "attention": [*arch.encoder_qkv_dim, *arch.decoder_qkv_dim],
        "cross": [*arch.decoder_qkv_dim],
        "feed-forward": [*arch.encoder_ffn_dim, *arch.decoder_ffn_dim],
    }
    pairs = [
        (width, size)
        for kind, values in drawn.items()
        for width, size in zip(rectangles(svg, kind), values, strict=True)
    ]
    scale = max(width for width, _ in pairs) / max(size for _, size in pairs)
    for width, size in pairs:
        assert width == pytest.approx(scale * size, abs=0.1)


@pytest.mark.parametrize(("preset", "arch"), samples())
def test_every_attended_layer_has_one_arrow_from_its_box_to_the_cross_attention(
    preset: str, arch: Architecture
) -> None:
    svg = parse(arch, SearchSpace.preset(preset))
    arrows = [path for path in svg.iter(f"{SVG}path") if "attends" in path.attrib["class"]]
    assert len(arrows) == sum(len(set(layers)) for layers in arch.decoder_cross_layers)
    boxes = [r for r in svg.iter(f"{SVG}rect") if r.attrib["class"] == "box" and float(r.attrib["x"]) < COLUMN]
    spans = [(float(b.attrib["y"]), float(b.attrib["y"]) + float(b.attrib["height"])) for b in boxes][1:]
    bars = [r for r in svg.iter(f"{SVG}rect") if r.attrib["class"] == "bar cross"]
    found: Counter[tuple[int, int]] = Counter()
    for arrow in arrows:
        x0, y0, *_, x1, y1 = map(float, re.findall(r"-?[\d.]+", arrow.attrib["d"]))
        assert x0 == pytest.approx(COLUMN, abs=1) and x1 == pytest.approx(COLUMN + GUTTER, abs=2)
        source = next(i for i, (top, bottom) in enumerate(spans) if top <= y0 <= bottom)
        target = next(
            i
            for i, r in enumerate(bars)
            if float(r.attrib["y"]) <= y1 <= float(r.attrib["y"]) + float(r.attrib["height"])
        )
        found[target, source] += 1
    wanted = {(i, layer) for i, layers in enumerate(arch.decoder_cross_layers) for layer in layers}
    assert found == Counter(wanted)


@pytest.mark.parametrize(("preset", "arch"), samples())
def test_sizes_and_heads_are_written_in_and_nothing_leaves_the_drawing(preset: str, arch: Architecture) -> None:
    svg = parse(arch)
    words = [text.text or "" for text in svg.iter(f"{SVG}text")]
    for i in range(arch.encoder_num_layers):
        heads = arch.encoder_num_heads[i]
        assert f"self {arch.encoder_qkv_dim[i]}, {heads} head{'s' if heads > 1 else ''}" in words
        assert f"feed-forward {arch.encoder_ffn_dim[i]}" in words
    for i in range(arch.decoder_num_layers):
        heads = arch.decoder_cross_heads[i]
        assert f"cross {arch.decoder_qkv_dim[i]}, {heads} head{'s' if heads > 1 else ''}" in words
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    for item in svg.iter(f"{SVG}rect"):
        x, y, w, h = (float(item.attrib[key]) for key in ("x", "y", "width", "height"))
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height


def test_outlines_are_the_largest_choice_and_only_drawn_with_a_space() -> None:
    space = SearchSpace.preset("multi30k")
    arch = space.smallest()
    assert rectangles(parse(arch), "room") == []
    svg = parse(arch, space)
    rooms, bars = rectangles(svg, "room"), rectangles(svg, "bar")
    assert len(rooms) == len(bars)
    largest = parse(space.largest(), space)
    assert rectangles(largest, "room") == rectangles(largest, "bar")
    assert max(rooms) == pytest.approx(bars[0] * max(space.encoder_ffn_dim) / arch.encoder_embed_dim, abs=0.2)


def test_repeated_layers_are_one_arrow_and_told_in_the_table() -> None:
    arch = Architecture.from_text("enc 64: 128/64/2 128/64/1 | dec 64: 256/64/2/4@1,0,0")
    svg = parse(arch)
    assert sum("attends" in path.attrib["class"] for path in svg.iter(f"{SVG}path")) == 2
    assert "4 heads over encoder layers 2, 1, 1" in sizes(arch)
    assert "1 head" in sizes(arch) and "1 heads" not in sizes(arch)


def test_two_drawings_on_a_page_do_not_share_ids() -> None:
    arch = SearchSpace.preset("small").smallest()
    first, second = (re.findall(r'id="([^"]+)"', draw(arch, name=name)) for name in ("target-1", "target-2"))
    assert first and not set(first) & set(second)
