"""The report in a browser: charts drawn, tables sorted, no script error."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import made_up
import pytest

from firn_lab.price import Prices
from firn_lab.report.data import collect
from firn_lab.report.html import html
from firn_lab.store import Reader

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")

CLICKS = f"<script>{Path(__file__).with_name('clicks.js').read_text()}</script>"


class Page(HTMLParser):
    """Text of the elements that tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root: dict[str, str | None] = {}
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.log = ""
        self._in_log = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "html":
            self.root = attributes
        self._in_log = attributes.get("id") == "log"
        self.elements.append((tag, attributes))

    def handle_data(self, data: str) -> None:
        if self._in_log:
            self.log += data
            self._in_log = False


def browse(path: Path, profile: Path) -> str:
    """The page's elements after its scripts have run."""
    assert BROWSER is not None, "no chromium: scripts/deps.sh lab installs it"
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--disable-background-networking", "--no-first-run", f"--user-data-dir={profile}",
        "--virtual-time-budget=2000", "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def page_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("page")
    made_up.fill(directory / "x.sqlite")
    prices = [Prices("here", hour=0.1, gb_month=0.08, million_ios=0.2)]
    with Reader(directory / "x.sqlite") as store:
        return html(collect(store, "last", prices))


def test_the_page_needs_nothing_else(page_text: str) -> None:
    # Names of the standards of SVG are no addresses to fetch.
    assert not re.findall(r"(?:src|href)=[\"'](?!data:|#)", page_text)
    assert "@import" not in page_text and "fetch(" not in page_text
    assert page_text.count("</script>") == 4, "data does not end its element"
    assert "<i>a lot</i>" not in page_text


# What would fetch, if the page let it: a style, a script, a picture, a connection.
FETCHES = """<style>body { background: url(http://127.0.0.1:9/style) }</style><script>
const log = [];
addEventListener("securitypolicyviolation", (event) => {
  log.push(event.effectiveDirective);
  const out = document.getElementById("log") ?? document.createElement("pre");
  out.id = "log";
  document.body.append(out);
  out.textContent = JSON.stringify(log);
});
new Image().src = "http://127.0.0.1:9/picture";
fetch("http://127.0.0.1:9/connection").catch(() => {});
const script = document.createElement("script");
script.src = "http://127.0.0.1:9/script";
document.body.append(script);
</script>"""


def test_nothing_is_fetched_even_if_something_would(page_text: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_text.replace("</body>", FETCHES + "</body>"))
    page = Page(browse(path, tmp_path / "profile"))
    refused = json.loads(page.log)
    assert set(refused) == {"img-src", "connect-src", "script-src-elem"}
    assert refused.count("img-src") == 2


def test_charts_are_drawn_and_tables_sorted(page_text: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_text.replace("</body>", CLICKS + "</body>"))
    page = Page(browse(path, tmp_path / "profile"))
    assert page.root.get("data-ready") == "yes", page.root
    assert "data-error" not in page.root, page.root
    log = json.loads(page.log)
    # Three cases on three targets, with whiskers; the curves of three targets.
    assert log["results"] == {"bars": 9, "curves": 0, "bad": 0}
    assert log["threads"] == {"bars": 0, "curves": 3, "bad": 0}
    assert log["seconds"] == {"bars": 0, "curves": 9, "bad": 0}
    assert log["latency"]["bars"] == 9 and log["latency"]["bad"] == 0
    assert log["resources"]["bars"] == 9 and log["space"]["bars"] == 9
    assert log["redrawn"] is True
    assert log["without"] == 6, "a click on the legend hides a target"

    def numbers(texts: list[str]) -> list[float]:
        return [float(text.split()[0].replace(",", "")) for text in texts]

    ascending = numbers(log["ascending"])
    assert len(ascending) == 12
    assert ascending == sorted(ascending) != numbers(log["before"])
    assert numbers(log["descending"]) == sorted(ascending, reverse=True)
    assert log["settings"] == [["differs", "own" + "".join(made_up.SPEED)]]
    red = [attributes for _, attributes in page.elements if attributes.get("class") == "red"]
    assert len(red) == 3, "unfair, too few rounds, and failed"
    boxes = [attributes.get("class") for _, attributes in page.elements]
    assert boxes.count("amber") == 1 and boxes.count("neutral") == 1


def test_a_mistake_in_a_script_shows(page_text: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_text.replace("</body>", "<script>nothing.there()</script></body>"))
    page = Page(browse(path, tmp_path / "profile"))
    assert "nothing is not defined" in str(page.root.get("data-error"))
