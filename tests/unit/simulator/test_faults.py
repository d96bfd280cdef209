# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that can go wrong on demand."""

import json
import socket
import time

import azops_simulator
import pytest
from azops_simulator import SimulatorError

PATH = "/metadata/scheduledevents?api-version=2020-07-01"


def raw(simulator, vm="vm0", path=PATH, timeout=5):
    """Everything that the server sends to one request, until it closes."""
    with socket.create_connection(simulator.address, timeout=timeout) as channel:
        request = "GET /vm/{}{} HTTP/1.1\r\nMetadata: true\r\nConnection: close\r\n\r\n".format(vm, path)
        channel.sendall(request.encode())
        received = b""
        while True:
            part = channel.recv(65536)
            if not part:
                return received
            received += part


@pytest.mark.parametrize("kind", ["404", "410", "429", "500", "503"])
def test_a_fault_hits_as_often_as_its_count_says(simulator, get, kind):
    simulator.inject(kind, vms=["vm0"], count=2)
    assert [get(simulator, "vm0", PATH).status for _number in range(3)] == [int(kind), int(kind), 200]
    assert get(simulator, "vm1", PATH).status == 200


def test_the_count_is_per_vm(simulator, get):
    simulator.inject("500", count=1)
    assert [get(simulator, vm, PATH).status for vm in ("vm0", "vm1", "vm0", "vm1")] == [500, 500, 200, 200]


def test_a_share_hits_about_that_share_and_the_same_requests_for_the_same_seed(make_simulator, get):
    runs = []
    for _number in range(2):
        simulator = make_simulator(seed=7)
        simulator.inject("503", share=0.5)
        runs.append([get(simulator, "vm0", PATH).status for _number in range(60)])
    assert runs[0] == runs[1]
    assert 15 < runs[0].count(503) < 45


def test_a_fault_can_let_requests_pass_first(simulator, get):
    simulator.inject("503", after=2, count=1)
    assert [get(simulator, "vm0", PATH).status for _number in range(4)] == [200, 200, 503, 200]


def test_a_fault_can_be_for_one_endpoint_or_method(simulator, get, approve, events):
    event = simulator.schedule("Reboot", vms=["vm0"])["event"]
    simulator.inject("503", endpoint="instance")
    simulator.inject("500", method="POST")
    events(simulator)
    assert get(simulator, "vm0", "/metadata/instance?api-version=2021-12-13").status == 503
    assert approve(simulator, "vm0", {"StartRequests": [{"EventId": event}]}).status == 500
    assert simulator.event(event)["status"] == "Scheduled"


def test_an_approval_can_be_carried_out_although_the_answer_is_lost(simulator, approve, events):
    event = simulator.schedule("Reboot", vms=["vm0"])["event"]
    simulator.inject("500", method="POST", processed=True)
    events(simulator)
    assert approve(simulator, "vm0", {"StartRequests": [{"EventId": event}]}).status == 500
    assert simulator.event(event)["status"] == "Started"


def test_a_fault_ends_with_its_time_and_when_it_is_cleared(simulator, get):
    simulator.inject("503", for_seconds=60)
    assert get(simulator, "vm0", PATH).status == 503
    simulator.advance(60)
    assert get(simulator, "vm0", PATH).status == 200
    simulator.inject("404")
    assert simulator.clear_faults() == {"cleared": 2}
    assert get(simulator, "vm0", PATH).status == 200


def test_a_delayed_answer_is_late_but_good(simulator, get):
    simulator.inject("delay", seconds=0.1, count=1)
    began = time.monotonic()
    assert get(simulator, "vm0", PATH).status == 200
    assert time.monotonic() - began >= 0.1


def test_a_first_call_delay_hits_the_first_call_of_each_vm_only(simulator, get):
    simulator.inject("first_call_delay", seconds=0.05)
    for vm in ("vm0", "vm0", "vm1"):
        get(simulator, vm, PATH)
    assert [entry.get("delay") for entry in simulator.log_of("request")] == [0.05, None, 0.05]


