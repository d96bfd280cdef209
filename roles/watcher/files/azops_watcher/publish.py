# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What everybody on the VM may see: the state as JSON, and metrics for node_exporter's textfile collector."""

import json
import os
import re
from collections import Counter
from typing import Any, Dict, List, NamedTuple, Optional

from azops_core._document import format_time, parse_time
from azops_core._journal import utc_now
from azops_core._safe_files import read_json

from . import VERSION
from .config import Paths
from .knowledge import Knowledge


class Health(NamedTuple):
    """How the polling goes."""

    errors: int = 0
    last_success: Optional[float] = None
    last_error: Optional[str] = None


def health_before(paths: Paths) -> Health:
    """How the polling went in the process before, so that a timer's polls add up."""
    try:
        before = read_json(paths.public_state)
        success = before["last_success"]
        return Health(int(before["errors"]), success and float(success), before["last_error"])
    except (OSError, ValueError, KeyError, TypeError):
        return Health()


def public_state(knowledge: Knowledge, health: Health, hold: Optional[str], mode: str) -> Dict[str, Any]:
    return {
        "version": VERSION,
        "mode": mode,
        "vm": knowledge.vm,
        "written_at": format_time(utc_now()),
        "last_success": health.last_success,
        "errors": health.errors,
        "last_error": health.last_error,
        "held_by": hold,
        "events": [
            dict(
                tracked.event,
                seconds_left=_seconds_left(tracked.event["not_before"]),
                status=tracked.status,
                drained=tracked.drained,
                approved=tracked.approved,
            )
            for _key, tracked in sorted(knowledge.tracked.items())
        ],
        "waiting_hooks": len(knowledge.wanted) + len(knowledge.asked),
        "waiting_notices": len(knowledge.outbox),
    }


def metrics(state: Dict[str, Any], now: float) -> str:
    """The Prometheus text format. Only numbers and our own words go into it, and types with letters alone."""
    counts = Counter((_word(event["event_type"]), event["status"]) for event in state["events"])
    left = [event["seconds_left"] for event in state["events"] if event["seconds_left"] is not None]
    families: List[List[str]] = [
        ["azops_watcher_info", "gauge", "Version of the watcher.", '{version="%s"} 1' % VERSION],
        ["azops_watcher_events", "gauge", "Events that hit this VM."]
        + ['{type="%s",status="%s"} %d' % (kind, status, count) for (kind, status), count in sorted(counts.items())],
        ["azops_watcher_errors_total", "counter", "Polls that failed.", " %d" % state["errors"]],
        ["azops_watcher_held", "gauge", "1 while the VM is held.", " %d" % (state["held_by"] is not None)],
        ["azops_watcher_waiting_notices", "gauge", "Notices not yet sent.", " %d" % state["waiting_notices"]],
        ["azops_watcher_written_timestamp_seconds", "gauge", "When this was written.", " %.0f" % now],
    ]
    success = state["last_success"]
    if success is not None:
        families += [
            [
                "azops_watcher_last_success_age_seconds",
                "gauge",
                "Age of it.",
                " %.0f" % (now - success),
            ],
            ["azops_watcher_last_success_timestamp_seconds", "gauge", "Last good poll.", " %.0f" % success],
        ]
    if left:
        next_start = " %d" % min(left)
        families.append(["azops_watcher_seconds_to_not_before", "gauge", "Until an event may start.", next_start])
    lines = []
    for name, kind, text, *samples in families:
        lines += ["# HELP {0} {1}".format(name, text), "# TYPE {0} {1}".format(name, kind)]
        lines += [name + sample for sample in samples]
    return "\n".join(lines) + "\n"


def publish(paths: Paths, state: Dict[str, Any], now: float) -> None:
    """Replace both files as a whole. They are in memory only, so that nothing is synced to a disk."""
    _replace(paths.public_state, json.dumps(state, sort_keys=True) + "\n")
    _replace(paths.metrics, metrics(state, now))


def _replace(path: str, content: str) -> None:
    temporary = path + ".new"
    with open(temporary, "w", encoding="ascii") as target:
        os.fchmod(target.fileno(), 0o644)
        target.write(content)
    os.replace(temporary, path)


def _word(text: str) -> str:
    return re.sub("[^A-Za-z0-9]", "", text)


def _seconds_left(not_before: Optional[str]) -> Optional[int]:
    return None if not_before is None else int((parse_time(not_before) - utc_now()).total_seconds())
