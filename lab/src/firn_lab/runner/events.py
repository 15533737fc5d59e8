"""Events that the runner reports while it works: to the terminal, and to the store for `watch`.

kind      data
started   cases: [label], targets: [name], reference, steps_total (loads and cases), seconds_left
phase     phase: start | load | warm | prepare | measure | rest | check | state | stop, target,
          dataset, case, round
second    target, case, round, second, tps, qps, errors, retries, p95_ms, and measures' samples
progress  target, done (0 to 1)
round     target, case, round, status, message, headline (a figure's name), figures
block     case, block, ratios: {name: [value, low, high]} beside the reference so far
case      case, blocks, concluded, within (of the case's headline): the case is finished
step      done, steps_total, seconds_left
warning   rule, message
unsupported  message (a case that a target does not offer)
failure   target, message (the target is left out from here on)
ended     status, message
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# A listener gets the kind and the data of each event.
Listener = Callable[[str, Mapping[str, Any]], None]
