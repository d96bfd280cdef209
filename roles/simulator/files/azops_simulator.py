# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulator of Azure's instance metadata service and its Scheduled Events.

One file, the standard library, CPython 3.6 and up. It serves any number of simulated VMs from one process, plays the
life of maintenance events, breaks on demand, and logs every request, approval and change of state.

The sections, in the order in which data flows:

1.  constants              what Azure documents: versions, types, notices
2.  errors and checking    every bad value is reported with its file, key and value
3.  time                   the clock, which tests inject
4.  the log                append-only JSON lines
5.  topology               who: scopes, domains, VMs, read from a file and checked
6.  faults                 what can go wrong on demand
7.  events                 when: the life of an event, a state machine without input or output
8.  views                  what a request sees, per API version
9.  scenarios              stories in time, and how they choose VMs
10. commands               the one set of verbs behind Python, control API and command line
11. HTTP                   a small HTTP/1.1 server on asyncio protocols
12. metadata service       the answers that Azure would give
13. control API            a unix socket, or loopback with a token
14. impact                 the command that really interrupts a VM
15. the simulator          everything together, in the foreground or in a thread
16. command line
"""

import argparse
import asyncio
import collections
import contextlib
import copy
import datetime
import errno
import heapq
import hmac
import http.client
import ipaddress
import itertools
import json
import math
import os
import random
import re
import secrets
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

# ---------------------------------------------------------------------------------------------------------------------
# 1. Constants
# ---------------------------------------------------------------------------------------------------------------------

EVENT_VERSIONS = (
    "2017-03-01",
    "2017-08-01",
    "2017-11-01",
    "2019-01-01",
    "2019-04-01",
    "2019-08-01",
    "2020-07-01",
)
PREVIEW_VERSION = EVENT_VERSIONS[0]
PREEMPT_SINCE = "2017-11-01"
TERMINATE_SINCE = "2019-01-01"
DESCRIPTION_SINCE = "2019-04-01"
SOURCE_SINCE = "2019-08-01"
DURATION_SINCE = "2020-07-01"

INSTANCE_VERSIONS = (
    "2017-04-02",
    "2017-08-01",
    "2017-12-01",
    "2018-02-01",
    "2018-04-02",
    "2018-10-01",
    "2019-02-01",
    "2019-03-11",
    "2019-04-30",
    "2019-06-01",
    "2019-06-04",
    "2019-08-01",
    "2019-08-15",
    "2019-11-01",
    "2020-06-01",
    "2020-07-15",
    "2020-09-01",
    "2020-10-01",
    "2020-12-01",
    "2021-01-01",
    "2021-02-01",
    "2021-03-01",
    "2021-05-01",
    "2021-10-01",
    "2021-11-01",
    "2021-11-15",
    "2021-12-13",
    "2023-07-01",
)
NEWEST_SHOWN = 3
"""How many versions the body of a 400 lists under ``newest-versions``."""

FREEZE, REBOOT, REDEPLOY, PREEMPT, TERMINATE = "Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"
EVENT_TYPES = (FREEZE, REBOOT, REDEPLOY, PREEMPT, TERMINATE)
SCHEDULED, STARTED, GONE = "Scheduled", "Started", "gone"
PLATFORM, USER = "Platform", "User"

DAY = 24 * 3600.0
MINIMUM_NOTICE = {FREEZE: 900.0, REBOOT: 900.0, REDEPLOY: 600.0, PREEMPT: 30.0, TERMINATE: 300.0}
PREDICTED_NOTICE = 7 * DAY
DEFAULT_NOTICE = 900.0
ANNOUNCED_DURATION = {FREEZE: 9, REBOOT: -1, REDEPLOY: -1, PREEMPT: -1, TERMINATE: -1}
REAL_DURATION = {FREEZE: 9.0, REBOOT: 30.0, REDEPLOY: 60.0, PREEMPT: 0.0, TERMINATE: 0.0}
"""How long a VM is away when its event says -1, in seconds of Azure's time."""
DEFAULT_LASTS = 300.0
"""From Started to gone; Azure's typical 5 to 10 minutes."""
DELETING = (PREEMPT, TERMINATE)
DESCRIPTIONS = {
    (FREEZE, PLATFORM): "Host server is undergoing maintenance.",
    (REBOOT, PLATFORM): "Host server is undergoing maintenance.",
    (REDEPLOY, PLATFORM): "Virtual machine is being redeployed to a healthy node.",
    (PREEMPT, PLATFORM): "Virtual machine is being evicted: the capacity is needed elsewhere.",
    (TERMINATE, PLATFORM): "Virtual machine is going to be deleted by its scale set.",
    (FREEZE, USER): "Virtual machine is going to be paused as requested by an authorised user.",
    (REBOOT, USER): "Virtual machine is going to be restarted as requested by an authorised user.",
    (REDEPLOY, USER): "Virtual machine is going to be redeployed as requested by an authorised user.",
    (PREEMPT, USER): "Virtual machine is being evicted: an eviction was simulated by an authorised user.",
    (TERMINATE, USER): "Virtual machine is going to be deleted as requested by an authorised user.",
}
HARDWARE_DESCRIPTION = "Virtual machine was interrupted by a failure of the host's hardware."
PREDICTED_DESCRIPTION = "The host's hardware is predicted to fail; the virtual machine is moved to a healthy node."

METADATA_ADDRESS = "169.254.169.254"
METADATA_PORT = 80
DEFAULT_LISTEN = "127.0.0.1:8169"
RATE_LIMIT = 5
MAX_HEADER = 16 * 1024
MAX_BODY = 256 * 1024
MAX_LOGGED = 500
LOG_MEMORY = 50000
HISTORY = 1000

EXIT_OK, EXIT_REFUSED, EXIT_USAGE, EXIT_UNREACHABLE = 0, 1, 2, 3
CONTROL_ENVIRONMENT = "AZOPS_SIMULATOR_CONTROL"
TOKEN_ENVIRONMENT = "AZOPS_SIMULATOR_TOKEN"

Json = Dict[str, Any]


# ---------------------------------------------------------------------------------------------------------------------
# 2. Errors and checking
# ---------------------------------------------------------------------------------------------------------------------


class SimulatorError(Exception):
    """Anything that the simulator refuses; the message says what, where and what to do."""


class ConfigError(SimulatorError):
    """A file or a command with a bad value."""


class RefusedError(SimulatorError):
    """A command that was understood but cannot be carried out now."""


class ControlError(SimulatorError):
    """The simulator cannot be reached."""


