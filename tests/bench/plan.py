# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What planning costs: fleets of availability sets of 100 VMs with ten events each, every VM sees all of its set."""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module
from typing import Any

plan = import_module("ansible_collections.azops.maintenance.plugins.filter.plan").plan

NOW = "2026-11-18T12:00:00Z"
SET = 100
EVENTS_OF_A_SET = 10
SHOWN = ("event_id", "event_type", "event_status", "event_source", "resources", "not_before", "duration_in_seconds")


def event(number: int, vms: list[str]) -> dict[str, Any]:
    values = (f"E{number}", "Reboot", "Scheduled", "Platform", vms, "2026-11-20T12:00:00Z", 60)
    return dict(zip(SHOWN, values))


def answer(name: str, domain: int, events: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "vm": {"name": name, "update_domain": str(domain)},
        "events": [dict(one, resources=list(one["resources"])) for one in events],
        "journal": {"entries": [], "damaged": []},
        "endpoint_is_azure": True,
        "read_at": NOW,
    }


def fleet(hosts: int) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for first in range(0, hosts, SET):
        names = [f"vm{number}" for number in range(first, first + SET)]
        events = [event(first + number, [names[number], names[number + 20]]) for number in range(EVENTS_OF_A_SET)]
        answers.update({name: answer(name, place % 5, events) for place, name in enumerate(names)})
    return answers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1000, 2000, 5000, 10000, 20000])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--limit", type=float, default=2.0, help="most seconds for 10,000 hosts")
    options = parser.parse_args()
    too_slow = False
    print(f"{'hosts':>8} {'events':>8} {'batches':>8} {'best of ' + str(options.runs):>12} {'per host':>10}")
    for hosts in options.hosts:
        answers = fleet(hosts)
        times = []
        for _run in range(options.runs):
            started = time.perf_counter()
            made = plan(answers, now=NOW, max_unavailable="25%", side_by_side=True)
            times.append(time.perf_counter() - started)
        best = min(times)
        too_slow |= best > options.limit * max(1, hosts / 10000)
        counts = f"{hosts:>8} {len(made['events']):>8} {len(made['batches']):>8}"
        print(f"{counts} {best:>10.2f} s {best / hosts * 1e6:>7.0f} µs")
    return 1 if too_slow else 0


if __name__ == "__main__":
    sys.exit(main())
