# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs modules as Ansible would, against the simulator, and holds every result to the module's own documentation."""

import importlib
import json
import sys
from pathlib import Path

import pytest
import yaml
from ansible.module_utils import basic

SIMULATOR_FILES = Path(__file__).resolve().parents[4] / "roles" / "simulator" / "files"
PACKAGE = "ansible_collections.azops.maintenance.plugins.modules"
ALWAYS_ALLOWED = {"changed", "invocation", "diff", "warnings", "failed", "msg", "http_status", "exception"}
TYPES = {"str": str, "int": int, "bool": bool, "list": list, "dict": dict, "float": float}

sys.path.insert(0, str(SIMULATOR_FILES))
simulator_program = importlib.import_module("azops_simulator")


class Fleet:
    """A simulated fleet on a clock that only the test moves, and one module call on one of its VMs at a time."""

    def __init__(self, simulator, directory, capsys, monkeypatch):
        self.simulator = simulator
        self.journal_dir = directory / "journal"
        self.hold_file = directory / "hold"
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def call(self, module, on="vm0", check_mode=False, **options):
        """Run a module; the result as Ansible would see it."""
        documented = importlib.import_module("{0}.{1}".format(PACKAGE, module))
        known = documented_options(documented)
        ours = {"endpoint": self.simulator.url_for(on), "journal_dir": str(self.journal_dir)}
        ours.update(hold_file=str(self.hold_file))
        arguments = {name: value for name, value in ours.items() if name in known}
        arguments.update(options)
        arguments = {name: value for name, value in arguments.items() if value is not None}
        arguments.update(_ansible_check_mode=check_mode, _ansible_diff=True, _ansible_remote_tmp="/tmp")
        payload = json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode()
        self._monkeypatch.setattr(basic, "_ANSIBLE_ARGS", payload)
        self._monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
        self._capsys.readouterr()
        with pytest.raises(SystemExit):
            documented.main()
        result = json.loads(self._capsys.readouterr().out)
        result.pop("invocation", None)
        if not result.get("failed"):
            check_against_documentation(result, yaml.safe_load(documented.RETURN), ALWAYS_ALLOWED, module)
        return result

    def schedule(self, *vms, **options):
        options.setdefault("event_type", "Reboot")
        return self.simulator.schedule(options.pop("event_type"), vms=list(vms), **options)["event"]

    def approvals(self):
        return self.simulator.log_of("approval")


def documented_options(module):
    options = set(yaml.safe_load(module.DOCUMENTATION).get("options", {}))
    fragments = yaml.safe_load(module.DOCUMENTATION)["extends_documentation_fragment"]
    for fragment in fragments:
        name, part = fragment.split(".")[2], (fragment.split(".")[3:] or ["documentation"])[0]
        source = importlib.import_module("ansible_collections.azops.maintenance.plugins.doc_fragments." + name)
        options |= set(yaml.safe_load(getattr(source.ModuleDocFragment, part.upper()))["options"])
    return options


def check_against_documentation(value, documented, allowed, where):
    """Everything returned is documented, and is of the documented type."""
    for key, item in value.items():
        if key in allowed and key not in documented:
            continue
        assert key in documented, "{0} returns {1}, which is not documented".format(where, key)
        entry = documented[key]
        if item is None:
            continue
        assert isinstance(item, TYPES[entry["type"]]), "{0}.{1} is not a {2}".format(where, key, entry["type"])
        for part in item if entry.get("elements") == "dict" else [item] if entry["type"] == "dict" else []:
            if "contains" in entry:
                check_against_documentation(part, entry["contains"], (), "{0}.{1}".format(where, key))
                missing = set(entry["contains"]) - set(part)
                assert not missing, "{0}.{1} lacks {2}".format(where, key, missing)


@pytest.fixture
def fleet(tmp_path, capsys, monkeypatch):
    clock = simulator_program.ManualClock()
    with simulator_program.Simulator(clock=clock, rate_limit=0) as simulator:
        yield Fleet(simulator, tmp_path, capsys, monkeypatch)


@pytest.fixture(autouse=True)
def as_on_a_managed_node(monkeypatch):
    """Modules hand their warnings back, also if tests of the controller's plugins were imported before."""
    try:
        internal = importlib.import_module("ansible.module_utils._internal")
    except ImportError:
        return
    monkeypatch.setattr(internal, "is_controller", False)
