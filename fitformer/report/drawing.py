"""The found architecture, drawn layer by layer as SVG: encoder on the left, decoder on the right, from the bottom up.

Every bar is as wide as its size (all sizes on one scale); its outline is the largest the search space offered. Arrows
show which encoder layers each decoder layer attends to. The drawing is narrow, so that a phone shows it in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fitformer.report.markup import Markup, join, table, tag
from fitformer.space import Architecture, SearchSpace

WIDTH, COLUMN, GUTTER = 404.0, 158.0, 84.0
PADDING = 6.0
BAR, GAP = 19.0, 3.0
TITLE = 14.0
BETWEEN = 9.0
CAPTION = 20.0


@dataclass(frozen=True)
class _Bar:
    """``size`` is drawn, the largest of ``choices`` (if any are known) is its outline; ``kind`` chooses the colour."""

    kind: str
    label: str
    size: int
    choices: tuple[int, ...]

    @property
    def most(self) -> int:
        """Width of the outline."""
        return max((self.size, *self.choices))


@dataclass(frozen=True)
class _Box:
    """A layer, an embedding or a caption (no bars) of a stack."""

    title: str
    bars: tuple[_Bar, ...]

    @property
    def height(self) -> float:
        """Height in the drawing's units."""
        bars = len(self.bars)
        return CAPTION if not bars else TITLE + bars * BAR + (bars - 1) * GAP + 2 * PADDING


def draw(arch: Architecture, space: SearchSpace | None = None, *, name: str = "architecture") -> Markup:
    """Return the drawing of ``arch``; with ``space``, outlines show what could have been chosen.

    Args:
        name: starts the ids of the drawing, so that a page may hold several.
    """
    encoder, decoder = _encoder(arch, space), _decoder(arch, space)
    scale = (COLUMN - 2 * PADDING) / max(bar.most for box in [*encoder, *decoder] for bar in box.bars)
    height = max(_height(encoder), _height(decoder))
    tip = f"{name}-tip"
    left, encoder_tops = _stack(encoder, 0.0, height, scale, tip)
    right, decoder_tops = _stack(decoder, COLUMN + GUTTER, height, scale, tip)
    arrows = _arrows(arch, encoder_tops[1:], decoder_tops[1:], tip)
    depths = f"{arch.encoder_num_layers} encoder and {arch.decoder_num_layers} decoder layers"
    label = f"Architecture with {depths}: {arch.to_text()}"
    return tag(
        "svg",
        tag("title", label),
        _arrow_head(tip),
        left,
        right,
        arrows,
        class_="architecture",
        viewBox=f"0 0 {WIDTH:g} {height:g}",
        role="img",
        xmlns="http://www.w3.org/2000/svg",
    )


def sizes(arch: Architecture) -> Markup:
    """Return all sizes of ``arch`` as a table: what the drawing shows, for copying and for screen readers."""
    rows: list[Sequence[str]] = [("embedding", "encoder", str(arch.encoder_embed_dim), "", "")]
    columns = zip(arch.encoder_ffn_dim, arch.encoder_qkv_dim, arch.encoder_num_heads, strict=True)
    for i, (ffn, qkv, heads) in enumerate(columns, start=1):
        rows.append((f"layer {i}", "encoder", str(ffn), f"{qkv} in {_heads(heads)}", ""))
    rows.append(("embedding", "decoder", str(arch.decoder_embed_dim), "", ""))
    for i in range(arch.decoder_num_layers):
        cross = f"{_heads(arch.decoder_cross_heads[i])} over encoder {_attended(arch.decoder_cross_layers[i])}"
        own = f"{arch.decoder_qkv_dim[i]} in {_heads(arch.decoder_self_heads[i])}"
        rows.append((f"layer {i + 1}", "decoder", str(arch.decoder_ffn_dim[i]), own, cross))
    head = ("", "side", "width or feed-forward", "self-attention", "cross-attention")
    return table(head, rows, numbers=(2,))


def _encoder(arch: Architecture, space: SearchSpace | None) -> list[_Box]:
    """The encoder's boxes from the bottom up: embedding, then layers, then a caption."""
    ffn, qkv, width = (space.encoder_ffn_dim, space.encoder_qkv_dim, space.encoder_embed_dim) if space else ((), (), ())
    boxes = [
        _Box("source words", (_Bar("embedding", f"width {arch.encoder_embed_dim}", arch.encoder_embed_dim, width),))
    ]
    for i in range(arch.encoder_num_layers):
        heads, own = arch.encoder_num_heads[i], arch.encoder_qkv_dim[i]
        bars = (
            _Bar("attention", f"self {own}, {_heads(heads)}", own, qkv),
            _Bar("feed-forward", f"feed-forward {arch.encoder_ffn_dim[i]}", arch.encoder_ffn_dim[i], ffn),
        )
        boxes.append(_Box(f"encoder {i + 1}", bars))
    return boxes


