# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""drain_systemd: units are stopped, kept stopped, and only those that ran are started again."""

import json
import os
import sys
from pathlib import Path

import pytest

from ansible_collections.azops.maintenance.plugins.modules import drain_systemd

# Enough of systemctl: units in a JSON file, drop-ins read at a daemon-reload, jobs that hang or fail on demand.
SYSTEMCTL = """#!{python} -IS
import json, os, pathlib, sys, time
home, dropins = pathlib.Path({home!r}), pathlib.Path({dropins!r})
units = json.loads((home / "units.json").read_text())
words = [word for word in sys.argv[1:] if not word.startswith("--")]
with (home / "calls").open("a") as calls:
    calls.write(" ".join(words) + "\\n")
verb, name = words[0], words[-1]
unit = units.get(name)
guards = [str(path) for path in dropins.glob(name + ".d/*.conf")]
if verb == "show":
    unit = unit or {{"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead"}}
    for key in ("LoadState", "ActiveState", "SubState", "TriggeredBy"):
        print(key + "=" + unit.get(key, ""))
    print("Id=" + unit.get("Id", name))
    print("DropInPaths=" + " ".join(unit.get("DropInPaths", [])))
elif verb == "daemon-reload":
    for name, unit in units.items():
        unit["DropInPaths"] = [str(path) for path in dropins.glob(name + ".d/*.conf")]
elif verb == "stop":
    if unit.get("hangs"):
        time.sleep(60)
    if unit.get("fails"):
        sys.exit("Job for it failed.")
    if not unit.get("returns"):
        unit.update(ActiveState="inactive", SubState="dead")
elif verb == "start":
    if unit.get("fails"):
        sys.exit("Job for it failed.")
    if not unit.get("DropInPaths"):
        unit.update(ActiveState="active", SubState="running")
(home / "units.json").write_text(json.dumps(units))
"""
EVENT = ["E1"]


class Systemd:
    """A VM's systemd, of which a test says what units it has."""

    def __init__(self, fleet, home, monkeypatch):
        self._fleet = fleet
        self._home = home
        self.dropins = home / "system"
        program = home / "bin" / "systemctl"
        program.parent.mkdir(parents=True)
        program.write_text(SYSTEMCTL.format(python=sys.executable, home=str(home), dropins=str(self.dropins)))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
        monkeypatch.setattr(drain_systemd, "UNIT_DIRECTORY", str(self.dropins))
        (home / "units.json").write_text("{}")

    def has(self, name, active="active", **properties):
        units = self.units()
        sub = {"active": "running", "inactive": "dead"}.get(active, active)
        units[name] = dict({"LoadState": "loaded", "ActiveState": active, "SubState": sub}, **properties)
        (self._home / "units.json").write_text(json.dumps(units))

    def units(self):
        return json.loads((self._home / "units.json").read_text())

    def state(self, name):
        return self.units()[name]["ActiveState"]

    def calls(self):
        calls = self._home / "calls"
        return (
            [line for line in calls.read_text().splitlines() if not line.startswith("show")] if calls.exists() else []
        )

    def guard(self, name):
        return self.dropins / (name + ".d") / drain_systemd.GUARD

    def call(self, state="drained", event_ids=None, **options):
        return self._fleet.call("drain_systemd", state=state, event_ids=event_ids or EVENT, vm="vm0", **options)

    def begin(self, event_id="E1"):
        self._fleet.call("maintenance_journal", action="begin", event_id=event_id, vm="vm0")

    def entry(self, event_id="E1"):
        return self._fleet.call("maintenance_journal", event_id=event_id, vm="vm0")["entries"][0]


@pytest.fixture
def systemd(fleet, tmp_path, monkeypatch):
    systemd = Systemd(fleet, tmp_path / "systemd", monkeypatch)
    systemd.begin()
    return systemd


def test_a_unit_is_stopped_and_kept_stopped(systemd):
    systemd.has("nginx.service")
    result = systemd.call(units=["nginx"])
    assert result["changed"]
    assert systemd.state("nginx.service") == "inactive"
    assert b"ConditionPathExists=" in systemd.guard("nginx.service").read_bytes()
    assert systemd.calls() == ["daemon-reload", "stop nginx.service"]
    assert result["units"][0]["after"] == "inactive (dead), kept from starting"


