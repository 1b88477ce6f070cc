import shutil
from fitformer.report import render_report


def test_try(make_run):
    for kw in (
        {},
        {"targets": ("cpu@50%", "pi@40ms"), "name": "two"},
        {"fixed": True, "name": "fixed"},
        {"until": "prepare", "name": "first"},
    ):
        run = make_run(**kw)
        p = render_report(run)
        shutil.copy(p, f"/tmp/report-{run.name}.html")
        print(p.stat().st_size)
