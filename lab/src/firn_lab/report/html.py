"""One page with everything in it: data as JSON, a style and a script of our own, no other file."""

from __future__ import annotations

import html as escape
import json
from importlib import resources
from string import Template

from firn_lab.report.colours import COLOURS
from firn_lab.report.data import Report
from firn_lab.report.page import to_json


def html(report: Report) -> str:
    """The page of a run."""
    data = {**to_json(report), "colours": COLOURS}
    # In a script element nothing but its end tag is special to HTML.
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
