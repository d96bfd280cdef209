# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scene: six web hosts in three update domains behind a HAProxy host, and a pair of PostgreSQL hosts.

All are hosts of the test bed: Debian's own packages, systemd, sshd, and the simulator as their metadata service. What
Azure does to a VM happens to its host.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests" / "testbed"), str(ROOT / "tests" / "matrix")]

import testbed  # noqa: E402
from world import CaseFailed, Host, Run, read_lines, until  # noqa: E402

WEB_EXAMPLE = ROOT / "docs" / "examples" / "web"
DATABASE_EXAMPLE = ROOT / "docs" / "examples" / "postgresql"
JOURNAL = "var/lib/azops-maintenance/journal"
ADMIN_SOCKET = "run/haproxy/admin.sock"
PORT = 8080
DOMAINS = 3
BALANCER = "lb0"

# HAProxy's srv_admin_state: drained by an administrator. Its srv_op_state: up.
DRAINED = 0x08
UP = 2


class Form(NamedTuple):
    """The full test, or the short one of `make test`. Azure's seconds are divided by the scale."""

    name: str
    scale: float
    rate: int
    requests: int
    notices: tuple[int, int, int]
    freeze: int

    @property
    def freeze_seconds(self) -> float:
        return self.freeze / self.scale


# An event lasts 300 of Azure's seconds from its start to its end.
FULL = Form("full", 5, 200, 50_000, (900, 1800, 2700), 30)
SHORT = Form("short", 60, 60, 3_000, (36_000, 36_000, 36_000), 360)


class Server(NamedTuple):
    """A server as HAProxy sees it."""

    admin: int
    is_up: bool
    sessions: int

    @property
    def is_drained(self) -> bool:
        return bool(self.admin & DRAINED)


