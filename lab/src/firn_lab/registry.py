"""Registries of targets, workloads, measures and plans: each entry is one file in its package.

`discover` imports every module of a package, and each module registers itself by a decorator:

    @WORKLOADS.register("oltp_read_write")
    class ReadWrite(Workload): ...
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar, cast

from firn_lab.errors import UsageError

T = TypeVar("T")
F = TypeVar("F")


class Registry(Generic[T]):
    """Maps names to the entries of one package. The first look-up imports the package."""

    def __init__(self, what: str, package: str) -> None:
        self._what = what
        self._package = package
        self._entries: dict[str, T] = {}
        self._complete = False

    def add(self, name: str, entry: T) -> None:
        """Registers `entry`. A second registration under the same name is an error."""
        if name in self._entries:
            raise ValueError(f"two {self._what}s are called {name}")
        self._entries[name] = entry

    def register(self, name: str) -> Callable[[F], F]:
        """Decorator form of `add`; the decorated object keeps its own type."""

        def decorate(entry: F) -> F:
            self.add(name, cast(T, entry))
            return entry

        return decorate

    def __getitem__(self, name: str) -> T:
        self.discover()
        if name not in self._entries:
            known = ", ".join(sorted(self._entries))
            raise UsageError(f"there is no {self._what} {name!r}; known: {known}")
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        self.discover()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        self.discover()
        return iter(sorted(self._entries))

    def discover(self) -> None:
        """Imports the modules of the package, once."""
        if self._complete:
            return
        self._complete = True
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{self._package}.{module.name}")
