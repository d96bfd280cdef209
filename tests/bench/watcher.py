# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the watcher costs and how soon it notices, on a real systemd host, beside what one would write by hand."""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTBED = [sys.executable, str(ROOT / "tests" / "testbed" / "testbed.py")]
SIMULATOR = [sys.executable, str(ROOT / "roles" / "simulator" / "files" / "azops_simulator.py")]
RUN = Path("/run/azops-testbed")
HOST, VM = "web0", "Web_0"
EVENTS_URL = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
CANNOT_RUN_HERE = 77

HOOK = "#!/bin/sh\ndate +%s.%N >> /run/azops-bench\n"
CURL_AND_JQ = f"""
exec 3<> <(:)  # to pause on without a process of its own
for poll in $(seq {{polls}}); do
  read -r -t 0.3 -u 3
  curl -s -H Metadata:true '{EVENTS_URL}' | jq -c '.Events[] | select(.Resources | index("{VM}"))'
done
times
"""
REQUESTS = f"""
import time, requests
session = requests.Session()
session.headers["Metadata"] = "true"
def poll():
    for event in session.get("{EVENTS_URL}", timeout=10).json()["Events"]:
        event["Resources"].count("{VM}")
    time.sleep(0.5)
time.sleep(1.5)
poll()
before = time.process_time()
for number in range({{polls}}):
    poll()
used = time.process_time() - before
memory = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS")][0]
print(used / {{polls}} * 1000, memory)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--polls", type=int, default=60, help="polls to measure the service over, one a second")
    parser.add_argument("--events", type=int, default=20, help="events to measure the notice of the service with")
    parser.add_argument("--timer-events", type=int, default=3, help="the same for the timer; each takes up to 30 s")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    check = subprocess.run([*TESTBED, "check"], check=False).returncode
    if check:
        return 0 if check == CANNOT_RUN_HERE else check
    run([*TESTBED, "up", "--hosts=1", "--image=bookworm"])
    try:
        figures = measure(options)
    finally:
        run([*TESTBED, "down"])
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


def measure(options: argparse.Namespace) -> list[dict[str, object]]:
    rows = [
        service(options.polls, options.events),
        timer(options.timer_events),
        curl_and_jq(options.polls),
        requests_loop(options.polls),
    ]
    print("\nThe watcher on a Debian 12 host with systemd\n")
    print(f"{'way':<34}{'CPU ms a poll':>14}{'of a core':>11}{'MiB':>7}{'notice, slowest':>17}")
    for row in rows:
        memory = f"{row['memory_mib']:.1f}" if row["memory_mib"] else "-"
        notice = f"{row['notice_seconds']:.2f} s" if row["notice_seconds"] else "-"
        print(f"{row['way']:<34}{row['cpu_ms']:>14.2f}{row['share']:>10.2%}{memory:>7}{notice:>17}")
    return rows


def service(polls: int, events: int) -> dict[str, object]:
    install("service")
    pid = on_host("systemctl show -p MainPID --value azops-watcher.service").strip()
    before = nanoseconds(pid)
    time.sleep(polls)  # one poll a second
    used = (nanoseconds(pid) - before) / 1e6 / polls
    memory = re.findall(r"VmRSS:\s+(\d+)", on_host(f"cat /proc/{pid}/status"))[0]
    return figure("azops-watcher, service, 1 s", used, 1, int(memory) / 1024, notices(events, 10))


def timer(events: int) -> dict[str, object]:
    install("timer")
    used = []
    for _number in range(5):
        on_host("systemctl start azops-watcher.service")
        shown = on_host("systemctl show -p CPUUsageNSec --value azops-watcher.service").strip()
        used.append(int(shown) / 1e6)
    return figure("azops-watcher, timer, 30 s", statistics.median(used), 30, None, notices(events, 60))


def curl_and_jq(polls: int) -> dict[str, object]:
    said = on_host(CURL_AND_JQ.format(polls=polls))
    children = said.strip().splitlines()[-1]
    seconds = sum(int(minutes) * 60 + float(rest) for minutes, rest in re.findall(r"(\d+)m([\d.]+)s", children))
    return figure("shell loop of curl and jq, 1 s", seconds * 1000 / polls, 1, None, [])


def requests_loop(polls: int) -> dict[str, object]:
    """On the machine itself, but in the host's network: hosts have no package index to install requests from."""
    namespace = run(["ip", "netns", "list"]).split()[0]
    command = ["ip", "netns", "exec", namespace, sys.executable, "-c", REQUESTS.format(polls=polls)]
    milliseconds, memory = run(command).split()
    return figure("Python loop with requests, 1 s", float(milliseconds), 1, int(memory) / 1024, [])


def figure(way: str, cpu_ms: float, every: int, memory: float | None, notice: list[float]) -> dict[str, object]:
    slowest = max(notice) if notice else None
    return {
        "way": way,
        "cpu_ms": cpu_ms,
        "share": cpu_ms / 1000 / every,
        "memory_mib": memory,
        "notice_seconds": slowest,
    }


def install(mode: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as playbook:
        playbook.write("- import_playbook: azops.maintenance.install_watcher\n")
        playbook.flush()
        command = ["ansible-playbook", "-i", str(RUN / "inventory.yml"), "-e", f"watcher_mode={mode}", playbook.name]
        run(command)
    hook = "/etc/azops-watcher/hooks.d/scheduled.d/10-bench"
    on_host(f"printf %s '{HOOK}' > {hook}; chmod 755 {hook}; rm -f /run/azops-bench")


def notices(events: int, patience: float) -> list[float]:
    """Seconds from the moment that an event is scheduled to the start of its hook."""
    seconds = []
    for number in range(events):
        scheduled_at = time.time()
        event = json.loads(simulator("schedule", "--json", "--type", "Reboot", "--vm", VM, "--notice", "86400"))[
            "event"
        ]
        give_up_at = time.monotonic() + patience
        while int(on_host("cat /run/azops-bench 2>/dev/null | wc -l")) <= number:
            if time.monotonic() > give_up_at:
                raise SystemExit(f"event {event} was not noticed within {patience} s")
            time.sleep(0.1)
        started_at = float(on_host("tail -n 1 /run/azops-bench"))
        seconds.append(started_at - scheduled_at)
        simulator("cancel", event)
    return seconds


def nanoseconds(pid: str) -> int:
    return int(on_host(f"cat /proc/{pid}/schedstat").split()[0])


def on_host(script: str) -> str:
    return run([*TESTBED, "exec", HOST, "--", "bash", "-c", script])


def simulator(*arguments: str) -> str:
    return run([*SIMULATOR, *arguments], AZOPS_SIMULATOR_CONTROL=f"unix:{RUN}/simulator.sock")


def run(command: list[str], **variables: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables}, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