class Scene:
    """The hosts, what can be done to them, and what can be seen of them."""

    def __init__(self, form: Form, directory: Path, playbook: str) -> None:
        self.form = form
        self.directory = directory
        self.playbook = playbook
        self.web = [Host(f"web{i}", f"Web_{i}", i % DOMAINS) for i in range(6)]
        self.databases = [Host(f"db{i}", f"Db_{i}", i) for i in range(2)]
        self._roots: dict[str, Path] = {}
        self._processes: dict[str, int] = {}

    # Coming and going

    def up(self) -> None:
        with testbed.one_at_a_time():
            testbed.install()
            testbed.down()
            testbed.up(self._topology(), ["bookworm"])
        self.put(BALANCER, WEB_EXAMPLE / "haproxy.cfg", "/root/haproxy.cfg")
        roles = {host.name: "web" for host in self.web} | {"db0": "database"}
        with ThreadPoolExecutor(max_workers=4) as pool:
            jobs = [pool.submit(self.make, name, role) for name, role in roles.items()]
        for job in jobs:
            job.result()
        self.make(BALANCER, "balancer")
        self.make("db1", "database")
        until(lambda: len(self.servers_up()) == len(self.web), "HAProxy to find all servers up")

    def down(self) -> None:
        with testbed.one_at_a_time():
            testbed.down()

    def _topology(self) -> dict[str, Any]:
        """Nobody may guess the name of a VM from the name of its host."""
        balancer = {"name": "Balancer_0", "computer_name": BALANCER}
        return {
            "settings": {"time_scale": self.form.scale},
            "scopes": [
                {"name": "web", "type": "availability_set", "vms": [self._vm(host) for host in self.web]},
                {"name": "database", "type": "availability_set", "vms": [self._vm(host) for host in self.databases]},
                {"name": "balancer", "type": "standalone", "vms": [balancer]},
            ],
        }

    def _vm(self, host: Host) -> dict[str, Any]:
        seconds = str(self.form.freeze_seconds)
        off, on = (shlex.join(testbed.own_command(verb, host.name)) for verb in ("kill", "start"))
        impact = {
            "default": testbed.own_command("reboot", host.name),
            # A VM that is moved to other hardware loses its power, if it still has any.
            "Redeploy": ["/bin/sh", "-c", f"{off}; {on}"],
            "Freeze": testbed.own_command("freeze", host.name, "--seconds", seconds),
        }
        return {
            "name": host.vm,
            "computer_name": host.name,
            "update_domain": host.domain,
            "fault_domain": host.domain % 2,
            "impact": impact,
        }

    # Hosts

    def execute(self, name: str, *command: str, stdin: str = "") -> str:
        """Run a command as root inside a host."""
        done = subprocess.run(
            ["podman", "exec", "--interactive", testbed.PREFIX + name, *command],
            input=stdin,
            env=os.environ | testbed.podman_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise CaseFailed(f"{name}: {' '.join(command)} ended with {done.returncode}: {done.stderr[-500:]}")
        return done.stdout.strip()

    def put(self, name: str, source: Path, destination: str) -> None:
        testbed.podman("cp", str(source), f"{testbed.PREFIX}{name}:{destination}")

    def make(self, name: str, role: str) -> None:
        self.execute(name, "sh", stdin=(HERE / "hosts" / f"{role}.sh").read_text(encoding="utf-8"))

    def address(self, name: str) -> str:
        return testbed.host_named(name).address

    def root(self, name: str) -> Path:
        """A host's files, whether it runs or not."""
        if name not in self._roots:
            self._roots[name] = Path(testbed.podman("mount", testbed.PREFIX + name))
        return self._roots[name]

    def journal(self, name: str) -> Path:
        return self.root(name) / JOURNAL

    # HAProxy

    def servers(self) -> dict[str, Server]:
        """What HAProxy says of each server; nothing while it does not answer."""
        try:
            states = self._ask_haproxy("show servers state web")
            statistics = self._ask_haproxy("show stat -1 4 -1")
        except OSError:
            return {}
        rows = [line.split(",") for line in statistics.splitlines() if line.startswith("web,")]
        sessions = {row[1]: int(row[4]) for row in rows}
        fields = [line.split() for line in states.splitlines() if line and line[0] != "#"]
        return {
            row[3]: Server(int(row[6]), int(row[5]) == UP, sessions.get(row[3], 0)) for row in fields if len(row) > 6
        }

    def servers_up(self) -> list[str]:
        return [name for name, server in self.servers().items() if server.is_up and server.admin == 0]

    def _ask_haproxy(self, command: str) -> str:
        process = self._processes.get(BALANCER, 0)
        if not Path(f"/proc/{process}").exists() or process == 0:
            process = int(testbed.podman("inspect", "--format", "{{.State.Pid}}", testbed.PREFIX + BALANCER))
            self._processes[BALANCER] = process
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(5)
            link.connect(f"/proc/{process}/root/{ADMIN_SOCKET}")
            link.sendall(command.encode() + b"\n")
            return b"".join(iter(lambda: link.recv(65536), b"")).decode()

    # Azure

    def azure(self, verb: str, **data: Any) -> dict[str, Any]:
        connection = http.client.HTTPConnection("localhost", timeout=30)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.connect(str(testbed.SIMULATOR_SOCKET))
        try:
            connection.request("POST", f"/v1/{verb}", json.dumps(data), {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        finally:
            connection.close()
        if response.status != 200:
            raise CaseFailed(f"the simulator refused {verb} {data}: {answer}")
        return answer

    def log(self, *kinds: str) -> list[dict[str, Any]]:
        return [line for line in read_lines(testbed.SIMULATOR_LOG) if not kinds or line["kind"] in kinds]

    # The controller

    def roll(
        self,
        number: int,
        log: Path,
        target: str = "web",
        playbook: str = "azops.maintenance.rolling",
        variables: Mapping[str, Any] | None = None,
        arguments: Sequence[str] = (),
    ) -> Run:
        """Start a playbook with the inventory of the docs; only how to connect is added to it."""
        example = DATABASE_EXAMPLE if target == "database" else WEB_EXAMPLE
        extra = {"target": target, "maintenance_drain_timeout": 30, "maintenance_margin": 5} | dict(variables or {})
        command = [self.playbook, "-i", str(example / "inventory.yml"), "-i", str(testbed.INVENTORY)]
        command += ["-e", json.dumps(extra), *arguments, playbook]
        settings = {
            "ANSIBLE_CONFIG": str(example / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_LOG_PATH": str(log.with_suffix(".times")),
            "ANSIBLE_LOCAL_TEMP": str(self.directory / "tmp"),
            "ANSIBLE_LOCALHOST_WARNING": "false",
        }
        return Run(number, command, os.environ | settings, log)


class Program:
    """A program of the test's own, in a process of its own."""

    def __init__(self, command: Sequence[str], output: Path) -> None:
        with output.open("wb") as stream:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._output = output

    def stop(self) -> None:
        """Ask it to finish what it has begun, and wait for that."""
        self._process.send_signal(signal.SIGTERM)
        if self._process.wait(timeout=90) != 0:
            raise CaseFailed(f"{self._output.name}: ended with {self._process.returncode}: {self._output.read_text()}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def set_up(form: Form, playbook: str, output: Path) -> Iterator[Scene]:
    shutil.rmtree(output, ignore_errors=True)
    (output / "tmp").mkdir(parents=True)
    scene = Scene(form, output, playbook)
    started = time.monotonic()
    try:
        scene.up()
        seconds = time.monotonic() - started
        print(f"   the scene: {len(testbed.hosts_of_testbed())} hosts in {seconds:.0f} s", flush=True)
        yield scene
    finally:
        scene.down()
