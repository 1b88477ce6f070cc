"""BLEU and chrF by sacreBLEU, each with the signature that says how it was computed.

Three BLEUs that must not be mixed up, told apart by the ``text`` of their signatures: the cased one on plain text
(sacreBLEU's own tokenizer, comparable between papers that give the signature); the cased one on Moses tokens with
compounds split, as HAT and other papers of its time report it (``runtime.hat_bleu``); and the one on lower-cased,
normalised Moses tokens that Multi30k papers report, comparable with the official ``*.lc.norm.tok.*`` files only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from fitformer.errors import InputError
from fitformer.runtime.moses import INSTALL

BOOTSTRAP_SAMPLES = 1000
LOWERCASE_TEXT = "lowercase.normalised.moses"


def score_translations(
    hypotheses: Sequence[str], references: Sequence[str], *, samples: int = BOOTSTRAP_SAMPLES
) -> dict[str, Any]:
    """Score plain text against one reference per line.

    Args:
        samples: bootstrap resamples for the interval of BLEU (Koehn, 2004); the seed is fixed.
    Returns:
        ``bleu`` and ``chrf``, each ``{"score", "interval", "signature"}``; ``interval`` is the 95 % bootstrap
        interval as [low, high].
    Raises:
        InputError: no lines, or not as many references as hypotheses.
    """
    from sacrebleu.metrics.bleu import BLEU

    check_pairs(hypotheses, references)
    return {
        "bleu": score_with(BLEU(), hypotheses, references, samples),
        "chrf": score_with(_chrf(), hypotheses, references, samples),
    }


def lowercase_tokenised_bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, samples: int = BOOTSTRAP_SAMPLES
) -> dict[str, Any]:
    """BLEU of text that is already lower-cased and tokenised (see ``lowercase_tokenise``), as Multi30k papers give it.

    Returns:
        ``{"score", "interval", "signature"}`` as in ``score_translations``.
    Raises:
        InputError: no lines, or not as many references as hypotheses.
    """
    from sacrebleu.metrics.bleu import BLEU

    check_pairs(hypotheses, references)
    # force: sacreBLEU would otherwise warn that the text looks tokenised, which is the point here.
    scored = score_with(BLEU(tokenize="none", force=True), hypotheses, references, samples)
    return scored | {"signature": f"{scored['signature']}|text:{LOWERCASE_TEXT}"}


def lowercase_tokenise(lines: Sequence[str], language: str) -> list[str]:
    """Lower-case, normalise punctuation and Moses-tokenise (with escapes), as the official Multi30k files were made.

    On Multi30k test_2016_flickr this gives the official German and English files exactly and all but one French line.

    Raises:
        InputError: sacremoses is not installed.
    """
    try:
        from sacremoses import MosesPunctNormalizer, MosesTokenizer
    except ImportError:
        raise InputError(f"lower-cased tokenised BLEU needs sacremoses: {INSTALL}") from None
    normalizer, tokenizer = MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)
    return [tokenizer.tokenize(normalizer.normalize(line.lower()), return_str=True, escape=True) for line in lines]


def paired_bootstrap(
    hypotheses_a: Sequence[str],
    hypotheses_b: Sequence[str],
    references: Sequence[str],
    *,
    samples: int = BOOTSTRAP_SAMPLES,
    tokenised: bool = False,
) -> dict[str, Any]:
    """Is B's BLEU different from A's, or could resampling the test lines explain it? (Koehn, 2004.)

    Args:
        tokenised: the text is already tokenised (see ``lowercase_tokenise``).
    Returns:
        ``bleu_a``, ``bleu_b``, ``difference`` (B - A), ``interval_a``, ``interval_b`` (95 %), ``p_value``
        (how often resampling alone gives such a difference, in either direction), ``signature``, ``samples``.
    Raises:
        InputError: no lines, or not as many of one as of another.
    """
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize="none", force=True) if tokenised else BLEU()
    return pair_with(metric, hypotheses_a, hypotheses_b, references, samples)


def pair_with(
    metric: Any, hypotheses_a: Sequence[str], hypotheses_b: Sequence[str], references: Sequence[str], samples: int
) -> dict[str, Any]:
    """``paired_bootstrap`` by a BLEU of sacreBLEU's settings."""
    from sacrebleu.significance import PairedTest

    check_pairs(hypotheses_a, references)
    check_pairs(hypotheses_b, references)
    systems: list[tuple[str, Sequence[str]]] = [("a", list(hypotheses_a)), ("b", list(hypotheses_b))]
    test = PairedTest(systems, {"BLEU": metric}, [list(references)], test_type="bs", n_samples=samples)
    signatures, results = test()
    # The table also has a column of names, hence the wide type; of a paired test every field below is filled.
    first, second = cast(list[Any], results["BLEU"])
    # Of two systems with the same output every resample ties, which sacreBLEU counts as p = 1 / (samples + 1).
    p_value = 1.0 if list(hypotheses_a) == list(hypotheses_b) else float(second.p_value)
    return {
        "bleu_a": float(first.score),
        "bleu_b": float(second.score),
        "difference": float(second.score - first.score),
        "interval_a": _interval(first.mean, first.ci),
        "interval_b": _interval(second.mean, second.ci),
        "p_value": p_value,
        "signature": str(signatures["BLEU"]),
        "samples": samples,
    }


def _chrf() -> Any:
    """sacreBLEU's chrF, whose scores here are always Python's floats.

    Left alone it mixes them with NumPy's (a resample without a single common n-gram scores a plain 0.0), and then
    fails to take their mean.
    """
    from sacrebleu.metrics.chrf import CHRF

    class PlainCHRF(CHRF):
        def _compute_f_score(self, statistics: list[int]) -> float:
            return float(super()._compute_f_score(statistics))

    return PlainCHRF()


def score_with(metric: Any, hypotheses: Sequence[str], references: Sequence[str], samples: int) -> dict[str, Any]:
    """Score by a metric of sacreBLEU: ``{"score", "interval", "signature"}``."""
    score = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=samples)
    return {
        "score": float(score.score),
        # sacreBLEU computes these two for printing and has no other way to them.
        "interval": _interval(score._mean, score._ci),
        "signature": str(metric.get_signature()),
    }


def _interval(mean: float, half: float) -> list[float]:
    return [float(mean - half), float(mean + half)]


def check_pairs(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Refuse no lines, and files that do not pair up, with ``InputError``."""
    if len(hypotheses) != len(references):
        raise InputError(
            f"there are {len(hypotheses)} translations but {len(references)} references; they must pair up"
        )
    if not hypotheses:
        raise InputError("there are no lines to score")
