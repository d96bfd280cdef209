# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""drain_haproxy: a server is drained, stays so through reloads and restarts, and is ready again afterwards."""

import importlib.util
import threading
from pathlib import Path

import pytest

from ansible_collections.azops.maintenance.plugins.module_utils import _haproxy

specification = importlib.util.spec_from_file_location("haproxies", str(Path(__file__).with_name("haproxies.py")))
haproxies = importlib.util.module_from_spec(specification)
specification.loader.exec_module(haproxies)

real_only = pytest.mark.skipif(haproxies.REAL is None, reason="this machine has no haproxy")
KINDS = [pytest.param(haproxies.Imitation, id="imitation"), pytest.param(haproxies.Real, id="real", marks=real_only)]
DRAINED = {("web", "web0"): 8, ("web", "web1"): 1, ("other", "web0"): 8}
AS_BEFORE = {("web", "web0"): 0, ("web", "web1"): 1, ("other", "web0"): 0}


def with_state(states, server, state):
    changed = dict(states)
    changed[server] = state
    return changed


class Balancer:
    """A host with HAProxy, and module calls on it."""

    def __init__(self, haproxy, fleet):
        self.haproxy = haproxy
        self._fleet = fleet

    def call(self, state="drained", event_ids=("E1",), vm="vm0", **options):
        ours = {
            "server": "web0",
            "socket": self.haproxy.socket,
            "config_files": [str(self.haproxy.config)],
            "timeout": 20,
        }
        ours.update(options)
        return self._fleet.call("drain_haproxy", state=state, event_ids=list(event_ids), vm=vm, **ours)

    def entries(self):
        return self._fleet.call("maintenance_journal")["entries"]

    @property
    def states(self):
        return self.haproxy.states


