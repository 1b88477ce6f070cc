"""HAT's evolutionary search (section 2.3 of the paper): the best architecture whose predicted latency keeps a limit.

It starts from a population drawn at random within the limit; then, generation after generation, the architectures
of lowest loss become parents, and mutants and crossovers of them are evaluated. Three things differ from HAT: an
architecture is never evaluated twice, every generation has a random generator of its own (so that a killed search
repeats the same course), and an impossible or exhausted search ends instead of looping.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from fitformer.errors import NotPossibleError, RecipeError
from fitformer.progress import Progress, say
from fitformer.search.history import Candidate, History
from fitformer.search.reachable import ENUMERATED_UP_TO, Cost, check_reachable
from fitformer.space import Architecture, SearchSpace

Fitness = Callable[[Architecture], float]

ATTEMPTS = 100  # draws per wanted child; then another way to draw takes over, or there are fewer children
PLATEAU = 5  # generations without a better architecture that are worth a notice


@dataclass(frozen=True)
class EvolutionSettings:
    """Sizes of the search; the defaults are HAT's.

    Attributes:
        population_size: architectures of the first generation; parents, mutants and crossovers of each later one.
        num_parents, num_mutations, num_crossovers: the three parts of a population.
        mutation_prob: probability with which a mutation redraws each choice.
        num_generations: generations, the first random one included.
        patience: stop after so many generations without a better architecture; None runs all of them.
        seed: start of every random generator.

    Raises:
        RecipeError: a size that is too small, or parts that do not add up to the population.
    """

    population_size: int = 125
    num_parents: int = 25
    num_mutations: int = 50
    num_crossovers: int = 50
    mutation_prob: float = 0.3
    num_generations: int = 30
    patience: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"population_size": 2, "num_parents": 2, "num_generations": 1, "num_mutations": 0, "num_crossovers": 0}
        for name, value in least.items():
            if getattr(self, name) < value:
                raise RecipeError(f"search.{name}: {getattr(self, name)} must be {value} or more")
        if not 0 < self.mutation_prob <= 1:
            raise RecipeError(f"search.mutation_prob: {self.mutation_prob} must be above 0 and at most 1")
        if self.patience is not None and self.patience < 1:
            raise RecipeError(f"search.patience: {self.patience} must be 1 or more")
        parts = self.num_parents + self.num_mutations + self.num_crossovers
        if parts != self.population_size:
            raise RecipeError(
                f"search.population_size: {self.population_size} must be num_parents + num_mutations + num_crossovers, "
                f"which is {parts}"
            )

    @property
    def num_evaluations(self) -> int:
        """Most architectures that one search evaluates."""
        return self.population_size + (self.num_generations - 1) * (self.num_mutations + self.num_crossovers)


@dataclass
class Evolution:
    """A search in progress. ``run`` may be called again with a corrected cost; it then goes on from what it knows.

    Attributes:
        space, fitness, limit_ms, settings: what is searched, by what, within what.
        history: evaluated architectures; those of an earlier, killed process answer for ``fitness``.
        evaluated: loss and generation of every architecture of this search so far, in order of evaluation.
        generation: number of the next generation.
        stale: generations since the best architecture last changed.
    """

    space: SearchSpace
    fitness: Fitness
    limit_ms: float
    settings: EvolutionSettings
    history: History
    quiet: bool = False
    evaluated: dict[Architecture, Candidate] = field(default_factory=dict)
    generation: int = 0
    stale: int = 0

    def __post_init__(self) -> None:
        self._known = {candidate.architecture: candidate.valid_loss for candidate in self.history.candidates}

    def run(self, cost: Cost, num_generations: int | None = None) -> list[Candidate]:
        """Search for ``num_generations`` and return all candidates within the limit by ``cost``, best first.

        Args:
            cost: predicted latency of an architecture in milliseconds.
        Raises:
            NotPossibleError: no architecture keeps the limit, or the loss of all is not a number.
        """
        within = check_reachable(self.space, cost, self.limit_ms, seed=self.settings.seed)
        self.evaluated = {
            arch: Candidate(arch, known.valid_loss, cost(arch), known.generation)
            for arch, known in self.evaluated.items()
        }
        count = num_generations or self.settings.num_generations
        self.stale = 0
        most = len(self.evaluated) + self._budget(count)
        with Progress("search", most, unit="architecture", start=len(self.evaluated), quiet=self.quiet) as progress:
            for _ in range(count):
                best = before = self._best_loss()
                new = self._next_generation(cost, within, most)
                for arch in new:
                    best = min(best, self._evaluate(arch, cost))
                    progress.update(len(self.evaluated), generation=self.generation, loss=best)
                self.history.sync()
                self.generation += 1
                self.stale = 0 if best < before else self.stale + 1
                if self._is_over(bool(new)):
                    break
        candidates = self.within_limit()
        if math.isinf(candidates[0].valid_loss):
            raise NotPossibleError(
                "search: the validation loss of every architecture is not a number; were the weights trained?"
            )
        return candidates

    def within_limit(self) -> list[Candidate]:
        """Evaluated architectures that keep the limit by the present cost, lowest loss first."""
        candidates = [candidate for candidate in self.evaluated.values() if candidate.predicted_ms <= self.limit_ms]
        return sorted(candidates, key=lambda candidate: candidate.order)

    # -- one generation -----------------------------------------------------------------------------------------

    def _next_generation(self, cost: Cost, within: Architecture, most: int) -> list[Architecture]:
        """Architectures to evaluate next: new ones, different, within the limit; none when there are no more."""
        rng = random.Random(f"{self.settings.seed}/{self.generation}")
        brood = _Brood(self.evaluated, cost, self.limit_ms)
        if within not in self.evaluated:  # a search of a tight limit has at least this one to start from
            brood.add(within)
        if self.space.size() <= min(ENUMERATED_UP_TO, most):
            brood.fill(self.space.enumerate(), self.space.size())  # cheaper to evaluate all than to search among them
            return brood.children
        population, mutations = self.settings.population_size, self.settings.num_mutations
        parents = [candidate.architecture for candidate in self.within_limit()[: self.settings.num_parents]]
        if len(parents) < 2:
            brood.fill(self._samples(rng, population), population)
            # Uniform draws hardly ever keep a tight limit: what is missing comes from mutating what does.
            brood.fill(self._mutants(lambda: [*parents, *brood.children], rng, population), population)
            return brood.children
        children = mutations + self.settings.num_crossovers
        brood.fill(self._mutants(lambda: parents, rng, mutations), mutations)
        brood.fill(self._crossovers(parents, rng, children), children)
        brood.fill(self._samples(rng, children), children)
        return brood.children

    def _samples(self, rng: random.Random, count: int) -> Iterator[Architecture]:
        return (self.space.sample(rng) for _ in range(ATTEMPTS * count))

    def _mutants(
        self, parents: Callable[[], list[Architecture]], rng: random.Random, count: int
    ) -> Iterator[Architecture]:
        prob = self.settings.mutation_prob
        return (self.space.mutate(rng.choice(parents()), prob, rng) for _ in range(ATTEMPTS * count))

    def _crossovers(self, parents: list[Architecture], rng: random.Random, count: int) -> Iterator[Architecture]:
        return (self._crossover(parents, rng) for _ in range(ATTEMPTS * count))

    def _crossover(self, parents: list[Architecture], rng: random.Random) -> Architecture:
        first, second = rng.sample(parents, 2)
        return self.space.crossover(first, second, rng)

    def _evaluate(self, arch: Architecture, cost: Cost) -> float:
        predicted_ms = cost(arch)
        known = self._known.get(arch)
        loss = self.fitness(arch) if known is None else known
        candidate = Candidate(arch, loss if math.isfinite(loss) else math.inf, predicted_ms, self.generation)
        self.evaluated[arch] = candidate
        if known is None:
            self.history.append(candidate)
        return candidate.valid_loss

    # -- when to stop -------------------------------------------------------------------------------------------

    def _budget(self, num_generations: int) -> int:
        children = self.settings.num_mutations + self.settings.num_crossovers
        return num_generations * children + (0 if self.evaluated else self.settings.population_size - children)

    def _best_loss(self) -> float:
        return min((c.valid_loss for c in self.evaluated.values() if c.predicted_ms <= self.limit_ms), default=math.inf)

    def _is_over(self, found_new: bool) -> bool:
        if not found_new:
            if not self.quiet:
                say(f"search: no new architecture within the limit can be found, {len(self.evaluated)} are evaluated")
            return True
        if self.stale == PLATEAU and not self.quiet:
            say(f"search: the best architecture has not changed for {PLATEAU} generations")
        return self.settings.patience is not None and self.stale >= self.settings.patience


class _Brood:
    """Children of one generation: different from each other and from all evaluated, within the limit."""

    def __init__(self, evaluated: dict[Architecture, Candidate], cost: Cost, limit_ms: float) -> None:
        self._seen = set(evaluated)
        self._cost, self._limit_ms = cost, limit_ms
        self.children: list[Architecture] = []

    def fill(self, drawn: Iterator[Architecture], size: int) -> None:
        """Add from ``drawn`` until there are ``size`` children or it has ended."""
        fresh = (arch for arch in drawn if self._is_new(arch))
        for arch in islice(fresh, max(size - len(self.children), 0)):
            self.children.append(arch)

    def add(self, arch: Architecture) -> None:
        self._seen.add(arch)
        self.children.append(arch)

    def _is_new(self, arch: Architecture) -> bool:
        if arch in self._seen:
            return False
        self._seen.add(arch)
        return self._cost(arch) <= self._limit_ms
