"""Speeds of emulated disks, as `firn_debug_disk` has them and as a case of a plan has them.

The parts of a case are separated by commas, so that a case separates those of a disk by slashes:
`disk=500us/3000iops/125MBps`.
"""

from __future__ import annotations

import re

_SPEED = re.compile(r"\d+us(/\d+iops)?(/\d+MBps)?")


def parse_disk(text: str) -> str:
    """A speed with slashes or commas, in the form with slashes. Raises ValueError for others."""
    speed = text.replace(",", "/")
    if not _SPEED.fullmatch(speed):
        raise ValueError(f"{text!r} is no speed such as 120us or 500us/3000iops/125MBps")
    return speed


def disk_option(speed: str) -> str:
    """The value of `firn_debug_disk`."""
    return speed.replace("/", ",")
