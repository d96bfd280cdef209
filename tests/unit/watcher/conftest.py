# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The watcher laid out as the role installs it: its program with the collection's core beside it."""

import atexit
import json
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

COLLECTION = Path(__file__).resolve().parents[3]


def lay_out():
    place = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, str(place), ignore_errors=True)
    (place / "azops_core").symlink_to(COLLECTION / "plugins" / "module_utils")
    (place / "azops_watcher").symlink_to(COLLECTION / "roles" / "watcher" / "files" / "azops_watcher")
    sys.path[:0] = [str(place), str(COLLECTION / "roles" / "simulator" / "files")]


lay_out()

from azops_simulator import ManualClock, Simulator  # noqa: E402
from azops_watcher import watcher as watcher_program  # noqa: E402
from azops_watcher.config import Paths, load_config, load_secrets  # noqa: E402
from azops_watcher.hooks import RootUnit  # noqa: E402


class Machine:
    """One VM: a simulated metadata service, a file system of its own, a watcher and its root unit."""

    def __init__(self, simulator, root, monkeypatch):
        self.simulator = simulator
        self.root = root
        self.paths = Paths(str(root))
        self.lines = []
        self.now = 1000.0
        self.wall = simulator.clock.wall()
        self.watcher = None
        for directory in (self.paths.state, self.paths.public, self.paths.hold.rsplit("/", 1)[0]):
            Path(directory).mkdir(parents=True)
        for phase in ("scheduled", "started", "gone"):
            (root / "etc/azops-watcher/hooks.d" / (phase + ".d")).mkdir(parents=True)
        monkeypatch.setattr(watcher_program, "log_line", self._log)
        self.configure()

    def _log(self, message, fields, priority=5, identifier=""):
        self.lines.append(message)

    def configure(self, **config):
        """Write the configuration and start the watcher anew with it."""
        self.config = dict({"endpoint": self.simulator.url_for("vm0"), "hook_timeout": 30, "margin": 1}, **config)
        Path(self.paths.config).write_text(json.dumps(self.config))
        self.start()

    def start(self, mode="service"):
        self.watcher = watcher_program.Watcher(
            self.paths,
            load_config(self.paths),
            load_secrets(self.paths),
            mode,
            clock=lambda: self.wall,
            monotonic=lambda: self.now,
            sleep=self.wait,
        )

    def wait(self, seconds):
        self.now += seconds
        self.wall += seconds

    def poll(self, times=1, after=1.0):
        for _number in range(times):
            self.watcher.poll()
            self.wait(after)

    def run_hooks(self):
        return RootUnit(self.paths, load_config(self.paths)).run_all()

    def hook(self, phase, name="10-hook", body="cat > {root}/{phase}.json", mode=0o755):
        path = self.root / "etc/azops-watcher/hooks.d" / (phase + ".d") / name
        path.write_text("#!/bin/sh\n" + body.format(root=self.root, phase=phase) + "\n")
        path.chmod(mode)
        return path

    def hooks_for_all_phases(self):
        for phase in ("scheduled", "started", "gone"):
            self.hook(phase)

    def ran(self, phase):
        path = self.root / (phase + ".json")
        return json.loads(path.read_text()) if path.exists() else None

    def schedule(self, *vms, **options):
        return self.simulator.schedule(options.pop("kind", "Reboot"), vms=list(vms or ["vm0"]), **options)["event"]

    def approvals(self):
        return self.simulator.log_of("approval")

    @property
    def state(self):
        return json.loads(Path(self.paths.public_state).read_text())

    def said(self, words):
        return [line for line in self.lines if words in line]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    with Simulator(clock=ManualClock(), rate_limit=0) as simulator:
        yield Machine(simulator, tmp_path, monkeypatch)
