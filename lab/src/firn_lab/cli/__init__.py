"""The command `firn-lab`. Each subcommand is one file with NAME, HELP, `arguments` and `main`."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from types import ModuleType

from firn_lab import __version__
from firn_lab.errors import LabError


def commands() -> dict[str, ModuleType]:
    """All modules of this package that define a subcommand."""
    modules = (
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
    )
    return {module.NAME: module for module in modules if hasattr(module, "NAME")}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="firn-lab", description="Measures storage engines.")
    top.add_argument("--version", action="version", version=f"firn-lab {__version__}")
    below = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in sorted(commands().items()):
        sub = below.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.arguments(sub)
        sub.set_defaults(main=module.main)
    return top


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 0 ok, 1 failed, 2 wrong usage, 130 interrupted."""
    chosen = parser().parse_args(argv)
    try:
        status: int = chosen.main(chosen)
    except LabError as error:
        print(f"firn-lab: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        print(f"firn-lab: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("firn-lab: interrupted", file=sys.stderr)
        return 130
    return status
