"""The report in a browser: charts drawn, tables sorted, no script error."""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import fake_stores
import pytest

from firn_lab import cli
from firn_lab.clock import SystemClock
from firn_lab.price import Prices
from firn_lab.report import browser
from firn_lab.report.html import html
from firn_lab.report.report_data import collect
from firn_lab.store import Reader, Writer

# Set by `make lab-test` if Chromium could not be installed: the error message.
NO_BROWSER = os.environ.get("FIRN_LAB_NO_BROWSER", "")
in_browser = pytest.mark.skipif(
    bool(NO_BROWSER) and browser.find() is None, reason=f"no Chromium: {NO_BROWSER}"
)

CLICKS = f"<script>{Path(__file__).with_name('clicks.js').read_text()}</script>"


class Page(HTMLParser):
    """Collects the elements of a page, and the text of the log."""

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


@pytest.fixture(scope="module")
def page_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("page")
    fake_stores.fill(directory / "x.sqlite")
    prices = [Prices("here", hour=0.1, gb_month=0.08, million_ios=0.2)]
    with Reader(directory / "x.sqlite") as store:
        return html(collect(store, "last", prices))


def test_the_page_needs_nothing_else(page_text: str) -> None:
    # Namespace names of SVG are not addresses to fetch.
    assert not re.findall(r"(?:src|href)=[\"'](?!data:|#)", page_text)
    assert "@import" not in page_text and "fetch(" not in page_text
    assert page_text.count("</script>") == 4, "data does not end its element"
    assert "<i>a lot</i>" not in page_text


# Everything that a page could fetch: a style, a script, a picture, a connection.
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


@in_browser
def test_nothing_is_fetched_even_if_something_would(page_text: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_text.replace("</body>", FETCHES + "</body>"))
    page = Page(browser.elements(path))
    refused = json.loads(page.log)
    assert set(refused) == {"img-src", "connect-src", "script-src-elem"}
    assert refused.count("img-src") == 2


@in_browser
def test_charts_are_drawn_and_tables_sorted(page_text: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_text.replace("</body>", CLICKS + "</body>"))
    page = Page(browser.elements(path))
    assert page.root.get("data-ready") == "yes", page.root
    assert "data-error" not in page.root, page.root
    log = json.loads(page.log)
    # Three cases on three targets give nine bars with intervals; each target has one curve.
    assert log["results"] == {"bars": 9, "curves": 0, "bad": 0}
    assert log["threads"] == {"bars": 0, "curves": 3, "bad": 0}
    assert log["seconds"] == {"bars": 0, "curves": 45, "bad": 0}
    assert log["blocks"] == {"bars": 0, "curves": 3, "bad": 0}
    assert log["latency"]["bars"] == 9 and log["latency"]["bad"] == 0
    assert log["resources"]["bars"] == 9 and log["space"]["bars"] == 9
    assert log["price"]["bars"] == 9 and log["tables"]["bars"] == 3
    # The page first shows ratios to the reference with intervals; after a click it shows plain
    # numbers.
    for text in ("More is better.", "×1.00 · 800/s", "×1.50 (1.50…1.50) · 1,200/s"):
        assert text in log["relative"]
    assert re.search(r"×1\.0\d \(0\.9\d…1\.0\d\) · 808/s", log["relative"])
    assert "×" not in log["measured"] and "808/s" in log["measured"]
    concluded = [row for row in log["ratios"] if "not concluded" not in row]
    assert len(log["ratios"]) == 8 and len(concluded) == 3
    assert all("firn" in row and "concluded at ±2.5 %" in row for row in concluded)
    assert "in no table yet" in log["notes"]["space"] and log["notes"]["tables"] == ""
    assert log["latencies"]
    assert log["halo"].startswith("stroke"), "the line of 1 does not cross the numbers"
    wanted = ["median", "95 % interval", "to innodb", "95 %, ms", "errors", "retries", "rounds"]
    assert set(wanted) <= set(log["seen"]), "without scrolling"
    assert log["redrawn"] is True
    assert log["without"] == 6, "a click on the legend hides a target"

    def numbers(texts: list[str]) -> list[float]:
        return [float(re.match(r"[0-9.,]+", text)[0].replace(",", "")) for text in texts]

    ascending = numbers(log["ascending"])
    assert len(ascending) == 12
    assert ascending == sorted(ascending) != numbers(log["before"])
    assert numbers(log["descending"]) == sorted(ascending, reverse=True)
    assert log["settings"] == [["differs", "own" + "".join(fake_stores.SPEED)]]
    red = [attributes for _, attributes in page.elements if attributes.get("class") == "red"]
    assert len(red) == 2, "unfair, and failed"
    boxes = [attributes.get("class") for _, attributes in page.elements]
    assert boxes.count("amber") == 1 and boxes.count("neutral") == 1


@in_browser
def test_sizes_that_nobody_measured_are_said_to_be_shares(tmp_path: Path) -> None:
    fake_stores.fill(tmp_path / "x.sqlite", speed={"rocksdb": 100.0}, sizes={"rocksdb": 40e6})
    writer = Writer(tmp_path / "x.sqlite", SystemClock())
    files = {"files_bytes": (80 * 2.0**20, fake_stores.BYTES)}
    writer.state(1, 1, "rw data", "rest", files)
    writer.close()
    with Reader(tmp_path / "x.sqlite") as store:
        text = html(collect(store))
    path = tmp_path / "page.html"
    path.write_text(text)
    drawn = browser.elements(path)
    assert "shared out in that proportion" in drawn.partition('id="tables"')[2].partition("<svg")[0]
    assert "38.1 MiB · all files 80 MiB</text>" in drawn


@in_browser
def test_a_mistake_in_a_script_shows(page_text: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_text.replace("</body>", "<script>nothing.there()</script></body>"))
    page = Page(browser.elements(path))
    assert "nothing is not defined" in str(page.root.get("data-error"))


@in_browser
def test_a_picture_of_the_page(tmp_path: Path) -> None:
    store, out = tmp_path / "x.sqlite", tmp_path / "out"
    fake_stores.fill(store)
    assert cli.main(["report", "--store", str(store), "--out", str(out), "--screenshot"]) == 0
    head = (out / "page.png").read_bytes()[:24]
    assert head[:4] == b"\x89PNG"
    assert int.from_bytes(head[16:20]) == 1240
