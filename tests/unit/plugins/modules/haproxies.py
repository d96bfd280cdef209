# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two HAProxies to test on: a small imitation that is always there, and the real one where the machine has it."""

import contextlib
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import threading
import time

COLUMNS = (
    "be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight"
    " srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state"
    " bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr"
    " srv_agent_addr srv_agent_port"
)
LINE = "{0} {1} {2} {3} 127.0.0.1 2 {4} 1 1 0 1 0 2 0 0 0 0 - {5} - 0 0 - - 0"
DISABLED = 4  # by the configuration, besides maint
FLAGS = {"drain": 8, "maint": 1, "ready": 0}
# Nothing is ever sent there: the discard port of the loopback.
BACKENDS = {"web": ["web0", "web1"], "other": ["web0"]}
CONFIG = """
global
  stats socket {home}/admin.sock mode 600 level admin
  server-state-file {home}/server-state
defaults
  mode tcp
  timeout connect 1s
  timeout client 60s
  timeout server 60s
  load-server-state-from-file global
listen web
  bind unix@{home}/front.sock
  server web0 unix@{home}/web0.sock
  server web1 127.0.0.1:9 disabled
backend other
  server web0 127.0.0.1:9
"""
REAL = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")


class Imitation:
    """Answers the commands that the module sends, and loads the state file when it starts."""

    def __init__(self, home):
        self.home = home
        self.socket = str(home / "admin.sock")
        self.state_file = home / "server-state"
        self.config = home / "haproxy.cfg"
        self.config.write_text(CONFIG.format(home=home))
        self.sessions_left = 0
        self._server = None

    def start(self):
        self.states = {(backend, name): 0 for backend, names in BACKENDS.items() for name in names}
        self.states[("web", "web1")] = 1
        lines = self.state_file.read_text().splitlines() if self.state_file.exists() else []
        for values in [line.split() for line in lines if len(line.split()) > 6 and not line.startswith("#")]:
            if (values[1], values[3]) in self.states:
                self.states[(values[1], values[3])] = int(values[6])
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)
        self._server = socketserver.ThreadingUnixStreamServer(self.socket, handler_of(self))
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}).start()

    def stop(self):
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def restart(self):
        self.stop()
        self.start()

    def answer(self, command):
        words = command.split()
        if command == "show servers state":
            rows = [
                LINE.format(3, backend, number, name, state, 9)
                for number, ((backend, name), state) in enumerate(self.states.items(), 1)
            ]
            return "\n".join(["1", "# " + COLUMNS] + rows) + "\n\n"
        if command == "show stat":
            rows = ["{0},{1},0,{2},".format(*server, self.sessions_left) for server in self.states]
            return "\n".join(["# pxname,svname,qcur,scur,"] + rows) + "\n\n"
        if words[:2] == ["set", "server"]:
            self.states[tuple(words[2].split("/"))] = FLAGS[words[4]]
        if words[:3] == ["shutdown", "sessions", "server"]:
            self.sessions_left = 0
        return "\n"

    @contextlib.contextmanager
    def a_session(self):
        self.sessions_left = 1
        yield
        self.sessions_left = 0


def handler_of(haproxy):
    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            self.wfile.write(haproxy.answer(self.rfile.readline().decode().strip()).encode())

    return Handler


class Real(Imitation):
    """The program itself, as a master with a worker, as its packages run it."""

    _process = None

    def start(self):
        command = [REAL, "-W", "-db", "-f", str(self.config)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._await_worker(None)

    def stop(self):
        if self._process:
            self._process.terminate()
            self._process.wait()
            self._process = None
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.socket)

    def reload(self):
        worker = self._worker()
        self._process.send_signal(signal.SIGUSR2)
        self._await_worker(worker)

    @property
    def states(self):
        rows = [line.split() for line in self.ask("show servers state").splitlines()]
        return {(row[1], row[3]): int(row[6]) & ~DISABLED for row in rows if len(row) > 6 and row[0] != "#"}

    def answer(self, command):
        return self.ask(command)

    def ask(self, command):
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(10)
            link.connect(self.socket)
            link.sendall(command.encode() + b"\n")
            return b"".join(iter(lambda: link.recv(65536), b"")).decode()

    @contextlib.contextmanager
    def a_session(self):
        with socket.socket(socket.AF_UNIX) as service, socket.socket(socket.AF_UNIX) as client:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(str(self.home / "web0.sock"))
            service.bind(str(self.home / "web0.sock"))
            service.listen(5)
            client.connect(str(self.home / "front.sock"))
            served, _address = service.accept()
            with served:
                yield

    def _worker(self):
        try:
            answer = self.ask("show info")
        except OSError:
            return None
        return next((line for line in answer.splitlines() if line.startswith("Pid:")), None)

    def _await_worker(self, former):
        give_up_at = time.monotonic() + 30
        while self._worker() in (None, former):
            assert time.monotonic() < give_up_at, "HAProxy does not answer"
            assert self._process.poll() is None, "HAProxy has ended"
            time.sleep(0.02)