def shown(value: Any) -> str:
    """A value for an error message: JSON, cut to a readable length."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


# Ten years in seconds: later moments do not fit into a date.
LARGEST_NUMBER = 315360000.0


class Fields:
    """One JSON object that is read key by key, with errors that name place, key and value."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise ConfigError("{}: expected an object, got {}".format(where, shown(data)))
        self.data: Json = data
        self.where = where
        self.seen: Set[str] = set()

    def bad(self, key: str, wanted: str) -> ConfigError:
        return ConfigError("{}: {}: expected {}, got {}".format(self.where, key, wanted, shown(self.data.get(key))))

    def raw(self, key: str, default: Any = None) -> Any:
        self.seen.add(key)
        return self.data.get(key, default)

    def has(self, key: str) -> bool:
        return key in self.data

    def text(self, key: str, default: Optional[str] = None, pattern: Optional[str] = None) -> str:
        value = self.raw(key, default)
        if value is None:
            raise ConfigError("{}: {} is required".format(self.where, key))
        if not isinstance(value, str):
            raise self.bad(key, "a string")
        if pattern is not None and not re.match(pattern, value):
            raise self.bad(key, "a string that matches {}".format(pattern))
        return value

    def optional_text(self, key: str) -> Optional[str]:
        return None if self.raw(key) is None else self.text(key)

    def number(self, key: str, default: float, low: float = 0.0, high: float = LARGEST_NUMBER) -> float:
        value = self.raw(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self.bad(key, "a number")
        if not low <= value <= high:
            raise self.bad(key, "a number from {:g} to {:g}".format(low, high))
        return float(value)

    def optional_number(self, key: str, low: float = 0.0) -> Optional[float]:
        return None if self.raw(key) is None else self.number(key, 0.0, low)

    def integer(self, key: str, default: int, low: int = 0, high: Optional[int] = None) -> int:
        value = self.raw(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.bad(key, "an integer")
        if value < low or (high is not None and value > high):
            raise self.bad(key, "an integer from {}{}".format(low, "" if high is None else " to {}".format(high)))
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.raw(key, default)
        if not isinstance(value, bool):
            raise self.bad(key, "true or false")
        return value

    def choice(self, key: str, choices: Sequence[str], default: Optional[str] = None) -> str:
        value = self.text(key, default)
        if value not in choices:
            raise self.bad(key, "one of " + ", ".join(choices))
        return value

    def texts(self, key: str, default: Optional[Sequence[str]] = None) -> List[str]:
        value = self.raw(key, list(default or []))
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.bad(key, "a string or a list of strings")
        return list(value)

    def objects(self, key: str) -> List["Fields"]:
        value = self.raw(key, [])
        if not isinstance(value, list):
            raise self.bad(key, "a list")
        return [Fields(item, "{}: {}[{}]".format(self.where, key, number)) for number, item in enumerate(value)]

    def object(self, key: str) -> "Fields":
        return Fields(self.raw(key, {}), "{}: {}".format(self.where, key))

    def done(self) -> None:
        unknown = sorted(set(self.data) - self.seen)
        if unknown:
            raise ConfigError(
                "{}: unknown key {} (known: {})".format(
                    self.where, ", ".join(shown(key) for key in unknown), ", ".join(sorted(self.seen))
                )
            )


def read_json(path: str) -> Any:
    """The JSON value of a file, or an error that names the file, the line and the reason."""
    try:
        with open(path, "rb") as stream:
            return json.loads(stream.read().decode("utf-8"))
    except OSError as error:
        raise ConfigError("{}: cannot be read: {}".format(path, error.strerror or error)) from None
    except ValueError as error:
        raise ConfigError("{}: not JSON: {}".format(path, error)) from None


# ---------------------------------------------------------------------------------------------------------------------
# 3. Time
# ---------------------------------------------------------------------------------------------------------------------


class Clock:
    """The machine's clock: wall time for what is shown, monotonic time for what happens."""

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock(Clock):
    """A clock that stands still until it is told to move."""

    def __init__(self, wall: float = 1474309787.0) -> None:
        self._wall = wall
        self._monotonic = 1000.0

    def wall(self) -> float:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._wall += seconds
        self._monotonic += seconds


WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def utc(timestamp: float) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=timestamp)


def rfc1123(timestamp: float) -> str:
    """A time as HTTP writes it, independent of the locale."""
    moment = utc(math.floor(timestamp))
    return "{}, {:02d} {} {:04d} {:02d}:{:02d}:{:02d} GMT".format(
        WEEKDAYS[moment.weekday()],
        moment.day,
        MONTHS[moment.month - 1],
        moment.year,
        moment.hour,
        moment.minute,
        moment.second,
    )


def iso8601(timestamp: float) -> str:
    return utc(math.floor(timestamp)).strftime("%Y-%m-%dT%H:%M:%SZ")


def iso8601_micro(timestamp: float) -> str:
    return utc(timestamp).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# ---------------------------------------------------------------------------------------------------------------------
# 4. The log
# ---------------------------------------------------------------------------------------------------------------------


class Log:
    """Append-only: the newest entries in memory, all of them as JSON lines in a file if one is given."""

    def __init__(self, clock: Clock, path: Optional[str] = None, memory: int = LOG_MEMORY) -> None:
        self.clock = clock
        self.path = path
        self.changed = threading.Condition()
        self._entries: Deque[Json] = collections.deque(maxlen=memory)
        self._sequence = 0
        self._file: Optional[int] = None
        if path is not None:
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
            except OSError as error:
                raise ConfigError("log {}: cannot be opened: {}".format(path, error.strerror)) from None

    def add(self, kind: str, **fields: Any) -> Json:
        with self.changed:
            self._sequence += 1
            entry: Json = {
                "seq": self._sequence,
                "wall": iso8601_micro(self.clock.wall()),
                "mono": round(self.clock.monotonic(), 6),
                "kind": kind,
            }
            entry.update(fields)
            self._entries.append(entry)
            if self._file is not None:
                os.write(self._file, json.dumps(entry).encode("ascii") + b"\n")
            self.changed.notify_all()
        return entry

    def entries(self, since: int = 0, kinds: Sequence[str] = (), vm: Optional[str] = None) -> List[Json]:
        """Entries after a sequence number, oldest first."""
        with self.changed:
            found = list(itertools.takewhile(lambda entry: entry["seq"] > since, reversed(self._entries)))
        found.reverse()
        wanted = vm.lower() if vm else None
        return [
            entry
            for entry in found
            if (not kinds or entry["kind"] in kinds)
            and (wanted is None or wanted in [str(name).lower() for name in [entry.get("vm")] + entry.get("vms", [])])
        ]

    @property
    def last(self) -> int:
        return self._sequence

    def close(self) -> None:
        with self.changed:
            if self._file is not None:
                os.close(self._file)
                self._file = None


# ---------------------------------------------------------------------------------------------------------------------
# 5. Topology
# ---------------------------------------------------------------------------------------------------------------------

AVAILABILITY_SET, SCALE_SET, CLOUD_SERVICE = "availability_set", "scale_set", "cloud_service"
STANDALONE, ZONAL = "standalone", "zonal"
SCOPE_TYPES = (AVAILABILITY_SET, SCALE_SET, CLOUD_SERVICE, STANDALONE, ZONAL)
NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
NAMESPACE = uuid.UUID("6b1f6c6e-4f0e-4a53-9a39-0b2c64a3a2f1")


class Settings:
    """How the simulated service behaves; every key can stand under ``settings`` in the topology file."""

    KEYS = (
        "time_scale",
        "rate_limit",
        "first_call_seconds",
        "arrival_seconds",
        "disable_after_seconds",
        "incarnation_step",
        "unknown_event_status",
        "started_event_status",
        "approve_body",
        "seed",
        "subscription_id",
        "resource_group",
        "location",
    )

    def __init__(self, fields: Optional[Fields] = None) -> None:
        fields = fields or Fields({}, "settings")
        self.time_scale = fields.number("time_scale", 1.0, 0.001, 1e6)
        self.rate_limit = fields.integer("rate_limit", RATE_LIMIT)
        self.first_call_seconds = fields.number("first_call_seconds", 0.0)
        self.arrival_seconds = fields.number("arrival_seconds", 0.0)
        self.disable_after_seconds = fields.number("disable_after_seconds", DAY, 1.0)
        self.incarnation_step = fields.integer("incarnation_step", 1, 1)
        self.unknown_event_status = fields.integer("unknown_event_status", 400, 200, 599)
        self.started_event_status = fields.integer("started_event_status", 200, 200, 599)
        self.approve_body = fields.text("approve_body", "")
        self.seed = fields.integer("seed", 0)
        self.subscription_id = fields.text("subscription_id", "00000000-0000-4000-8000-000000000000")
        self.resource_group = fields.text("resource_group", "rehearsal")
        self.location = fields.text("location", "westeurope")
        fields.done()

    def scaled(self, seconds: float) -> float:
        """Seconds of Azure's time as seconds of this machine's time."""
        return seconds / self.time_scale


class Group:
    """The VMs that see each other's events, with the state of the service for them."""

    def __init__(self, name: str, scope: "Scope") -> None:
        self.name = name
        self.scope = scope
        self.vms: List[VirtualMachine] = []
        self.incarnation = 1
        self.enabled_at: Optional[float] = None
        self.visible_at: Optional[float] = None
        self.last_poll: Optional[float] = None
        self.documents: Dict[str, bytes] = {}


class Scope:
    """An availability set, a scale set, a cloud service, or a list of VMs that each stand alone."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.single_fault_domain = False
        self.flexible = False
        self.auto_approve_reboots = False
        self.auto_approve_redeploys = False
        self.vms: List[VirtualMachine] = []
        self.groups: List[Group] = []


class VirtualMachine:
    """One simulated VM: what it is, how it is told apart, and what the service knows of it."""

    def __init__(self, name: str, scope: Scope) -> None:
        self.name = name
        self.scope = scope
        self.group: Optional[Group] = None
        self.resource_name = name
        self.computer_name = name
        self.instance = ""
        self.update_domain = 0
        self.fault_domain = 0
        self.zone = ""
        self.priority = ""
        self.tags: Dict[str, str] = {}
        self.placement_group = ""
        self.size = "Standard_D2s_v5"
        self.location = ""
        self.resource_group = ""
        self.private_address = "10.0.0.4"
        self.address: Optional[Tuple[str, int]] = None
        self.netns: Optional[str] = None
        self.client_addresses: List[str] = []
        self.impact: Dict[str, List[str]] = {}
        self.state = "running"
        self.away_until = 0.0
        self.polls = 0
        self.last_poll: Optional[float] = None
        self.recent: Deque[float] = collections.deque()
        self.instance_documents: Dict[str, Json] = {}

    @property
    def seen_by(self) -> Group:
        if self.group is None:
            raise AssertionError("VM {} is in no group".format(self.name))
        return self.group


def parse_address(text: str, where: str, default_port: Optional[int] = None) -> Tuple[str, int]:
    """``ADDRESS:PORT`` with an IPv4 address, or an IPv6 address in brackets."""
    match = re.match(r"^(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+|localhost))(?::([0-9]{1,5}))?$", text)
    if not match or (match.group(3) is None and default_port is None):
        raise ConfigError("{}: expected ADDRESS:PORT, got {}".format(where, shown(text)))
    host = match.group(1) or match.group(2)
    host = "127.0.0.1" if host == "localhost" else host
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ConfigError("{}: {} is not an IP address".format(where, shown(host))) from None
    port = int(match.group(3)) if match.group(3) is not None else int(default_port or 0)
    if port > 65535:
        raise ConfigError("{}: {} is not a port".format(where, port))
    return host, port


def is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback


def url_of(address: Tuple[str, int]) -> str:
    host = "[{}]".format(address[0]) if ":" in address[0] else address[0]
    return "http://{}:{}".format(host, address[1]) if address[1] != 80 else "http://{}".format(host)


class Topology:
    """All VMs, found by name or client address."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.scopes: List[Scope] = []
        self.groups: List[Group] = []
        self.vms: List[VirtualMachine] = []
        self.by_name: Dict[str, VirtualMachine] = {}
        self.by_client: Dict[str, VirtualMachine] = {}

    @classmethod
    def simple(cls, vms: int = 6, update_domains: int = 3) -> "Topology":
        """One availability set; what ``serve`` uses when no file is given."""
        return cls.parse(
            {
                "scopes": [
                    {
                        "name": "fleet",
                        "type": AVAILABILITY_SET,
                        "instances": vms,
                        "name_format": "vm{}",
                        "update_domains": update_domains,
                    }
                ]
            },
            "built-in topology",
        )

    @classmethod
    def load(cls, path: str) -> "Topology":
        return cls.parse(read_json(path), path)

    @classmethod
    def parse(cls, data: Any, where: str = "topology") -> "Topology":
        fields = Fields(data, where)
        if fields.integer("version", 1) != 1:
            raise fields.bad("version", "1")
        topology = cls(Settings(fields.object("settings")))
        scopes = fields.objects("scopes")
        fields.done()
        if not scopes:
            raise ConfigError("{}: scopes: at least one scope is needed".format(where))
        for scope in scopes:
            topology._add_scope(scope)
        return topology

    def vm(self, name: str) -> VirtualMachine:
        found = self.by_name.get(name.lower())
        if found is None:
            some = ", ".join(vm.name for vm in self.vms[:10]) + (", ..." if len(self.vms) > 10 else "")
            raise RefusedError("there is no VM {} in the topology (there are: {})".format(shown(name), some))
        return found

    def group(self, name: str) -> Group:
        for group in self.groups:
            if group.name.lower() == name.lower():
                return group
        for group in self.groups:
            if group.scope.name.lower() == name.lower() and len(group.scope.groups) == 1:
                return group
        raise RefusedError(
            "there is no group {} in the topology (there are: {})".format(
                shown(name), ", ".join(group.name for group in self.groups[:10])
            )
        )

    def _add_scope(self, fields: Fields) -> None:
        scope = Scope(fields.text("name", pattern=NAME_PATTERN), fields.choice("type", SCOPE_TYPES))
        if any(other.name.lower() == scope.name.lower() for other in self.scopes):
            raise fields.bad("name", "a name that no other scope has")
        scope.single_fault_domain = fields.flag("single_fault_domain")
        scope.flexible = fields.choice("orchestration", ("uniform", "flexible"), "uniform") == "flexible"
        policy = fields.object("scheduled_events_policy")
        scope.auto_approve_reboots = policy.flag("auto_approve_user_reboots")
        scope.auto_approve_redeploys = policy.flag("auto_approve_user_redeploys")
        policy.done()
        for key in ("single_fault_domain", "orchestration"):
            if fields.has(key) and scope.kind != SCALE_SET:
                raise ConfigError("{}: {} is for scopes of type scale_set".format(fields.where, key))
        defaults = fields.object("vm_defaults")
        self.scopes.append(scope)
        for number, vm_fields in enumerate(self._vm_objects(fields, scope, defaults)):
            self._add_vm(vm_fields, scope, number)
        fields.done()
        if not scope.vms:
            raise ConfigError("{}: vms: a scope needs at least one VM (or instances)".format(fields.where))
        self._make_groups(scope)

    def _vm_objects(self, fields: Fields, scope: Scope, defaults: Fields) -> List[Fields]:
        """The VMs of a scope: those that are listed, or as many as ``instances`` says, spread over the domains."""
        instances = fields.integer("instances", 0, 0, 100000)
        listed = fields.objects("vms")
        pattern = "{}_{}" if scope.kind == SCALE_SET else "{}-{}"
        name_format = fields.text("name_format", pattern.format(scope.name, "{}"))
        update_domains = fields.integer("update_domains", 5, 1)
        fault_domains = fields.integer("fault_domains", 1 if scope.single_fault_domain else 2, 1)
        zones = fields.texts("zones", ["1", "2", "3"] if scope.kind == ZONAL else [])
        placement_groups = fields.integer("placement_groups", 1, 1)
        if instances and listed:
            raise ConfigError("{}: give vms or instances, not both".format(fields.where))
        if name_format.count("{}") != 1 or "{" in name_format.replace("{}", ""):
            raise fields.bad("name_format", "a name with one {} for the number")
        objects = list(listed)
        for number in range(instances):
            made: Json = {
                "name": name_format.replace("{}", str(number)),
                "update_domain": 0 if scope.kind in (STANDALONE, ZONAL) else number % update_domains,
                "fault_domain": 0 if scope.kind in (STANDALONE, ZONAL) else number % fault_domains,
            }
            if zones:
                made["zone"] = zones[number % len(zones)]
            if scope.kind == SCALE_SET and placement_groups > 1:
                made["placement_group"] = "pg{}".format(number * placement_groups // instances)
            objects.append(Fields(made, "{}: instance {}".format(fields.where, number)))
        for item in objects:
            item.data = dict(defaults.data, **item.data)
        return objects

    def _add_vm(self, fields: Fields, scope: Scope, number: int) -> None:
        vm = VirtualMachine(fields.text("name", pattern=NAME_PATTERN), scope)
        if vm.name.lower() in self.by_name:
            raise fields.bad("name", "a name that no other VM has (without regard to case)")
        vm.resource_name = fields.text("resource_name", vm.name)
        vm.computer_name = fields.text("computer_name", vm.name)
        vm.instance = str(number)
        vm.update_domain = fields.integer("update_domain", 0)
        vm.fault_domain = fields.integer("fault_domain", 0)
        vm.zone = fields.text("zone", "1" if scope.kind == ZONAL else "")
        vm.priority = fields.choice("priority", ("", "Regular", "Spot", "Low"), "")
        tags = fields.raw("tags", {})
        if not isinstance(tags, dict) or not all(isinstance(value, str) for value in tags.values()):
            raise fields.bad("tags", "an object of strings")
        vm.tags = dict(tags)
        vm.placement_group = fields.text("placement_group", "pg0" if scope.kind == SCALE_SET else "")
        if vm.placement_group and scope.kind != SCALE_SET:
            raise ConfigError("{}: placement_group is for scopes of type scale_set".format(fields.where))
        vm.size = fields.text("size", vm.size)
        vm.location = fields.text("location", self.settings.location)
        vm.resource_group = fields.text("resource_group", self.settings.resource_group)
        vm.private_address = fields.text("private_address", "10.0.{}.{}".format(*divmod(len(self.vms) + 4, 256)))
        vm.netns = fields.optional_text("netns")
        address = fields.optional_text("address")
        if address is not None:
            vm.address = parse_address(address, "{}: address".format(fields.where), METADATA_PORT)
        elif vm.netns is not None:
            vm.address = (METADATA_ADDRESS, METADATA_PORT)
        vm.impact = self._impact(fields)
        for client in fields.texts("client_address"):
            try:
                client = str(ipaddress.ip_address(client))
            except ValueError:
                raise fields.bad("client_address", "one or more IP addresses") from None
            if client in self.by_client:
                raise ConfigError(
                    "{}: client_address: {} is already the address of {}".format(
                        fields.where, client, self.by_client[client].name
                    )
                )
            vm.client_addresses.append(client)
            self.by_client[client] = vm
        fields.done()
        self.by_name[vm.name.lower()] = vm
        self.vms.append(vm)
        scope.vms.append(vm)

    @staticmethod
    def _impact(fields: Fields) -> Dict[str, List[str]]:
        """The command that interrupts this VM: one list of arguments, or one per event type and ``default``."""
        value = fields.raw("impact")
        if value is None:
            return {}
        commands = value if isinstance(value, dict) else {"default": value}
        for effect, argv in commands.items():
            if effect != "default" and effect not in EVENT_TYPES:
                raise fields.bad("impact", "keys from default, " + ", ".join(EVENT_TYPES))
            if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
                raise fields.bad("impact", 'a list of arguments such as ["podman", "restart", "web1"]')
            if not os.path.isabs(argv[0]):
                raise fields.bad("impact", "an absolute path as the first argument")
        return {effect: list(argv) for effect, argv in commands.items()}

    def _make_groups(self, scope: Scope) -> None:
        """Who sees whom: everyone in the set, everyone in the placement group, or nobody but itself."""
        alone = scope.kind in (STANDALONE, ZONAL) or scope.single_fault_domain
        groups: Dict[str, Group] = {}
        several = len({vm.placement_group for vm in scope.vms}) > 1
        for vm in scope.vms:
            if alone:
                name = vm.name
            elif several:
                name = "{}/{}".format(scope.name, vm.placement_group)
            else:
                name = scope.name
            if name not in groups:
                groups[name] = Group(name, scope)
            groups[name].vms.append(vm)
            vm.group = groups[name]
        scope.groups = list(groups.values())
        self.groups.extend(scope.groups)


# ---------------------------------------------------------------------------------------------------------------------
# 6. Faults
# ---------------------------------------------------------------------------------------------------------------------

STATUS_FAULTS = {"404": 404, "410": 410, "429": 429, "500": 500, "503": 503}
BODY_FAULTS = ("empty", "cut", "not_json", "wrong_types", "huge", "odd", "no_events")
SHIFTING_FAULTS = ("delay", "first_call_delay", "clock_skew")
CONNECTION_FAULTS = ("reset", "hang")
FAULT_KINDS = tuple(sorted(STATUS_FAULTS)) + SHIFTING_FAULTS + BODY_FAULTS + CONNECTION_FAULTS
WRONG_TYPES = (
    "events_object",
    "events_null",
    "event_not_object",
    "incarnation_list",
    "incarnation_missing",
    "resources_string",
    "resources_numbers",
    "not_before_number",
    "duration_string",
    "id_number",
    "status_null",
    "document_list",
)
ODDITIES = (
    "string_incarnation",
    "wrong_weekday",
    "iso_time",
    "null_fields",
    "empty_fields",
    "absent_fields",
    "unknown_fields",
    "unknown_type",
    "lower_case_id",
    "upper_case_names",
)
HUGE_VARIANTS = ("padding", "events")
VARIANTS = {"wrong_types": WRONG_TYPES, "odd": ODDITIES, "huge": HUGE_VARIANTS}
ENDPOINTS = ("scheduledevents", "instance", "versions")


class Fault:
    """Something that goes wrong for some VMs and some requests, so many times or for such a share of them."""

    def __init__(self, number: int, fields: Fields, vms: Optional[Set[str]], until: Optional[float]) -> None:
        self.number = number
        self.kind = fields.choice("kind", FAULT_KINDS)
        self.vms = vms
        self.until = until
        self.endpoint = fields.choice("endpoint", ENDPOINTS + ("any",), "scheduledevents")
        self.method = fields.choice("method", ("GET", "POST", "any"), "any")
        self.share = fields.number("share", 1.0, 0.0, 1.0)
        self.after = fields.integer("after", 0)
        default_count = 1 if self.kind == "first_call_delay" else 0
        self.count = fields.integer("count", default_count)
        self.seconds = fields.number("seconds", 3600.0 if self.kind == "clock_skew" else 1.0, -10 * 366 * DAY)
        self.size = fields.integer("size", 4 * 1024 * 1024, 1, 256 * 1024 * 1024)
        self.processed = fields.flag("processed")
        self.variant = fields.optional_text("variant")
        if self.variant is not None and self.variant not in VARIANTS.get(self.kind, ()):
            raise fields.bad("variant", "one of {}".format(", ".join(VARIANTS.get(self.kind, ())) or "none"))
        if self.seconds < 0 and self.kind != "clock_skew":
            raise fields.bad("seconds", "a number of at least 0")
        self.hits: Dict[str, int] = {}
        self.passed: Dict[str, int] = {}

    def applies(self, vm: VirtualMachine, endpoint: str, method: str, now: float, rng: random.Random) -> bool:
        """Whether this request is hit; counts it if so. The count is per VM."""
        if self.vms is not None and vm.name not in self.vms:
            return False
        if self.endpoint not in ("any", endpoint) or self.method not in ("any", method):
            return False
        if self.until is not None and now >= self.until:
            return False
        if self.count and self.hits.get(vm.name, 0) >= self.count:
            return False
        if self.passed.get(vm.name, 0) < self.after:
            self.passed[vm.name] = self.passed.get(vm.name, 0) + 1
            return False
        if self.share < 1.0 and rng.random() >= self.share:
            return False
        self.hits[vm.name] = self.hits.get(vm.name, 0) + 1
        return True

    def chosen_variant(self, vm: VirtualMachine) -> str:
        """The variant asked for, or one after the other."""
        variants = VARIANTS[self.kind]
        return self.variant or variants[(self.hits.get(vm.name, 1) - 1) % len(variants)]

    def describe(self) -> Json:
        return {
            "fault": self.number,
            "kind": self.kind,
            "vms": sorted(self.vms) if self.vms is not None else "all",
            "endpoint": self.endpoint,
            "method": self.method,
            "count": self.count,
            "share": self.share,
            "seconds": self.seconds,
            "variant": self.variant,
            "hits": sum(self.hits.values()),
        }


# ---------------------------------------------------------------------------------------------------------------------
# 7. Events: a state machine without input or output
# ---------------------------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """What is asked for when an event is scheduled; seconds are seconds of Azure's time."""

    type: str
    source: str
    description: str
    notice: float
    duration: int
    lasts: float
    tenant_delay: float
    late: float
    impact_after: float
    interruptions: int
    turns_out: str
    fails_after: Optional[float]
    born_started: str
    away: bool
    keep_vm: bool
    event_id: str


class Event:
    """One announced interruption."""

    def __init__(self, plan: Plan, group: Group, vms: List[VirtualMachine], not_before: float, due: float) -> None:
        self.plan = plan
        self.id = plan.event_id
        self.type = plan.type
        self.group = group
        self.vms = list(vms)
        self.resources = [vm.resource_name for vm in vms]
        self.not_before = not_before
        self.due = due
        self.status = SCHEDULED
        self.approved_at: Optional[float] = None
        self.approved_by: Optional[str] = None
        self.started_at: Optional[float] = None
        self.cause = ""

    def describe(self) -> Json:
        return {
            "event": self.id,
            "type": self.type,
            "status": self.status,
            "source": self.plan.source,
            "vms": [vm.name for vm in self.vms],
            "group": self.group.name,
            "not_before": iso8601(self.not_before),
            "duration": self.plan.duration,
            "approved_by": self.approved_by,
            "approved": iso8601_micro(self.approved_at) if self.approved_at is not None else None,
            "cause": self.cause,
        }


class Approval(NamedTuple):
    """What became of one id in one approval."""

    event_id: str
    outcome: str
    event: Optional[Event]


ImpactHandler = Callable[[VirtualMachine, Event, str], None]


class Engine:
    """The simulated platform. It reads the injected clock, keeps timers and calls nothing outside but its log and
    the impact handler; ``advance`` carries out whatever has become due."""

    def __init__(self, topology: Topology, clock: Clock, log: Log) -> None:
        self.topology = topology
        self.settings = topology.settings
        self.clock = clock
        self.log = log
        self.random = random.Random(self.settings.seed)
        self.events: Dict[str, Event] = collections.OrderedDict()
        self.history: Deque[Event] = collections.deque(maxlen=HISTORY)
        self.faults: List[Fault] = []
        self.on_impact: Optional[ImpactHandler] = None
        self._fault_numbers = itertools.count(1)
        self._timers: List[Tuple[float, int, Callable[[float], None]]] = []
        self._timer_numbers = itertools.count()
        self._watchers: List[Callable[[Event, str, float], None]] = []

    # -- time --

    def at(self, due: float, action: Callable[[float], None]) -> None:
        heapq.heappush(self._timers, (due, next(self._timer_numbers), action))

    def next_due(self) -> Optional[float]:
        return self._timers[0][0] if self._timers else None

    def advance(self) -> None:
        """Carry out everything that is due, in order; what follows from it counts from when it was due."""
        now = self.clock.monotonic()
        while self._timers and self._timers[0][0] <= now:
            due, _number, action = heapq.heappop(self._timers)
            action(due)

    def watch(self, watcher: Callable[[Event, str, float], None]) -> None:
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[Event, str, float], None]) -> None:
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def _tell(self, event: Event, what: str, at: float) -> None:
        for watcher in list(self._watchers):
            watcher(event, what, at)

    # -- the service of a group: enabled, visible, incarnation --

    def poll(self, vm: VirtualMachine) -> float:
        """A VM asks for its events; the answer is how long this very call takes because it enables the service."""
        now = self.clock.monotonic()
        group = vm.seen_by
        vm.polls += 1
        vm.last_poll = now
        group.last_poll = now
        if group.enabled_at is not None:
            return 0.0
        group.enabled_at = now
        group.visible_at = now + self.settings.scaled(self.settings.arrival_seconds)
        group.documents.clear()
        self.log.add("service", group=group.name, state="enabled", vm=vm.name, incarnation=group.incarnation)
        if self.settings.arrival_seconds > 0:
            self.at(group.visible_at, lambda due: self._arrival(group))
        self.at(now + self.settings.scaled(self.settings.disable_after_seconds), lambda due: self._idle(group))
        return self.settings.scaled(self.settings.first_call_seconds)

    def _arrival(self, group: Group) -> None:
        if self.visible(group):
            self.bump(group)

    def _idle(self, group: Group) -> None:
        if group.enabled_at is None or group.last_poll is None:
            return
        limit = group.last_poll + self.settings.scaled(self.settings.disable_after_seconds)
        if limit > self.clock.monotonic():
            self.at(limit, lambda due: self._idle(group))
            return
        group.enabled_at = None
        group.visible_at = None
        group.incarnation = 1
        group.documents.clear()
        self.log.add("service", group=group.name, state="disabled", incarnation=group.incarnation)

    def visible(self, group: Group) -> List[Event]:
        """The events that a group's document shows now."""
        if group.visible_at is None or self.clock.monotonic() < group.visible_at:
            return []
        return [event for event in self.events.values() if event.group is group]

    def bump(self, group: Group, step: Optional[int] = None) -> None:
        group.incarnation += self.settings.incarnation_step if step is None else step
        group.documents.clear()

    def set_incarnation(self, group: Group, value: int) -> None:
        group.incarnation = value
        group.documents.clear()
        self.log.add("service", group=group.name, state="incarnation", incarnation=value)

    # -- the life of an event --

    def schedule(self, plan: Plan, vms: List[VirtualMachine], group: Group) -> Event:
        now = self.clock.monotonic()
        wall = self.clock.wall()
        if plan.event_id.lower() in self.events:
            raise RefusedError("there is already an event {}".format(plan.event_id))
        # NotBefore has whole seconds; the event starts exactly then, so that a client's own clock agrees.
        not_before = float(math.ceil(wall + self.settings.scaled(plan.notice)))
        due = now + (not_before - wall)
        event = Event(plan, group, vms, not_before, due)
        self.events[event.id.lower()] = event
        if plan.born_started:
            if plan.born_started == "policy":
                event.approved_at, event.approved_by = wall, "policy"
            self._tell(event, "scheduled", now)
            self._start(event, now, plan.born_started, None)
            return event
        self._log_state(event, None, "scheduled")
        self.bump(group)
        self.at(due + self.settings.scaled(plan.late), lambda at: self._start_if_scheduled(event, at, "not_before"))
        if plan.fails_after is not None:
            fails = now + self.settings.scaled(plan.fails_after)
            self.at(fails, lambda at: self._start_if_scheduled(event, at, "hardware"))
        self._tell(event, "scheduled", now)
        return event

    def find(self, event_id: str) -> Optional[Event]:
        return self.events.get(event_id.lower())

    def approve(self, vm: VirtualMachine, event_ids: Sequence[str], client: str) -> List[Approval]:
        """An approval by a VM: it counts for every resource of the event."""
        now = self.clock.monotonic()
        results = []
        for event_id in event_ids:
            event = self.find(event_id)
            if event is None or event.group is not vm.seen_by or event not in self.visible(event.group):
                outcome = "unknown"
                event = None
            elif event.status == STARTED:
                outcome = "already_started"
            elif event.approved_at is not None:
                outcome = "already_approved"
            else:
                outcome = "approved"
                event.approved_at, event.approved_by = self.clock.wall(), vm.name
            self.log.add(
                "approval",
                vm=vm.name,
                client=client,
                event=event.id if event else event_id[:MAX_LOGGED],
                outcome=outcome,
                type=event.type if event else None,
                vms=[other.name for other in event.vms] if event else [],
                not_before=iso8601(event.not_before) if event else None,
            )
            results.append(Approval(event_id, outcome, event))
            if event is not None and outcome == "approved":
                self._approved(event, now)
        return results

    def _approved(self, event: Event, now: float) -> None:
        start = min(now + self.settings.scaled(event.plan.tenant_delay), max(event.due, now))
        self._tell(event, "approved", now)
        if start <= now:
            self._start_if_scheduled(event, now, "approved")
        else:
            self.at(start, lambda at: self._start_if_scheduled(event, at, "approved"))

    def _start_if_scheduled(self, event: Event, at: float, cause: str) -> None:
        if event.status == SCHEDULED:
            self._start(event, at, cause, SCHEDULED)

    def _start(self, event: Event, at: float, cause: str, before: Optional[str]) -> None:
        event.status = STARTED
        event.started_at = at
        event.cause = cause
        self._log_state(event, before, cause)
        self.bump(event.group)
        scaled = self.settings.scaled
        lasts = scaled(event.plan.lasts)
        if event.plan.duration != 0:
            first = min(scaled(event.plan.impact_after), lasts)
            for number in range(event.plan.interruptions):
                begin = at + first + (lasts - first) * number / event.plan.interruptions
                if begin <= at:
                    self._interrupt(event, at, number)
                else:
                    self.at(begin, lambda due, number=number: self._interrupt(event, due, number))  # type: ignore[misc]
        self.at(at + lasts, lambda due: self._end(event, due, "done"))
        self._tell(event, "started", at)

    def _interrupt(self, event: Event, at: float, number: int) -> None:
        """The moment at which the VMs are really hit."""
        if event.status != STARTED:
            return
        effect = event.plan.turns_out or event.type
        seconds = float(event.plan.duration) if event.plan.duration > 0 else REAL_DURATION.get(effect, 10.0)
        for vm in event.vms:
            if event.plan.away:
                vm.away_until = max(vm.away_until, at + self.settings.scaled(seconds))
            self.log.add(
                "impact",
                event=event.id,
                vm=vm.name,
                effect=effect,
                number=number + 1,
                seconds=round(self.settings.scaled(seconds), 3),
            )
            if self.on_impact is not None:
                self.on_impact(vm, event, effect)

    def cancel(self, event: Event) -> None:
        if event.status != SCHEDULED:
            raise RefusedError("event {} has already started: it can no longer be cancelled".format(event.id))
        self._end(event, self.clock.monotonic(), "cancelled")

    def fail_now(self, event: Event) -> None:
        """The hardware fails before the announced time."""
        if event.status != SCHEDULED:
            raise RefusedError("event {} has already started".format(event.id))
        self._start(event, self.clock.monotonic(), "hardware", SCHEDULED)

    def finish(self, event: Event) -> None:
        """End a started event now rather than when its time is over."""
        if event.status != STARTED:
            raise RefusedError("event {} has not started".format(event.id))
        self._end(event, self.clock.monotonic(), "done")

    def _end(self, event: Event, at: float, cause: str) -> None:
        if event.status == GONE:
            return
        before = event.status
        event.status = GONE
        event.cause = cause
        self.events.pop(event.id.lower(), None)
        self.history.append(event)
        self._log_state(event, before, cause)
        self.bump(event.group)
        if cause == "done" and event.type in DELETING and not event.plan.keep_vm:
            for vm in event.vms:
                self.set_vm_state(vm, "deleted")
        self._tell(event, "gone", at)

    def set_vm_state(self, vm: VirtualMachine, state: str) -> None:
        """Running, deallocated or deleted; a VM that stops running loses its events."""
        if vm.state == state:
            return
        vm.state = state
        self.log.add("vm", vm=vm.name, state=state)
        if state == "running":
            return
        for event in [event for event in self.events.values() if vm in event.vms]:
            event.vms.remove(vm)
            event.resources = [other.resource_name for other in event.vms]
            if event.vms:
                self.bump(event.group)
            else:
                self._end(event, self.clock.monotonic(), state)

    def _log_state(self, event: Event, before: Optional[str], cause: str) -> None:
        self.log.add(
            "state",
            event=event.id,
            type=event.type,
            source=event.plan.source,
            vms=[vm.name for vm in event.vms],
            group=event.group.name,
            before=before,
            after=event.status,
            cause=cause,
            not_before=iso8601(event.not_before),
            approved_by=event.approved_by,
        )

    # -- faults --

    def inject(self, fields: Fields, vms: Optional[Set[str]], for_seconds: Optional[float]) -> Fault:
        now = self.clock.monotonic()
        until = None if for_seconds is None else now + self.settings.scaled(for_seconds)
        fault = Fault(next(self._fault_numbers), fields, vms, until)
        fields.done()
        self.faults.append(fault)
        details = fault.describe()
        self.log.add("fault", fault_kind=details.pop("kind"), **details)
        return fault

    def faults_for(self, vm: VirtualMachine, endpoint: str, method: str) -> List[Fault]:
        """Every fault of a kind that only shifts things, and the first that breaks something."""
        now = self.clock.monotonic()
        found: List[Fault] = []
        broken = False
        for fault in self.faults:
            shifting = fault.kind in SHIFTING_FAULTS
            if (shifting or not broken) and fault.applies(vm, endpoint, method, now, self.random):
                found.append(fault)
                broken = broken or not shifting
        return found


