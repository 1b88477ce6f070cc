"""Report: one self-contained HTML page from the files of a run folder."""

from fitformer.report.page import render_report

__all__ = ["render_report"]
