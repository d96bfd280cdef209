# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one scan of a fleet costs: scheduled_events_info against ping and against two uri tasks, on simulated hosts."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIMULATOR_FILES = Path(__file__).resolve().parents[2] / "roles" / "simulator" / "files"
sys.path.insert(0, str(SIMULATOR_FILES))
from azops_simulator import Simulator  # noqa: E402 (it is found through the line above)

URI = """
- ansible.builtin.uri:
    url: "{{ endpoint }}/metadata/scheduledevents?api-version=2020-07-01"
    headers: {Metadata: "true"}
- ansible.builtin.uri:
    url: "{{ endpoint }}/metadata/instance/compute?api-version=2021-12-13&format=json"
    headers: {Metadata: "true"}
"""
WAYS = {
    "ansible.builtin.ping": "- ansible.builtin.ping:",
    "scheduled_events_info": "- azops.maintenance.scheduled_events_info: {endpoint: '{{ endpoint }}'}",
    "two ansible.builtin.uri": URI,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=[20])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    print(f"Fleet scan: ansible-playbook, forks 5, local connection, median of {options.runs} runs\n")
    print(f"{'hosts':>5}  {'way':<26} {'seconds':>8}  {'to ping':>8}  {'to two uri':>10}")
    figures = [row for hosts in options.hosts for row in measure(hosts, options.runs)]
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


def measure(hosts: int, runs: int) -> list[dict[str, object]]:
    """Interleaved, so that a change of the machine's load meets every way alike."""
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as scratch, Simulator({"scopes": [scope(hosts)]}, rate_limit=0) as simulator:
        inventory = Path(scratch) / "inventory.json"
        inventory.write_text(json.dumps({"all": {"hosts": host_variables(simulator)}}), encoding="utf-8")
        for _number in range(runs):
            for way, tasks in WAYS.items():
                times[way].append(timed_run(Path(scratch), inventory, tasks))
    medians = {way: statistics.median(seconds) for way, seconds in times.items()}
    ping, uri = medians["ansible.builtin.ping"], medians["two ansible.builtin.uri"]
    rows = []
    for way, seconds in medians.items():
        print(f"{hosts:>5}  {way:<26} {seconds:>8.2f}  {seconds / ping:>7.2f}x  {seconds / uri:>9.2f}x", flush=True)
        rows.append(
            {"hosts": hosts, "way": way, "seconds": seconds, "to_ping": seconds / ping, "to_uri": seconds / uri}
        )
    return rows


def scope(hosts: int) -> dict[str, object]:
    vms = [{"name": f"vm{number}", "update_domain": number % 5} for number in range(hosts)]
    return {"name": "fleet", "type": "availability_set", "vms": vms}


def host_variables(simulator: Simulator) -> dict[str, dict[str, str]]:
    vms = [vm for scope in simulator.topology.scopes for vm in scope.vms]
    return {
        vm.name: {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "endpoint": simulator.url_for(vm.name),
        }
        for vm in vms
    }


def timed_run(scratch: Path, inventory: Path, tasks: str) -> float:
    playbook = scratch / "playbook.yml"
    lines = "".join(f"    {line}\n" for line in tasks.strip().splitlines())
    playbook.write_text(f"- hosts: all\n  gather_facts: false\n  tasks:\n{lines}", encoding="utf-8")
    command = [str(shutil.which("ansible-playbook")), "-i", str(inventory), str(playbook)]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    seconds = time.monotonic() - started
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
