# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the simulator copes with a fleet: every VM polls once a second over its own connection, with the log on.

    python3 tests/bench/simulator_load.py                 # 1,000 VMs for 20 seconds, prints the figures
    python3 tests/bench/simulator_load.py --assert        # the same, exit 1 when p99 or CPU miss the goal

The simulator runs in a process of its own; this process is the fleet. Latency is measured here, from the moment the
request is written to the moment the whole answer is read, so it includes whatever this process itself is late by.
"""

import argparse
import asyncio
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Dict, List, Optional

SIMULATOR = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..", "roles", "simulator", "files", "azops_simulator.py"
)
GOAL_P99 = 0.050
GOAL_CPU = 1.0


class Poller(asyncio.Protocol):
    """One VM: a connection, a request a second, and how long each answer took."""

    def __init__(self, name: str, results: List[float], errors: List[str]) -> None:
        self.request = (
            "GET /vm/{}/metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\n"
            "Host: 127.0.0.1\r\nMetadata: true\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n".format(name).encode()
        )
        self.results = results
        self.errors = errors
        self.transport: Optional[asyncio.Transport] = None
        self.sent = 0.0
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Optional[Exception]) -> None:
        if self.transport is not None:
            self.errors.append("connection lost: {}".format(exc))

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, end, body = self.buffer.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        if len(body) < length:
            return
        self.results.append(time.perf_counter() - self.sent)
        if not head.startswith(b"HTTP/1.1 200"):
            self.errors.append(head.split(b"\r\n")[0].decode())
        self.buffer = b""
        self.sent = 0.0

    def poll(self) -> None:
        if self.sent:
            self.errors.append("no answer within a second")
        if self.transport is not None:
            self.sent = time.perf_counter()
            self.transport.write(self.request)

    def close(self) -> None:
        transport, self.transport = self.transport, None
        if transport is not None:
            transport.close()


def _itself(poller: Poller) -> Poller:
    return poller


async def fleet(address: str, names: List[str], seconds: float, results: List[float], errors: List[str]) -> None:
    """Spread the VMs evenly over each second, as a fleet that was not started together is."""
    host, port = address.split("//")[1].split(":")
    loop = asyncio.get_event_loop()
    pollers = [Poller(name, results, errors) for name in names]
    for poller in pollers:
        await loop.create_connection(functools.partial(_itself, poller), host, int(port))
    began = loop.time()

    def tick(poller: Poller, due: float) -> None:
        if due - began < seconds:
            poller.poll()
            loop.call_at(due + 1.0, tick, poller, due + 1.0)

    for number, poller in enumerate(pollers):
        due = began + 0.5 + number / len(pollers)
        loop.call_at(due, tick, poller, due)
    await asyncio.sleep(seconds + 1.5)
    for poller in pollers:
        poller.close()


def cpu_seconds(pid: int) -> float:
    with open("/proc/{}/stat".format(pid)) as stream:
        fields = stream.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def start(folder: str, options: argparse.Namespace) -> "subprocess.Popen[bytes]":
    scopes = []
    for number in range(0, options.vms, 100):
        size = min(100, options.vms - number)
        scopes.append(
            {"name": "set{}".format(number // 100), "type": "availability_set", "instances": size, "update_domains": 5}
        )
    topology = os.path.join(folder, "topology.json")
    with open(topology, "w") as stream:
        json.dump({"scopes": scopes}, stream)
    command = [options.python, SIMULATOR, "serve", "--topology", topology, "--listen", "127.0.0.1:0"]
    command += ["--control", "unix:{}/control.sock".format(folder), "--ready-file", os.path.join(folder, "ready.json")]
    command += ["--log", os.path.join(folder, "log.jsonl"), "--play", "host_update_all_domains"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not os.path.exists(os.path.join(folder, "ready.json")):
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit("the simulator did not start")
        time.sleep(0.05)
    return process


def measure(options: argparse.Namespace) -> Dict[str, float]:
    results: List[float] = []
    errors: List[str] = []
    with tempfile.TemporaryDirectory() as folder:
        process = start(folder, options)
        try:
            with open(os.path.join(folder, "ready.json")) as stream:
                ready = json.load(stream)
            loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
            before, began = cpu_seconds(process.pid), time.monotonic()
            loop.run_until_complete(fleet(ready["url"], sorted(ready["vms"]), options.seconds, results, errors))
            cpu = (cpu_seconds(process.pid) - before) / (time.monotonic() - began)
            loop.close()
            with open(os.path.join(folder, "log.jsonl")) as stream:
                logged = sum(1 for line in stream if '"kind": "request"' in line)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    if not results:
        sys.exit("no answers at all: {}".format(errors[:3]))
    for error in sorted(set(errors)):
        print("{} times: {}".format(errors.count(error), error))
    results.sort()
    return {
        "requests": len(results),
        "logged": logged,
        "errors": len(errors),
        "p50": results[len(results) // 2],
        "p99": results[int(len(results) * 0.99)],
        "max": results[-1],
        "cpu": cpu,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--vms", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the simulator")
    parser.add_argument("--assert", dest="strict", action="store_true", help="exit 1 when the goal is missed")
    options = parser.parse_args()
    found = measure(options)
    print("{} VMs, one poll a second each, {:g} s, log on".format(options.vms, options.seconds))
    print("requests  {requests:.0f} answered, {logged:.0f} logged, {errors:.0f} errors".format(**found))
    print(
        "latency   p50 {:.2f} ms, p99 {:.2f} ms, max {:.2f} ms (goal: p99 below {:.0f} ms)".format(
            found["p50"] * 1e3, found["p99"] * 1e3, found["max"] * 1e3, GOAL_P99 * 1e3
        )
    )
    print("CPU       {:.0%} of one core (goal: below {:.0%})".format(found["cpu"], GOAL_CPU))
    met = found["p99"] < GOAL_P99 and found["cpu"] < GOAL_CPU and not found["errors"]
    print("goal      {}".format("met" if met else "missed"))
    return 0 if met or not options.strict else 1


if __name__ == "__main__":
    sys.exit(main())