def test_a_second_drain_changes_nothing(systemd):
    systemd.has("nginx.service")
    systemd.call(units=["nginx"])
    calls = systemd.calls()
    assert not systemd.call(units=["nginx"])["changed"]
    assert systemd.calls() == calls
    assert len(systemd.entry()["changes"]) == 1


def test_what_ran_is_started_and_nothing_is_left(systemd):
    systemd.has("nginx.service")
    systemd.call(units=["nginx"])
    assert systemd.call("restored")["changed"]
    assert systemd.state("nginx.service") == "active"
    assert not systemd.guard("nginx.service").parent.exists()
    assert systemd.entry()["changes"][0]["undone_at"] is not None
    assert not systemd.call("restored")["changed"]


def test_a_unit_that_somebody_had_stopped_stays_stopped(systemd):
    systemd.has("nginx.service", "inactive")
    systemd.call(units=["nginx"])
    assert systemd.guard("nginx.service").exists()
    systemd.call("restored")
    assert systemd.state("nginx.service") == "inactive"
    assert not systemd.guard("nginx.service").exists()


@pytest.mark.parametrize("state", ["failed", "deactivating"])
def test_a_unit_that_does_not_run_properly_is_not_started(systemd, state):
    systemd.has("nginx.service", state)
    systemd.call(units=["nginx"])
    systemd.call("restored")
    assert systemd.state("nginx.service") != "active"


def test_a_unit_that_is_waiting_to_be_started_again_counts_as_running(systemd):
    systemd.has("nginx.service", "activating", SubState="auto-restart")
    systemd.call(units=["nginx"])
    systemd.call("restored")
    assert systemd.state("nginx.service") == "active"


def test_a_drain_that_was_killed_after_the_note_is_finished_by_the_next(systemd, fleet):
    systemd.has("nginx.service")
    facts = {"unit": "nginx.service", "ran": True, "kept_stopped": True}
    fleet.call("maintenance_journal", action="change", event_id="E1", vm="vm0", backend="systemd", facts=facts)
    systemd.guard("nginx.service").parent.mkdir(parents=True)
    systemd.guard("nginx.service").write_bytes(drain_systemd.GUARD_CONTENT)
    assert systemd.call(units=["nginx"])["changed"]
    assert systemd.calls() == ["daemon-reload", "stop nginx.service"]
    assert len(systemd.entry()["changes"]) == 1


def test_what_first_was_found_counts_although_a_boot_brought_the_unit_back(systemd):
    systemd.has("nginx.service", "inactive")
    systemd.call(units=["nginx"])
    systemd.has("nginx.service", "active")
    assert systemd.call(units=["nginx"])["changed"]
    systemd.call("restored")
    assert systemd.state("nginx.service") == "inactive"


def test_units_are_started_in_the_reverse_order(systemd):
    systemd.has("a.service")
    systemd.has("b.socket")
    systemd.call(units=["a", "b.socket"])
    systemd.call("restored")
    assert [call for call in systemd.calls() if "reload" not in call] == [
        "stop a.service",
        "stop b.socket",
        "start b.socket",
        "start a.service",
    ]


def test_without_keeping_it_stopped_nothing_is_written(systemd):
    systemd.has("nginx.service")
    systemd.call(units=["nginx"], keep_stopped=False)
    assert not systemd.dropins.exists()
    assert systemd.state("nginx.service") == "inactive"
    systemd.call("restored")
    assert systemd.state("nginx.service") == "active"


def test_what_can_start_it_is_told(systemd):
    systemd.has("web.service", TriggeredBy="web.socket")
    systemd.has("web.socket")
    assert "web.socket" in str(systemd.call(units=["web"], keep_stopped=False)["warnings"])


def test_check_mode_touches_nothing_and_says_what_would_be_done(systemd):
    systemd.has("nginx.service")
    result = systemd.call(units=["nginx"], check_mode=True)
    assert result["changed"]
    assert result["diff"]["before"] == {"nginx.service": "active (running)"}
    assert result["diff"]["after"] == {"nginx.service": "inactive (dead), kept from starting"}
    assert not systemd.calls()
    assert not systemd.dropins.exists()
    assert not systemd.entry()["changes"]


