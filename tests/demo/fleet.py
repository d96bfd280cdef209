# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Six small web servers on this machine, a balancer's view of them, and a client that never stops asking.

fleet.py topology DIRECTORY        print the simulator's topology: a reboot really ends and starts a server
fleet.py load DIRECTORY            start the servers and ask them until SIGTERM, counting what fails
fleet.py reboot DIRECTORY VM       what Azure does to a VM: end its server, let it boot, start it again
"""

import http.client
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

VMS = {"vm0": 0, "vm1": 1, "vm2": 2, "vm3": 0, "vm4": 1, "vm5": 2}
BOOT_SECONDS = 3
HEALTH_SECONDS = 1
REQUEST_SECONDS = 0.02


def topology(directory: Path) -> None:
    vms = [
        {
            "name": vm,
            "update_domain": domain,
            "impact": [sys.executable, os.path.abspath(__file__), "reboot", str(directory), vm],
        }
        for vm, domain in VMS.items()
    ]
    scope = {"name": "shop", "type": "availability_set", "vms": vms}
    print(json.dumps({"settings": {"rate_limit": 0}, "scopes": [scope]}))


class Handler(http.server.BaseHTTPRequestHandler):
    """A page, and a health check that says no while the VM is drained."""

    protocol_version = "HTTP/1.1"
    flag = Path()

    def do_GET(self) -> None:
        is_drained = self.path == "/health" and self.flag.exists()
        body = b"drained\n" if is_drained else b"hello\n"
        self.send_response(503 if is_drained else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        pass


def serve(directory: Path, vm: str) -> None:
    Handler.flag = directory / (vm + ".drained")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port = directory / (vm + ".port")
    port.with_suffix(".new").write_text("{0} {1}".format(server.server_address[1], os.getpid()))
    port.with_suffix(".new").rename(port)
    server.serve_forever()


def start(directory: Path, vm: str) -> None:
    command = [sys.executable, os.path.abspath(__file__), "serve", str(directory), vm]
    subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)


def reboot(directory: Path, vm: str) -> None:
    _port, pid = (directory / (vm + ".port")).read_text().split()
    os.kill(int(pid), signal.SIGKILL)
    time.sleep(BOOT_SECONDS)
    start(directory, vm)


class Load:
    """Asks the servers that are healthy, in turn, and counts."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._healthy: "list[str]" = []
        self._stop = threading.Event()
        self.asked = 0
        self.failed = 0

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: self._stop.set())
        for vm in VMS:
            start(self._directory, vm)
        while not self._stop.wait(0.05) and not all((self._directory / (vm + ".port")).exists() for vm in VMS):
            pass
        threading.Thread(target=self._check, daemon=True).start()
        turn = 0
        while not self._stop.wait(REQUEST_SECONDS):
            healthy = self._healthy
            if not healthy:
                continue
            turn += 1
            self.asked += 1
            if self._get(healthy[turn % len(healthy)], "/") != 200:
                self.failed += 1
            self._write()
        for vm in VMS:
            os.kill(int((self._directory / (vm + ".port")).read_text().split()[1]), signal.SIGKILL)

    def _check(self) -> None:
        while not self._stop.wait(HEALTH_SECONDS):
            found = [vm for vm in VMS if self._get(vm, "/health") == 200]
            self._healthy = found

    def _get(self, vm: str, path: str) -> int:
        port = int((self._directory / (vm + ".port")).read_text().split()[0])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def _write(self) -> None:
        counts = self._directory / "counts.json"
        counts.with_suffix(".new").write_text(json.dumps({"asked": self.asked, "failed": self.failed}))
        counts.with_suffix(".new").rename(counts)


def main() -> None:
    action, directory = sys.argv[1], Path(sys.argv[2])
    if action == "topology":
        topology(directory)
    elif action == "load":
        Load(directory).run()
    elif action == "serve":
        serve(directory, sys.argv[3])
    elif action == "reboot":
        reboot(directory, sys.argv[3])
    else:
        sys.exit("unknown action " + action)


if __name__ == "__main__":
    main()
