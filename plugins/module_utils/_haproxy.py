# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""HAProxy: its admin socket, and the file from which it takes the states of its servers when it starts."""

import contextlib
import csv
import errno
import os
import re
import socket
import time
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ._document import quote
from ._errors import DrainError, InputError
from ._safe_files import locked_file, sync_directory

NAME = re.compile(r"[A-Za-z0-9_.:-]+")
FORCED_MAINT = 0x01
INHERITED_MAINT = 0x02
FORCED_DRAIN = 0x08
INHERITED_DRAIN = 0x10
OUT = FORCED_MAINT | INHERITED_MAINT | FORCED_DRAIN | INHERITED_DRAIN
ANSWER_WITHIN = 10.0
RELOAD_WITHIN = 3.0
LARGEST_ANSWER = 64 * 1024 * 1024
STATE_FORMAT = "1"
DOWN = (errno.ENOENT, errno.ECONNREFUSED, errno.ECONNRESET)


class DownError(DrainError):
    """Nothing listens on the admin socket."""


class Server(NamedTuple):
    """A server of a backend, as HAProxy has it now."""

    backend: str
    name: str
    admin_state: int
    header: str
    line: str

    @property
    def is_out(self) -> bool:
        """Whether it gets no new clients, because somebody said so."""
        return bool(self.admin_state & OUT)

    @property
    def is_drained(self) -> bool:
        return bool(self.admin_state & FORCED_DRAIN)

    @property
    def words(self) -> str:
        if self.admin_state & (FORCED_MAINT | INHERITED_MAINT):
            return "maint"
        return "drain" if self.is_out else "ready"

    @property
    def drained_line(self) -> str:
        """Its line in the state file, as it will be once it is drained."""
        values = self.line.split(" ")
        values[_columns(self.header).index("srv_admin_state")] = str(self.admin_state | FORCED_DRAIN)
        return " ".join(values)


def check_name(name: str) -> str:
    """A name of HAProxy's configuration; anything else could say more to it than a name."""
    if not NAME.fullmatch(name):
        raise InputError("{0} cannot be a name in HAProxy.".format(quote(name)))
    return name


class AdminSocket:
    """HAProxy's admin socket: a path, or HOST:PORT."""

    def __init__(self, address: str) -> None:
        self.address = address

    def servers(self) -> List[Server]:
        lines = self.ask("show servers state").splitlines()
        header = next((line for line in lines if line.startswith("# ")), "")
        columns = _columns(header)
        if not lines or lines[0] != STATE_FORMAT or "srv_admin_state" not in columns:
            raise DrainError(
                "HAProxy on {0} answers {1} when asked for its servers.".format(self.address, quote("\n".join(lines))),
                "The socket has to be of level admin; HAProxy has to be 1.8 or newer.",
            )
        found = []
        for line in lines:
            values = line.split(" ")
            if line.startswith("#") or len(values) < len(columns):
                continue
            row = dict(zip(columns, values))
            found.append(Server(row["be_name"], row["srv_name"], int(row["srv_admin_state"]), header, line))
        return found

    def sessions(self, backend: str, server: str) -> int:
        """How many clients it serves or lets wait now."""
        text = self.ask("show stat")
        for row in csv.DictReader(text.lstrip("# ").splitlines()):
            if (row.get("pxname"), row.get("svname")) == (backend, server):
                return int(row.get("scur") or 0) + int(row.get("qcur") or 0)
        raise DrainError(
            "HAProxy on {0} does not count the sessions of {1}/{2}.".format(self.address, backend, server),
            "The socket has to be of level admin.",
        )

    def set_state(self, backend: str, server: str, state: str) -> None:
        self._order("set server {0}/{1} state {2}".format(check_name(backend), check_name(server), state))

    def shut_sessions(self, backend: str, server: str) -> None:
        self._order("shutdown sessions server {0}/{1}".format(check_name(backend), check_name(server)))

    def _order(self, command: str) -> None:
        answer = self.ask(command).strip()
        if answer:
            raise DrainError(
                "HAProxy on {0} refused '{1}': {2}".format(self.address, command, quote(answer)),
                "The socket has to be of level admin: stats socket ... level admin.",
            )

    def ask(self, command: str) -> str:
        """One question, one answer. While HAProxy is reloaded it may not answer for a moment."""
        give_up_at = time.monotonic() + RELOAD_WITHIN
        while True:
            try:
                return self._ask(command)
            except DownError:
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(0.1)

    def _ask(self, command: str) -> str:
        answer = b""
        try:
            with contextlib.closing(self._connect()) as connection:
                connection.sendall(command.encode("ascii") + b"\n")
                while len(answer) < LARGEST_ANSWER:
                    part = connection.recv(65536)
                    if not part:
                        break
                    answer += part
        except OSError as error:
            kind = DownError if error.errno in DOWN else DrainError
            raise kind(
                "HAProxy does not answer on {0}: {1}.".format(self.address, error.strerror or "no answer in time"),
                "See that it runs (systemctl status haproxy), that its configuration has"
                " 'stats socket {0} level admin', and that this user may use it.".format(self.address),
            ) from None
        return answer.decode("utf-8", "replace")

    def _connect(self) -> socket.socket:
        if self.address.startswith("/"):
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(ANSWER_WITHIN)
            try:
                connection.connect(self.address)
            except OSError:
                connection.close()
                raise
            return connection
        host, colon, port = self.address.rpartition(":")
        if not colon or not port.isdigit():
            raise InputError(
                "{0} is no path and no HOST:PORT.".format(quote(self.address)), "Correct drain_haproxy_socket."
            )
        return socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_WITHIN)