# ---------------------------------------------------------------------------------------------------------------------
# 8. Views: what a request sees, per API version
# ---------------------------------------------------------------------------------------------------------------------


def shown_in(event: Event, version: str) -> bool:
    """Whether a version knows this type of event at all."""
    if event.type == PREEMPT:
        return version >= PREEMPT_SINCE
    if event.type == TERMINATE:
        return version >= TERMINATE_SINCE
    return True


def event_view(event: Event, version: str, skew: float = 0.0) -> Json:
    """One event in the schema of one API version."""
    preview = version == PREVIEW_VERSION
    if event.status == STARTED:
        not_before = ""
    elif preview:
        not_before = iso8601(event.not_before + skew)
    else:
        not_before = rfc1123(event.not_before + skew)
    view: Json = collections.OrderedDict()
    view["EventId"] = event.id
    view["EventStatus"] = event.status
    view["EventType"] = event.type
    view["ResourceType"] = "VirtualMachine"
    underscore = "_" if preview and event.group.scope.kind != CLOUD_SERVICE else ""
    view["Resources"] = [underscore + name for name in event.resources]
    view["NotBefore"] = not_before
    if version >= DESCRIPTION_SINCE:
        view["Description"] = event.plan.description
    if version >= SOURCE_SINCE:
        view["EventSource"] = event.plan.source
    if version >= DURATION_SINCE:
        view["DurationInSeconds"] = event.plan.duration
    return view


def document_view(engine: Engine, group: Group, version: str, skew: float = 0.0) -> Json:
    view: Json = collections.OrderedDict()
    view["DocumentIncarnation"] = group.incarnation
    view["Events"] = [event_view(event, version, skew) for event in engine.visible(group) if shown_in(event, version)]
    return view


def document_bytes(engine: Engine, group: Group, version: str) -> bytes:
    """The document as sent; rendered once per incarnation however many VMs ask for it."""
    body = group.documents.get(version)
    if body is None:
        body = json.dumps(document_view(engine, group, version)).encode("utf-8")
        if group.visible_at is not None and engine.clock.monotonic() >= group.visible_at:
            group.documents[version] = body
    return body


def some_event(document: Json) -> Json:
    """The first event of a document, made up if there is none, so that every variant has something to spoil."""
    if not document["Events"]:
        document["Events"].append(
            {
                "EventId": "00000000-0000-0000-0000-000000000000",
                "EventStatus": SCHEDULED,
                "EventType": FREEZE,
                "ResourceType": "VirtualMachine",
                "Resources": [],
                "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT",
            }
        )
    first: Json = document["Events"][0]
    return first


def with_wrong_types(document: Json, variant: str) -> Any:
    """A document that is JSON but not what the schema promises. The instance document gets a number for its name."""
    document = copy.deepcopy(document)
    if "Events" not in document:
        return {"compute": 5} if "compute" in document else dict(document, name=5, tagsList="none")
    if variant == "document_list":
        return [document]
    if variant == "events_object":
        document["Events"] = {"0": document["Events"]}
    elif variant == "events_null":
        document["Events"] = None
    elif variant == "event_not_object":
        document["Events"] = ["event"]
    elif variant == "incarnation_list":
        document["DocumentIncarnation"] = [document["DocumentIncarnation"]]
    elif variant == "incarnation_missing":
        del document["DocumentIncarnation"]
    else:
        event = some_event(document)
        spoilt: Dict[str, Tuple[str, Any]] = {
            "resources_string": ("Resources", ",".join(event["Resources"])),
            "resources_numbers": ("Resources", list(range(len(event["Resources"]) + 1))),
            "not_before_number": ("NotBefore", 1474309787),
            "duration_string": ("DurationInSeconds", "nine"),
            "id_number": ("EventId", 7),
            "status_null": ("EventStatus", None),
        }
        key, value = spoilt[variant]
        event[key] = value
    return document


def with_oddity(document: Json, variant: str) -> Json:
    """A document that is unusual but legal; a client has to cope with it."""
    document = copy.deepcopy(document)
    if variant == "string_incarnation":
        document["DocumentIncarnation"] = str(document.get("DocumentIncarnation", ""))
    elif variant == "unknown_fields":
        document["Later"] = {"added": True}
    for event in document.get("Events", []):
        make_event_odd(event, variant)
    return document


