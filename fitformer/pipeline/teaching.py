"""Sequence-level distillation within the stage ``train``: the text as the teacher translates it.

The translations stand in ``RUN/distillation``, for all targets of a run; a new target, or a training that is done
again with other settings, finds them there. They go with the teacher, what it is asked, and the prepared text.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from fitformer.device import available_threads
from fitformer.distillation import Corpus, TeacherSource, distil
from fitformer.pipeline.run import Run
from fitformer.rundir import read_json
from fitformer.training.precision import compute_device

FOLDER = "distillation"


def taught_pairs(run: Run, teacher: TeacherSource) -> Corpus:
    """The corpus that the teacher makes of the run's training text, finished or not."""
    settings, stats = run.recipe.train, read_json(run.prepared / "stats.json")
    decisive = {
        **teacher.asked,
        "targets": settings.teacher_targets,
        "max_tokens": run.recipe.prepare.max_tokens,
        "text": {name: value for name, value in stats["checksums"].items() if name.startswith("train.")},
        "tokenizer": stats["tokenizer"]["models"],
    }
    key = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:12]
    return Corpus(
        run.path / FOLDER / key,
        run.prepared,
        beside=settings.teacher_targets == "beside",
        max_tokens=run.recipe.prepare.max_tokens,
    )


def training_pairs(run: Run) -> Path | None:
    """Folder of the pairs that the model learns from; ``None`` for those of the text."""
    return None if run.teacher is None else taught_pairs(run, run.teacher).folder


def teach(run: Run) -> tuple[dict[str, Any], float]:
    """Have the training text translated; return facts for the stage's record, and the seconds it took just now."""
    teacher = run.teacher
    if teacher is None:
        return {}, 0.0
    corpus, settings = taught_pairs(run, teacher), run.recipe.train
    was_done = corpus.is_done
    threads = settings.threads or available_threads()
    facts = distil(corpus, lambda: teacher.open(threads=threads, device=compute_device(settings.device)))
    return {"teacher": teacher.facts, "distillation": facts}, 0.0 if was_done else facts["seconds"]