def test_restoring_in_check_mode_starts_nothing(systemd):
    systemd.has("nginx.service")
    systemd.call(units=["nginx"])
    assert systemd.call("restored", check_mode=True)["changed"]
    assert systemd.state("nginx.service") == "inactive"
    assert systemd.guard("nginx.service").exists()
    assert systemd.entry()["changes"][0]["undone_at"] is None


def test_a_stop_that_hangs_is_an_error_that_names_everything(systemd):
    systemd.has("nginx.service", hangs=True)
    result = systemd.call(units=["nginx"], timeout=1)
    assert result["failed"]
    for word in (
        "vm0",
        "E1",
        "nginx.service did not stop within 1 s",
        "active (running)",
        "journalctl -u nginx.service",
    ):
        assert word in result["msg"]


def test_a_stop_that_does_not_last_is_an_error(systemd):
    systemd.has("nginx.service", returns=True)
    assert "Something starts it again" in systemd.call(units=["nginx"])["msg"]


def test_a_unit_that_does_not_start_is_tried_again_next_time_and_the_others_come_back(systemd):
    systemd.has("a.service")
    systemd.has("b.service")
    systemd.call(units=["a", "b"])
    systemd.has("b.service", "inactive", fails=True, DropInPaths=[str(systemd.guard("b.service"))])
    result = systemd.call("restored")
    assert result["failed"]
    assert "b.service did not start: Job for it failed." in result["msg"]
    assert systemd.state("a.service") == "active"
    systemd.has("b.service", "inactive")
    systemd.call("restored")
    assert systemd.state("b.service") == "active"


def test_a_unit_that_somebody_masked_in_between_stays_stopped(systemd):
    systemd.has("nginx.service")
    systemd.call(units=["nginx"])
    systemd.has("nginx.service", "inactive", LoadState="masked")
    assert "somebody has masked it" in str(systemd.call("restored")["warnings"])
    assert systemd.state("nginx.service") == "inactive"


def test_a_unit_that_is_not_there_is_an_error_before_anything_is_stopped(systemd):
    systemd.has("nginx.service")
    result = systemd.call(units=["nginx", "ngnix"])
    assert "no unit ngnix.service" in result["msg"]
    assert systemd.state("nginx.service") == "active"


@pytest.mark.parametrize("name", ["--help", "a b", "a/b.service", "*.service", "a;b", "", "x\n.service"])
def test_what_is_no_name_of_a_unit_is_refused(systemd, name):
    assert systemd.call(units=[name])["error_kind"] == "input"


def test_without_an_open_entry_nothing_is_stopped(systemd):
    systemd.has("nginx.service")
    assert systemd.call(units=["nginx"], event_ids=["E2"])["error_kind"] == "journal"
    assert systemd.state("nginx.service") == "active"


def test_a_unit_that_is_out_for_another_event_is_not_noted_twice(systemd):
    systemd.begin("E2")
    systemd.has("nginx.service")
    systemd.call(units=["nginx"])
    assert not systemd.call(units=["nginx"], event_ids=["E2"])["changed"]
    assert not systemd.entry("E2")["changes"]


def test_an_alias_is_noted_by_the_units_own_name(systemd):
    systemd.has("mysql.service", Id="mariadb.service")
    systemd.has("mariadb.service")
    systemd.call(units=["mysql"])
    assert systemd.entry()["changes"][0]["facts"]["unit"] == "mariadb.service"


def test_without_systemd_it_says_so(fleet, tmp_path, monkeypatch):
    fleet.call("maintenance_journal", action="begin", event_id="E1", vm="vm0")
    monkeypatch.setenv("PATH", str(tmp_path))
    result = fleet.call("drain_systemd", event_ids=EVENT, vm="vm0", units=["nginx"])
    assert "Cannot run systemctl" in result["msg"]


def test_the_guard_is_the_last_drop_in():
    assert Path(drain_systemd.guard_path("nginx")).name > "override.conf"
