"""The guided tour of ``fitformer fit``: one short function per stage, in the order in which ``fit`` performs them.

``learning`` holds prepare, supernet and train, ``searching`` measure and search, ``shipping`` compress, export and
report. Stages talk through files in the run folder. What one needs from another is read here and passed in as a path, a
value or a callable, so that the rooms below know nothing of each other.
"""

from fitformer.pipeline.learning import follow
from fitformer.pipeline.run import Run
from fitformer.pipeline.tour import dry_run, fit, summary

__all__ = ["Run", "dry_run", "fit", "follow", "summary"]
