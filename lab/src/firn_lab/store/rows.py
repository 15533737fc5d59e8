"""The rows that the reader returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Run:
    """A run; `status` is running (or killed), ok, failed, paused, interrupted or aborted."""

    id: int
    started_at: str
    title: str
    command: list[str]
    lab_version: str
    machine: Mapping[str, Any]
    budget: Mapping[str, Any]
    rounds: int
    ended_at: str | None
    status: str
    message: str


@dataclass(frozen=True)
class TargetRow:
    id: int
    name: str
    spec: str
    version: str
    memory_bytes: int | None
    durable: bool | None
    settings: Mapping[str, str]


@dataclass(frozen=True)
class RuleWarning:
    rule: str
    message: str


@dataclass(frozen=True)
class CaseRow:
    id: int
    workload: str
    label: str
    dataset: str
    headline: str
    params: Mapping[str, Any]


@dataclass(frozen=True)
class Round:
    """A round; `number` is that of its block, `status` is ok, failed or wrong."""

    id: int
    case: int
    target: int
    number: int
    started_at: str
    status: str
    message: str
    figures: Mapping[str, float]


@dataclass(frozen=True)
class PartRow:
    name: str
    count: int
    seconds: float
    errors: int
    retries: int
    average_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None


@dataclass(frozen=True)
class StateFigure:
    """A figure of a dataset on a target; `moment` is load, update, rest or settled."""

    target: int
    dataset: str
    moment: str
    name: str
    value: float
    unit: str
    better: str


@dataclass(frozen=True)
class Event:
    id: int
    at: float
    kind: str
    data: Mapping[str, Any]
