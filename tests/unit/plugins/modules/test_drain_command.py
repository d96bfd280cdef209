# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""drain_command: the user's commands are run in time and in order, and remembered by name."""

import sys
import time

import pytest


class Commands:
    """Commands that write a log, on a VM with an open entry in its journal."""

    def __init__(self, fleet, directory):
        self._fleet = fleet
        self.log = directory / "log"
        fleet.call("maintenance_journal", action="begin", event_id="E1", vm="vm0")

    def command(self, name, status=0, **verbs):
        logging = "import sys; open({0!r}, 'a').write(sys.argv[1] + '\\n'); sys.exit(int(sys.argv[2]))".format(
            str(self.log)
        )
        argv = [sys.executable, "-IS", "-c", logging]
        made = {verb: argv + ["{0} {1}".format(verb, name), str(status)] for verb in ("drain", "restore")}
        return dict(made, name=name, **verbs)

    def call(self, commands, state="drained", **options):
        return self._fleet.call("drain_command", state=state, event_ids=["E1"], vm="vm0", commands=commands, **options)

    def ran(self):
        return self.log.read_text().splitlines() if self.log.exists() else []

    def journal(self):
        return self._fleet.call("maintenance_journal", event_id="E1", vm="vm0")["entries"][0]


@pytest.fixture
def commands(fleet, tmp_path):
    return Commands(fleet, tmp_path)


def test_commands_are_run_in_order_and_undone_in_the_reverse(commands):
    both = [commands.command("one"), commands.command("two")]
    assert commands.call(both)["changed"]
    assert commands.call(both, "restored")["changed"]
    assert commands.ran() == ["drain one", "drain two", "restore two", "restore one"]
    assert not commands.call(both, "restored")["changed"]


def test_a_command_that_succeeded_is_not_run_again(commands):
    one = [commands.command("one")]
    commands.call(one)
    assert not commands.call(one)["changed"]
    assert commands.ran() == ["drain one"]


def test_a_command_that_failed_is_run_again_and_undone(commands):
    result = commands.call([commands.command("one", status=3)])
    assert result["failed"]
    for word in ("vm0", "E1", "'one'", "ended with 3", "drain_commands"):
        assert word in result["msg"]
    commands.call([commands.command("one")])
    commands.call([commands.command("one")], "restored")
    assert commands.ran() == ["drain one", "drain one", "restore one"]


def test_what_is_not_out_any_more_is_drained_again(commands, tmp_path):
    out = tmp_path / "out"
    one = [
        commands.command(
            "one", verify=["test", "-e", str(out)], drain=["touch", str(out)], restore=["rm", "-f", str(out)]
        )
    ]
    assert commands.call(one)["commands"] == [{"name": "one", "ran": ["drain", "verify"]}]
    assert not commands.call(one)["changed"]
    out.unlink()
    assert commands.call(one)["changed"]
    assert out.exists()


def test_the_journal_holds_names_and_no_commands(commands):
    commands.call([commands.command("one")])
    facts = [change["facts"] for change in commands.journal()["changes"]]
    assert facts == [{"name": "one", "finished": False}, {"name": "one", "finished": True}]


def test_a_command_that_hangs_is_killed_with_what_it_started(commands, tmp_path):
    begun = time.monotonic()
    script = "sleep 60 & echo $! > {0}; wait".format(tmp_path / "child")
    result = commands.call([{"name": "slow", "drain": ["sh", "-c", script]}], timeout=1)
    assert "not over within 1 s" in result["msg"]
    assert time.monotonic() - begun < 30
    child = (tmp_path / "child").read_text().strip()
    give_up_at = time.monotonic() + 10
    while is_alive(child) and time.monotonic() < give_up_at:
        time.sleep(0.02)
    assert not is_alive(child)


def is_alive(process):
    try:
        with open("/proc/{0}/stat".format(process), encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_what_a_command_leaves_in_the_background_is_not_waited_for(commands):
    begun = time.monotonic()
    assert not commands.call([{"name": "daemon", "drain": ["sh", "-c", "sleep 5 &"]}]).get("failed")
    assert time.monotonic() - begun < 4


def test_what_nobody_knows_how_to_undo_is_an_error(commands):
    commands.call([commands.command("one"), commands.command("two")])
    result = commands.call([commands.command("two")], "restored")
    assert "'one' was run at the drain" in result["msg"]
    assert commands.ran()[-1] == "restore two"


def test_a_program_that_is_not_there_is_an_error(commands):
    assert "cannot be run" in commands.call([{"name": "one", "drain": ["/nonexistent"]}])["msg"]


def test_nothing_is_taken_by_a_shell(commands, tmp_path):
    commands.call([{"name": "one", "drain": ["touch", str(tmp_path / "a; b $(c)")]}])
    assert (tmp_path / "a; b $(c)").exists()


def test_check_mode_runs_nothing(commands):
    result = commands.call([commands.command("one", verify=["false"])], check_mode=True)
    assert result["changed"]
    assert result["commands"] == [{"name": "one", "ran": ["drain", "verify"]}]
    assert not commands.ran()
    assert not commands.journal()["changes"]


def test_two_commands_of_one_name_are_refused(commands):
    assert commands.call([commands.command("one"), commands.command("one")])["error_kind"] == "input"
