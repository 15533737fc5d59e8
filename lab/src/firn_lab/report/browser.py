"""Opens a page in headless Chromium, for a screenshot and for tests."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from firn_lab.errors import LabError

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECONDS_MAX = 120
# Pixels of the window.
WIDTH, HEIGHT = 1240, 1500
# Virtual time that the scripts of the page get.
SCRIPT_MS = 2000


def find() -> str | None:
    """The path of an installed browser; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def elements(page: Path) -> str:
    """The page's DOM as HTML, after its scripts have run."""
    return _open(page, "--dump-dom", f"--window-size={WIDTH},{HEIGHT}")


def screenshot(page: Path, picture: Path) -> None:
    """Writes a PNG of the top of the page."""
    _open(page, f"--screenshot={picture.resolve()}", f"--window-size={WIDTH},{HEIGHT}")
    if not picture.is_file():
        raise LabError(f"the browser made no picture of {page}")


def _open(page: Path, *what: str) -> str:
    program = find()
    if program is None:
        raise LabError("no Chromium is there: scripts/deps.sh browser, or no --screenshot")
    with tempfile.TemporaryDirectory(prefix="firn-lab-", ignore_cleanup_errors=True) as profile:
        command = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--disable-background-networking", "--no-first-run", "--hide-scrollbars",
            f"--user-data-dir={profile}", f"--virtual-time-budget={SCRIPT_MS}",
            *what, page.resolve().as_uri(),
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
            )
        except subprocess.TimeoutExpired:
            raise LabError(f"{program} did not end within {SECONDS_MAX} s") from None
    if done.returncode != 0:
        raise LabError(f"{program} failed: {done.stderr[-2000:]}")
    return done.stdout