def _decoder(arch: Architecture, space: SearchSpace | None) -> list[_Box]:
    ffn, qkv, width = (space.decoder_ffn_dim, space.decoder_qkv_dim, space.decoder_embed_dim) if space else ((), (), ())
    name = "target words so far"
    boxes = [_Box(name, (_Bar("embedding", f"width {arch.decoder_embed_dim}", arch.decoder_embed_dim, width),))]
    for i in range(arch.decoder_num_layers):
        own = arch.decoder_qkv_dim[i]
        bars = (
            _Bar("attention", f"self {own}, {_heads(arch.decoder_self_heads[i])}", own, qkv),
            _Bar("cross", f"cross {own}, {_heads(arch.decoder_cross_heads[i])}", own, qkv),
            _Bar("feed-forward", f"feed-forward {arch.decoder_ffn_dim[i]}", arch.decoder_ffn_dim[i], ffn),
        )
        boxes.append(_Box(f"decoder {i + 1}", bars))
    return [*boxes, _Box("next word", ())]


def _height(boxes: Iterable[_Box]) -> float:
    heights = [box.height for box in boxes]
    return sum(heights) + BETWEEN * (len(heights) - 1) + 2


def _stack(boxes: list[_Box], x: float, height: float, scale: float, tip: str) -> tuple[Markup, list[float]]:
    """Draw boxes from the bottom up; return them and the top of each."""
    drawn, tops, y = [], [], height - 1
    for box in boxes:
        y -= box.height
        tops.append(y)
        drawn.append(_box(box, x, y, scale))
        y -= BETWEEN
    stems = [
        tag("path", d=f"M{x + COLUMN / 2:g} {top:g}v{-BETWEEN:g}", class_="flow", marker_end=f"url(#{tip})")
        for top in tops[:-1]
    ]
    return tag("g", stems, drawn), tops


def _box(box: _Box, x: float, y: float, scale: float) -> Markup:
    if not box.bars:
        return tag("text", box.title, x=f"{x + COLUMN / 2:g}", y=f"{y + 14:g}", class_="caption", text_anchor="middle")
    frame = tag(
        "rect", x=f"{x + 0.5:g}", y=f"{y:g}", width=f"{COLUMN - 1:g}", height=f"{box.height:g}", rx="5", class_="box"
    )
    title = tag("text", box.title, x=f"{x + PADDING:g}", y=f"{y + PADDING + 8:g}", class_="caption")
    bars, top = [], y + PADDING + TITLE
    for bar in box.bars:
        bars.append(_bar(bar, x + PADDING, top, scale))
        top += BAR + GAP
    return tag("g", frame, title, bars)


def _bar(bar: _Bar, x: float, y: float, scale: float) -> Markup:
    place = {"x": f"{x:g}", "y": f"{y:g}", "height": f"{BAR:g}", "rx": "2"}
    return join(
        tag("rect", width=f"{bar.most * scale:.1f}", class_="room", **place) if bar.choices else None,
        tag("rect", width=f"{bar.size * scale:.1f}", class_=f"bar {bar.kind}", **place),
        tag("text", bar.label, x=f"{x + 5:g}", y=f"{y + BAR - 5.5:g}"),
    )


def _arrows(arch: Architecture, encoder_tops: list[float], decoder_tops: list[float], tip: str) -> Markup:
    """Curves from the right side of encoder layers to the cross-attention of decoder layers."""
    x0, x1 = COLUMN - 0.5, COLUMN + GUTTER - 1
    middle = (x0 + x1) / 2
    curves = []
    for i, layers in enumerate(arch.decoder_cross_layers):
        y1 = decoder_tops[i] + PADDING + TITLE + BAR + GAP + BAR / 2
        what = tag("title", f"decoder layer {i + 1} attends to encoder {_attended(layers)}")
        for layer in dict.fromkeys(layers):
            # Leaves fan out over the height of the encoder layer, so that arrows to different layers stay apart.
            share = (arch.decoder_num_layers - i) / (arch.decoder_num_layers + 1)
            y0 = encoder_tops[layer] + PADDING + share * (TITLE + 2 * BAR)
            path = f"M{x0:g} {y0:.1f}C{middle:g} {y0:.1f} {middle:g} {y1:.1f} {x1:g} {y1:.1f}"
            curves.append(tag("path", what, d=path, class_=f"attends tone-{i % 6 + 1}", marker_end=f"url(#{tip})"))
    return tag("g", curves)


def _arrow_head(name: str) -> Markup:
    shape = {"markerWidth": 6, "markerHeight": 6, "refX": 5, "refY": 3, "orient": "auto"}
    tip = tag("path", d="M0 0L6 3L0 6z", class_="tip")
    return tag("defs", tag("marker", tip, id=name, markerUnits="userSpaceOnUse", **shape))


def _heads(number: int) -> str:
    return "1 head" if number == 1 else f"{number} heads"


def _attended(layers: Sequence[int]) -> str:
    names = [str(layer + 1) for layer in layers]
    return ("layer " if len(names) == 1 else "layers ") + ", ".join(names)
