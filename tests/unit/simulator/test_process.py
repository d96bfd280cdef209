# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program as a whole: time scale, log, control API, command line, impact commands, HTTP on the wire."""

import contextlib
import datetime
import http.client
import io
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

import azops_simulator
import pytest
from azops_simulator import Clock, ManualClock, SimulatorError, main

PATH = "/vm/vm0/metadata/scheduledevents?api-version=2020-07-01"


def cli(*arguments):
    """Run the command line in this process: exit code, output, errors."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(list(arguments))
        except SystemExit as error:
            code = error.code
    return code, out.getvalue(), err.getvalue()


@pytest.fixture
def controlled(make_simulator, tmp_path, monkeypatch):
    """A simulator with a control socket that the command line finds."""
    control = "unix:{}/run/control.sock".format(tmp_path)
    monkeypatch.setenv("AZOPS_SIMULATOR_CONTROL", control)
    return make_simulator(control=control, log_path=str(tmp_path / "log.jsonl"))


# -- time --


def test_not_before_is_real_time_and_the_event_starts_exactly_then(make_simulator, events):
    clock = ManualClock(wall=1000000000.4)
    simulator = make_simulator(clock=clock, time_scale=60)
    event = simulator.schedule("Reboot", vms=["vm0"])
    assert event["not_before"] == "2001-09-09T01:46:56Z"
    assert events(simulator)["Events"][0]["NotBefore"] == "Sun, 09 Sep 2001 01:46:56 GMT"
    simulator.advance(15.5)
    assert simulator.event(event["event"])["status"] == "Scheduled"
    simulator.advance(0.11)
    assert simulator.event(event["event"])["status"] == "Started"
    simulator.advance(5)
    assert simulator.event(event["event"])["status"] == "gone"


def test_an_event_can_start_late_but_not_one_that_was_approved(simulator, events, approve):
    ignored = simulator.schedule("Reboot", vms=["vm0"], late=60)["event"]
    approved = simulator.schedule("Reboot", vms=["vm1"], late=60, tenant_delay=5000)["event"]
    events(simulator)
    approve(simulator, "vm1", {"StartRequests": [{"EventId": approved}]})
    simulator.advance(900)
    assert [simulator.event(event)["status"] for event in (ignored, approved)] == ["Scheduled", "Started"]
    simulator.advance(60)
    assert simulator.event(ignored)["status"] == "Started"


def test_with_the_real_clock_events_start_and_end_by_themselves(make_simulator):
    simulator = make_simulator(clock=Clock(), time_scale=900)
    event = simulator.schedule("Freeze", vms=["vm0"], lasts=90)
    simulator.wait_for(lambda log: [entry for entry in log if entry.get("after") == "gone"], timeout=30)
    started = next(entry for entry in simulator.log_of("state") if entry["after"] == "Started")
    assert started["wall"] >= event["not_before"][:-1]
    assert seconds_between(event["not_before"], started["wall"]) < 8


def seconds_between(earlier, later):
    moments = [datetime.datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S") for text in (earlier, later)]
    return (moments[1] - moments[0]).total_seconds()


def test_a_wait_that_fails_says_so(simulator):
    with pytest.raises(TimeoutError):
        simulator.wait_for(lambda log: False, timeout=0.01)


# -- the log --


def test_the_log_shows_the_order_of_requests_approvals_and_changes(controlled, events, approve, tmp_path):
    event = controlled.schedule("Reboot", vms=["vm0", "vm3"])["event"]
    events(controlled)
    approve(controlled, "vm3", {"StartRequests": [{"EventId": event}]})
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines == controlled.log
    kinds = [entry["kind"] for entry in lines]
    assert kinds == ["start", "state", "service", "request", "approval", "state", "impact", "impact", "request"]
    assert [entry["seq"] for entry in lines] == list(range(1, 10))
    approval = lines[4]
    assert (approval["vm"], approval["client"], approval["event"]) == ("vm3", "127.0.0.1", event)
    assert approval["vms"] == ["vm0", "vm3"]
    for entry in lines:
        assert isinstance(entry["mono"], float)
        assert entry["wall"].endswith("Z")


def test_the_log_is_appended_to_after_a_restart_and_events_are_forgotten(make_simulator, tmp_path):
    path = str(tmp_path / "log.jsonl")
    first = make_simulator(log_path=path)
    first.schedule("Reboot", vms=["vm0"])
    first.stop()
    second = make_simulator(log_path=path)
    assert second.events() == []
    with open(path) as stream:
        assert [json.loads(line)["kind"] for line in stream] == ["start", "state", "stop", "start"]


def test_what_a_client_sends_is_logged_as_data(simulator, get):
    get(simulator, "vm0", '/metadata/x%0a{"kind":"approval"}')
    (entry,) = simulator.log_of("request")
    assert entry["status"] == 404
    assert "\n" not in json.dumps(entry)


# -- HTTP --


def test_one_connection_serves_many_requests(simulator):
    connection = http.client.HTTPConnection(*simulator.address, timeout=5)
    ports = set()
    for _number in range(3):
        connection.request("GET", PATH, headers={"Metadata": "true"})
        assert connection.getresponse().read()
        ports.add(connection.sock.getsockname())
    connection.close()
    assert len(ports) == 1


def exchange(simulator, data, pieces=1):
    with socket.create_connection(simulator.address, timeout=5) as channel:
        size = len(data) // pieces + 1
        for start in range(0, len(data), size):
            channel.sendall(data[start : start + size])
            if pieces > 1:
                time.sleep(0.002)
        received = b""
        while True:
            part = channel.recv(65536)
            received += part
            if not part:
                return received


def get_request(more="", close=True):
    return "GET {} HTTP/1.1\r\nMetadata: true\r\n{}{}\r\n".format(
        PATH, more, "Connection: close\r\n" if close else ""
    ).encode()


def test_requests_that_come_in_one_packet_are_answered_in_order(simulator):
    answer = exchange(simulator, get_request(close=False) * 2 + get_request())
    assert answer.count(b"HTTP/1.1 200 OK") == 3


def test_a_request_that_comes_in_pieces_is_answered(simulator):
    assert exchange(simulator, get_request(), pieces=7).startswith(b"HTTP/1.1 200 OK")


def test_a_client_that_waits_to_be_told_to_continue_is_told(simulator):
    body = b'{"StartRequests": []}'
    head = (
        "POST {} HTTP/1.1\r\nMetadata: true\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: {}\r\n\r\n"
    )
    with socket.create_connection(simulator.address, timeout=5) as channel:
        channel.sendall(head.format(PATH, len(body)).encode())
        assert channel.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        channel.sendall(body)
        assert channel.recv(100).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "data,status",
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/2.0\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nbroken\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", b"413"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 20000, b"431"),
    ],
)
def test_what_is_not_http_is_refused_and_the_simulator_goes_on(simulator, data, status):
    assert exchange(simulator, data).startswith(b"HTTP/1.1 " + status)
    assert exchange(simulator, get_request()).startswith(b"HTTP/1.1 200")


def test_an_unknown_vm_is_answered_with_a_hint(simulator, get):
    connection = http.client.HTTPConnection(*simulator.address, timeout=5)
    connection.request("GET", "/vm/nobody/metadata/versions", headers={"Metadata": "true"})
    answer = connection.getresponse()
    assert answer.status == 404
    assert b"/vm/NAME/metadata" in answer.read()
    connection.close()


def test_a_vm_that_is_away_resets_its_connections_and_comes_back(simulator, events):
    simulator.schedule("Reboot", vms=["vm0"], duration=30, away=True)
    simulator.advance(900)
    with pytest.raises(ConnectionResetError):
        exchange(simulator, get_request())
    events(simulator, "vm1")
    simulator.advance(30)
    assert exchange(simulator, get_request()).startswith(b"HTTP/1.1 200")


def test_a_deleted_vm_is_not_answered_until_it_is_started_again(simulator):
    simulator.schedule("Terminate", vms=["vm0"])
    simulator.advance(600)
    with pytest.raises(ConnectionResetError):
        exchange(simulator, get_request())
    with pytest.raises(SimulatorError, match="vm0 is deleted"):
        simulator.schedule("Freeze", vms=["vm0"])
    simulator.execute("start_vm", vms=["vm0"])
    assert exchange(simulator, get_request()).startswith(b"HTTP/1.1 200")


# -- control --


def test_the_control_socket_is_for_its_owner_only_and_goes_away_with_the_simulator(controlled, tmp_path):
    path = str(tmp_path / "run" / "control.sock")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    controlled.stop()
    assert not os.path.exists(path)


def test_a_second_simulator_does_not_take_the_socket_of_the_first(controlled, tmp_path):
    path = str(tmp_path / "run" / "control.sock")
    with pytest.raises(SimulatorError, match="another simulator is already listening"):
        azops_simulator.Simulator(control="unix:" + path).start()
    assert os.path.exists(path)
    assert cli("status")[0] == 0


def test_a_socket_left_behind_is_replaced(make_simulator, tmp_path):
    path = str(tmp_path / "control.sock")
    left = socket.socket(socket.AF_UNIX)
    left.bind(path)
    left.close()
    os.chmod(str(tmp_path), 0o700)
    make_simulator(control="unix:" + path)
    assert cli("status", "--control", "unix:" + path)[0] == 0


def test_a_directory_that_others_can_write_to_is_refused(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(SimulatorError, match="other users can write"):
        azops_simulator.Simulator(control="unix:{}/c.sock".format(folder)).start()


def test_the_control_api_on_loopback_wants_its_token(make_simulator, tmp_path):
    with pytest.raises(SimulatorError, match="needs a token"):
        azops_simulator.Simulator(control="127.0.0.1:0")
    with pytest.raises(SimulatorError, match="never served beyond"):
        azops_simulator.Simulator(control="0.0.0.0:0", token="t", allow_non_loopback=True)
    simulator = make_simulator(control="127.0.0.1:0", token="right")
    control = str(simulator.control)
    (tmp_path / "right").write_text("right\n")
    (tmp_path / "wrong").write_text("wrong\n")
    assert cli("status", "--control", control, "--token-file", str(tmp_path / "right"))[0] == 0
    code, _out, err = cli("status", "--control", control, "--token-file", str(tmp_path / "wrong"))
    assert (code, "token" in err) == (1, True)
    assert cli("status", "--control", control)[0] == 1


def test_impact_commands_cannot_come_over_the_control_api(controlled):
    client = azops_simulator.ControlClient(controlled.control)
    for verb, data in (
        ("schedule", {"type": "Reboot", "vms": ["vm0"], "impact": ["/bin/true"]}),
        ("inject", {"kind": "503", "impact": ["/bin/true"]}),
        ("play", {"scenario": {"name": "n", "description": "d", "steps": [{"do": "schedule", "impact": ["/bin/x"]}]}}),
    ):
        with pytest.raises(SimulatorError, match='unknown key "impact"'):
            client.execute(verb, data)


def test_status_and_log_can_be_read_with_a_plain_get(controlled):
    connection = azops_simulator.UnixConnection(controlled.control.path, 5)
    connection.request("GET", "/v1/log?since=0")
    assert json.loads(connection.getresponse().read().decode())["entries"][0]["kind"] == "start"
    connection.request("GET", "/v1/status")
    assert len(json.loads(connection.getresponse().read().decode())["vms"]) == 6
    for method, path, status in (("GET", "/v1/cancel", 405), ("POST", "/v1/nonsense", 404), ("GET", "/", 404)):
        connection.request(method, path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
    connection.close()


# -- command line --


def test_the_command_line_schedules_shows_and_cancels(controlled):
    code, out, _err = cli("schedule", "--type", "Reboot", "--vm", "vm0", "--vm", "vm3")
    assert code == 0
    event = out.split()[0]
    code, out, _err = cli("status")
    assert code == 0
    assert out.splitlines()[0].split()[:3] == ["VM", "GROUP", "UD"]
    assert event in out
    assert "900 s" in out
    assert cli("cancel", event[:8])[0] == 0
    assert "No events." in cli("status")[1]
    assert "gone (cancelled)" in cli("status", "--gone")[1]


def test_a_topology_can_be_checked_without_serving_it(tmp_path):
    path = tmp_path / "fleet.json"
    path.write_text('{"scopes": [{"name": "web", "type": "scale_set", "instances": 4}]}')
    assert cli("check", str(path)) == (0, "{}: 4 VMs in 1 scopes\n".format(path), "")
    path.write_text('{"scopes": [{"name": "web", "type": "herd"}]}')
    code, _out, err = cli("check", str(path))
    assert (code, "herd" in err) == (2, True)


def test_a_zero_on_the_command_line_is_a_value(controlled):
    _code, out, _err = cli("schedule", "--type", "Freeze", "--vm", "vm0", "--duration", "0", "--json")
    assert json.loads(out)["duration"] == 0


def test_the_command_line_injects_and_clears(controlled):
    assert cli("inject", "503", "--vm", "vm0", "--count", "2")[0] == 0
    assert "503" in cli("status")[1]
    assert cli("inject", "--clear")[1] == "1 faults cleared\n"
    assert cli("inject")[0] == 2


def test_the_command_line_fails_hardware_plays_and_shows_the_log(controlled):
    assert cli("fail-hardware", "--vm", "vm1")[0] == 0
    assert cli("play", "live_migration")[1].startswith("playing live_migration")
    assert "live_migration" in cli("play")[1]
    code, out, _err = cli("log", "--kind", "state", "--json")
    assert code == 0
    assert [json.loads(line)["after"] for line in out.splitlines()] == ["Started", "Scheduled"]
    assert "cause=hardware" in cli("log", "--vm", "vm1")[1]
    assert cli("finish", json.loads(out.splitlines()[0])["event"])[0] == 0
    assert cli("incarnation", "fleet", "--value", "1")[1] == "fleet: incarnation 1\n"
    assert cli("deallocate", "vm5")[1] == "vm5: deallocated\n"
    assert cli("start-vm", "vm5")[1] == "vm5: running\n"


@pytest.mark.parametrize(
    "arguments,code,named",
    [
        (["schedule", "--vm", "vm0"], 2, "--type"),
        (["schedule", "--type", "Freeze", "--vm", "nobody"], 1, "nobody"),
        (["schedule", "--type", "Freeze", "--vm", "vm0", "--notice", "-5"], 2, "notice"),
        (["cancel", "nonsense"], 1, "nonsense"),
        (["inject", "flood"], 2, "flood"),
        (["play", "nonsense"], 2, "nonsense"),
        (["serve", "--topology", "/nonexistent.json"], 2, "/nonexistent.json"),
        (["serve", "--listen", "0.0.0.0:80"], 2, "--allow-non-loopback"),
        (["serve", "--listen", "nonsense"], 2, "nonsense"),
        ([], 2, "COMMAND"),
    ],
)
def test_errors_name_what_is_wrong_and_have_an_exit_code(controlled, arguments, code, named):
    found = cli(*arguments)
    assert found[0] == code
    assert named in found[2]


def test_no_simulator_is_its_own_exit_code(tmp_path):
    code, _out, err = cli("status", "--control", "unix:{}/none.sock".format(tmp_path))
    assert (code, "is it running" in err) == (3, True)


def wait_for_file(path, process):
    deadline = time.monotonic() + 20
    while not os.path.exists(path):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_program_serves_says_where_and_stops_when_told(tmp_path):
    script = azops_simulator.__file__
    token = str(tmp_path / "token")
    ready = str(tmp_path / "ready.json")
    command = [sys.executable, "-I", script, "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"]
    command += ["--token-file", token, "--ready-file", ready, "--play", "live_migration", "--time-scale", "60"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        wait_for_file(ready, process)
        with open(ready) as stream:
            details = json.load(stream)
        assert stat.S_IMODE(os.stat(token).st_mode) == 0o600
        code, out, _err = cli("status", "--json", "--control", details["control"], "--token-file", token)
        assert code == 0
        assert [event["type"] for event in json.loads(out)["events"]] == ["Freeze"]
    finally:
        process.send_signal(signal.SIGTERM)
        output = process.communicate()[0].decode()
    assert process.returncode == 0
    assert "metadata service: http://127.0.0.1:" in output
    assert "WARNING" not in output


# -- impact --


def impact_topology(argv):
    return {"scopes": [{"name": "s", "type": "standalone", "vms": [{"name": "a", "impact": argv}]}]}


def test_an_impact_command_runs_with_the_event_in_its_environment(make_simulator, tmp_path):
    script = tmp_path / "hit"
    script.write_text('#!/bin/sh\necho "$SIMULATOR_VM $SIMULATOR_EFFECT $1" > {}/seen\nexit 3\n'.format(tmp_path))
    script.chmod(0o755)
    simulator = make_simulator(impact_topology({"Reboot": [str(script), "$(word)"], "default": ["/bin/false"]}))
    simulator.schedule("Reboot", vms=["a"])
    simulator.advance(900)
    finished = simulator.wait_for(lambda log: [entry for entry in log if "rc" in entry])
    assert finished[0]["rc"] == 3
    assert (tmp_path / "seen").read_text() == "a Reboot $(word)\n"


def test_an_impact_command_that_cannot_run_is_logged(make_simulator):
    simulator = make_simulator(impact_topology(["/nonexistent/command"]))
    simulator.schedule("Freeze", vms=["a"])
    simulator.advance(900)
    (entry,) = simulator.log_of("impact_command")
    assert "/nonexistent/command" in entry["error"]


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and iproute2")
def test_a_vm_is_served_inside_its_own_network_namespace(make_simulator):
    # Not azops-...: the test bed looks for what is left of its own.
    name = "simulator-test-{}".format(os.getpid())
    enter = ["ip", "netns", "exec", name]
    subprocess.check_call(["ip", "netns", "add", name])
    try:
        subprocess.check_call(enter + ["ip", "link", "set", "lo", "up"])
        subprocess.check_call(enter + ["ip", "addr", "add", "169.254.169.254/32", "dev", "lo"])
        vm = {"name": "a", "netns": "/run/netns/" + name}
        simulator = make_simulator(
            {"scopes": [{"name": "s", "type": "standalone", "vms": [vm]}]}, allow_non_loopback=True
        )
        assert simulator.url_for("a") == "http://169.254.169.254"
        code = (
            "import urllib.request as u; r = u.Request('http://169.254.169.254/metadata/instance/compute/name"
            "?api-version=2021-12-13&format=text', headers={'Metadata': 'true'});"
            "print(u.build_opener(u.ProxyHandler({})).open(r, timeout=5).read().decode())"
        )
        assert subprocess.check_output(enter + [sys.executable, "-c", code]).decode() == "a\n"
        # Nothing is sent to that address from out here: a machine in a cloud may have a real service behind it.
        with open("/proc/self/net/tcp") as stream:
            assert "FEA9FEA9:0050" not in [line.split()[1] for line in stream]
        simulator.stop()
    finally:
        subprocess.check_call(["ip", "netns", "del", name])
