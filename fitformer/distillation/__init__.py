"""Sequence-level knowledge distillation (Kim & Rush 2016): a model learns a larger one's translations."""

from fitformer.distillation.corpus import Corpus, distil
from fitformer.distillation.teacher import Teacher, TeacherSource

__all__ = ["Corpus", "Teacher", "TeacherSource", "distil"]