class StateFile:
    """The lines of the servers that are drained, for HAProxy to find when it starts. Others' lines are left alone."""

    def __init__(self, path: str) -> None:
        self.path = path

    def has(self, server: Server) -> bool:
        """Whether HAProxy would start with the server drained."""
        columns, lines = self._read()
        line = lines.get((server.backend, server.name), "")
        values = dict(zip(columns, line.split(" ")))
        return bool(int(values.get("srv_admin_state") or 0) & FORCED_DRAIN)

    def put(self, server: Server) -> None:
        with self._lines(server.header) as lines:
            lines[(server.backend, server.name)] = server.drained_line

    def drop(self, backend: str, name: str) -> None:
        if os.path.exists(self.path):
            with self._lines("") as lines:
                lines.pop((backend, name), None)

    @contextlib.contextmanager
    def _lines(self, header: str) -> Iterator[Dict[Tuple[str, str], str]]:
        """The lines, to be changed; one writer at a time, and HAProxy finds the old or the new file, never a part."""
        try:
            with locked_file(self.path + ".lock"):
                columns, lines = self._read()
                before = dict(lines)
                yield lines
                header = header or "# " + " ".join(columns)
                if lines != before or not os.path.exists(self.path):
                    self._write([STATE_FORMAT, header] + list(lines.values()))
        except OSError as error:
            raise DrainError(
                "Cannot write HAProxy's state file {0}: {1}.".format(self.path, error.strerror),
                "Run as root (drain_haproxy_become), and see that its directory is there.",
            ) from None

    def _read(self) -> Tuple[List[str], Dict[Tuple[str, str], str]]:
        try:
            with open(self.path, encoding="utf-8", errors="replace") as source:
                content = source.read().splitlines()
        except FileNotFoundError:
            content = []
        except OSError as error:
            raise DrainError(
                "Cannot read HAProxy's state file {0}: {1}.".format(self.path, error.strerror),
                "Run as root (drain_haproxy_become).",
            ) from None
        columns = _columns(next((line for line in content if line.startswith("# ")), ""))
        lines = {}
        for line in content:
            values = dict(zip(columns, line.split(" ")))
            if not line.startswith("#") and "srv_name" in values:
                lines[(values["be_name"], values["srv_name"])] = line
        return columns, lines

    def _write(self, lines: Sequence[str]) -> None:
        temporary = self.path + ".azops-maintenance"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(handle, "w", encoding="utf-8") as target:
            os.fchmod(handle, 0o644)
            target.write("\n".join(lines) + "\n")
            target.flush()
            os.fsync(target.fileno())
        os.rename(temporary, self.path)
        sync_directory(os.path.dirname(self.path))


def state_file_of(paths: Sequence[str], backends: Sequence[str]) -> str:
    """The state file that the configuration names. Raises DrainError, with what to add to it, if there is none."""
    base, name, loading = "", "", _Loading()
    for path in paths:
        for words in _config_lines(path):
            if words[0] == "server-state-base" and len(words) > 1:
                base = words[1]
            elif words[0] == "server-state-file" and len(words) > 1:
                name = words[1]
            else:
                loading.read(words)
    missing = [backend for backend in backends if loading.of(backend) != "global"]
    if not name or missing:
        raise DrainError(
            "A drain would not survive a restart of HAProxy: {0} does not keep the states of servers{1}.".format(
                " and ".join(paths), " for backend " + ", ".join(missing) if name else ""
            ),
            "Add 'server-state-file {0}' to its section global and 'load-server-state-from-file global' to its section"
            " defaults, and reload HAProxy; or set drain_haproxy_survive_restart to false.".format(
                name or "/var/lib/haproxy/server-state"
            ),
        )
    return os.path.join(base, name) if base else name


class _Loading:
    """Which backend takes the states of its servers from where."""

    def __init__(self) -> None:
        self._defaults: Dict[str, Optional[str]] = {}
        self._latest: Optional[str] = None
        self._backends: Dict[str, Optional[str]] = {}
        self._section = ("", "")

    def of(self, backend: str) -> Optional[str]:
        return self._backends.get(backend)

    def read(self, words: List[str]) -> None:
        if words[0] in ("global", "defaults", "frontend", "backend", "listen", "peers", "resolvers", "userlist"):
            self._section = (words[0], words[1] if len(words) > 1 and words[1] != "from" else "")
            inherited = self._latest
            if "from" in words[1:-1]:
                inherited = self._defaults.get(words[words.index("from") + 1])
            if words[0] == "defaults":
                self._set(inherited if "from" in words else None)
            elif words[0] in ("backend", "listen"):
                self._set(inherited)
        elif words[0] == "load-server-state-from-file" and len(words) > 1:
            self._set(words[1])

    def _set(self, value: Optional[str]) -> None:
        kind, name = self._section
        if kind == "defaults":
            self._latest = self._defaults[name] = value
        elif kind in ("backend", "listen"):
            self._backends[name] = value


def _config_lines(path: str) -> Iterator[List[str]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as source:
            for line in source:
                words = line.split("#", 1)[0].replace('"', "").split()
                if words:
                    yield words
    except OSError as error:
        raise DrainError(
            "Cannot read HAProxy's configuration {0}: {1}.".format(path, error.strerror),
            "Correct drain_haproxy_config_files, or name the state file in drain_haproxy_state_file.",
        ) from None


def _columns(header: str) -> List[str]:
    return header.lstrip("# ").split()
