"""One self-contained page: data as JSON, with our own style and script, no other file."""

from __future__ import annotations

import html as escape
import json
from importlib import resources
from string import Template

from firn_lab.report.colours import COLOURS
from firn_lab.report.page import to_json
from firn_lab.report.report_data import Report


def html(report: Report) -> str:
    """The page of a run."""
    data = {**to_json(report), "colours": COLOURS}
    # Inside a script element only the end tag is special to HTML, so escape every "<".
    text = json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return Template(_resource("page.html")).substitute(
        title=escape.escape(f"{report.run.title}, run {report.run.id}"),
        style=_resource("page.css"),
        charts=_resource("charts.js"),
        script=_resource("page.js"),
        data=text,
    )


def _resource(name: str) -> str:
    return resources.files("firn_lab.report").joinpath(name).read_text(encoding="utf-8")
