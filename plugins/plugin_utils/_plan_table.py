# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan as lines that a person can read on a terminal."""

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.azops.maintenance.plugins.module_utils._document import name_key
from ansible_collections.azops.maintenance.plugins.plugin_utils._plan_view import short_scope

HEADINGS = ("batch", "type", "who is hit", "scope", "domain", "not before", "left", "what", "why", "event")
PAST = (
    "host",
    "type",
    "not before",
    "drained",
    "approved",
    "started",
    "gone",
    "restored",
    "slack",
    "approved by",
    "event",
)
MOST_NAMES = 4
SILENT_WATCHER = 300
LONGEST = 60


def table(plan: Mapping[str, Any]) -> List[str]:
    """Headline, events, then whatever else a person has to know; a part with nothing in it is left out."""
    lines = [_headline(plan)]
    rows = [_event_row(event) for event in plan["events"]]
    if rows:
        lines += ["", *_aligned([list(HEADINGS), *rows])]
    lines += _part("Batches that need attention", [note for batch in plan["batches"] for note in _notes(batch)])
    lines += _part("Restored first, their event is gone", [_entry(entry) for entry in plan["restore"]])
    others = [entry for entry in plan["open"] if entry not in plan["restore"]]
    lines += _part("Open in journals", ["{0} ({1})".format(_entry(entry), entry["why"]) for entry in others])
    lines += _part("Done in the last day", _aligned([[*PAST], *map(_past, plan["history"])]) if plan["history"] else [])
    lines += _part("Held: no drain, no approval", _reasons(plan["holds"]))
    lines += _part(
        "No answer",
        ["{0}: {1}, {2}".format(silent["host"], silent["kind"], silent["why"]) for silent in plan["silent"]],
    )
    lines += _part("Watchers", _watchers(plan["hosts"]))
    lines += _part("Journals with problems", _reasons(plan["journal_problems"]))
    lines += _part(
        "Endpoints that are not Azure's",
        ["{0}: {1}".format(found["host"], found["endpoint"]) for found in plan["not_azure_endpoints"]],
    )
    lines += _part("Warnings", plan["warnings"])
    return [printable(line).rstrip() for line in lines]


def printable(text: str) -> str:
    """What the service sent may hold anything; a terminal gets no control characters."""
    return "".join(character if character.isprintable() else "?" for character in text)


def duration(seconds: Optional[int]) -> str:
    """Seconds as people say them."""
    if seconds is None:
        return "?"
    if abs(seconds) < 600:
        return "{0} s".format(seconds)
    minutes = seconds // 60
    if minutes < 600:
        return "{0} min".format(minutes)
    return "{0} h".format(minutes // 60)


def _headline(plan: Mapping[str, Any]) -> str:
    return "{0} announced at {1}: {2}. {3}, {4} not answered.".format(
        _count(len(plan["events"]), "event"),
        plan["made_at"],
        _count(len(plan["batches"]), "batch"),
        _count(len(plan["hosts"]), "host") + " answered",
        len(plan["silent"]),
    )


def _event_row(event: Mapping[str, Any]) -> List[str]:
    return [
        str(event["batch"] or "-"),
        event["event_type"],
        _names(
            [
                *event["hosts"],
                *event["held"],
                *event["watched"],
                *("{0} (not reached)".format(vm) for vm in event["unmanaged"]),
            ]
        ),
        _names([short_scope(scope) for scope in event["scopes"]]),
        _names([place["domain"] for place in event["domains"]]),
        event["not_before"] or "-",
        "-" if event["skipped"] == "started" else duration(event["seconds_left"]),
        _what(event),
        _short(event["why"]),
        event["event_id"],
    ]


def _what(event: Mapping[str, Any]) -> str:
    if event["skipped"] is not None:
        return "nothing: {0}".format(event["skipped"].replace("_", " "))
    if event["drain"]:
        return "drain, approve" if event["approve"] else "drain only"
    return "approve"


def _notes(batch: Mapping[str, Any]) -> List[str]:
    notes = []
    if batch["forced"]:
        notes.append("forced, it is late: it had to start by {0}".format(batch["must_start_by"]))
    if batch["spans_domains"]:
        notes.append("one event takes out several domains: {0}".format(_places(batch)))
    elif len(batch["domains"]) > 1:
        notes.append("several domains at once: {0}".format(_places(batch)))
    if batch["over_limit"]:
        notes.append("over the limit: {0}".format(batch["over_limit"]))
    if batch["waits_for"]:
        notes.append("other domains are out already: {0}".format(_names([out["host"] for out in batch["waits_for"]])))
    return ["{0}: {1}".format(batch["number"], note) for note in notes]


def _places(batch: Mapping[str, Any]) -> str:
    return _names([place["domain"] for place in batch["domains"]])


def _entry(entry: Mapping[str, Any]) -> str:
    whom = "" if entry["vm"] == entry["host"] else " of {0}".format(entry["vm"])
    return "{0}: {1}{2} for event {3}".format(entry["host"], entry["phase"], whom, entry["event_id"])


def _past(entry: Mapping[str, Any]) -> List[str]:
    phases = entry["phases"]
    times = [_clock(phases.get(phase)) for phase in ("drained", "approved", "started", "gone", "closed")]
    if entry["phase"] != "closed":
        times[-1] = entry["phase"]
    return [
        entry["host"] if name_key(entry["vm"]) == name_key(entry["host"]) else "{host} ({vm})".format(**entry),
        entry["event_type"],
        _clock(entry["not_before"]),
        *times,
        "-" if entry["slack_seconds"] is None else duration(entry["slack_seconds"]),
        _short(entry["approved_by"] or "-"),
        entry["event_id"],
    ]


def _clock(moment: Optional[str]) -> str:
    return "-" if moment is None else moment[11:19]


def _watchers(hosts: Mapping[str, Mapping[str, Any]]) -> List[str]:
    """Who has none, and whose does not poll any more; nothing if no host has one."""
    watched = {name: host["watcher"] for name, host in hosts.items() if host["watcher"] is not None}
    if not watched:
        return []
    without = [name for name in hosts if name not in watched]
    lines = ["no watcher: {0}".format(_names(without))] if without else []
    for name, watcher in watched.items():
        since = watcher["seconds_since_poll"]
        if since is None or since > SILENT_WATCHER:
            lines.append("{0}: has not polled for {1}: {2}".format(name, duration(since), watcher["last_error"]))
    versions = sorted({watcher["version"] for watcher in watched.values()})
    return [*lines, "{0} with version {1}".format(_count(len(watched), "host"), ", ".join(versions))]


def _reasons(found: Sequence[Dict[str, Any]]) -> List[str]:
    return ["{0}: {1}".format(item["host"], item["why"]) for item in found]


def _part(title: str, lines: Sequence[str]) -> List[str]:
    return ["", "{0}:".format(title), *("  {0}".format(line) for line in lines)] if lines else []


def _aligned(rows: Sequence[Sequence[str]]) -> List[str]:
    safe = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*safe)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in safe]


def _names(names: Sequence[str]) -> str:
    if not names:
        return "-"
    shown = ", ".join(names[:MOST_NAMES])
    return _short(shown) if len(names) <= MOST_NAMES else "{0} and {1} more".format(shown, len(names) - MOST_NAMES)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _count(number: int, noun: str) -> str:
    plural = noun + ("es" if noun.endswith("ch") else "s")
    return "{0} {1}".format(number or "no", noun if number == 1 else plural)