def test_a_delayed_approval_counts_from_its_arrival(simulator, events):
    event = simulator.schedule("Reboot", vms=["vm0"])["event"]
    events(simulator)
    simulator.inject("delay", seconds=60, method="POST")
    body = json.dumps({"StartRequests": [{"EventId": event}]})
    with socket.create_connection(simulator.address, timeout=5) as channel:
        head = "POST /vm/vm0{} HTTP/1.1\r\nMetadata: true\r\nContent-Length: {}\r\n\r\n".format(PATH, len(body))
        channel.sendall((head + body).encode())
        simulator.wait_for(lambda log: [entry for entry in log if entry["kind"] == "approval"])
    assert simulator.event(event)["status"] == "Started"


def test_a_reset_is_seen_as_a_reset(simulator):
    simulator.inject("reset", count=1)
    with pytest.raises(ConnectionResetError):
        raw(simulator)
    assert raw(simulator).startswith(b"HTTP/1.1 200")


def test_a_cut_off_body_is_shorter_than_its_length(simulator):
    simulator.schedule("Freeze", vms=["vm0"])
    simulator.inject("cut", count=1)
    head, _blank, body = raw(simulator).partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    assert 0 < len(body) < length


def test_not_json_is_a_200_with_something_else(simulator, get):
    simulator.inject("not_json", count=1)
    answer = get(simulator, "vm0", PATH)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html")
    with pytest.raises(ValueError):
        json.loads(answer.body.decode())


@pytest.mark.parametrize("variant", azops_simulator.WRONG_TYPES)
@pytest.mark.parametrize("with_event", [True, False])
def test_wrong_types_are_json_that_breaks_the_schema(simulator, get, variant, with_event):
    if with_event:
        simulator.schedule("Freeze", vms=["vm0"])
    good = get(simulator, "vm0", PATH).json
    simulator.inject("wrong_types", variant=variant, count=1)
    answer = get(simulator, "vm0", PATH)
    assert answer.status == 200
    assert answer.json != good
    assert get(simulator, "vm0", PATH).json == good


def test_wrong_types_take_turns_when_no_variant_is_named(simulator, get):
    simulator.inject("wrong_types")
    bodies = {get(simulator, "vm0", PATH).body for _number in azops_simulator.WRONG_TYPES}
    assert len(bodies) == len(azops_simulator.WRONG_TYPES)


@pytest.mark.parametrize("variant", azops_simulator.HUGE_VARIANTS)
def test_a_huge_document_has_at_least_the_size_asked_for(simulator, get, variant):
    simulator.inject("huge", size=1000000, variant=variant, count=1)
    answer = get(simulator, "vm0", PATH)
    assert len(answer.body) >= 1000000
    assert answer.json["DocumentIncarnation"] == 1


def test_no_events_hides_them_for_a_moment(simulator, events):
    simulator.schedule("Freeze", vms=["vm0"])
    simulator.inject("no_events", vms=["vm0"], count=1)
    assert [len(events(simulator)["Events"]) for _number in range(2)] == [0, 1]


def test_clock_skew_shifts_not_before_and_the_date_for_one_vm(simulator, get):
    simulator.schedule("Freeze", vms=["vm0"])
    simulator.inject("clock_skew", vms=["vm0"], seconds=-3600)
    answer = get(simulator, "vm0", PATH)
    assert answer.json["Events"][0]["NotBefore"] == "Mon, 19 Sep 2016 17:44:47 GMT"
    assert answer.headers["date"] == "Mon, 19 Sep 2016 17:29:47 GMT"
    assert get(simulator, "vm1", PATH).json["Events"][0]["NotBefore"] == "Mon, 19 Sep 2016 18:44:47 GMT"


@pytest.mark.parametrize(
    "options,named",
    [
        ({"kind": "flood"}, "kind"),
        ({"kind": "503", "share": 2}, "share"),
        ({"kind": "503", "count": -1}, "count"),
        ({"kind": "odd", "variant": "purple"}, "variant"),
        ({"kind": "delay", "seconds": -1}, "seconds"),
        ({"kind": "503", "colour": "red"}, "colour"),
        ({"kind": "503", "vms": ["nobody"]}, "nobody"),
    ],
)
def test_a_bad_fault_is_refused_by_name(simulator, options, named):
    with pytest.raises(SimulatorError, match=named):
        simulator.execute("inject", **options)
    assert simulator.status()["faults"] == []