def make_event_odd(event: Json, variant: str) -> None:
    optional = [key for key in ("Description", "EventSource", "DurationInSeconds") if key in event]
    if variant in ("null_fields", "empty_fields"):
        event.update(dict.fromkeys(optional, None if variant == "null_fields" else ""))
    elif variant == "absent_fields":
        for key in optional:
            del event[key]
    elif variant == "unknown_fields":
        event["Later"] = ["added"]
    elif variant == "unknown_type":
        event["EventType"] = "Hibernate"
    elif variant == "lower_case_id":
        event["EventId"] = event["EventId"].lower()
    elif variant == "upper_case_names":
        event["Resources"] = [name.upper() for name in event["Resources"]]
    elif event["NotBefore"][3:4] == ",":
        event["NotBefore"] = odd_time(event["NotBefore"], variant)


def odd_time(text: str, variant: str) -> str:
    """An RFC 1123 time with the wrong weekday, or as ISO 8601."""
    weekday, day, month, year, clock, _zone = text.split()
    if variant == "wrong_weekday":
        return WEEKDAYS[(WEEKDAYS.index(weekday[:3]) + 1) % 7] + text[3:]
    if variant == "iso_time":
        return "{}-{:02d}-{}T{}Z".format(year, MONTHS.index(month) + 1, day, clock)
    return text


def made_huge(document: Json, size: int, variant: str) -> Json:
    """A document of at least so many bytes: one field of padding, or events of VMs that nobody knows."""
    document = copy.deepcopy(document)
    if variant == "padding":
        document["Padding"] = "x" * size
        return document
    filler: List[Json] = []
    for number in range(size // 240 + 1):
        filler.append(
            {
                "EventId": str(uuid.uuid5(NAMESPACE, "filler {}".format(number))).upper(),
                "EventStatus": SCHEDULED,
                "EventType": FREEZE,
                "ResourceType": "VirtualMachine",
                "Resources": ["stranger_{}".format(number)],
                "NotBefore": "Mon, 19 Sep 2095 18:29:47 GMT",
                "Description": "",
                "EventSource": PLATFORM,
                "DurationInSeconds": 9,
            }
        )
    document["Events"] = document.get("Events", []) + filler
    return document


def compute_view(vm: VirtualMachine, settings: Settings, version: str) -> Json:
    """The ``compute`` part of the instance document; every primitive is a string, what does not apply is empty."""
    scope = vm.scope
    base = "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute".format(
        settings.subscription_id, vm.resource_group
    )
    in_scale_set = scope.kind == SCALE_SET
    scale_set_id = "{}/virtualMachineScaleSets/{}".format(base, scope.name)
    if in_scale_set and not scope.flexible:
        resource_id = "{}/virtualMachines/{}".format(scale_set_id, vm.instance)
        placement_group = str(uuid.uuid5(NAMESPACE, "{}/{}".format(scope.name, vm.placement_group)))
    else:
        resource_id = "{}/virtualMachines/{}".format(base, vm.name)
        placement_group = ""
    fields: List[Tuple[str, str, Any]] = [
        ("azEnvironment", "2018-10-01", "AzurePublicCloud"),
        ("customData", "2019-02-01", ""),
        ("evictionPolicy", "2020-12-01", "Delete" if vm.priority == "Spot" else ""),
        ("isHostCompatibilityLayerVm", "2020-06-01", "false"),
        ("licenseType", "2020-09-01", ""),
        ("location", "2017-04-02", vm.location),
        ("name", "2017-04-02", vm.resource_name),
        ("offer", "2017-04-02", "debian-12"),
        (
            "osProfile",
            "2020-07-15",
            {
                "adminUsername": "azureuser",
                "computerName": vm.computer_name,
                "disablePasswordAuthentication": "true",
            },
        ),
        ("osType", "2017-04-02", "Linux"),
        ("placementGroupId", "2017-08-01", placement_group),
        ("plan", "2018-04-02", {"name": "", "product": "", "publisher": ""}),
        ("platformFaultDomain", "2017-04-02", str(vm.fault_domain)),
        ("platformUpdateDomain", "2017-04-02", str(vm.update_domain)),
        ("priority", "2020-12-01", vm.priority),
        ("provider", "2018-10-01", "Microsoft.Compute"),
        ("publicKeys", "2018-04-02", []),
        ("publisher", "2017-04-02", "Debian"),
        ("resourceGroupName", "2017-08-01", vm.resource_group),
        ("resourceId", "2019-03-11", resource_id),
        ("sku", "2017-04-02", "12-gen2"),
        ("subscriptionId", "2017-08-01", settings.subscription_id),
        ("tags", "2017-08-01", ";".join("{}:{}".format(*item) for item in sorted(vm.tags.items()))),
        ("tagsList", "2019-06-04", [{"name": name, "value": value} for name, value in sorted(vm.tags.items())]),
        ("userData", "2021-01-01", ""),
        ("version", "2017-04-02", "0.20260101.1"),
        ("virtualMachineScaleSet", "2021-03-01", {"id": scale_set_id if in_scale_set and scope.flexible else ""}),
        ("vmId", "2017-04-02", str(uuid.uuid5(NAMESPACE, "vm {}".format(vm.name.lower())))),
        ("vmScaleSetName", "2017-12-01", scope.name if in_scale_set else ""),
        ("vmSize", "2017-04-02", vm.size),
        ("zone", "2017-12-01", vm.zone),
    ]
    return collections.OrderedDict((key, value) for key, since, value in fields if version >= since)


def instance_view(vm: VirtualMachine, settings: Settings, version: str) -> Json:
    number = vm.private_address.rsplit(".", 2)[-2:]
    interface = {
        "ipv4": {
            "ipAddress": [{"privateIpAddress": vm.private_address, "publicIpAddress": ""}],
            "subnet": [{"address": "10.0.0.0", "prefix": "16"}],
        },
        "ipv6": {"ipAddress": []},
        "macAddress": "000D3A00" + "".join("{:02X}".format(int(part)) for part in number if part.isdigit()),
    }
    return collections.OrderedDict(
        [("compute", compute_view(vm, settings, version)), ("network", {"interface": [interface]})]
    )


def text_view(value: Any) -> str:
    """``format=text``: a leaf is its value, a node is the list of what is below it."""
    if isinstance(value, dict):
        return "\n".join(key + ("/" if isinstance(value[key], (dict, list)) else "") for key in sorted(value))
    if isinstance(value, list):
        return "\n".join("{}/".format(number) for number in range(len(value)))
    return str(value)


# ---------------------------------------------------------------------------------------------------------------------
# 9. Scenarios
# ---------------------------------------------------------------------------------------------------------------------


def pick_groups(topology: Topology, fields: Fields) -> List[Group]:
    """The groups that a selector means. A number counts through the groups and wraps around: it fits any topology."""
    value = fields.raw("group", "all")
    groups = topology.groups
    kinds = fields.texts("prefer_type")
    groups = [group for group in groups if group.scope.kind in kinds] or groups
    if value == "all":
        return list(groups)
    if isinstance(value, str):
        return [topology.group(value)]
    if isinstance(value, bool) or not isinstance(value, int):
        raise fields.bad("group", "a number, a name or all")
    return [groups[value % len(groups)]]


def pick_domains(group: Group, fields: Fields) -> List[VirtualMachine]:
    """The VMs of one domain, by its rank among the domains that are really there, wrapping around."""
    value = fields.raw("domain")
    count = fields.integer("domains", 1, 1)
    if value is None:
        return list(group.vms)
    if isinstance(value, bool) or not isinstance(value, int):
        raise fields.bad("domain", "a number: 0 is the first update domain of the group")
    present = sorted({vm.update_domain for vm in group.vms})
    chosen = {present[(value + offset) % len(present)] for offset in range(count)}
    return [vm for vm in group.vms if vm.update_domain in chosen]


def select(topology: Topology, selector: Any, where: str) -> List[Tuple[Group, List[VirtualMachine]]]:
    """The VMs that a selector means, by group, because an event never reaches beyond one."""
    fields = Fields(selector, where)
    names = fields.texts("names")
    groups = pick_groups(topology, fields)
    prefer = fields.object("prefer")
    priority = prefer.optional_text("priority")
    zone = prefer.optional_text("zone")
    tags = prefer.raw("tags", {})
    if not isinstance(tags, dict):
        raise prefer.bad("tags", "an object of strings")
    prefer.done()
    index = fields.raw("index")
    if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
        raise fields.bad("index", "a number")
    limit = fields.integer("limit", 0)
    wanted = {topology.vm(name).name for name in names}

    def preferred(vm: VirtualMachine) -> bool:
        return (
            (priority is None or vm.priority == priority)
            and (zone is None or vm.zone == zone)
            and all(vm.tags.get(key) == value for key, value in tags.items())
        )

    candidates = [(group, pick_domains(group, fields)) for group in groups]
    fields.done()
    candidates = [(group, [vm for vm in vms if not wanted or vm.name in wanted]) for group, vms in candidates]
    running = [(group, [vm for vm in vms if vm.state == "running"]) for group, vms in candidates]
    best = [(group, [vm for vm in vms if preferred(vm)]) for group, vms in running]
    if not any(vms for _group, vms in best):
        best = running
    best = [(group, vms) for group, vms in best if vms]
    if index is not None and best:
        flat = [(group, vm) for group, vms in best for vm in vms]
        group, vm = flat[index % len(flat)]
        best = [(group, [vm])]
    return [(group, vms[:limit] if limit else vms) for group, vms in best]


EVENT_KEYS = (
    "vms",
    "group",
    "type",
    "source",
    "description",
    "notice",
    "duration",
    "lasts",
    "tenant_delay",
    "late",
    "impact_after",
    "interruptions",
    "turns_out",
    "fails_after",
    "predicted",
    "auto_approved",
    "away",
    "keep_vm",
    "event_id",
)
FAULT_KEYS = (
    "kind",
    "vms",
    "count",
    "share",
    "seconds",
    "for_seconds",
    "after",
    "endpoint",
    "method",
    "variant",
    "size",
    "processed",
)
SCENARIO_KEYS: Dict[str, Sequence[str]] = {
    "schedule": EVENT_KEYS,
    "fail_hardware": EVENT_KEYS,
    "inject": FAULT_KEYS,
    "incarnation": ("skip", "value"),
    "cancel": (),
    "finish": (),
    "clear_faults": ("fault",),
    "deallocate": (),
    "start_vm": (),
}
"""What a scenario can do, and the keys of the command that each step may give."""
STEP_KEYS = ("do", "at", "when", "as", "event", "select", "one_event_each", "each_domain", "in_turn")


class Scenario:
    """A story: steps that happen at a time, or when something happens to an event of an earlier step."""

    def __init__(self, data: Any, where: str) -> None:
        fields = Fields(data, where)
        self.name = fields.text("name")
        self.description = fields.text("description")
        self.steps = fields.objects("steps")
        fields.done()
        if not self.steps:
            raise ConfigError("{}: steps: at least one step is needed".format(where))
        labels: Set[str] = set()
        for step in self.steps:
            self._check(step, labels)

    @staticmethod
    def _check(step: Fields, labels: Set[str]) -> None:
        verb = step.choice("do", list(SCENARIO_KEYS))
        for key in STEP_KEYS + tuple(SCENARIO_KEYS[verb]):
            step.raw(key)
        step.done()
        step.number("at", 0.0)
        when = step.raw("when")
        if when is not None:
            fields = step.object("when")
            label = fields.text("event")
            fields.choice("is", ("scheduled", "approved", "started", "gone"))
            fields.done()
            if label not in labels:
                raise fields.bad("event", "the label (as) of an earlier step")
        step.optional_number("in_turn")
        label_used = step.optional_text("event")
        if label_used is not None and label_used not in labels:
            raise step.bad("event", "the label (as) of an earlier step")
        label_made = step.optional_text("as")
        if label_made is not None:
            labels.add(label_made)


class Player:
    """Plays one scenario on one engine; the timers are the engine's."""

    def __init__(self, commands: "Commands", scenario: Scenario) -> None:
        self.commands = commands
        self.engine = commands.engine
        self.scenario = scenario
        self.labels: Dict[str, List[str]] = collections.defaultdict(list)
        self.reached: Dict[str, Set[str]] = collections.defaultdict(set)
        self.unfinished: Dict[str, List[List[str]]] = {}
        self.waiting: List[Tuple[Fields, str, str]] = []

    def start(self) -> None:
        now = self.engine.clock.monotonic()
        self.engine.log.add("scenario", scenario=self.scenario.name, state="started")
        for step in self.scenario.steps:
            if step.raw("when") is None:
                self._later(step, now)
            else:
                when = step.object("when")
                self.waiting.append((step, when.text("event"), when.text("is")))
        if self.waiting:
            self.engine.watch(self._happened)
        self.engine.advance()

    def _later(self, step: Fields, base: float) -> None:
        due = base + self.engine.settings.scaled(step.number("at", 0.0))
        self.engine.at(due, lambda at: self._run(step, at))

    def _happened(self, event: Event, what: str, at: float) -> None:
        self.reached[event.id].add(what)
        self._release(at)

    def _release(self, at: float) -> None:
        """Steps whose time has come: all events of the label have got there."""
        for item in list(self.waiting):
            step, label, wanted = item
            events = self.labels.get(label)
            if (
                events
                and not self.unfinished.get(label)
                and all(wanted in self.reached[event_id] for event_id in events)
            ):
                self.waiting.remove(item)
                self._later(step, at)
        if not self.waiting:
            self.engine.unwatch(self._happened)

    def _run(self, step: Fields, at: float) -> None:
        verb = step.text("do")
        rest = {key: value for key, value in step.data.items() if key not in STEP_KEYS}
        try:
            self._carry_out(step, verb, rest)
            self._release(at)
        except SimulatorError as error:
            self.engine.log.add("scenario", scenario=self.scenario.name, state="failed", step=verb, error=str(error))

    def _carry_out(self, step: Fields, verb: str, rest: Json) -> None:
        run = self.commands.execute
        label = step.optional_text("event")
        if verb in ("schedule", "fail_hardware") and label is None:
            label = step.text("as", "")
            targets = self._targets(step)
            pause = step.optional_number("in_turn")
            if pause is None:
                self.labels[label].extend(run(verb, dict(rest, vms=vms))["event"] for vms in targets)
            else:
                self._take_turns(verb, rest, label, targets, pause)
        elif label is not None:
            for event_id in self.labels[label]:
                if self.engine.find(event_id) is not None:
                    run(verb, dict(rest, event=event_id))
        elif verb in ("inject", "deallocate", "start_vm"):
            chosen = self._selected(step) if step.has("select") else []
            names = [vm.name for _group, vms in chosen for vm in vms]
            run(verb, dict(rest, vms=names) if names else rest)
        elif verb == "incarnation":
            for group, _vms in self._selected(step):
                run(verb, dict(rest, group=group.name))
        else:
            run(verb, rest)

    def _take_turns(self, verb: str, rest: Json, label: str, targets: List[List[str]], pause: float) -> None:
        """One event, and the next one so long after it is gone."""
        self.unfinished[label] = targets[1:]
        if not targets:
            return
        try:
            made: str = self.commands.execute(verb, dict(rest, vms=targets[0]))["event"]
        except SimulatorError as error:
            self.engine.log.add("scenario", scenario=self.scenario.name, state="failed", step=verb, error=str(error))
            return
        self.labels[label].append(made)

        def gone(event: Event, what: str, at: float) -> None:
            if event.id == made and what == "gone":
                self.engine.unwatch(gone)
                due = at + self.engine.settings.scaled(pause)
                self.engine.at(due, lambda _due: self._take_turns(verb, rest, label, targets[1:], pause))

        self.engine.watch(gone)

    def _selected(self, step: Fields) -> List[Tuple[Group, List[VirtualMachine]]]:
        return select(self.engine.topology, step.raw("select", {}), "{}: select".format(step.where))

    def _targets(self, step: Fields) -> List[List[str]]:
        """The VMs of each event that a step makes: one per group, per domain, or per VM."""
        targets: List[List[str]] = []
        for _group, vms in self._selected(step):
            names = [vm.name for vm in vms]
            if step.flag("one_event_each"):
                targets.extend([name] for name in names)
            elif step.flag("each_domain"):
                for domain in sorted({vm.update_domain for vm in vms}):
                    targets.append([vm.name for vm in vms if vm.update_domain == domain])
            else:
                targets.append(names)
        return targets


def scenario_directory() -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "scenarios")


def shipped_scenarios() -> List[str]:
    try:
        return sorted(name[:-5] for name in os.listdir(scenario_directory()) if name.endswith(".json"))
    except OSError:
        return []


