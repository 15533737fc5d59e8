"""Checks of the source tree that no compiler makes; `make lint` runs them.

- Comments of Rust and C++ are at most 100 columns wide.
- Files of one folder do not depend on each other in a circle, except for those in `circles.txt`.
  That list may only shrink: a circle that no longer exists must be removed from it.
- Terms of `docs/glossary.md` in code quotes occur in the code.
- Files that `docs/decisions.md` names exist, and the names given for them occur in them.
- Each row of the feature table in `docs/compatibility.md` links to tests that contain a term of
  the row; all tests that the page links to exist.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from rust_modules import Crate, Module, comments_of

ROOT = Path(__file__).resolve().parents[2]
CIRCLES = Path(__file__).with_name("circles.txt")
WIDTH = 100


def sources(*patterns: str) -> list[Path]:
    """Files of the repository without build output."""
    found = (file for pattern in patterns for file in ROOT.glob(pattern))
    return sorted(file for file in found if "target" not in file.relative_to(ROOT).parts)


def wide_comments() -> Iterator[str]:
    """Comment lines wider than WIDTH. A line without a space, such as a link, cannot be broken."""
    for file in sources("crates/**/*.rs", "fuzz/**/*.rs", "mariadb/*.cc", "mariadb/*.h"):
        text = file.read_text()
        lines = {line.strip() for comment in comments_of(text) for line in comment.splitlines()}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.strip().lstrip("/!* ")
            if len(line) > WIDTH and line.strip() in lines and " " in words:
                yield f"{file.relative_to(ROOT)}:{number}: a comment of {len(line)} columns"


def circles(crate: Crate) -> Iterator[tuple[str, ...]]:
    """Sets of files in one folder that depend on each other, directly or by way of others."""
    folders: dict[Module, dict[Module, set[Module]]] = defaultdict(dict)
    for module in crate.files:
        if len(module) > 1 and module[-1] != "tests":
            folders[module[:-1]][module] = set()
    for folder, edges in folders.items():
        depth = len(folder) + 1
        for module in crate.files:
            own = module[:depth]
            if own in edges and "tests" not in module:
                named = (other[:depth] for other in crate.named_by(module))
                edges[own] |= {other for other in named if other in edges and other != own}
        for group in _groups(edges):
            yield tuple(sorted("/".join(module[1:]) for module in group))


def _groups(edges: dict[Module, set[Module]]) -> Iterator[list[Module]]:
    """Strongly connected components of more than one module (Tarjan's algorithm)."""
    index: dict[Module, int] = {}
    low: dict[Module, int] = {}
    stack: list[Module] = []

    def visit(module: Module) -> Iterator[list[Module]]:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(edges[module]):
            if other not in index:
                yield from visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            at = stack.index(module)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                yield group

    for module in sorted(edges):
        if module not in index:
            yield from visit(module)


def circle_trouble() -> Iterator[str]:
    """Messages about circles that `circles.txt` lacks, and about listed ones that are gone."""
    found = set()
    for src in sorted(ROOT.glob("crates/*/src")):
        for circle in circles(Crate(src)):
            found.add(f"{src.parent.name}: {' '.join(circle)}")
    listed = {line for line in CIRCLES.read_text().splitlines() if line and line[0] != "#"}
    for circle in sorted(found - listed):
        yield f"files name each other in a circle: {circle}"
    for circle in sorted(listed - found):
        yield f"{CIRCLES.relative_to(ROOT)} lists a circle that is gone: {circle}"


def lost_terms() -> Iterator[str]:
    """Quoted terms in the third column of the glossary's tables that no file contains."""
    files = sources("crates/**/*.rs", "mariadb/*", "lab/src/**/*.py", "fuzz/**/*.rs")
    files += [ROOT / "Makefile", *sources("tests/sql/*.py", "scripts/*")]
    paths = "\n".join(str(file.relative_to(ROOT)) for file in files)
    code = "\n".join(file.read_text(errors="replace") for file in files if file.is_file())
    words = set(re.findall(r"\w+", code))
    page = ROOT / "docs/glossary.md"
    for number, line in enumerate(page.read_text().splitlines(), 1):
        cells = line.split("|")
        if len(cells) != 5 or set(cells[1]) <= set("- "):
            continue
        for quoted in re.findall(r"`([^`]+)`", cells[3]):
            known = quoted.rstrip("/") in paths if "/" in quoted or "." in quoted else None
            parts = re.findall(r"\w+", quoted)
            if not (known or all(part in words for part in parts)):
                yield f"docs/glossary.md:{number}: `{quoted}` is not in the code"


def stale_decisions() -> Iterator[str]:
    """Rows of the page of decisions whose file is missing or lacks a name that the row gives.

    A row with three columns has the file in the second one and the names in the third. A row with
    two columns has the names in the first one, and files that all contain them in the second.
    """
    page = ROOT / "docs/decisions.md"
    for number, line in enumerate(page.read_text().splitlines(), 1):
        cells = line.split("|")[1:-1]
        if len(cells) not in (2, 3) or set(cells[0]) <= set("- "):
            continue
        quoted = re.findall(r"`([^`]+)`", cells[1])
        paths = [each for each in quoted if re.search(r"\.(rs|cc|h|py)$", each)]
        names = re.findall(r"`([^`]+)`", cells[2] if len(cells) == 3 else cells[0])
        if "`" in line and not (paths and names):
            yield f"docs/decisions.md:{number}: a row without a file or without a name"
        for path in paths:
            files = (ROOT / path, ROOT / "crates/firn/src" / path)
            file = next((each for each in files if each.is_file()), None)
            if file is None:
                yield f"docs/decisions.md:{number}: there is no file `{path}`"
                continue
            code = file.read_text()
            for name in names:
                if not re.search(rf"\b{re.escape(name)}\b", code):
                    yield f"docs/decisions.md:{number}: `{name}` is not in `{path}`"


def stale_features() -> Iterator[str]:
    """Features on the page on compatibility without a test, or with one about something else.

    A row's terms are what its first cell has in code quotes, else its words in capitals, else its
    longer words.
    """
    page = ROOT / "docs/compatibility.md"
    must_link = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("## "):
            must_link = line.startswith("## Tables beside")
        cells = line.split(" | ")
        if not line.startswith("| ") or cells[0] in ("| feature", "| subject", "| clause"):
            continue
        links = re.findall(r"\]\((\.\./tests/[^)#]+)\)", line)
        if must_link and not re.search(r"\]\(\.\./tests/", cells[-1]):
            yield f"docs/compatibility.md:{number}: no test in FIRN's cell"
        feature = cells[0].removeprefix("| ")
        quoted = [part for each in re.findall(r"`([^`]+)`", feature) for part in each.split("…")]
        terms = quoted or re.findall(r"\b[A-Z]{4,}\b", feature) or re.findall(r"\w{5,}", feature)
        for link in links:
            file = (page.parent / link).resolve()
            code = file.read_text().lower() if file.is_file() else ""
            if not file.is_file():
                yield f"docs/compatibility.md:{number}: there is no file {link}"
            elif must_link and not any(term.strip() and term.strip().lower() in code for term in terms):
                yield f"docs/compatibility.md:{number}: {link} has none of {terms}"


def main() -> int:
    trouble = [*wide_comments(), *circle_trouble(), *lost_terms(), *stale_decisions(), *stale_features()]
    for line in trouble:
        print(line)
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
