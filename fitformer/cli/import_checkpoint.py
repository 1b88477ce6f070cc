"""``fitformer import hat-checkpoint``: an original checkpoint becomes a bundle, or a run to search in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fitformer.cli import options
from fitformer.cli.output import print_json
from fitformer.errors import InputError
from fitformer.progress import say


def hat_checkpoint(
    checkpoint: Annotated[Path, typer.Argument(metavar="CKPT", help="checkpoint_best.pt, zip or old format.")],
    source_dict: Annotated[
        Path, typer.Option("--source-dict", metavar="FILE", help="dict.SOURCE.txt, the very one of the training.")
    ],
    target_dict: Annotated[
        Path, typer.Option("--target-dict", metavar="FILE", help="dict.TARGET.txt; the same where it is joined.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The bundle or run folder, a new one.")],
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="YML", help="A SubTransformer: it becomes a bundle. Without it: a run."),
    ] = None,
    bpe_codes: Annotated[
        Path | None, typer.Option("--bpe-codes", metavar="FILE", help="Merges of subword-nmt; without, text is cut.")
    ] = None,
    moses: Annotated[bool, typer.Option("--moses", help="Tokenise (and detokenise) as Moses does.")] = False,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="The model reads lower-case text.")] = False,
    normalise: Annotated[
        bool, typer.Option("--normalise", help="With --moses: normalize-punctuation before, as for WMT.")
    ] = False,
    aggressive_hyphens: Annotated[
        bool, typer.Option("--aggressive-hyphens", help="With --moses: a-b is a @-@ b (its option -a), as for WMT.")
    ] = False,
    valid_source: Annotated[
        Path | None,
        typer.Option("--valid-source", metavar="FILE", help="Validation text; a bundle is checked with it."),
    ] = None,
    valid_target: Annotated[
        Path | None, typer.Option("--valid-target", metavar="FILE", help="Its translation; a run's search needs it.")
    ] = None,
    train_source: Annotated[
        Path | None, typer.Option("--train-source", metavar="FILE", help="Training text, for a run's stage train.")
    ] = None,
    train_target: Annotated[
        Path | None, typer.Option("--train-target", metavar="FILE", help="Its translation.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Import a checkpoint of the original HAT; nothing that is in it is ever run.

    With `--config` that SubTransformer is extracted and becomes a bundle, checked token for token against PyTorch.
    Without it the SuperTransformer becomes a run folder in which `supernet` is finished: go on with
    `fitformer measure DIR/recipe.yaml --run DIR` and `search`.
    """
    from fitformer.pipeline.hat_original import Original
    from fitformer.pipeline.importing import import_bundle, import_run

    if config is not None and (train_source or train_target):
        raise InputError("--train-source: a bundle (--config) is not trained any further; leave it out")
    if config is not None and valid_target:
        raise InputError("--valid-target: a bundle (--config) is checked with --valid-source alone; leave it out")
    original = Original(
        checkpoint,
        source_dict,
        target_dict,
        codes=bpe_codes,
        moses=moses,
        lowercase=lowercase,
        normalise=normalise,
        aggressive_hyphens=aggressive_hyphens,
        valid_source=valid_source,
        valid_target=valid_target,
        train_source=train_source,
        train_target=train_target,
    )
    facts = import_run(original, output) if config is None else import_bundle(original, config, output)
    for warning in facts["warnings"]:
        say(f"warning: {warning}")
    if as_json:
        print_json({"checkpoint": checkpoint, **facts})
    else:
        _print(facts)


def _print(facts: dict[str, Any]) -> None:
    source, target = facts["languages"]
    params = f"{facts['params']['total']:,} parameters ({facts['params']['hat']:,} as HAT counts)"
    if facts["kind"] == "bundle":
        check = facts["check"]
        greedy, beam = check["greedy"], check["beam"]
        print(f"{source}-{target}: {facts['architecture']}")
        print(params)
        print(
            f"PyTorch and the bundle agree on {check['sentences']} lines "
            f"(ties: {greedy['ties']} greedy, {beam['ties']} with beam {beam['size']})"
        )
        print(f"wrote {facts['output']}; try: fitformer translate {facts['output']}")
        return
    print(f"{source}-{target}: {facts['space']['size']:,} architectures, the largest {facts['space']['largest']}")
    print(params)
    for name, loss in facts["valid"].items():
        print(f"validation loss, {name}: {loss:.4f} nats per token")
    print(f"wrote {facts['output']}; go on with: fitformer measure {facts['recipe']} --run {facts['output']}")
