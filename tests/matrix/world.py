# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The world of one case: a simulator, hosts on this machine with a workload each, and runs of the playbook."""

from __future__ import annotations

import contextlib
import http.client
import importlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SIMULATOR = ROOT / "roles" / "simulator" / "files" / "azops_simulator.py"
PYTHON = "/usr/bin/python3"
# A VM of the same availability set that is in no inventory.
STRANGER = "Stranger_9"

# Seconds. How long a condition is waited for on a busy machine before the case fails; no case depends on it.
PATIENCE = 300
LONGEST_RUN = 600
TRAP = '[{"ansible.builtin.fail": {"msg": "a file of the user was taken for one of the collection"}}]'
REMEDY = re.compile(
    r"[Rr]un this again|azops\.maintenance\.restore|maintenance_takeover|[Ll]ook at|then run (it|the playbook) again"
)


class CaseFailed(Exception):
    """What a case expects did not happen."""


class Core(NamedTuple):
    """One ansible-core: its series, its ansible-playbook and the environment that it runs in."""

    series: str
    playbook: str
    variables: Mapping[str, str]


class Host(NamedTuple):
    """One VM: its name in the inventory, the name that Azure uses, its update domain."""

    name: str
    vm: str
    domain: int


class Shape(NamedTuple):
    """Who is in the fleet, and which hosts each event hits."""

    name: str
    domains: tuple[int, ...]
    events: tuple[tuple[int, ...], ...]


ONE = Shape("one event", (0, 1), ((0,),))
THREE = Shape("three domains", (0, 1, 2), ((0,), (1,), (2,)))
MULTI = Shape("multi-VM event", (0, 0, 1), ((0, 1),))
TWELVE = Shape("twelve events of one domain", (0,) * 12 + (1,), tuple((i,) for i in range(12)))
SHAPES = (ONE, THREE, MULTI)


class Announced(NamedTuple):
    """An event that the case has announced."""

    event_id: str
    hosts: tuple[Host, ...]
    strangers: tuple[str, ...] = ()


