# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""drain_file: a flag is set, waited for, and removed if it is ours."""

import os
import time

import pytest


class Flag:
    """A flag on a VM with an open entry in its journal."""

    def __init__(self, fleet, path):
        self._fleet = fleet
        self.path = path
        fleet.call("maintenance_journal", action="begin", event_id="E1", vm="vm0")

    def call(self, state="drained", **options):
        return self._fleet.call(
            "drain_file", state=state, event_ids=["E1"], vm="vm0", **dict({"path": str(self.path)}, **options)
        )

    def changes(self):
        return self._fleet.call("maintenance_journal", event_id="E1", vm="vm0")["entries"][0]["changes"]


@pytest.fixture
def flag(fleet, tmp_path):
    (tmp_path / "www").mkdir()
    return Flag(fleet, tmp_path / "www" / "maintenance")


def test_the_flag_is_set_once_and_removed(flag):
    assert flag.call()["changed"]
    assert "out of service" in flag.path.read_text()
    assert flag.path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(flag.path.parent) == ["maintenance"]
    assert not flag.call()["changed"]
    assert flag.call("restored")["changed"]
    assert not flag.path.exists()
    assert not flag.call("restored")["changed"]


def test_a_flag_that_was_there_before_stays(flag):
    flag.path.write_text("mine")
    assert not flag.call()["changed"]
    assert not flag.call("restored")["changed"]
    assert flag.path.read_text() == "mine"


def test_a_flag_that_somebody_has_written_to_stays(flag):
    flag.call()
    flag.path.write_text("do not send anybody here yet")
    assert "it stays" in str(flag.call("restored")["warnings"])
    assert flag.path.exists()


def test_a_flag_that_was_lost_is_set_again_and_noted_once(flag):
    flag.call()
    flag.path.unlink()
    assert flag.call()["changed"]
    assert len(flag.changes()) == 1
    flag.call("restored")
    assert not flag.path.exists()


def test_only_a_young_flag_is_waited_for(flag):
    begun = time.monotonic()
    flag.call(settle_seconds=1)
    assert time.monotonic() - begun >= 0.9
    an_hour_ago = time.time() - 3600
    os.utime(str(flag.path), (an_hour_ago, an_hour_ago))
    begun = time.monotonic()
    flag.call(settle_seconds=600, timeout=1)
    assert time.monotonic() - begun < 0.9


def test_a_flag_from_the_future_is_waited_for_no_longer_than_the_setting(flag):
    tomorrow = time.time() + 86400
    flag.path.write_text("")
    os.utime(str(flag.path), (tomorrow, tomorrow))
    assert not flag.call(settle_seconds=1, timeout=30).get("failed")


def test_probes_that_need_longer_than_there_is_time_are_an_error_and_the_flag_is_set(flag):
    result = flag.call(settle_seconds=600, timeout=0)
    assert result["failed"]
    for word in ("vm0", "E1", str(flag.path), "drain_settle_seconds"):
        assert word in result["msg"]
    assert flag.path.exists()


def test_check_mode_sets_no_flag(flag):
    assert flag.call(check_mode=True, settle_seconds=600)["diff"]["after"] == {str(flag.path): "present"}
    assert not flag.path.exists()
    assert not flag.changes()


def test_check_mode_removes_no_flag(flag):
    flag.call()
    assert flag.call("restored", check_mode=True)["changed"]
    assert flag.path.exists()


def test_a_missing_directory_is_an_error(flag):
    result = flag.call(path="/nonexistent/flag")
    assert "/nonexistent" in result["msg"]
    assert not flag.changes()


@pytest.mark.parametrize("path", ["flag", "/"])
def test_what_is_no_absolute_path_of_a_file_is_refused(flag, path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert flag.call(path=path)["failed"]


def test_a_link_in_the_flags_place_is_not_followed(flag, tmp_path):
    flag.path.symlink_to(tmp_path / "elsewhere")
    assert not flag.call()["changed"]
    assert not (tmp_path / "elsewhere").exists()


def test_facts_of_another_version_are_not_guessed_at(flag, fleet):
    facts = {"flag": str(flag.path)}
    fleet.call("maintenance_journal", action="change", event_id="E1", vm="vm0", backend="file", facts=facts)
    assert flag.call("restored")["error_kind"] == "journal"
