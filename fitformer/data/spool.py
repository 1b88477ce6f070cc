"""First pass over the training corpus: cleaned pairs go to disk, with what is needed to choose among them.

After it, the input files are not read again, and whatever needs to see all pairs at once (repeated pairs,
held-out sets, the sample for the subword models) is decided from eight-byte digests in bounded memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fitformer.data.cleaning import Cleaner
from fitformer.data.digests import DigestLog, as_number
from fitformer.data.normalise import digest, source_digest
from fitformer.data.tokenizer import PlaceholderCounter

_PAIRS_BETWEEN_REPORTS = 2000


@dataclass
class Spool:
    """The cleaned pairs on disk, in order, and the decision for each of them."""

    source_path: Path
    target_path: Path
    pair_digests: DigestLog
    source_digests: DigestLog
    source_characters: int = 0
    target_characters: int = 0
    placeholders: PlaceholderCounter = field(default_factory=PlaceholderCounter)

    def __len__(self) -> int:
        return self.pair_digests.count

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs in order."""
        with (
            self.source_path.open(encoding="utf-8", newline="\n") as sources,
            self.target_path.open(encoding="utf-8", newline="\n") as targets,
        ):
            for source, target in zip(sources, targets, strict=True):
                yield source[:-1], target[:-1]


@dataclass(frozen=True)
class Choice:
    """Which cleaned pairs are left out or held out, as masks and bounds over a spool."""

    repeated: npt.NDArray[np.bool_]
    in_evaluation: npt.NDArray[np.bool_]
    drop_in_evaluation: bool
    held_out: dict[str, tuple[int, int]]  # split -> source digests from (inclusive) to (exclusive)
    picked: npt.NDArray[np.bool_] | None = None  # pairs that are the validation set by their number


def fill_spool(
    folder: Path, pairs: Iterable[tuple[str, str]], cleaner: Cleaner, *, seed: int, report: Callable[[], None]
) -> Spool:
    """Clean ``pairs`` into two text files and two digest files in ``folder``; call ``report`` now and
    then.
    """
    spool = Spool(
        folder / "source.txt",
        folder / "target.txt",
        DigestLog(folder / "pairs"),
        DigestLog(folder / "sources"),
    )
    with ExitStack() as stack:
        sources = stack.enter_context(spool.source_path.open("w", encoding="utf-8", newline="\n"))
        targets = stack.enter_context(spool.target_path.open("w", encoding="utf-8", newline="\n"))
        stack.enter_context(spool.pair_digests)
        stack.enter_context(spool.source_digests)
        for pair in pairs:
            if cleaner.seen % _PAIRS_BETWEEN_REPORTS == 0:
                report()
            cleaned = cleaner(*pair)
            if cleaned is None:
                continue
            source, target = cleaned
            sources.write(source + "\n")
            targets.write(target + "\n")
            spool.pair_digests.add(digest(source, target))
            spool.source_digests.add(source_digest(source, seed))
            spool.source_characters += len(source)
            spool.target_characters += len(target)
            spool.placeholders.add(source)
            spool.placeholders.add(target)
    return spool


def choose(
    spool: Spool,
    evaluation_sources: frozenset[bytes],
    *,
    drop_duplicates: bool,
    drop_evaluation_sources: bool,
    hold_out: dict[str, int],
    valid_every: int | None = None,
) -> Choice:
    """Decide which pairs of the spool are dropped and which are held out as validation or test set.

    ``hold_out`` gives the number of pairs wanted for each split. A split is a range of source digests, so
    pairs whose sources count as the same (case, punctuation and spacing aside) always land in the same split.
    With ``valid_every`` the validation set is every so-many-th pair of the spool instead, whatever its text.
    """
    nothing = np.zeros(len(spool), dtype=np.bool_)
    repeated = spool.pair_digests.repeated() if drop_duplicates else nothing
    picked, ranges = None, {}
    if valid_every is not None:
        picked = np.zeros(len(spool), dtype=np.bool_)
        picked[valid_every - 1 :: valid_every] = True
        evaluation_sources |= spool.source_digests.at(np.flatnonzero(picked))
        ranges["valid"] = (0, 0)
    seen = spool.source_digests.member_of(evaluation_sources) if evaluation_sources else nothing
    low = total = 0
    for name, wanted in hold_out.items():
        total += wanted
        high = spool.source_digests.lowest(total, skip=repeated | seen)
        ranges[name] = (low, high)
        low = high
    return Choice(repeated, seen, drop_evaluation_sources, ranges, picked)


def assigned_pairs(spool: Spool, choice: Choice) -> Iterator[tuple[str, str, str]]:
    """Yield (place, source, target) for each pair, where place is a split or the reason why the pair is
    dropped.
    """
    bounds = sorted((high, name) for name, (low, high) in choice.held_out.items() if high > low)
    with spool.source_digests.path.open("rb") as digests:
        for index, (source, target) in enumerate(spool.pairs()):
            number = as_number(digests.read(8))
            if choice.picked is not None and choice.picked[index]:
                yield "valid", source, target
            elif choice.repeated[index]:
                yield "repeated", source, target
            elif choice.in_evaluation[index]:
                yield ("in_evaluation" if choice.drop_in_evaluation else "train"), source, target
            else:
                yield next((name for high, name in bounds if number < high), "train"), source, target


def sample_pairs(spool: Spool, choice: Choice, characters: int) -> Iterator[tuple[str, str]]:
    """Yield about ``characters`` characters of the training pairs: a fair sample, the same each time."""
    total = max(spool.source_characters + spool.target_characters, 1)
    bound = min(1.0, characters / total) * 2**64
    with spool.pair_digests.path.open("rb") as digests:
        for place, source, target in assigned_pairs(spool, choice):
            if as_number(digests.read(8)) <= bound and place == "train":
                yield source, target