def load_scenario(name: str) -> Scenario:
    """A scenario by the path of its file or, without a slash, by the name of a shipped one."""
    if "/" in name or os.path.exists(name):
        return Scenario(read_json(name), name)
    return shipped_scenario(name[:-5] if name.endswith(".json") else name)


def shipped_scenario(name: str) -> Scenario:
    """A scenario by name alone: who only has the control API opens no other file on this machine."""
    if name not in shipped_scenarios():
        raise ConfigError("there is no scenario {} (shipped: {})".format(shown(name), ", ".join(shipped_scenarios())))
    path = os.path.join(scenario_directory(), "{}.json".format(name))
    return Scenario(read_json(path), path)


# ---------------------------------------------------------------------------------------------------------------------
# 10. Commands: the one set of verbs behind Python, control API and command line
# ---------------------------------------------------------------------------------------------------------------------


class Commands:
    """Checks what is asked for and hands it to the engine. Every command takes and returns a JSON object."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.topology = engine.topology
        self.scenarios: List[Player] = []
        self.verbs: Dict[str, Callable[[Fields], Json]] = {
            "schedule": self._schedule,
            "cancel": self._cancel,
            "finish": self._finish,
            "fail_hardware": self._fail_hardware,
            "inject": self._inject,
            "clear_faults": self._clear_faults,
            "incarnation": self._incarnation,
            "deallocate": self._deallocate,
            "start_vm": self._start_vm,
            "play": self._play,
            "status": self._status,
            "log": self._log,
        }

    def execute(self, verb: str, data: Any) -> Json:
        """Carry out one command; anything wrong with it is a SimulatorError that says what."""
        if verb not in self.verbs:
            raise ConfigError("there is no command {} (there are: {})".format(shown(verb), ", ".join(self.verbs)))
        self.engine.advance()
        result = self.verbs[verb](Fields(data, verb))
        self.engine.advance()
        return result

    def _vms(self, fields: Fields) -> List[VirtualMachine]:
        names = fields.texts("vms")
        vms = [self.topology.vm(name) for name in names]
        if len(set(vms)) != len(vms):
            raise fields.bad("vms", "every VM once")
        return vms

    def _event(self, fields: Fields) -> Event:
        """One live event, by its id or an unambiguous beginning of it."""
        wanted = fields.text("event").lower()
        found = [event for key, event in self.engine.events.items() if key.startswith(wanted)] if wanted else []
        exact = [event for event in found if event.id.lower() == wanted]
        if len(exact or found) != 1:
            live = ", ".join(event.id for event in self.engine.events.values()) or "none"
            what = "no event" if not found else "more than one event"
            raise RefusedError("{} with id {} (live events: {})".format(what, shown(fields.data["event"]), live))
        return (exact or found)[0]

    def _target(self, fields: Fields) -> Tuple[Group, List[VirtualMachine]]:
        vms = self._vms(fields)
        group_name = fields.optional_text("group")
        if not vms:
            if group_name is None:
                raise ConfigError("{}: vms: name at least one VM (or a group, for an empty list)".format(fields.where))
            return self.topology.group(group_name), []
        groups = {vm.seen_by.name for vm in vms}
        if len(groups) > 1:
            raise RefusedError(
                "an event reaches only VMs that see each other; these are in {}".format(", ".join(sorted(groups)))
            )
        gone = [vm.name for vm in vms if vm.state != "running"]
        if gone:
            raise RefusedError("VM {} is {}: it cannot have events".format(gone[0], self.topology.vm(gone[0]).state))
        return vms[0].seen_by, vms

    def _plan(self, fields: Fields, group: Group, hardware: bool = False) -> Plan:
        default_type = REDEPLOY if hardware else None
        kind = fields.text("type", default_type)
        source = fields.choice("source", (PLATFORM, USER), PLATFORM)
        predicted = fields.flag("predicted")
        born_started = "hardware" if hardware else ""
        policy = group.scope
        auto = (kind == REBOOT and policy.auto_approve_reboots) or (kind == REDEPLOY and policy.auto_approve_redeploys)
        if fields.flag("auto_approved") or (source == USER and auto and not hardware):
            born_started = "policy"
        description = DESCRIPTIONS.get((kind, source), "")
        description = HARDWARE_DESCRIPTION if hardware else PREDICTED_DESCRIPTION if predicted else description
        notice = PREDICTED_NOTICE if predicted else MINIMUM_NOTICE.get(kind, DEFAULT_NOTICE)
        plan = Plan(
            type=kind,
            source=source,
            description=fields.text("description", description),
            notice=0.0 if born_started else fields.number("notice", notice),
            duration=fields.integer("duration", ANNOUNCED_DURATION.get(kind, -1), -1),
            lasts=fields.number("lasts", DEFAULT_LASTS),
            tenant_delay=fields.number("tenant_delay", 0.0),
            late=fields.number("late", 0.0),
            impact_after=fields.number("impact_after", 0.0),
            interruptions=fields.integer("interruptions", 1, 0, 100),
            turns_out=fields.text("turns_out", ""),
            fails_after=fields.optional_number("fails_after"),
            born_started=born_started,
            away=fields.flag("away"),
            keep_vm=fields.flag("keep_vm"),
            event_id=fields.text("event_id", str(uuid.uuid4()).upper(), pattern=r"^[A-Za-z0-9-]{1,64}$"),
        )
        fields.raw("notice")
        fields.done()
        return plan

    def _schedule(self, fields: Fields) -> Json:
        group, vms = self._target(fields)
        return self.engine.schedule(self._plan(fields, group), vms, group).describe()

    def _cancel(self, fields: Fields) -> Json:
        event = self._event(fields)
        fields.done()
        self.engine.cancel(event)
        return event.describe()

    def _finish(self, fields: Fields) -> Json:
        event = self._event(fields)
        fields.done()
        self.engine.finish(event)
        return event.describe()

    def _fail_hardware(self, fields: Fields) -> Json:
        """Without notice for VMs, or before its time for an event that was predicted."""
        if fields.has("event"):
            event = self._event(fields)
            fields.done()
            self.engine.fail_now(event)
            return event.describe()
        group, vms = self._target(fields)
        return self.engine.schedule(self._plan(fields, group, hardware=True), vms, group).describe()

    def _inject(self, fields: Fields) -> Json:
        vms = self._vms(fields)
        for_seconds = fields.optional_number("for_seconds")
        fault = self.engine.inject(fields, {vm.name for vm in vms} if vms else None, for_seconds)
        return fault.describe()

    def _clear_faults(self, fields: Fields) -> Json:
        number = fields.integer("fault", 0)
        fields.done()
        before = len(self.engine.faults)
        self.engine.faults = [fault for fault in self.engine.faults if number and fault.number != number]
        cleared = before - len(self.engine.faults)
        if number and not cleared:
            raise RefusedError("there is no fault {}".format(number))
        self.engine.log.add("fault", cleared=cleared)
        return {"cleared": cleared}

    def _incarnation(self, fields: Fields) -> Json:
        """Skip numbers, start again, or set one."""
        group = self.topology.group(fields.text("group"))
        skip = fields.integer("skip", 0)
        value = fields.integer("value", group.incarnation + skip, 1)
        fields.done()
        self.engine.set_incarnation(group, value)
        return {"group": group.name, "incarnation": group.incarnation}

    def _deallocate(self, fields: Fields) -> Json:
        return self._vm_state(fields, "deallocated")

    def _start_vm(self, fields: Fields) -> Json:
        return self._vm_state(fields, "running")

    def _vm_state(self, fields: Fields, state: str) -> Json:
        vms = self._vms(fields)
        fields.done()
        if not vms:
            raise ConfigError("{}: vms: name at least one VM".format(fields.where))
        for vm in vms:
            self.engine.set_vm_state(vm, state)
        return {"vms": [vm.name for vm in vms], "state": state}

    def _play(self, fields: Fields) -> Json:
        """The scenario travels whole, so that the caller's file is read by the caller."""
        story = fields.raw("scenario")
        fields.done()
        scenario = shipped_scenario(story) if isinstance(story, str) else Scenario(story, "scenario")
        player = Player(self, scenario)
        self.scenarios.append(player)
        player.start()
        return {"scenario": scenario.name, "description": scenario.description, "steps": len(scenario.steps)}

    def _status(self, fields: Fields) -> Json:
        gone = fields.flag("gone")
        fields.done()
        now = self.engine.clock.monotonic()
        events = []
        for event in list(self.engine.history if gone else []) + list(self.engine.events.values()):
            left = round(event.due - now, 1) if event.status == SCHEDULED else None
            events.append(dict(event.describe(), seconds_left=left))
        vms = []
        for vm in self.topology.vms:
            vms.append(
                {
                    "vm": vm.name,
                    "group": vm.seen_by.name,
                    "type": vm.scope.kind,
                    "update_domain": vm.update_domain,
                    "fault_domain": vm.fault_domain,
                    "zone": vm.zone,
                    "state": vm.state,
                    "polls": vm.polls,
                    "last_poll_seconds": None if vm.last_poll is None else round(now - vm.last_poll, 1),
                    "incarnation": vm.seen_by.incarnation,
                    "events": [event.id for event in self.engine.events.values() if vm in event.vms],
                }
            )
        return {
            "time_scale": self.engine.settings.time_scale,
            "vms": vms,
            "events": events,
            "faults": [fault.describe() for fault in self.engine.faults],
            "log": {"entries": self.engine.log.last, "file": self.engine.log.path},
        }

    def _log(self, fields: Fields) -> Json:
        since = fields.integer("since", 0)
        kinds = fields.texts("kinds")
        vm = fields.optional_text("vm")
        fields.done()
        return {"entries": self.engine.log.entries(since, kinds, vm), "last": self.engine.log.last}


# ---------------------------------------------------------------------------------------------------------------------
# 11. HTTP: a small HTTP/1.1 server on asyncio protocols
# ---------------------------------------------------------------------------------------------------------------------

REASONS = http.client.responses
JSON_TYPE = "application/json; charset=utf-8"
TEXT_TYPE = "text/plain; charset=utf-8"
SEND, RESET, HANG, CUT = "send", "reset", "hang", "cut"


class Request(NamedTuple):
    """One parsed request; header names are in lower case."""

    method: str
    target: str
    headers: Dict[str, str]
    body: bytes
    client: str


class Response(NamedTuple):
    """One answer, or the way in which there is none."""

    status: int
    body: bytes = b""
    content_type: str = JSON_TYPE
    how: str = SEND
    skew: float = 0.0
    headers: Sequence[Tuple[str, str]] = ()


class Step(NamedTuple):
    """How a request goes on: wait, then call for the answer."""

    delay: float
    answer: Callable[[], Response]


def json_response(status: int, value: Any) -> Response:
    return Response(status, json.dumps(value).encode("utf-8"))


def error_response(status: int, message: str, **more: Any) -> Response:
    return json_response(status, dict({"error": message}, **more))


class BadRequest(Exception):
    """Something that is not HTTP as this server speaks it."""

    def __init__(self, status: int, message: str) -> None:
        Exception.__init__(self, message)
        self.status = status