class Run:
    """One run of a playbook, in a process group of its own."""

    def __init__(self, number: int, command: Sequence[str], variables: Mapping[str, str], log: Path) -> None:
        self.number = number
        self.is_check = "--check" in command
        self.was_killed = False
        self.code: int | None = None
        self.words: tuple[str, ...] = ()
        self._log = log
        self.started = time.monotonic()
        self.ended: float | None = None
        self.cpu_seconds = 0.0
        with open(log, "wb") as output:
            # Kept: subprocess itself reaps the children of those that are not, whenever it starts another.
            self._process = subprocess.Popen(
                command,
                cwd=log.parent,
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def is_over(self) -> bool:
        if self.ended is None:
            self._reap(os.WNOHANG)
        return self.ended is not None

    def _reap(self, options: int) -> None:
        """Not by subprocess, since only this tells what the run has cost."""
        pid, status, usage = os.wait4(self._process.pid, options)
        if pid:
            self.ended = time.monotonic()
            self.code = self._process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu_seconds = usage.ru_utime + usage.ru_stime

    @property
    def last_message(self) -> str:
        """What was said last of what is left: the whole line of the result."""
        lines = self.output.splitlines()
        left = [line for line in lines if "Something is left." in line]
        return (left or [line for line in lines if line.startswith("fatal: ")] or [""])[-1]

    def kill(self) -> None:
        """As by a controller that crashes: the process group is gone at once. Newer ansible-cores put their workers
        into groups of their own, so what these have begun goes on, as it would on real hosts."""
        if not self.is_over:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._reap(0)
        self.was_killed = True

    def ends(self, code: int, *words: str) -> Run:
        """Wait for its end; its exit code, and what its last message has to say, each a regular expression."""
        limit = self.started + LONGEST_RUN
        while not self.is_over:
            if time.monotonic() > limit:
                raise CaseFailed(f"run {self.number} was not over after {LONGEST_RUN} s")
            time.sleep(0.05)
        if self.code != code:
            raise CaseFailed(f"run {self.number} ended with {self.code}, not {code}: {self.last_message[:2000]}")
        where = self.output if code == 0 else self.last_message
        for word in words:
            if not re.search(word, where, re.IGNORECASE | re.DOTALL):
                raise CaseFailed(f"run {self.number} ended with {code} and did not say /{word}/: {where[-2000:]}")
        if code != 0 and not REMEDY.search(where):
            raise CaseFailed(f"run {self.number} ended with {code} and gave no remedy: {where[-2000:]}")
        return self

    def stop(self) -> None:
        if not self.is_over:
            self.kill()


class Simulator:
    """A simulator in its own process, controlled through its socket."""

    def __init__(self, directory: Path, vms: Sequence[Mapping[str, Any]]) -> None:
        topology = {
            "settings": {"time_scale": 1, "rate_limit": 0},
            "scopes": [{"name": "web", "type": "availability_set", "vms": list(vms)}],
        }
        (directory / "fleet.json").write_text(json.dumps(topology), encoding="utf-8")
        self._socket = directory / "control"
        self._ready = directory / "ready.json"
        self.log_file = directory / "simulator.jsonl"
        command = [PYTHON, "-IB", str(SIMULATOR), "serve", "--topology", str(directory / "fleet.json")]
        command += ["--listen", "127.0.0.1:0", "--ready-file", str(self._ready), "--log", str(self.log_file)]
        command += ["--control", f"unix:{self._socket}"]
        with open(directory / "simulator.out", "wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        until(self._ready.exists, "the simulator to be ready")
        self.urls: dict[str, str] = json.loads(self._ready.read_text(encoding="utf-8"))["vms"]

    def __call__(self, verb: str, **data: Any) -> dict[str, Any]:
        connection = http.client.HTTPConnection("localhost", timeout=30)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.connect(str(self._socket))
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
        lines = read_lines(self.log_file)
        return [line for line in lines if not kinds or line["kind"] in kinds]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


class World:
    """All that one case plays with, and what it says about itself for the checker."""

    def __init__(self, directory: Path, shape: Shape, core: Core) -> None:
        self.directory = directory
        self.shape = shape
        self.core = core
        self.hosts = [Host(f"web{i}", f"Web_{i}", domain) for i, domain in enumerate(shape.domains)]
        self.events: list[Announced] = []
        self.runs: list[Run] = []
        self.options: dict[str, Any] = {}
        self.host_options: dict[str, dict[str, Any]] = {host.name: {} for host in self.hosts}
        # What the checker has to know of a case.
        self.out_by_hand: set[str] = set()
        self.lost: set[str] = set()
        self.may_stay_open: set[str] = set()
        self.may_be_hit_undrained: set[str] = set()
        self.may_not_be_touched: set[str] = set()
        self.journal_was_damaged: set[str] = set()
        self.needs_no_drain: set[str] = set()
        self.approves_unmanaged = False
        self.restored_by_command = False
        self.most_approval_requests = 1
        for name in ("journals", "out", "orders", "down", "tmp"):
            (directory / name).mkdir()
        vms = [{"name": host.vm, "update_domain": host.domain} for host in self.hosts]
        self.azure = Simulator(directory, [*vms, {"name": STRANGER, "update_domain": 0}])
        # A user may have files of any name where the playbook is run.
        for path in [*ROOT.glob("playbooks/tasks/*.yml"), *ROOT.glob("roles/drain/tasks/*.yml")]:
            (directory / path.name).write_text(TRAP, encoding="utf-8")
        (directory / "own_drain.yml").write_text(task_file("drain"), encoding="utf-8")
        (directory / "own_restore.yml").write_text(task_file("restore"), encoding="utf-8")
        (directory / "own_health.yml").write_text(task_file("health"), encoding="utf-8")

    # Who

    @property
    def hit(self) -> list[Host]:
        """The hosts that the shape's events hit, in order."""
        return [self.hosts[i] for event in self.shape.events for i in event]

    @property
    def first(self) -> Host:
        return self.hit[0]

    @property
    def batches(self) -> int:
        return len(self.shape.events)

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    # Azure

    def announce(self, first: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Schedule the events of the shape, by default quick ones, whose time is far away; the first may differ."""
        for event in self.shape.events:
            self.schedule([self.hosts[i] for i in event], **(more if self.events else more | dict(first or {})))

    def schedule(self, hosts: Sequence[Host], strangers: Sequence[str] = (), **more: Any) -> Announced:
        number = len(self.events) + 1
        event_id = f"E{number:02}00000-0000-4000-8000-000000000000"
        wanted = {"type": "Reboot", "lasts": 1, "notice": 900, "event_id": event_id} | more
        self.azure("schedule", vms=[*(host.vm for host in hosts), *strangers], **wanted)
        self.events.append(Announced(event_id, tuple(hosts), tuple(strangers)))
        return self.events[-1]

    def state(self, event: Announced) -> str:
        states = [line for line in self.azure.log("state") if line["event"] == event.event_id]
        return str(states[-1]["after"])

    def is_approved(self, event: Announced) -> bool:
        return any(line["event"] == event.event_id for line in self.azure.log("approval"))

    def cancel(self, event: Announced) -> None:
        self.azure("cancel", event=event.event_id)

    def cancel_all(self) -> None:
        for event in self.events:
            if self.state(event) == "Scheduled":
                self.cancel(event)

    def finish(self, event: Announced) -> None:
        self.azure("finish", event=event.event_id)

    # Hosts

    def order(self, host: Host, verb: str, word: str) -> None:
        """Tell the workload of a host to fail, hang or wait at a verb."""
        path = self.directory / "orders" / f"{host.name}.{verb}"
        temporary = path.with_suffix(".new")
        temporary.write_text(word, encoding="utf-8")
        temporary.replace(path)

    def let(self, host: Host, verb: str) -> None:
        """Take such an order back."""
        (self.directory / "orders" / f"{host.name}.{verb}").unlink(missing_ok=True)

    def take_down(self, host: Host) -> None:
        (self.directory / "down" / host.name).touch()

    def bring_up(self, host: Host) -> None:
        (self.directory / "down" / host.name).unlink(missing_ok=True)

    def record(self) -> list[dict[str, Any]]:
        return read_lines(self.directory / "workload.jsonl")

    def did(self, host: Host, verb: str, outcome: str = "done") -> bool:
        return any(
            (line["host"], line["verb"], line["outcome"]) == (host.name, verb, outcome) for line in self.record()
        )

    # Points at which a run waits for the case, made with the user's own hooks

    def pause_at(self, hook: str) -> None:
        path = self.directory / f"own_{hook}.yml"
        path.write_text(hook_file(hook), encoding="utf-8")
        self.options.setdefault("maintenance_hooks", {})[hook] = str(path)
        (self.directory / "orders" / f"{hook}.pause").write_text("wait", encoding="utf-8")

    def until_paused(self, hook: str, run: Run) -> None:
        self.until(lambda: self._is_at(hook), f"the run to be at {hook}", run)

    def go_on(self, hook: str) -> None:
        (self.directory / "orders" / f"{hook}.pause").unlink()

    def _is_at(self, hook: str) -> bool:
        return any((line["host"], line["verb"]) == (hook, "pause") for line in self.record())

    # Journals

    def journal_dir(self, host: Host) -> Path:
        return self.directory / "journals" / host.name

    def entries(self, host: Host) -> list[dict[str, Any]]:
        found = []
        for path in sorted(self.journal_dir(host).glob("*.json")):
            with contextlib.suppress(ValueError, OSError):
                found.append(json.loads(path.read_text(encoding="utf-8")))
        return found

    def phase(self, host: Host) -> str:
        """The last phase of the newest entry in a host's journal."""
        steps = [entry["steps"][-1] for entry in self.entries(host)]
        return str(max(steps, key=lambda step: str(step["at"]))["phase"]) if steps else ""

    def write_journal(self, host: Host, event: Announced, actor: str) -> None:
        """What somebody else who has drained a host leaves in its journal."""
        sys.path.insert(0, self.core.variables["ANSIBLE_COLLECTIONS_PATH"])
        try:
            module = importlib.import_module("ansible_collections.azops.maintenance.plugins.module_utils._journal")
        finally:
            sys.path.pop(0)
        journal = module.Journal(str(self.journal_dir(host)))
        vms = tuple(hit.vm for hit in event.hosts)
        journal.begin(module.Subject(event.event_id, host.vm, "Reboot", vms), actor)
        journal.enter_phase(event.event_id, host.vm, "drained", actor)

    # Runs

    def roll(self, *arguments: str, playbook: str = "rolling", **variables: Any) -> Run:
        """Start the playbook."""
        number = len(self.runs) + 1
        inventory = self.directory / f"inventory{number}.json"
        inventory.write_text(json.dumps(self._inventory(), indent=1), encoding="utf-8")
        command = [self.core.playbook, "-i", str(inventory), f"azops.maintenance.{playbook}", "-e", "target=web"]
        if variables:
            command += ["-e", json.dumps(variables)]
        run = Run(number, [*command, *arguments], self._environment(), self.directory / f"run{number}.log")
        self.runs.append(run)
        return run

    def _inventory(self) -> dict[str, Any]:
        hosts = {
            host.name: {
                "maintenance_endpoint": self.azure.urls[host.vm],
                "maintenance_journal_dir": str(self.journal_dir(host)),
                "maintenance_hold_file": str(self.directory / f"hold-{host.name}"),
                "drain_commands": [self._commands(host)],
            }
            | self.host_options[host.name]
            for host in self.hosts
        }
        variables: dict[str, Any] = {
            "ansible_connection": "ssh",
            "ansible_ssh_executable": str(HERE / "fake_ssh"),
            "ansible_python_interpreter": PYTHON,
            "maintenance_become": False,
            "drain_backends": ["command"],
            "matrix_workload": [PYTHON, "-IBS", str(HERE / "workload.py"), str(self.directory)],
        }
        return {"all": {"children": {"web": {"hosts": hosts, "vars": variables | self.options}}}}

    def _commands(self, host: Host) -> dict[str, Any]:
        program = [PYTHON, "-IBS", str(HERE / "workload.py"), str(self.directory), host.name]
        return {"name": "workload"} | {verb: [*program, verb] for verb in ("drain", "verify", "restore")}

    def _environment(self) -> dict[str, str]:
        return dict(self.core.variables) | {
            "ANSIBLE_FORKS": str(len(self.hosts)),
            "ANSIBLE_HOST_KEY_CHECKING": "false",
            "ANSIBLE_LOCAL_TEMP": str(self.directory / "tmp"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_REMOTE_TEMP": str(self.directory / "tmp"),
            "ANSIBLE_SSH_ARGS": "-o ControlMaster=no",
            "ANSIBLE_SSH_RETRIES": "0",
            "ANSIBLE_SSH_TRANSFER_METHOD": "piped",
            "MATRIX_DOWN": str(self.directory / "down"),
        }

    # Conditions

    def until(self, condition: Callable[[], bool], what: str, run: Run | None = None) -> None:
        """Wait for something; if it is a run that brings it about, not longer than that."""
        until(condition, what, (lambda: run.is_over) if run else (lambda: False))

    def until_phase(self, host: Host, phase: str, run: Run) -> None:
        self.until(lambda: self.phase(host) == phase, f"{host.name} to be {phase}", run)

    def until_did(self, host: Host, verb: str, outcome: str, run: Run) -> None:
        self.until(lambda: self.did(host, verb, outcome), f"{verb} of {host.name}: {outcome}", run)

    def until_approved(self, event: Announced, run: Run) -> None:
        self.until(lambda: self.is_approved(event), f"{event.event_id} to be approved", run)

    def until_refused(self, run: Run) -> None:
        """Until the gate has said no; or yes, which is then found out by others."""
        self.until(
            lambda: "not approved" in run.output or any(self.is_approved(event) for event in self.events),
            "the gate to say no",
            run,
        )

    def until_polled(self, host: Host, run: Run) -> None:
        """Until the run has asked again and again whether the events of a host are over; or has put it back."""
        seen = self._reads()
        self.until(lambda: self._reads() >= seen + 8 or self.did(host, "restore", "begins"), "the run to poll", run)

    def _reads(self) -> int:
        return len(self.azure.log("request"))

    def until_gone(self, event: Announced) -> None:
        self.until(lambda: self.state(event) == "gone", f"{event.event_id} to be gone")

    def stop(self) -> None:
        for run in self.runs:
            run.stop()
        for process in left_processes(self.directory):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.azure.stop()


def until(condition: Callable[[], bool], what: str, is_hopeless: Callable[[], bool] = lambda: False) -> None:
    """Wait for a condition. It is asked once more after it has become hopeless."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        if is_hopeless() and not condition():
            raise CaseFailed(f"waited for {what}, and the run was over first")
        if time.monotonic() > limit:
            raise CaseFailed(f"waited {PATIENCE} s for {what}")
        time.sleep(0.05)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file of JSON lines."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def left_processes(directory: Path) -> Iterator[int]:
    """What a run that was killed has left behind: processes whose environment names the case's directory."""
    wanted = f"MATRIX_DOWN={directory}/".encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        # It may end while it is looked at.
        with contextlib.suppress(OSError):
            if wanted in Path("/proc", name, "environ").read_bytes():
                yield int(name)


def task_file(verb: str) -> str:
    """The user's own tasks, for the backend that includes them."""
    tasks = [
        {
            "name": f"{verb.capitalize()} the workload",
            "ansible.builtin.command": {"argv": "{{ matrix_workload + [inventory_hostname, '" + verb + "'] }}"},
            "changed_when": True,
        }
    ]
    return json.dumps(tasks)


def hook_file(hook: str) -> str:
    """Tasks of a hook that stop the run for as long as the case wants."""
    tasks = [
        {
            "name": f"Pause {hook}",
            "ansible.builtin.command": {"argv": "{{ matrix_workload + ['" + hook + "', 'pause'] }}"},
            "changed_when": False,
            "delegate_to": "localhost",
        }
    ]
    return json.dumps(tasks)


def keep(directory: Path, destination: Path) -> None:
    """Keep what tells why a case failed."""
    shutil.rmtree(destination, ignore_errors=True)
    destination.mkdir(parents=True)
    for path in directory.iterdir():
        if path.is_file() and path.suffix != ".yml":
            shutil.copy2(path, destination)
    shutil.copytree(directory / "journals", destination / "journals")


if __name__ == "__main__":
    sys.exit("Run tests/matrix/run.py instead.")