@pytest.fixture(params=KINDS)
def balancer(request, fleet, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(_haproxy, "RELOAD_WITHIN", 0.2)
    haproxy = request.param(tmp_path_factory.mktemp("h"))
    haproxy.start()
    yield Balancer(haproxy, fleet)
    haproxy.stop()


@pytest.fixture
def imitation(fleet, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(_haproxy, "RELOAD_WITHIN", 0.2)
    haproxy = haproxies.Imitation(tmp_path_factory.mktemp("h"))
    haproxy.start()
    yield Balancer(haproxy, fleet)
    haproxy.stop()


def test_a_server_is_drained_in_all_backends_and_made_ready_again(balancer):
    result = balancer.call()
    assert result["changed"]
    assert result["diff"]["before"] == {"web/web0": "ready", "other/web0": "ready"}
    assert result["diff"]["after"] == {"web/web0": "drain", "other/web0": "drain"}
    assert balancer.states == DRAINED
    assert not balancer.call()["changed"]
    assert balancer.call("restored")["changed"]
    assert balancer.states == AS_BEFORE
    assert not balancer.call("restored")["changed"]


def test_only_the_given_backends_are_touched(balancer):
    balancer.call(backends=["web"])
    assert balancer.states == with_state(DRAINED, ("other", "web0"), 0)


def test_the_drain_survives_a_restart_and_the_restore_does_too(balancer):
    balancer.call()
    balancer.haproxy.restart()
    assert balancer.states == DRAINED
    assert not balancer.call()["changed"]
    balancer.call("restored")
    balancer.haproxy.restart()
    assert balancer.states == AS_BEFORE


@real_only
def test_the_drain_survives_a_reload(fleet, tmp_path_factory):
    haproxy = haproxies.Real(tmp_path_factory.mktemp("h"))
    haproxy.start()
    try:
        balancer = Balancer(haproxy, fleet)
        balancer.call()
        haproxy.reload()
        assert balancer.states == DRAINED
        balancer.call("restored")
        haproxy.reload()
        assert balancer.states == AS_BEFORE
    finally:
        haproxy.stop()


@pytest.mark.parametrize("state", ["maint", "drain"])
def test_a_server_that_somebody_had_taken_out_stays_out(balancer, state):
    for backend in ("web", "other"):
        balancer.haproxy.answer("set server {0}/web0 state {1}".format(backend, state))
    before = balancer.states
    assert balancer.call()["diff"]["after"] == {"web/web0": state, "other/web0": state}
    balancer.call("restored")
    assert balancer.states == before


def test_a_server_that_somebody_put_into_maint_since_stays_so(balancer):
    balancer.call()
    balancer.haproxy.answer("set server web/web0 state maint")
    assert "it stays so" in str(balancer.call("restored")["warnings"])
    assert balancer.states == with_state(AS_BEFORE, ("web", "web0"), 1)


def test_what_somebody_made_ready_is_drained_again_and_noted_once(balancer):
    balancer.call()
    balancer.haproxy.answer("set server web/web0 state ready")
    assert balancer.call()["changed"]
    assert balancer.states == DRAINED
    assert len(balancer.entries()[0]["changes"]) == 2


def test_sessions_are_waited_for(balancer):
    with balancer.haproxy.a_session():
        result = balancer.call(timeout=1)
        assert result["failed"]
        for word in ("vm0", "E1", "web/web0", "1 session after 1 s", "drain_haproxy_shut_sessions_after"):
            assert word in result["msg"]
        assert not balancer.call(wait_for_sessions=False).get("failed")
    assert not balancer.call().get("failed")


def test_sessions_that_do_not_end_are_cut_off_where_that_is_wanted(balancer):
    with balancer.haproxy.a_session():
        assert not balancer.call(shut_sessions_after=1, timeout=20).get("failed")


def test_check_mode_touches_nothing(balancer):
    assert balancer.call(check_mode=True)["changed"]
    assert balancer.states == AS_BEFORE
    assert not balancer.haproxy.state_file.exists()
    assert balancer.entries() == []
    balancer.call()
    assert balancer.call("restored", check_mode=True)["changed"]
    assert balancer.states == DRAINED
    assert balancer.entries()[0]["is_open"]


def test_the_entry_is_opened_and_closed(imitation):
    imitation.call(event_ids=["E2", "e1"])
    entries = imitation.entries()
    assert sorted((entry["event_id"], entry["vm"], entry["phase"]) for entry in entries) == [
        ("E2", "vm0", "drained"),
        ("e1", "vm0", "drained"),
    ]
    assert {entry["event_id"]: len(entry["changes"]) for entry in entries} == {"e1": 2, "E2": 0}
    imitation.call("restored", event_ids=["E1", "e2"])
    assert not any(entry["is_open"] for entry in imitation.entries())


def test_a_vm_that_is_out_for_another_event_stays_out(imitation):
    imitation.call()
    imitation.call(event_ids=["E2"])
    assert imitation.call("restored")["handed_over_to"] == "E2"
    assert imitation.states == DRAINED
    imitation.call("restored", event_ids=["E2"])
    assert imitation.states == AS_BEFORE
    assert not any(entry["is_open"] for entry in imitation.entries())


def test_the_entry_of_a_vm_with_a_haproxy_of_its_own_is_left_to_others(imitation, fleet):
    fleet.call("maintenance_journal", action="begin", event_id="E1", vm="vm0")
    imitation.call(own_entry=False)
    imitation.call("restored", own_entry=False)
    assert imitation.entries()[0]["phase"] == "draining"
    assert imitation.states == AS_BEFORE


def test_a_haproxy_that_is_down_is_an_error_at_the_drain(imitation):
    imitation.haproxy.stop()
    result = imitation.call()
    assert "does not answer on {0}".format(imitation.haproxy.socket) in result["msg"]
    assert imitation.entries() == []


def test_a_haproxy_that_is_down_comes_back_ready_after_the_restore(balancer):
    balancer.call()
    balancer.haproxy.stop()
    assert "will be ready" in str(balancer.call("restored")["warnings"])
    balancer.haproxy.start()
    assert balancer.states == AS_BEFORE


def test_vms_at_the_same_time_do_not_lose_each_others_lines(tmp_path):
    names = ["web{0}".format(number) for number in range(20)]
    servers = [
        _haproxy.Server("web", name, 0, "# " + haproxies.COLUMNS, haproxies.LINE.format(3, "web", 1, name, 0, 9))
        for name in names
    ]
    state_file = _haproxy.StateFile(str(tmp_path / "server-state"))
    in_parallel(state_file.put, [(server,) for server in servers])
    assert all(state_file.has(server) for server in servers)
    in_parallel(state_file.drop, [("web", name) for name in names[1:]])
    assert [state_file.has(server) for server in servers] == [True] + [False] * 19


def in_parallel(work, arguments):
    threads = [threading.Thread(target=work, args=one) for one in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_lines_of_others_in_the_state_file_stay(imitation):
    other = haproxies.LINE.format(3, "web", 2, "web1", 1, 9)
    ours = haproxies.LINE.format(3, "web", 1, "web0", 8, 9)
    imitation.haproxy.state_file.write_text("\n".join(["1", "# " + haproxies.COLUMNS, ours, other]) + "\n")
    imitation.call()
    imitation.call("restored")
    assert imitation.haproxy.state_file.read_text().splitlines()[2:] == [other]


def test_without_a_state_file_the_lines_to_add_are_told_before_anything_is_done(imitation):
    config = imitation.haproxy.config
    config.write_text(config.read_text().replace("load-server-state-from-file global", ""))
    result = imitation.call()
    assert "'load-server-state-from-file global'" in result["msg"]
    assert imitation.states == AS_BEFORE
    assert imitation.call(survive_restart=False)["changed"]
    assert not imitation.haproxy.state_file.exists()


def test_a_server_that_is_not_there_is_an_error(imitation):
    assert "no server web9" in imitation.call(server="web9")["msg"]
    assert "backend api" in imitation.call(backends=["web", "api"])["msg"]


@pytest.mark.parametrize("name", ["web0 state ready", "web0;show info", "web0\nshow info", ""])
def test_what_is_no_name_is_never_sent(imitation, name):
    assert imitation.call(server=name)["error_kind"] == "input"


def test_a_backend_that_was_taken_away_does_not_stop_the_restore(imitation):
    imitation.call()
    del imitation.haproxy.states[("other", "web0")]
    assert "not in HAProxy any more" in str(imitation.call("restored")["warnings"])
    assert imitation.states[("web", "web0")] == 0
