# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a case ended, and the page of figures that is made of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from figures import LONGEST_BATCH, Batch, Count


@dataclass
class Outcome:
    name: str
    requests: Count | None
    problems: list[str]
    notes: list[str] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.problems


def tables(outcomes: Sequence[Outcome]) -> str:
    """Markdown that also reads well in a terminal."""
    rows: list[Sequence[str]] = [("case", "requests", "slow ones", "lost", "of them slow", "passed", "what else")]
    for one in outcomes:
        counted = one.requests
        figures = (counted.sent, counted.slow, counted.lost, counted.lost_slow) if counted else ("", "", "", "")
        notes = "; ".join(([counted.why] if counted and counted.why else []) + one.notes)
        rows.append((one.name, *map(str, figures), "yes" if one.passed else "NO", notes))
    text = _table(rows)
    timed = [(outcome, batch) for outcome in outcomes for batch in outcome.batches]
    if timed:
        lines: list[Sequence[str]] = [
            ("batch", "before", "drain", "gate", "notice", "restore", "our own", "the clients'", "Azure's")
        ]
        for _outcome, batch in timed:
            parts = [batch.before, batch.drain, batch.gate, batch.notice, batch.restore, batch.own]
            parts += [batch.clients, batch.azure]
            lines.append((", ".join(batch.hosts), *(f"{seconds:.1f}" for seconds in parts)))
        text += f"\n\nSeconds of each batch (limit of our own: {LONGEST_BATCH:.0f}):\n\n{_table(lines)}"
    return text


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(lines)