class HttpProtocol(asyncio.Protocol):
    """One connection: keep-alive, one request at a time, nothing that a metadata client does not need."""

    def __init__(
        self,
        handler: Callable[[Request], Step],
        loop: asyncio.AbstractEventLoop,
        connections: Set["HttpProtocol"],
        clock: Clock,
    ) -> None:
        self.handler = handler
        self.loop = loop
        self.connections = connections
        self.clock = clock
        self.transport: Optional[asyncio.Transport] = None
        self.buffer = b""
        self.busy = False
        self.client = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.connections.add(self)
        peer = transport.get_extra_info("peername")
        self.client = str(peer[0]) if isinstance(peer, tuple) else "unix"

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self.connections.discard(self)
        self.transport = None

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self._go_on()

    def _go_on(self) -> None:
        while self.transport is not None and not self.busy:
            try:
                request = self._parse()
            except BadRequest as error:
                self.buffer = b""
                self._send(error_response(error.status, str(error)), False)
                return
            if request is None:
                return
            self._handle(request)

    def _handle(self, request: Request) -> None:
        keep = request.headers.get("connection", "").lower() != "close" and request.headers[":version"] != "HTTP/1.0"
        step = self.handler(request)
        if step.delay > 0:
            self.busy = True
            self.loop.call_later(step.delay, self._answer, step, keep)
        else:
            self._answer(step, keep)

    def _answer(self, step: Step, keep: bool) -> None:
        response = step.answer()
        self.busy = False
        if self.transport is None:
            return
        if response.how == HANG:
            self.busy = True
        elif response.how == RESET:
            self._reset()
        else:
            self._send(response, keep)
            self._go_on()

    def _parse(self) -> Optional[Request]:
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self.buffer) > MAX_HEADER:
                raise BadRequest(431, "the header is longer than {} bytes".format(MAX_HEADER))
            return None
        lines = self.buffer[:end].decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0") or not words[1].startswith("/"):
            raise BadRequest(400, "not an HTTP/1.1 request")
        headers: Dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                raise BadRequest(400, "a header line without a colon")
            headers[name.lower()] = value.strip()
        headers[":version"] = words[2]
        length = self._length(headers)
        if len(self.buffer) < end + 4 + length:
            if headers.get("expect", "").lower() == "100-continue" and len(self.buffer) == end + 4:
                self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return None
        body = self.buffer[end + 4 : end + 4 + length]
        self.buffer = self.buffer[end + 4 + length :]
        return Request(words[0], words[1], headers, body, self.client)

    @staticmethod
    def _length(headers: Dict[str, str]) -> int:
        if "transfer-encoding" in headers:
            raise BadRequest(411, "send Content-Length, not Transfer-Encoding")
        text = headers.get("content-length", "0")
        if not re.match(r"^[0-9]{1,12}$", text):
            raise BadRequest(400, "a bad Content-Length")
        if int(text) > MAX_BODY:
            raise BadRequest(413, "the body is longer than {} bytes".format(MAX_BODY))
        return int(text)

    def _send(self, response: Response, keep: bool) -> None:
        keep = keep and response.how == SEND
        lines = [
            "HTTP/1.1 {} {}".format(response.status, REASONS.get(response.status, "Unknown")),
            "Content-Type: {}".format(response.content_type),
            "Server: IMDS/azops-simulator",
            "Date: {}".format(rfc1123(self.clock.wall() + response.skew)),
            "Content-Length: {}".format(len(response.body)),
        ]
        lines.extend("{}: {}".format(*header) for header in response.headers)
        if not keep:
            lines.append("Connection: close")
        body = response.body[: len(response.body) // 2] if response.how == CUT else response.body
        self._write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        if not keep and self.transport is not None:
            self.transport.close()

    def _write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def _reset(self) -> None:
        """Close so that the peer sees a reset, not an end."""
        if self.transport is None:
            return
        raw = self.transport.get_extra_info("socket")
        if raw is not None and raw.family != socket.AF_UNIX:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()


# ---------------------------------------------------------------------------------------------------------------------
# 12. The metadata service
# ---------------------------------------------------------------------------------------------------------------------

NO_HEADER = "Bad request. Required metadata header not specified"
FORWARDED = "Bad request. Request header X-Forwarded-For is not allowed"
NO_VERSION = "Bad request. api-version was not specified in the request. For more information refer to aka.ms/azureimds"
BAD_VERSION = "Bad request. api-version is invalid. For more information refer to aka.ms/azureimds"
LEAF_NEEDS_TEXT = "Bad request. A leaf of the document is only available with format=text"
NOT_HTML = b"<!DOCTYPE html><html><head><title>Service unavailable</title></head><body>Our services aren't here</body>"


class MetadataService:
    """Answers requests as Azure's metadata service would; one instance for all listeners."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.topology = engine.topology
        self.settings = engine.settings
        self.log = engine.log

    def handler(self, vm: Optional[VirtualMachine]) -> Callable[[Request], Step]:
        """What a listener calls; a listener of one VM knows whose requests it gets."""

        def handle(request: Request) -> Step:
            return self.handle(request, vm)

        return handle

    def handle(self, request: Request, bound: Optional[VirtualMachine]) -> Step:
        self.engine.advance()
        path, _mark, query_text = request.target.partition("?")
        path = urllib.parse.unquote(path)
        vm, path = self._who(request, bound, path)
        if vm is None:
            response = error_response(404, "the simulator knows no VM for this request: use /vm/NAME/metadata/...")
            return self._now(request, None, "", (), response)
        if vm.state != "running" or vm.away_until > self.engine.clock.monotonic():
            return self._now(request, vm, "", (), Response(0, how=RESET))
        if self._too_many(vm):
            return self._now(request, vm, "", (), error_response(429, "Too many requests"))
        parts = [part for part in path.split("/") if part]
        endpoint = parts[1].lower() if len(parts) > 1 and parts[0].lower() == "metadata" else ""
        query = dict(urllib.parse.parse_qsl(query_text, keep_blank_values=True))
        faults = self.engine.faults_for(vm, endpoint, request.method) if self.engine.faults else []
        return self._process(request, vm, endpoint, parts[2:], query, faults)

    def _who(
        self, request: Request, bound: Optional[VirtualMachine], path: str
    ) -> Tuple[Optional[VirtualMachine], str]:
        """Listening address first, then URL prefix, then client address, then the only VM there is."""
        if bound is not None:
            return bound, path
        if path.startswith("/vm/"):
            name, _slash, rest = path[4:].partition("/")
            return self.topology.by_name.get(name.lower()), "/" + rest
        known = self.topology.by_client.get(request.client)
        if known is None and len(self.topology.vms) == 1:
            known = self.topology.vms[0]
        return known, path

    def _too_many(self, vm: VirtualMachine) -> bool:
        """Whether this is more than the allowed number of requests within one second of real time."""
        limit = self.settings.rate_limit
        if not limit:
            return False
        now = self.engine.clock.monotonic()
        recent = vm.recent
        while recent and recent[0] <= now - 1.0:
            recent.popleft()
        if len(recent) >= limit:
            return True
        recent.append(now)
        return False

    def _process(
        self,
        request: Request,
        vm: VirtualMachine,
        endpoint: str,
        rest: List[str],
        query: Dict[str, str],
        faults: List[Fault],
    ) -> Step:
        delay = sum(fault.seconds for fault in faults if fault.kind in ("delay", "first_call_delay"))
        skew = sum(fault.seconds for fault in faults if fault.kind == "clock_skew")
        breaking = [fault for fault in faults if fault.kind not in SHIFTING_FAULTS]
        fault = breaking[0] if breaking else None
        refusal = self._refusal(request, endpoint, query)
        reads = endpoint == "scheduledevents" and request.method == "GET"
        if reads and refusal is None and (fault is None or fault.kind in BODY_FAULTS):
            delay += self.engine.poll(vm)

        def work() -> Response:
            self.engine.advance()
            if refusal is not None:
                return refusal
            return self._route(request, vm, endpoint, rest, query, skew, fault)

        def finish(response: Response) -> Response:
            self._log(request, vm, endpoint, faults, response, delay)
            return response

        if fault is not None and (fault.kind in STATUS_FAULTS or fault.kind in CONNECTION_FAULTS):
            if fault.processed:
                work()
            broken = self._broken(fault)
            return Step(delay, lambda: finish(broken))
        if request.method == "POST":
            # What is approved is approved when it arrives, however long the answer takes.
            response = self._spoilt(work(), fault)
            return Step(delay, lambda: finish(response))
        return Step(delay, lambda: finish(self._spoilt(work(), fault)))

    @staticmethod
    def _broken(fault: Fault) -> Response:
        if fault.kind in CONNECTION_FAULTS:
            return Response(0, how=RESET if fault.kind == "reset" else HANG)
        status = STATUS_FAULTS[fault.kind]
        return error_response(status, REASONS.get(status, "Error"))

    @staticmethod
    def _spoilt(response: Response, fault: Optional[Fault]) -> Response:
        """Faults that leave the status alone and spoil the body."""
        if fault is None or response.status != 200:
            return response
        if fault.kind == "empty":
            return response._replace(body=b"")
        if fault.kind == "cut":
            return response._replace(how=CUT)
        if fault.kind == "not_json":
            return response._replace(body=NOT_HTML, content_type="text/html")
        return response

    def _refusal(self, request: Request, endpoint: str, query: Dict[str, str]) -> Optional[Response]:
        """The checks that Azure makes before it looks at anything else."""
        if endpoint not in ENDPOINTS:
            return error_response(404, "Not found")
        if "x-forwarded-for" in request.headers:
            return error_response(400, FORWARDED)
        version = query.get("api-version", "")
        preview = endpoint == "scheduledevents" and version == PREVIEW_VERSION
        if not preview and request.headers.get("metadata", "").lower() != "true":
            return error_response(400, NO_HEADER)
        methods = ("GET", "POST") if endpoint == "scheduledevents" else ("GET",)
        if request.method not in methods:
            return error_response(405, "Method not allowed")
        if endpoint == "versions":
            return None
        known = EVENT_VERSIONS if endpoint == "scheduledevents" else INSTANCE_VERSIONS
        if version not in known:
            newest = list(reversed(known))[:NEWEST_SHOWN]
            return error_response(400, BAD_VERSION if version else NO_VERSION, **{"newest-versions": newest})
        return None

    def _route(
        self,
        request: Request,
        vm: VirtualMachine,
        endpoint: str,
        rest: List[str],
        query: Dict[str, str],
        skew: float,
        fault: Optional[Fault],
    ) -> Response:
        if endpoint == "versions":
            return json_response(200, {"apiVersions": sorted(set(EVENT_VERSIONS + INSTANCE_VERSIONS))})
        version = query["api-version"]
        if endpoint == "instance":
            return self._instance(vm, version, rest, query, fault)
        if rest:
            return error_response(404, "Not found")
        if request.method == "POST":
            return self._approve(request, vm)
        return self._document(vm, version, skew, fault)

    def _document(self, vm: VirtualMachine, version: str, skew: float, fault: Optional[Fault]) -> Response:
        group = vm.seen_by
        if fault is None and not skew:
            return Response(200, document_bytes(self.engine, group, version))
        document: Any = document_view(self.engine, group, version, skew)
        if fault is not None:
            if fault.kind == "no_events":
                document["Events"] = []
            document = self._changed(document, vm, fault)
        return json_response(200, document)._replace(skew=skew)

    @staticmethod
    def _changed(document: Any, vm: VirtualMachine, fault: Fault) -> Any:
        if fault.kind == "wrong_types":
            return with_wrong_types(document, fault.chosen_variant(vm))
        if fault.kind == "odd":
            return with_oddity(document, fault.chosen_variant(vm))
        if fault.kind == "huge":
            return made_huge(document, fault.size, fault.variant or HUGE_VARIANTS[0])
        return document

    def _instance(
        self, vm: VirtualMachine, version: str, rest: List[str], query: Dict[str, str], fault: Optional[Fault]
    ) -> Response:
        how = query.get("format", "json").lower()
        if how not in ("json", "text"):
            return error_response(400, "Bad request. Unknown format {}".format(shown(how)))
        if version not in vm.instance_documents:
            vm.instance_documents[version] = instance_view(vm, self.settings, version)
        value: Any = vm.instance_documents[version]
        for part in rest:
            if isinstance(value, dict):
                names = {name.lower(): name for name in value}
                if part.lower() not in names:
                    return error_response(404, "Not found")
                value = value[names[part.lower()]]
            elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
                value = value[int(part)]
            else:
                return error_response(404, "Not found")
        if how == "text":
            return Response(200, text_view(value).encode("utf-8"), TEXT_TYPE)
        if not isinstance(value, (dict, list)):
            return error_response(400, LEAF_NEEDS_TEXT)
        if fault is not None and isinstance(value, dict):
            value = self._changed(value, vm, fault)
        return json_response(200, value)

    def _approve(self, request: Request, vm: VirtualMachine) -> Response:
        try:
            event_ids = start_requests(request.body)
        except ValueError as error:
            self.log.add(
                "approval", vm=vm.name, client=request.client, event=None, outcome="malformed", error=str(error)
            )
            return error_response(400, "Bad request. {}".format(error))
        outcomes = [result.outcome for result in self.engine.approve(vm, event_ids, request.client)]
        if "unknown" in outcomes and self.settings.unknown_event_status != 200:
            return error_response(self.settings.unknown_event_status, "Bad request. Unknown event")
        if "already_started" in outcomes and self.settings.started_event_status != 200:
            return error_response(self.settings.started_event_status, "Bad request. The event has started")
        return Response(200, self.settings.approve_body.encode("utf-8"))

    def _now(
        self, request: Request, vm: Optional[VirtualMachine], endpoint: str, faults: Sequence[Fault], response: Response
    ) -> Step:
        self._log(request, vm, endpoint, faults, response, 0.0)
        return Step(0.0, lambda: response)

    def _log(
        self,
        request: Request,
        vm: Optional[VirtualMachine],
        endpoint: str,
        faults: Sequence[Fault],
        response: Response,
        delay: float,
    ) -> None:
        fields: Json = {
            "vm": vm.name if vm else None,
            "client": request.client,
            "method": request.method[:16],
            "path": request.target[:MAX_LOGGED],
            "endpoint": endpoint if endpoint in ENDPOINTS else None,
            "status": response.status,
            "bytes": len(response.body),
        }
        if vm is not None and endpoint == "scheduledevents":
            fields["incarnation"] = vm.seen_by.incarnation
        if faults:
            fields["faults"] = [fault.kind for fault in faults]
        if delay:
            fields["delay"] = round(delay, 3)
        if response.how != SEND:
            fields["how"] = response.how
        self.log.add("request", **fields)


def start_requests(body: bytes) -> List[str]:
    """The ids of an approval, or a ValueError for anything that is not one."""
    try:
        data = json.loads(body.decode("utf-8"))
    except ValueError:
        raise ValueError("the body is not JSON") from None
    requests = data.get("StartRequests") if isinstance(data, dict) else None
    if not isinstance(requests, list) or not requests:
        raise ValueError("StartRequests is missing or empty")
    event_ids = []
    for item in requests:
        event_id = item.get("EventId") if isinstance(item, dict) else None
        if not isinstance(event_id, str) or not event_id:
            raise ValueError("a start request without an EventId")
        event_ids.append(event_id)
    return event_ids


# ---------------------------------------------------------------------------------------------------------------------
# 13. The control API
# ---------------------------------------------------------------------------------------------------------------------


class ControlAddress(NamedTuple):
    """A unix socket, or an address on loopback that wants a token."""

    path: Optional[str]
    address: Optional[Tuple[str, int]]

    def __str__(self) -> str:
        return "unix:{}".format(self.path) if self.path else url_of(self.address or ("", 0))


def default_control() -> str:
    """``unix:PATH`` in the runtime directory of the service, of root, or of the user."""
    runtime = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    if runtime:
        return "unix:{}/control.sock".format(runtime)
    if os.geteuid() == 0:
        return "unix:/run/azops-simulator/control.sock"
    user = os.environ.get("XDG_RUNTIME_DIR")
    if user:
        return "unix:{}/azops-simulator/control.sock".format(user)
    return "unix:/tmp/azops-simulator-{}/control.sock".format(os.geteuid())


def parse_control(text: str) -> ControlAddress:
    if text.startswith("unix:") and text[5:].startswith("/"):
        return ControlAddress(text[5:], None)
    if text.startswith("/"):
        return ControlAddress(text, None)
    address = parse_address(text[7:].rstrip("/") if text.startswith("http://") else text, "--control")
    if not is_loopback(address[0]):
        raise ConfigError("--control: {} is not on loopback: the control API is never served beyond it".format(text))
    return ControlAddress(None, address)


def private_directory(path: str) -> None:
    """Make the directory of the socket, and refuse one that another user could write to."""
    try:
        os.makedirs(path, 0o700, exist_ok=True)
        info = os.lstat(os.path.realpath(path))
    except OSError as error:
        raise ConfigError("{}: cannot be used for the control socket: {}".format(path, error.strerror)) from None
    if not stat.S_ISDIR(info.st_mode):
        raise ConfigError("{}: is not a directory".format(path))
    sticky = bool(info.st_mode & stat.S_ISVTX)
    if info.st_uid not in (0, os.geteuid()) or (info.st_mode & 0o022 and not sticky):
        raise ConfigError("{}: other users can write to it: choose another --control".format(path))


def unix_listener(path: str) -> socket.socket:
    """A listening socket that only its owner can use; one left behind by a killed simulator is replaced."""
    private_directory(os.path.dirname(path))
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.connect(path)
        raise ConfigError("{}: another simulator is already listening there".format(path))
    except ConnectionRefusedError:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise ConfigError(
            "{}: cannot be used for the control socket: {}".format(path, error.strerror or error)
        ) from None
    finally:
        probe.close()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(path)
    except OSError as error:
        listener.close()
        raise ConfigError("{}: cannot listen: {}".format(path, error.strerror or error)) from None
    finally:
        os.umask(mask)
    return listener


class ControlService:
    """POST /v1/COMMAND with a JSON object; GET /v1/status and GET /v1/log for the curious."""

    def __init__(self, commands: Commands, token: Optional[str]) -> None:
        self.commands = commands
        self.token = token

    def handle(self, request: Request) -> Step:
        response = self._answer(request)
        return Step(0.0, lambda: response)

    def _answer(self, request: Request) -> Response:
        if self.token is not None:
            given = request.headers.get("authorization", "").encode("utf-8", "replace")
            if not hmac.compare_digest(given, b"Bearer " + self.token.encode("utf-8")):
                return error_response(401, "the control API needs its token: Authorization: Bearer ...")
        path, _mark, query = request.target.partition("?")
        verb = path[4:].replace("-", "_") if path.startswith("/v1/") else ""
        if verb not in self.commands.verbs:
            return error_response(
                404, "there is no {}: use /v1/ and one of {}".format(shown(path), ", ".join(self.commands.verbs))
            )
        try:
            if request.method == "GET" and verb in ("status", "log"):
                data: Any = dict(urllib.parse.parse_qsl(query))
                data = {key: int(value) if value.isdigit() else value for key, value in data.items()}
            elif request.method == "POST":
                data = json.loads(request.body.decode("utf-8")) if request.body else {}
            else:
                return error_response(405, "use POST (status and log also take GET)")
        except ValueError as error:
            return error_response(400, "the body is not JSON: {}".format(error))
        try:
            result = self.commands.execute(verb, data)
        except RefusedError as error:
            return error_response(409, str(error))
        except SimulatorError as error:
            return error_response(400, str(error))
        if verb not in ("status", "log"):
            self.commands.engine.log.add("control", command=verb, client=request.client)
        return json_response(200, result)


class UnixConnection(http.client.HTTPConnection):
    """An HTTP connection over a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        http.client.HTTPConnection.__init__(self, "localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class ControlClient:
    """What the command line uses to talk to a running simulator."""

    def __init__(self, control: ControlAddress, token: Optional[str] = None, timeout: float = 30.0) -> None:
        self.control = control
        self.token = token
        self.timeout = timeout

    def execute(self, verb: str, data: Json) -> Json:
        if self.control.path is not None:
            connection: http.client.HTTPConnection = UnixConnection(self.control.path, self.timeout)
        else:
            host, port = self.control.address or ("", 0)
            connection = http.client.HTTPConnection(host, port, timeout=self.timeout)
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = "Bearer {}".format(self.token)
        try:
            connection.request("POST", "/v1/{}".format(verb), json.dumps(data).encode("utf-8"), headers)
            answer = connection.getresponse()
            status, body = answer.status, answer.read()
            result = json.loads(body.decode("utf-8"))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ControlError(
                "no simulator answers at {}: {} (is it running? give its --control)".format(self.control, error)
            ) from None
        finally:
            connection.close()
        if status != 200:
            message = result.get("error", "status {}".format(status)) if isinstance(result, dict) else str(result)
            raise ConfigError(message) if status == 400 else RefusedError(message)
        return dict(result)


# ---------------------------------------------------------------------------------------------------------------------
# 14. Impact: the command that really interrupts a VM
# ---------------------------------------------------------------------------------------------------------------------


class ImpactRunner:
    """Runs the commands of the start-up topology: never through a shell, never with words from outside."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: Log, timeout: float = 300.0) -> None:
        self.loop = loop
        self.log = log
        self.timeout = timeout

    def __call__(self, vm: VirtualMachine, event: Event, effect: str) -> None:
        argv = vm.impact.get(effect) or vm.impact.get("default")
        if not argv:
            return
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "SIMULATOR_VM": vm.name,
            "SIMULATOR_EVENT": event.id,
            "SIMULATOR_EFFECT": effect,
        }
        for name in ("HOME", "CONTAINERS_CONF", "XDG_RUNTIME_DIR"):
            if name in os.environ:
                environment[name] = os.environ[name]
        try:
            process = subprocess.Popen(
                argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                close_fds=True,
                start_new_session=True,
            )
        except OSError as error:
            self.log.add("impact_command", vm=vm.name, event=event.id, argv=argv, error=str(error))
            return
        self.log.add("impact_command", vm=vm.name, event=event.id, argv=argv, pid=process.pid)
        self._watch(process, vm, event, time.monotonic())

    def _watch(self, process: "subprocess.Popen[bytes]", vm: VirtualMachine, event: Event, began: float) -> None:
        seconds = time.monotonic() - began
        if process.poll() is None:
            if seconds > self.timeout:
                process.kill()
            self.loop.call_later(0.05, self._watch, process, vm, event, began)
            return
        self.log.add(
            "impact_command",
            vm=vm.name,
            event=event.id,
            pid=process.pid,
            rc=process.returncode,
            seconds=round(seconds, 3),
        )


# ---------------------------------------------------------------------------------------------------------------------
# 15. The simulator
# ---------------------------------------------------------------------------------------------------------------------

CLONE_NEWNET = 0x40000000


def tcp_listener(address: Tuple[str, int], where: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        hints = {
            errno.EADDRINUSE: "something else listens there; choose another port, or 0 for any",
            errno.EACCES: "ports below 1024 need CAP_NET_BIND_SERVICE",
            errno.EADDRNOTAVAIL: "the address is not assigned here; ip addr add it first",
        }
        hint = hints.get(error.errno or 0, "")
        raise ConfigError(
            "{}: cannot listen on {}: {}{}".format(
                where, url_of(address), error.strerror or error, " ({})".format(hint) if hint else ""
            )
        ) from None
    return listener


def set_network_namespace(descriptor: int) -> None:
    import ctypes  # only here: it needs writable and executable memory, which the hardened service is not given

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def namespace_listener(path: str, address: Tuple[str, int], where: str) -> socket.socket:
    """A socket that lives in another network namespace: enter it, listen, go back. Only this thread moves."""
    try:
        target = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError("{}: netns: {}: {}".format(where, path, error.strerror)) from None
    try:
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            try:
                set_network_namespace(target)
            except OSError as error:
                raise ConfigError(
                    "{}: netns: cannot enter {}: {} (CAP_SYS_ADMIN is needed)".format(where, path, error.strerror)
                ) from None
            try:
                return tcp_listener(address, "{} in {}".format(where, path))
            finally:
                set_network_namespace(home)
        finally:
            os.close(home)
    finally:
        os.close(target)


class Simulator:
    """The whole thing. ``run`` serves in the foreground, ``start`` and ``stop`` in a thread of the caller's process.

    All methods below ``start`` may be called from any thread.
    """

    def __init__(
        self,
        topology: Union[str, Json, Topology, None] = None,
        listen: Optional[str] = "127.0.0.1:0",
        control: Optional[str] = None,
        token: Optional[str] = None,
        log_path: Optional[str] = None,
        clock: Optional[Clock] = None,
        time_scale: Optional[float] = None,
        allow_non_loopback: bool = False,
        on_impact: Optional[ImpactHandler] = None,
        **settings: Any,
    ) -> None:
        if topology is None:
            self.topology = Topology.simple()
        elif isinstance(topology, Topology):
            self.topology = topology
        elif isinstance(topology, str):
            self.topology = Topology.load(topology)
        else:
            self.topology = Topology.parse(topology)
        if time_scale is not None:
            settings["time_scale"] = time_scale
        self._override(settings)
        self.clock = clock or Clock()
        self.log_file = Log(self.clock, log_path)
        self.engine = Engine(self.topology, self.clock, self.log_file)
        self.commands = Commands(self.engine)
        self.service = MetadataService(self.engine)
        self.allow_non_loopback = allow_non_loopback
        self.control = parse_control(control) if control else None
        self.token = token
        if self.control is not None and self.control.address is not None and not token:
            raise ConfigError("--control {}: a control API on an address needs a token".format(control))
        self.listen_address = parse_address(listen, "--listen") if listen else None
        self.bound: Dict[str, Tuple[str, int]] = {}
        self.address: Optional[Tuple[str, int]] = None
        self.on_impact = on_impact
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._thread: Optional[threading.Thread] = None
        self._connections: Set[HttpProtocol] = set()
        self._servers: List[asyncio.AbstractServer] = []
        self._control_path: Optional[str] = None
        self._armed: Optional[asyncio.TimerHandle] = None
        self._armed_for: Optional[float] = None
        self._check_addresses()

    def _override(self, settings: Json) -> None:
        """Settings given by the caller win over those of the file."""
        if not settings:
            return
        current = {key: getattr(self.topology.settings, key) for key in Settings.KEYS}
        unknown = sorted(set(settings) - set(current))
        if unknown:
            raise ConfigError("unknown setting {} (known: {})".format(shown(unknown[0]), ", ".join(Settings.KEYS)))
        self.topology.settings = Settings(Fields(dict(current, **settings), "settings"))

    def _check_addresses(self) -> None:
        """Anything but loopback has to be asked for; inside a namespace as well, because others may share it."""
        if self.allow_non_loopback:
            return
        wanted = [("--listen", self.listen_address)] if self.listen_address else []
        wanted += [("VM {}".format(vm.name), vm.address) for vm in self.topology.vms if vm.address]
        for where, address in wanted:
            if address is not None and not is_loopback(address[0]):
                raise ConfigError(
                    "{}: {} is not a loopback address; ask for it with --allow-non-loopback".format(where, address[0])
                )

    # -- the loop --

    def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        if self.on_impact is not None:
            self.engine.on_impact = self.on_impact
        else:
            self.engine.on_impact = ImpactRunner(loop, self.log_file)
        if self.listen_address is not None:
            listener = tcp_listener(self.listen_address, "--listen")
            name = listener.getsockname()
            self.address = (name[0], name[1])
            self._serve(listener, self.service.handler(None))
        for vm in self.topology.vms:
            if vm.address is None:
                continue
            where = "VM {}".format(vm.name)
            if vm.netns is not None:
                listener = namespace_listener(vm.netns, vm.address, where)
            else:
                listener = tcp_listener(vm.address, where)
            name = listener.getsockname()
            self.bound[vm.name] = (name[0], name[1])
            self._serve(listener, self.service.handler(vm))
        if self.control is not None:
            service = ControlService(self.commands, self.token if self.control.address else None)
            if self.control.path is not None:
                listener = unix_listener(self.control.path)
                self._control_path = self.control.path
            else:
                listener = tcp_listener(self.control.address or ("", 0), "--control")
                name = listener.getsockname()
                self.control = ControlAddress(None, (name[0], name[1]))
            self._serve(listener, service.handle)
        self.log_file.add(
            "start",
            time_scale=self.topology.settings.time_scale,
            vms=[vm.name for vm in self.topology.vms],
            listen=url_of(self.address) if self.address else None,
            pid=os.getpid(),
        )
        self._arm()

    def _serve(self, listener: socket.socket, handler: Callable[[Request], Step]) -> None:
        loop = self._loop
        if loop is None:
            raise AssertionError("the loop is not running")

        def handle(request: Request) -> Step:
            step = handler(request)
            self._arm()

            def answer() -> Response:
                response = step.answer()
                self._arm()
                return response

            return Step(step.delay, answer)

        def connection() -> HttpProtocol:
            return HttpProtocol(handle, loop, self._connections, self.clock)

        if listener.family == socket.AF_UNIX:
            server = loop.run_until_complete(loop.create_unix_server(connection, sock=listener, backlog=1024))
        else:
            server = loop.run_until_complete(loop.create_server(connection, sock=listener, backlog=1024))
        self._servers.append(server)

    def _arm(self) -> None:
        """Wake up when the next thing is due; a manual clock wakes nobody."""
        due = self.engine.next_due()
        if due == self._armed_for or self._loop is None or isinstance(self.clock, ManualClock):
            return
        if self._armed is not None:
            self._armed.cancel()
        self._armed, self._armed_for = None, due
        if due is not None:
            self._armed = self._loop.call_later(max(0.0, due - self.clock.monotonic()), self._tick)

    def _tick(self) -> None:
        self._armed, self._armed_for = None, None
        self.engine.advance()
        self._arm()

    def _close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.close()
        self._servers = []
        if self._loop is not None:
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()
            self._loop = None
        if self._control_path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._control_path)
        self.log_file.add("stop")
        self.log_file.close()

    def run(self, ready: Optional[Callable[[], None]] = None) -> None:
        """Serve in the foreground until SIGTERM or SIGINT."""
        loop = asyncio.new_event_loop()
        try:
            self._open(loop)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, loop.stop)
            if ready is not None:
                ready()
            loop.run_forever()
        finally:
            self._loop = self._loop or loop
            self._close()

    def start(self) -> "Simulator":
        """Serve in a background thread; returns when every socket listens."""
        opened = threading.Event()
        failure: List[BaseException] = []

        def body() -> None:
            loop = asyncio.new_event_loop()
            try:
                self._open(loop)
            except BaseException as error:  # handed to the caller below
                failure.append(error)
                self._loop = loop
                self._close()
                opened.set()
                return
            loop.call_soon(opened.set)
            loop.run_forever()
            self._close()

        self._thread = threading.Thread(target=body, name="azops-simulator", daemon=True)
        self._thread.start()
        opened.wait()
        if failure:
            self._thread.join()
            raise failure[0]
        return self

    def stop(self) -> None:
        thread, loop = self._thread, self._loop
        if thread is None or loop is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        self._thread = None

    def __enter__(self) -> "Simulator":
        return self.start()

    def __exit__(self, *_details: Any) -> None:
        self.stop()

    # -- what a test uses --

    def _call(self, function: Callable[[], Any]) -> Any:
        """Run something where the engine runs, and hand back its result or its error."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or threading.current_thread() is thread:
            return function()
        done = threading.Event()
        result: Dict[str, Any] = {}

        def run() -> None:
            try:
                result["value"] = function()
            except Exception as error:
                result["error"] = error
            self._arm()
            done.set()

        loop.call_soon_threadsafe(run)
        done.wait()
        if "error" in result:
            raise result["error"]
        return result["value"]

    def execute(self, verb: str, **data: Any) -> Json:
        """One command, as the control API takes it."""
        result: Json = self._call(lambda: self.commands.execute(verb, data))
        return result

    def schedule(self, event_type: str, vms: Sequence[str] = (), **options: Any) -> Json:
        return self.execute("schedule", type=event_type, vms=list(vms), **options)

    def cancel(self, event: str) -> Json:
        return self.execute("cancel", event=event)

    def finish(self, event: str) -> Json:
        return self.execute("finish", event=event)

    def fail_hardware(self, vms: Sequence[str] = (), **options: Any) -> Json:
        return self.execute("fail_hardware", **(dict(options, vms=list(vms)) if vms else options))

    def inject(self, kind: str, vms: Sequence[str] = (), **options: Any) -> Json:
        return self.execute("inject", kind=kind, vms=list(vms), **options)

    def clear_faults(self) -> Json:
        return self.execute("clear_faults")

    def play(self, scenario: Union[str, Json]) -> Json:
        return self.execute("play", scenario=scenario)

    def status(self, gone: bool = False) -> Json:
        return self.execute("status", gone=gone)

    def events(self, gone: bool = False) -> List[Json]:
        events: List[Json] = self.status(gone)["events"]
        return events

    def event(self, event_id: str) -> Json:
        """One event by its id, also when it is gone."""
        for event in self.events(gone=True):
            if event["event"].lower() == event_id.lower():
                return event
        raise RefusedError("there was never an event {}".format(shown(event_id)))

    @property
    def log(self) -> List[Json]:
        return self.log_file.entries()

    def log_of(self, *kinds: str, vm: Optional[str] = None, since: int = 0) -> List[Json]:
        return self.log_file.entries(since, kinds, vm)

    def wait_for(self, condition: Callable[[List[Json]], Any], timeout: float = 10.0) -> Any:
        """Wait until the log satisfies a condition; returns what the condition returned."""
        deadline = time.monotonic() + timeout
        while True:
            seen = self.log_file.last
            found = condition(self.log)
            if found:
                return found
            with self.log_file.changed:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError("the simulator's log did not satisfy the condition within {} s".format(timeout))
                if self.log_file.last == seen:
                    self.log_file.changed.wait(left)

    def advance(self, seconds: float) -> None:
        """Move a manual clock, and everything that becomes due with it."""
        clock = self.clock
        if not isinstance(clock, ManualClock):
            raise RefusedError("only a simulator with a ManualClock can be advanced")

        def move() -> None:
            clock.advance(seconds)
            self.engine.advance()

        self._call(move)

    def url_for(self, vm: str) -> str:
        """The base URL under which a VM finds /metadata/..."""
        machine = self.topology.vm(vm)
        if machine.name in self.bound:
            return url_of(self.bound[machine.name])
        if self.address is None:
            raise RefusedError("VM {} has no address of its own, and there is no --listen".format(machine.name))
        return "{}/vm/{}".format(url_of(self.address), urllib.parse.quote(machine.name))


# ---------------------------------------------------------------------------------------------------------------------
# 16. Command line
# ---------------------------------------------------------------------------------------------------------------------


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be; the first row is the heading."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join(lines)


def names_of(names: Sequence[str], limit: int = 4) -> str:
    text = ", ".join(names[:limit]) or "-"
    return text if len(names) <= limit else "{} and {} more".format(text, len(names) - limit)


def status_table(status: Json) -> str:
    parts = []
    rows = [["VM", "GROUP", "UD", "FD", "ZONE", "STATE", "INCARNATION", "POLLS", "LAST POLL", "EVENTS"]]
    for vm in status["vms"]:
        last = vm["last_poll_seconds"]
        rows.append(
            [
                vm["vm"],
                vm["group"],
                str(vm["update_domain"]),
                str(vm["fault_domain"]),
                vm["zone"] or "-",
                vm["state"],
                str(vm["incarnation"]),
                str(vm["polls"]),
                "never" if last is None else "{:.1f} s ago".format(last),
                str(len(vm["events"])),
            ]
        )
    parts.append(table(rows))
    if status["events"]:
        rows = [["EVENT", "TYPE", "STATUS", "SOURCE", "NOT BEFORE", "LEFT", "APPROVED BY", "VMS"]]
        for event in status["events"]:
            left = event["seconds_left"]
            rows.append(
                [
                    event["event"],
                    event["type"],
                    event["status"] if event["status"] != GONE else "gone ({})".format(event["cause"]),
                    event["source"],
                    event["not_before"],
                    "-" if left is None else "{:.0f} s".format(left),
                    event["approved_by"] or "-",
                    names_of(event["vms"]),
                ]
            )
        parts.append(table(rows))
    else:
        parts.append("No events.")
    if status["faults"]:
        rows = [["FAULT", "KIND", "VMS", "ENDPOINT", "METHOD", "COUNT", "SHARE", "HITS"]]
        for fault in status["faults"]:
            vms = fault["vms"]
            rows.append(
                [
                    str(fault["fault"]),
                    fault["kind"] + (" ({})".format(fault["variant"]) if fault["variant"] else ""),
                    vms if isinstance(vms, str) else names_of(vms),
                    fault["endpoint"],
                    fault["method"],
                    str(fault["count"] or "every"),
                    "{:g}".format(fault["share"]),
                    str(fault["hits"]),
                ]
            )
        parts.append(table(rows))
    if status["time_scale"] != 1:
        parts.append("Time runs {:g} times as fast as Azure's.".format(status["time_scale"]))
    return "\n\n".join(parts)


def log_line(entry: Json) -> str:
    """One entry for a reader; --json gives the entry itself."""
    skip = ("seq", "wall", "mono", "kind")
    details = " ".join(
        "{}={}".format(key, value if isinstance(value, str) and value.isprintable() else json.dumps(value))
        for key, value in entry.items()
        if key not in skip and value not in (None, [], "")
    )
    return "{} {:<9} {}".format(entry["wall"][11:23], entry["kind"], details)


def notify_systemd(state: str) -> None:
    """Tell systemd, if it asked to be told, that the service is ready."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect("\0" + path[1:] if path.startswith("@") else path)
        channel.sendall(state.encode("ascii"))


def read_token(path: Optional[str], create: bool) -> Optional[str]:
    """The token of the control API: from the environment or from a file, which serve makes if need be."""
    if path is None:
        return os.environ.get(TOKEN_ENVIRONMENT) or None
    if create and not os.path.exists(path):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError("--token-file {}: cannot be written: {}".format(path, error.strerror)) from None
        with os.fdopen(descriptor, "w") as stream:
            stream.write(secrets.token_urlsafe(32) + "\n")
    try:
        with open(path) as stream:
            token = stream.read().strip()
    except OSError as error:
        raise ConfigError("--token-file {}: cannot be read: {}".format(path, error.strerror)) from None
    if not token:
        raise ConfigError("--token-file {}: is empty".format(path))
    return token


def serve(options: argparse.Namespace) -> int:
    topology = Topology.load(options.topology) if options.topology else Topology.simple(options.vms, options.domains)
    settings: Json = {}
    for key in ("time_scale", "rate_limit", "first_call_seconds", "arrival_seconds", "seed"):
        if getattr(options, key) is not None:
            settings[key] = getattr(options, key)
    simulator = Simulator(
        topology,
        listen=None if options.listen == "none" else options.listen,
        control=options.control,
        token=read_token(options.token_file, True),
        log_path=options.log,
        allow_non_loopback=options.allow_non_loopback,
        **settings,
    )
    stories = [load_scenario(name) for name in options.play]

    def ready() -> None:
        announce(simulator, options)
        for story in stories:
            player = Player(simulator.commands, story)
            simulator.commands.scenarios.append(player)
            player.start()
        notify_systemd("READY=1")

    simulator.run(ready)
    return EXIT_OK


def check(options: argparse.Namespace) -> int:
    """Read a topology as serve would, without listening anywhere."""
    topology = Topology.load(options.file)
    if options.json:
        print(json.dumps({"scopes": len(topology.scopes), "groups": len(topology.groups), "vms": len(topology.vms)}))
    else:
        print("{}: {} VMs in {} scopes".format(options.file, len(topology.vms), len(topology.scopes)))
    return EXIT_OK


def announce(simulator: Simulator, options: argparse.Namespace) -> None:
    """Say what listens where, loudly if anything but loopback does."""
    topology = simulator.topology
    print(
        "{} VMs in {} scopes, time scale {:g}".format(
            len(topology.vms), len(topology.scopes), topology.settings.time_scale
        )
    )
    if simulator.address is not None:
        print(
            "metadata service: {}/vm/NAME/metadata/... (for example {})".format(
                url_of(simulator.address), topology.vms[0].name
            )
        )
    for vm in topology.vms[:20]:
        if vm.name in simulator.bound:
            inside = " in {}".format(vm.netns) if vm.netns else ""
            print("metadata service of {}: {}{}".format(vm.name, url_of(simulator.bound[vm.name]), inside))
    print("control: {}".format(simulator.control))
    print("log: {}".format(options.log or "in memory only (--log FILE keeps it)"))
    exposed = [
        address
        for address in [simulator.address] + list(simulator.bound.values())
        if address is not None and not is_loopback(address[0])
    ]
    if exposed:
        print(
            "WARNING: listening beyond loopback, as --allow-non-loopback asked: {}".format(
                ", ".join(sorted({url_of(address) for address in exposed}))
            )
        )
    sys.stdout.flush()
    if options.ready_file:
        details = {
            "pid": os.getpid(),
            "url": url_of(simulator.address) if simulator.address else None,
            "control": str(simulator.control),
            "log": os.path.abspath(options.log) if options.log else None,
            "vms": {
                vm.name: simulator.url_for(vm.name)
                for vm in topology.vms
                if simulator.address is not None or vm.name in simulator.bound
            },
        }
        temporary = "{}.{}".format(options.ready_file, os.getpid())
        with open(temporary, "w") as stream:
            stream.write(json.dumps(details, indent=2) + "\n")
        os.rename(temporary, options.ready_file)


def client_for(options: argparse.Namespace) -> ControlClient:
    return ControlClient(parse_control(options.control), read_token(options.token_file, False))


def given(options: argparse.Namespace, *keys: str) -> Json:
    """The options that were given, as a command takes them."""
    values = {key: getattr(options, key, None) for key in keys}
    return {key: value for key, value in values.items() if value is not None and value is not False and value != []}


def say_event(event: Json, options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps(event))
    else:
        print(
            "{} {} {} ({}), not before {}".format(
                event["event"], event["type"], event["status"], names_of(event["vms"]), event["not_before"]
            )
        )
    return EXIT_OK


def run_schedule(options: argparse.Namespace) -> int:
    return say_event(client_for(options).execute("schedule", given(options, *EVENT_KEYS)), options)


def run_cancel(options: argparse.Namespace) -> int:
    return say_event(client_for(options).execute("cancel", given(options, "event")), options)


def run_finish(options: argparse.Namespace) -> int:
    return say_event(client_for(options).execute("finish", given(options, "event")), options)


def run_fail_hardware(options: argparse.Namespace) -> int:
    return say_event(client_for(options).execute("fail_hardware", given(options, "event", *EVENT_KEYS)), options)


def run_inject(options: argparse.Namespace) -> int:
    if options.clear:
        result = client_for(options).execute("clear_faults", {})
        print(json.dumps(result) if options.json else "{} faults cleared".format(result["cleared"]))
        return EXIT_OK
    if options.kind is None:
        raise ConfigError("inject: name a kind ({}) or give --clear".format(", ".join(FAULT_KINDS)))
    result = client_for(options).execute("inject", given(options, *FAULT_KEYS))
    print(json.dumps(result) if options.json else "fault {}: {}".format(result["fault"], result["kind"]))
    return EXIT_OK


def run_vm(options: argparse.Namespace) -> int:
    result = client_for(options).execute(options.command.replace("-", "_"), given(options, "vms"))
    print(json.dumps(result) if options.json else "{}: {}".format(names_of(result["vms"]), result["state"]))
    return EXIT_OK


def run_incarnation(options: argparse.Namespace) -> int:
    data = given(options, "group", "skip", "value")
    result = client_for(options).execute("incarnation", data)
    print(json.dumps(result) if options.json else "{}: incarnation {}".format(result["group"], result["incarnation"]))
    return EXIT_OK


def run_status(options: argparse.Namespace) -> int:
    status = client_for(options).execute("status", given(options, "gone"))
    print(json.dumps(status) if options.json else status_table(status))
    return EXIT_OK


def run_log(options: argparse.Namespace) -> int:
    client = client_for(options)
    since = options.since
    while True:
        data = dict(given(options, "kinds", "vm"), since=since)
        result = client.execute("log", data)
        for entry in result["entries"]:
            print(json.dumps(entry) if options.json else log_line(entry))
        sys.stdout.flush()
        since = result["last"]
        if not options.follow:
            return EXIT_OK
        time.sleep(0.5)


def run_play(options: argparse.Namespace) -> int:
    if options.scenario is None:
        for name in shipped_scenarios():
            print("{:<28} {}".format(name, load_scenario(name).description))
        return EXIT_OK
    scenario = load_scenario(options.scenario)
    story = {
        "name": scenario.name,
        "description": scenario.description,
        "steps": [step.data for step in scenario.steps],
    }
    result = client_for(options).execute("play", {"scenario": story})
    print(json.dumps(result) if options.json else "playing {}: {}".format(result["scenario"], result["description"]))
    return EXIT_OK


def add_control(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--control",
        metavar="ADDRESS",
        default=os.environ.get(CONTROL_ENVIRONMENT) or default_control(),
        help="control API: unix:/path or 127.0.0.1:PORT with a token (default: ${} or %(default)s)".format(
            CONTROL_ENVIRONMENT
        ),
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="file with the token of a control API on an address (or ${})".format(TOKEN_ENVIRONMENT),
    )


def add_event_options(parser: argparse.ArgumentParser, hardware: bool) -> None:
    parser.add_argument(
        "--vm", dest="vms", action="append", default=[], metavar="NAME", help="a VM that it hits; repeat"
    )
    parser.add_argument("--group", help="the group of an event that names no VM")
    parser.add_argument("--type", default=None, help="{} (or any other word)".format(", ".join(EVENT_TYPES)))
    parser.add_argument("--source", choices=(PLATFORM, USER))
    parser.add_argument("--description")
    parser.add_argument("--duration", type=int, metavar="S", help="DurationInSeconds: 0 no impact, -1 unknown")
    parser.add_argument("--lasts", type=float, metavar="S", help="from started to gone (default 300)")
    parser.add_argument("--impact-after", type=float, metavar="S", help="from started to the interruption (default 0)")
    parser.add_argument("--interruptions", type=int, metavar="N", help="how many, spread over --lasts (default 1)")
    parser.add_argument("--turns-out", metavar="TYPE", help="what it really does to the VM, for example Freeze")
    parser.add_argument("--away", action="store_true", help="reset the VM's requests while it is interrupted")
    parser.add_argument("--keep-vm", action="store_true", help="do not delete the VM after Preempt or Terminate")
    parser.add_argument("--event-id", metavar="ID", help="use this id rather than a random one")
    if not hardware:
        parser.add_argument("--notice", type=float, metavar="S", help="until NotBefore (default: Azure's for the type)")
        parser.add_argument("--tenant-delay", type=float, metavar="S", help="from the approval to the start")
        parser.add_argument("--late", type=float, metavar="S", help="start this long after NotBefore")
        parser.add_argument("--fails-after", type=float, metavar="S", help="the hardware fails first, after this time")
        parser.add_argument("--predicted", action="store_true", help="a predicted hardware failure: days of notice")
        parser.add_argument("--auto-approved", action="store_true", help="approved by policy: started when first seen")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="azops_simulator.py",
        description="Simulates Azure's instance metadata service with Scheduled Events, for rehearsals and tests.",
        epilog="All durations are seconds of Azure's time and are divided by the time scale, except the delays of "
        "faults. Exit codes: 0 done, 1 refused, 2 bad usage or file, 3 no simulator answers.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.required = True

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        added.set_defaults(run=run)
        add_control(added)
        added.add_argument("--json", action="store_true", help="machine-readable output")
        return added

    server = command("serve", serve, "run the simulator in the foreground")
    server.add_argument("--topology", metavar="FILE", help="JSON file that describes the VMs (default: see --vms)")
    server.add_argument(
        "--vms", type=int, default=6, help="without --topology: so many VMs in one availability set (6)"
    )
    server.add_argument("--domains", type=int, default=3, help="without --topology: so many update domains (3)")
    server.add_argument(
        "--listen",
        default=DEFAULT_LISTEN,
        metavar="ADDRESS:PORT",
        help="where VMs are told apart by URL prefix or client address; none for nowhere (%(default)s)",
    )
    server.add_argument("--allow-non-loopback", action="store_true", help="allow listening on other than loopback")
    server.add_argument("--time-scale", type=float, metavar="N", help="60: 15 minutes of Azure pass in 15 seconds")
    server.add_argument("--log", metavar="FILE", help="append every request, approval and state change as JSON lines")
    server.add_argument("--rate-limit", type=int, metavar="N", help="requests per second and VM (5; 0 for no limit)")
    server.add_argument(
        "--first-call-seconds", type=float, metavar="S", help="how long the call that enables takes (0)"
    )
    server.add_argument("--arrival-seconds", type=float, metavar="S", help="from that call to the first events (0)")
    server.add_argument("--seed", type=int, help="for faults that hit a share of the requests (0)")
    server.add_argument("--play", action="append", default=[], metavar="SCENARIO", help="play a scenario at once")
    server.add_argument("--ready-file", metavar="FILE", help="write addresses and pid there as JSON when listening")

    command("check", check, "check a topology file").add_argument("file", help="the JSON file")
    add_event_options(command("schedule", run_schedule, "announce an event"), hardware=False)
    hardware = command(
        "fail-hardware", run_fail_hardware, "let hardware fail: an event that is started when first seen"
    )
    add_event_options(hardware, hardware=True)
    hardware.add_argument("--event", metavar="ID", help="the predicted event that now happens before its time")
    for name, run, text in (
        ("cancel", run_cancel, "cancel a scheduled event: it is gone, without impact"),
        ("finish", run_finish, "end a started event now"),
    ):
        command(name, run, text).add_argument("event", help="the id of the event, or the beginning of it")

    fault = command("inject", run_inject, "make requests go wrong")
    fault.add_argument("kind", nargs="?", choices=FAULT_KINDS, metavar="KIND", help=", ".join(FAULT_KINDS))
    fault.add_argument("--clear", action="store_true", help="remove all faults instead")
    fault.add_argument("--vm", dest="vms", action="append", default=[], metavar="NAME", help="only for this VM; repeat")
    fault.add_argument("--count", type=int, metavar="N", help="so many times per VM (default: until cleared)")
    fault.add_argument("--share", type=float, metavar="X", help="this share of the requests, 0 to 1 (default 1)")
    fault.add_argument("--after", type=int, metavar="N", help="let so many requests of each VM pass first")
    fault.add_argument("--for", dest="for_seconds", type=float, metavar="S", help="ends after this time")
    fault.add_argument(
        "--seconds", type=float, metavar="S", help="delay, first_call_delay, clock_skew: how much (real)"
    )
    fault.add_argument("--endpoint", choices=ENDPOINTS + ("any",), help="default scheduledevents")
    fault.add_argument("--method", choices=("GET", "POST", "any"), help="default any")
    fault.add_argument(
        "--variant", help="; ".join("{}: {}".format(kind, ", ".join(words)) for kind, words in sorted(VARIANTS.items()))
    )
    fault.add_argument("--size", type=int, metavar="BYTES", help="huge: at least so many bytes (4 MiB)")
    fault.add_argument("--processed", action="store_true", help="carry the request out, then fail to say so")

    for name, text in (
        ("deallocate", "deallocate VMs: their events are cleared, their requests are not answered"),
        ("start-vm", "start VMs again that were deallocated or deleted"),
    ):
        command(name, run_vm, text).add_argument("vms", nargs="+", metavar="VM")
    incarnation = command("incarnation", run_incarnation, "let the document incarnation skip numbers or start again")
    incarnation.add_argument("group", help="the group (see status)")
    incarnation.add_argument("--skip", type=int, metavar="N", help="skip so many numbers")
    incarnation.add_argument("--value", type=int, metavar="N", help="go on from this number; 1 starts again")

    status = command("status", run_status, "show VMs, events and faults")
    status.add_argument("--gone", action="store_true", help="also events that are gone")
    log = command("log", run_log, "show requests, approvals and changes of state")
    log.add_argument(
        "--kind",
        dest="kinds",
        action="append",
        default=[],
        metavar="KIND",
        help="only these: request, approval, state, impact, fault, service, vm, scenario; repeat",
    )
    log.add_argument("--vm", help="only of this VM")
    log.add_argument("--since", type=int, default=0, metavar="SEQ", help="only after this sequence number")
    log.add_argument("--follow", action="store_true", help="go on until interrupted")
    command("play", run_play, "play a scenario; without a name, list those that are shipped").add_argument(
        "scenario", nargs="?", help="the name of a shipped scenario, or a file"
    )
    return parser


def main(arguments: Optional[Sequence[str]] = None) -> int:
    options = build_parser().parse_args(arguments)
    if options.command == "schedule" and options.type is None:
        print("azops_simulator.py: error: schedule: give a --type", file=sys.stderr)
        return EXIT_USAGE
    try:
        status: int = options.run(options)
        return status
    except ControlError as error:
        code, message = EXIT_UNREACHABLE, str(error)
    except RefusedError as error:
        code, message = EXIT_REFUSED, str(error)
    except SimulatorError as error:
        code, message = EXIT_USAGE, str(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    print("azops_simulator.py: error: {}".format(message), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
