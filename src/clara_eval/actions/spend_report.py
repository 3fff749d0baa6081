"""Sum the ledger by challenge, poster and month."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from clara_eval.core.dollars import usd
from clara_eval.judge.costs.budgets import Spend


@dataclass(frozen=True, slots=True)
class SpendLine:
    """One challenge, poster or month. `micro_usd` includes `open_micro_usd`, reserved and not yet settled."""

    name: str
    micro_usd: int
    open_micro_usd: int
    evaluations: int


@dataclass(frozen=True, slots=True)
class SpendReport:
    total: SpendLine
    by_challenge: tuple[SpendLine, ...]
    by_poster: tuple[SpendLine, ...]
    by_month: tuple[SpendLine, ...]


def spend_report(spends: Iterable[Spend]) -> SpendReport:
    lines = list(spends)
    by_month = sorted(_grouped(lines, lambda spend: month_of(spend.at)), key=lambda line: line.name, reverse=True)
    return SpendReport(
        total=_line("total", lines),
        by_challenge=_dearest_first(_grouped(lines, lambda spend: spend.run)),
        by_poster=_dearest_first(_grouped(lines, lambda spend: spend.poster)),
        by_month=tuple(by_month),
    )


def month_of(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m")


def to_json(report: SpendReport) -> dict[str, object]:
    """Return the document of `clara-eval spend --json`: dollars as decimal strings."""
    return {
        "total": _line_json(report.total, "name"),
        "byChallenge": [_line_json(line, "run") for line in report.by_challenge],
        "byPoster": [_line_json(line, "poster") for line in report.by_poster],
        "byMonth": [_line_json(line, "month") for line in report.by_month],
    }


def _line_json(line: SpendLine, name: str) -> dict[str, object]:
    return {
        name: line.name,
        "usd": usd(line.micro_usd),
        "openUsd": usd(line.open_micro_usd),
        "evaluations": line.evaluations,
    }


def _grouped(spends: list[Spend], key: Callable[[Spend], str]) -> list[SpendLine]:
    groups: dict[str, list[Spend]] = {}
    for spend in spends:
        groups.setdefault(key(spend), []).append(spend)
    return [_line(name, group) for name, group in groups.items()]


def _line(name: str, spends: list[Spend]) -> SpendLine:
    waiting = sum(spend.reserved_micro_usd for spend in spends if spend.settled_micro_usd is None)
    settled = sum(spend.settled_micro_usd for spend in spends if spend.settled_micro_usd is not None)
    return SpendLine(name, settled + waiting, waiting, len({spend.run for spend in spends}))


def _dearest_first(lines: list[SpendLine]) -> tuple[SpendLine, ...]:
    return tuple(sorted(lines, key=lambda line: (-line.micro_usd, line.name)))
