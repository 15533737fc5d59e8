"""The modules of a crate and their dependencies, parsed with just enough of Rust's syntax.

Paths in `use` trees and in code are resolved from `crate`, `self`, `super` and modules in scope.
Macros and re-exports are not followed: a name that a parent re-exports counts for the parent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Module = tuple[str, ...]

TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<text>b?r(?P<hashes>\#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*"|b?'(?:\\[^\n']*|[^\\'\n])')
      | (?P<lifetime>'[A-Za-z_]\w*)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<path>::)
      | (?P<space>\s+)
      | (?P<other>.)""",
    re.S | re.X,
)


def words_of(text: str) -> list[str]:
    """Identifiers and punctuation, without comments and spaces. A literal becomes `"`."""
    found = []
    for match in TOKEN.finditer(text):
        if match["text"] is not None:
            found.append('"')
        elif match["comment"] is None and match["space"] is None:
            found.append(match.group())
    return found


def comments_of(text: str) -> Iterator[str]:
    """All comments of the text."""
    for match in TOKEN.finditer(text):
        if match["comment"] is not None:
            yield match.group()


@dataclass
class Crate:
    """The modules below `src` of a crate, with their files."""

    src: Path
    files: dict[Module, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for file in sorted(self.src.rglob("*.rs")):
            parts = list(file.relative_to(self.src).with_suffix("").parts)
            if parts[-1] in ("mod", "lib"):
                parts.pop()
            self.files[("crate", *parts)] = file

    def named_by(self, module: Module) -> set[Module]:
        """Modules that a module's code names, not counting the tests at its end."""
        text = self.files[module].read_text()
        return set(self._named(words_of(text.split("#[cfg(test)]\nmod ")[0]), module))

    def _named(self, words: list[str], own: Module) -> Iterator[Module]:
        at, aliases = 0, dict[str, Module]()
        while at < len(words):
            if words[at] == "use":
                at, found = self._use_tree(words, at + 1, None, own, aliases)
                yield from found
            elif at + 1 < len(words) and words[at + 1] == "::" and words[at - 1] not in ("::", "."):
                module, at = self._path(words, at, own, aliases)
                if module is not None:
                    yield module
            at += 1

    def _start(self, word: str, own: Module, aliases: dict[str, Module]) -> Module | None:
        if word == "crate":
            return ("crate",)
        if word == "self":
            return own
        if word == "super":
            return own[:-1]
        return (*own, word) if (*own, word) in self.files else aliases.get(word)

    def _step(self, module: Module | None, word: str) -> Module | None:
        """The module that the next word of a path names; None if the word is an item of
        `module`."""
        if module is None:
            return None
        if word == "super":
            return module[:-1]
        return (*module, word) if (*module, word) in self.files else None

    def _path(
        self, words: list[str], at: int, own: Module, aliases: dict[str, Module]
    ) -> tuple[Module | None, int]:
        module = self._start(words[at], own, aliases)
        while module is not None and words[at + 1 : at + 2] == ["::"] and at + 2 < len(words):
            step = self._step(module, words[at + 2])
            if step is None:
                break
            module, at = step, at + 2
        return module, at

    def _use_tree(
        self,
        words: list[str],
        at: int,
        module: Module | None,
        own: Module,
        aliases: dict[str, Module],
        first: bool = True,
    ) -> tuple[int, list[Module]]:
        """Parses a `use` tree. Returns the position after it, and the modules that it names."""
        found: list[Module] = []
        last: Module | None = module
        while at < len(words) and words[at] not in (",", ";", "}"):
            word = words[at]
            if word == "{":
                at += 1
                while words[at] not in ("}", ";"):
                    at, inner = self._use_tree(words, at, last, own, aliases, first)
                    found += inner
                    at += words[at] == ","
            elif word.isidentifier() and word not in ("as", "self" if not first else "as"):
                step = self._start(word, own, aliases) if first else self._step(last, word)
                if step is None and last is not None:
                    found.append(last)
                last, first = step, False
                if step is not None and words[at + 1] in (",", ";", "}"):
                    aliases[word] = step
            at += 1
        if last is not None:
            found.append(last)
        return at, found
