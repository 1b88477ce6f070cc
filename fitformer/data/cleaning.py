"""Pair-wise cleaning: both sides of a pair are kept or dropped together, and every reason is counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fitformer.data.normalise import normalise
from fitformer.errors import InputError

#: Every reason for which a pair can be left out, in the order in which they are tried. ``repeated`` and
#: ``in_evaluation`` need to see the whole corpus and are counted by the prepare stage.
REASONS = ("empty", "too_long", "ratio", "too_many_tokens", "in_evaluation", "repeated")


@dataclass(frozen=True)
class CleaningSettings:
    """Which training pairs are left out.

    ``max_words`` and ``max_characters`` bound each side; ``max_ratio`` bounds the number of characters of the
    longer side over that of the shorter one (both counted with 15 characters on top, so that short pairs,
    whose ratio says little, pass). ``drop_duplicates``: a pair that occurred before.
    ``drop_evaluation_sources``: a training pair whose source (case and punctuation aside) occurs in the
    validation or test set, so that scores are on unseen text.
    """

    max_words: int = 200
    max_characters: int = 1500
    max_ratio: float = 3.0
    drop_duplicates: bool = True
    drop_evaluation_sources: bool = True

    def __post_init__(self) -> None:
        for name, value in (("max_words", self.max_words), ("max_characters", self.max_characters)):
            if value < 1:
                raise InputError(f"cleaning.{name}: {value} is not a positive number")
        if self.max_ratio < 1:
            raise InputError(f"cleaning.max_ratio: {self.max_ratio} is below 1; the ratio is longer over shorter")


class Cleaner:
    """Normalises pairs and drops those that cannot teach anything; ``dropped`` counts by reason."""

    def __init__(self, settings: CleaningSettings) -> None:
        self.settings = settings
        self.seen = 0
        self.dropped: Counter[str] = Counter()

    def __call__(self, source: str, target: str) -> tuple[str, str] | None:
        """Return the normalised pair, or None when it is dropped."""
        self.seen += 1
        source, target = normalise(source), normalise(target)
        reason = self.reason(source, target)
        if reason is None:
            return source, target
        self.dropped[reason] += 1
        return None

    def reason(self, source: str, target: str) -> str | None:
        """Return why a normalised pair is dropped, or None when it is kept."""
        if not source or not target:
            return "empty"
        short, long = sorted((len(source), len(target)))
        if long > self.settings.max_characters:
            return "too_long"
        # A text of n words has at least 2n - 1 characters: most pairs need no counting.
        if long >= 2 * self.settings.max_words and (
            max(source.count(" "), target.count(" ")) >= self.settings.max_words
        ):
            return "too_long"
        if (long + 15) > self.settings.max_ratio * (short + 15):
            return "ratio"
        return None
