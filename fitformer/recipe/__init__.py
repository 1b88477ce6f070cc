"""Recipes: what a user writes, typed and checked. One section per stage, under the stage's own name."""

from fitformer.recipe.learning import Supernet, Training
from fitformer.recipe.loading import load_recipe, parse_recipe
from fitformer.recipe.sections import Recipe, Target
from fitformer.recipe.text import Corpus

__all__ = ["Corpus", "Recipe", "Supernet", "Target", "Training", "load_recipe", "parse_recipe"]
