# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulator does what is known of Azure's service. fidelity.md says which test holds it to which statement.

Whatever a client can see is asked through two clients: the collection's own and a plain one.
"""

import json
import socket
from typing import Any, Dict, List

import azops_simulator
import pytest
from azops_simulator import EVENT_VERSIONS, ManualClock, SimulatorError

EVENTS_PATH = "/metadata/scheduledevents"
NOW = ManualClock().wall()
COMPUTE = "/metadata/instance/compute?api-version=2021-12-13&format=json"

FLEET: Dict[str, Any] = {
    "scopes": [
        {"name": "web", "type": "availability_set", "instances": 4, "update_domains": 2},
        {"name": "batch", "type": "scale_set", "instances": 4, "placement_groups": 2, "update_domains": 2},
        {"name": "gpu", "type": "scale_set", "instances": 2, "single_fault_domain": True},
        {"name": "roles", "type": "cloud_service", "instances": 2},
        {"name": "alone", "type": "standalone", "instances": 2},
        {"name": "zoned", "type": "zonal", "instances": 2},
    ]
}


def statuses(simulator: Any, kind: str = "state") -> List[Any]:
    return [(entry["before"], entry["after"], entry["cause"]) for entry in simulator.log_of(kind)]


# -- two endpoints, one header --


def test_events_are_read_from_the_documented_path(simulator, client):
    event = simulator.schedule("Freeze", vms=["vm0"])
    assert client(simulator, "vm0").document().ids == [event["event"]]


def test_the_first_call_enables_the_service_and_may_take_two_minutes(make_simulator, client):
    simulator = make_simulator(first_call_seconds=120, time_scale=600)
    began = azops_simulator.time.monotonic()
    client(simulator, "vm0").document()
    assert azops_simulator.time.monotonic() - began >= 0.2
    (enabled,) = simulator.log_of("service")
    assert (enabled["group"], enabled["state"], enabled["vm"]) == ("fleet", "enabled", "vm0")
    assert [entry.get("delay") for entry in simulator.log_of("request")] == [0.2]
    client(simulator, "vm1").document()
    assert [entry.get("delay") for entry in simulator.log_of("request")] == [0.2, None]


def test_events_appear_only_minutes_after_the_first_call(make_simulator, client):
    simulator = make_simulator(arrival_seconds=300)
    event = simulator.schedule("Reboot", vms=["vm0"])
    reader = client(simulator, "vm0")
    first = reader.document()
    simulator.advance(299)
    assert reader.document() == first
    assert first.ids == []
    simulator.advance(1)
    assert reader.document().ids == [event["event"]]
    assert reader.document().incarnation != first.incarnation


def test_an_approval_is_a_post_of_start_requests_to_the_same_url(simulator, client):
    event = simulator.schedule("Reboot", vms=["vm0"])
    reader = client(simulator, "vm0")
    reader.document()
    reader.approve(event["event"])
    assert reader.document().events[0].status == "Started"


def test_the_preview_takes_an_incarnation_beside_the_start_requests(simulator, events, approve):
    event = simulator.schedule("Reboot", vms=["vm0"])
    events(simulator, "vm0", "2017-03-01")
    body = {"DocumentIncarnation": "5", "StartRequests": [{"EventId": event["event"]}]}
    assert approve(simulator, "vm0", body, "2017-03-01").status == 200
    assert simulator.event(event["event"])["status"] == "Started"


def test_a_vm_learns_who_it_is(make_simulator, client):
    simulator = make_simulator(
        {
            "settings": {"location": "northeurope"},
            "scopes": [
                {
                    "name": "batch",
                    "type": "scale_set",
                    "vms": [
                        {"name": "batch_3", "update_domain": 2, "fault_domain": 1, "zone": "3", "priority": "Spot",
                         "tags": {"role": "worker"}, "computer_name": "batch000003"}
                    ],
                }
            ],
        }
    )  # fmt: skip
    found = client(simulator, "batch_3").who_am_i()
    assert found.pop("placement_group_id")
    assert found.pop("resource_id").endswith("/virtualMachineScaleSets/batch/virtualMachines/0")
    assert found == {
        "name": "batch_3",
        "update_domain": "2",
        "fault_domain": "1",
        "zone": "3",
        "scale_set_name": "batch",
        "scale_set_id": "",
        "location": "northeurope",
        "priority": "Spot",
        "computer_name": "batch000003",
        "tags": {"role": "worker"},
    }


def test_a_flexible_scale_set_is_named_by_its_id(make_simulator, client):
    simulator = make_simulator(
        {"scopes": [{"name": "flex", "type": "scale_set", "instances": 1, "orchestration": "flexible"}]}
    )
    found = client(simulator, "flex_0").who_am_i()
    assert found["scale_set_id"].endswith("/virtualMachineScaleSets/flex")
    assert found["placement_group_id"] == ""


def test_the_name_of_a_vm_is_the_name_in_resources(make_simulator, client):
    simulator = make_simulator(
        {"scopes": [{"name": "s", "type": "standalone", "vms": [{"name": "db", "resource_name": "DB-Production"}]}]}
    )
    simulator.schedule("Freeze", vms=["db"])
    reader = client(simulator, "db")
    assert reader.document().events[0].resources == [reader.who_am_i()["name"]] == ["DB-Production"]


def test_every_primitive_of_the_instance_document_is_a_string(make_simulator, get):
    simulator = make_simulator(FLEET)

    def check(value: Any) -> None:
        if isinstance(value, dict):
            for item in value.values():
                check(item)
        elif isinstance(value, list):
            for item in value:
                check(item)
        else:
            assert isinstance(value, str)

    for vm in simulator.topology.vms:
        check(get(simulator, vm.name, "/metadata/instance?api-version=2021-12-13").json)
    compute = get(simulator, "alone-0", COMPUTE).json
    empty = ("zone", "vmScaleSetName", "placementGroupId", "priority")
    assert [compute[key] for key in empty] == ["", "", "", ""]
    assert compute["virtualMachineScaleSet"] == {"id": ""}


def test_no_field_names_the_availability_set(make_simulator, get):
    simulator = make_simulator({"scopes": [{"name": "secretset", "type": "availability_set", "vms": [{"name": "a"}]}]})
    assert b"secretset" not in get(simulator, "a", "/metadata/instance?api-version=2021-12-13").body


def test_a_vm_in_no_availability_set_says_update_domain_0(make_simulator, client):
    simulator = make_simulator(FLEET)
    assert client(simulator, "alone-1").who_am_i()["update_domain"] == "0"


def test_a_request_without_the_metadata_header_is_refused(simulator, get):
    for path in (EVENTS_PATH + "?api-version=2020-07-01", COMPUTE, "/metadata/versions"):
        answer = get(simulator, "vm0", path, headers={})
        assert (answer.status, answer.json) == (
            400,
            {"error": "Bad request. Required metadata header not specified"},
        )


def test_a_request_with_x_forwarded_for_is_refused(simulator, get):
    for path in (EVENTS_PATH + "?api-version=2020-07-01", EVENTS_PATH + "?api-version=2017-03-01", COMPUTE):
        answer = get(simulator, "vm0", path, headers={"Metadata": "true", "X-Forwarded-For": "10.0.0.1"})
        assert answer.status == 400
        assert "X-Forwarded-For" in answer.json["error"]


def test_a_client_that_heeds_proxy_variables_does_not_get_through(simulator, client, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert client(simulator, "vm0").document().events == []
    with socket.create_connection(simulator.address, timeout=10) as proxied:
        proxied.sendall(b"GET http://169.254.169.254/metadata/versions HTTP/1.1\r\nMetadata: true\r\n\r\n")
        assert proxied.recv(100).startswith(b"HTTP/1.1 400 ")


def test_the_sixth_request_within_a_second_is_answered_429(make_simulator, get):
    simulator = make_simulator(rate_limit=5)
    path = EVENTS_PATH + "?api-version=2020-07-01"
    assert [get(simulator, "vm0", path).status for _number in range(6)] == [200] * 5 + [429]
    assert get(simulator, "vm1", path).status == 200
    simulator.advance(1)
    assert get(simulator, "vm0", path).status == 200


@pytest.mark.parametrize("kind", ["404", "410", "429", "500", "503", "reset", "empty", "cut"])
def test_passing_faults_pass(simulator, client, kind):
    event = simulator.schedule("Freeze", vms=["vm0"])
    simulator.inject(kind, vms=["vm0"], count=1)
    reader = client(simulator, "vm0")
    try:
        found = reader.document()
    except Exception:
        found = reader.document()
    assert found.ids == [event["event"]]
    assert [entry["faults"] for entry in simulator.log_of("request") if "faults" in entry] == [[kind]]


def test_a_method_that_is_not_allowed_is_answered_405(simulator, get):
    assert get(simulator, "vm0", EVENTS_PATH + "?api-version=2020-07-01", method="PUT", body=b"").status == 405
    assert get(simulator, "vm0", COMPUTE, method="POST", body=b"{}").status == 405


def test_a_hanging_service_runs_into_the_timeout_of_the_client(simulator):
    simulator.inject("hang")
    with socket.create_connection(simulator.address, timeout=30) as waiting:
        waiting.sendall(b"GET /vm/vm0/metadata/versions HTTP/1.1\r\nMetadata: true\r\n\r\n")
        assert waiting.recv(10) == b"HTTP/1.1 2"
    with socket.create_connection(simulator.address, timeout=0.2) as waiting:
        waiting.sendall(
            b"GET /vm/vm0/metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\nMetadata: true\r\n\r\n"
        )
        with pytest.raises(socket.timeout):
            waiting.recv(10)


def test_a_200_may_have_an_empty_body(simulator, get):
    simulator.inject("empty", count=1)
    answer = get(simulator, "vm0", EVENTS_PATH + "?api-version=2020-07-01")
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("query", ["", "?api-version=", "?api-version=2020-07-02", "?api-version=latest"])
def test_a_missing_or_unknown_version_is_refused_with_the_newest_ones(simulator, get, query):
    answer = get(simulator, "vm0", EVENTS_PATH + query)
    assert answer.status == 400
    assert answer.json["error"].startswith("Bad request. api-version")
    assert answer.json["newest-versions"] == ["2020-07-01", "2019-08-01", "2019-04-01"]


def test_polling_once_a_second_is_never_too_much(make_simulator, client):
    simulator = make_simulator(rate_limit=5)
    reader = client(simulator, "vm0")
    for _number in range(20):
        reader.document()
        simulator.advance(1)
    assert {entry["status"] for entry in simulator.log_of("request")} == {200}


def test_a_day_without_a_poll_disables_the_service_and_the_incarnation_starts_again(simulator, client):
    reader = client(simulator, "vm0")
    reader.document()
    for _number in range(3):
        simulator.cancel(simulator.schedule("Freeze", vms=["vm0"])["event"])
    assert reader.document().incarnation == 7
    simulator.advance(24 * 3600 - 1)
    assert reader.document().incarnation == 7
    simulator.advance(24 * 3600)
    assert [entry["state"] for entry in simulator.log_of("service")] == ["enabled", "disabled"]
    assert reader.document().incarnation == 1


def test_a_vm_finds_the_service_at_an_address_of_its_own(make_simulator, client):
    simulator = make_simulator(
        {"scopes": [{"name": "c", "type": "cloud_service", "vms": [{"name": "old", "address": "127.0.0.5:0"}]}]}
    )
    assert "127.0.0.5:" in simulator.url_for("old")
    assert client(simulator, "old").who_am_i()["name"] == "old"


# -- the document --


def test_a_document_has_the_documented_fields(make_simulator, events):
    simulator = make_simulator({"scopes": [{"name": "web", "type": "scale_set", "instances": 2}]}, clock=ManualClock())
    event = simulator.schedule("Freeze", vms=["web_0", "web_1"])
    assert events(simulator, "web_0") == {
        "DocumentIncarnation": 2,
        "Events": [
            {
                "EventId": event["event"],
                "EventStatus": "Scheduled",
                "EventType": "Freeze",
                "ResourceType": "VirtualMachine",
                "Resources": ["web_0", "web_1"],
                "NotBefore": "Mon, 19 Sep 2016 18:44:47 GMT",
                "Description": "Host server is undergoing maintenance.",
                "EventSource": "Platform",
                "DurationInSeconds": 9,
            }
        ],
    }


@pytest.mark.parametrize("version", EVENT_VERSIONS)
def test_every_version_is_understood_by_both_clients(simulator, client, version):
    event = simulator.schedule("Reboot", vms=["vm0", "vm3"])
    reader = client(simulator, "vm1", version)
    (seen,) = reader.document().events
    assert (seen.event_id, seen.resources, seen.not_before) == (event["event"], ["vm0", "vm3"], NOW + 900)
    reader.approve(seen.event_id)
    assert reader.document().events[0].not_before is None


def test_the_preview_has_leading_underscores_and_iso_times_and_does_not_enforce_the_header(make_simulator, get, events):
    simulator = make_simulator(FLEET)
    simulator.schedule("Freeze", vms=["web-0"])
    simulator.schedule("Freeze", vms=["roles-0"])
    answer = get(simulator, "web-0", EVENTS_PATH + "?api-version=2017-03-01", headers={})
    assert answer.status == 200
    (event,) = answer.json["Events"]
    assert event["Resources"] == ["_web-0"]
    assert event["NotBefore"] == "2016-09-19T18:44:47Z"
    assert events(simulator, "roles-0", "2017-03-01")["Events"][0]["Resources"] == ["roles-0"]


def test_2017_08_01_has_no_underscore_and_enforces_the_header(simulator, get, events):
    simulator.schedule("Freeze", vms=["vm0"])
    (event,) = events(simulator, "vm0", "2017-08-01")["Events"]
    assert (event["Resources"], event["NotBefore"]) == (["vm0"], "Mon, 19 Sep 2016 18:44:47 GMT")
    assert get(simulator, "vm0", EVENTS_PATH + "?api-version=2017-08-01", headers={}).status == 400


@pytest.mark.parametrize("event_type,since", [("Preempt", "2017-11-01"), ("Terminate", "2019-01-01")])
def test_a_type_is_shown_from_the_version_that_added_it(simulator, events, event_type, since):
    simulator.schedule(event_type, vms=["vm0"])
    for version in EVENT_VERSIONS:
        assert len(events(simulator, "vm0", version)["Events"]) == (1 if version >= since else 0)


@pytest.mark.parametrize(
    "field,since",
    [("Description", "2019-04-01"), ("EventSource", "2019-08-01"), ("DurationInSeconds", "2020-07-01")],
)
def test_a_field_is_shown_from_the_version_that_added_it(simulator, events, field, since):
    simulator.schedule("Freeze", vms=["vm0"])
    for version in EVENT_VERSIONS:
        assert (field in events(simulator, "vm0", version)["Events"][0]) == (version >= since)


def test_the_source_is_platform_or_user(simulator, client):
    simulator.schedule("Freeze", vms=["vm0"])
    simulator.schedule("Reboot", vms=["vm0"], source="User")
    assert [event.source for event in client(simulator, "vm0").document().events] == ["Platform", "User"]
    with pytest.raises(SimulatorError):
        simulator.schedule("Reboot", vms=["vm0"], source="Nobody")


def test_the_newest_version_is_2020_07_01(simulator, get):
    assert get(simulator, "vm0", EVENTS_PATH).json["newest-versions"][0] == "2020-07-01" == EVENT_VERSIONS[-1]


def test_the_incarnation_is_an_integer_but_sometimes_a_string(simulator, events):
    assert events(simulator)["DocumentIncarnation"] == 1
    simulator.inject("odd", variant="string_incarnation", count=1)
    assert events(simulator)["DocumentIncarnation"] == "1"


def test_the_same_incarnation_means_the_same_events(simulator, client):
    reader = client(simulator, "vm0")
    seen: Dict[int, Any] = {}
    first = simulator.schedule("Reboot", vms=["vm0"])["event"]
    for change in (
        lambda: None,
        lambda: simulator.schedule("Freeze", vms=["vm1"]),
        lambda: reader.approve(first),
        lambda: simulator.advance(300),
        lambda: simulator.advance(900),
        lambda: simulator.schedule("Redeploy", vms=["vm2"]),
    ):
        change()
        document = reader.document()
        assert reader.document() == document
        assert seen.setdefault(document.incarnation, document.events) == document.events
    assert len(seen) == 6


def test_the_incarnation_may_skip_numbers(make_simulator, client):
    simulator = make_simulator(incarnation_step=4)
    reader = client(simulator, "vm0")
    assert reader.document().incarnation == 1
    simulator.schedule("Freeze", vms=["vm0"])
    assert reader.document().incarnation == 5
    simulator.execute("incarnation", group="fleet", skip=10)
    assert reader.document().incarnation == 15


def test_the_incarnation_may_start_again(simulator, client):
    reader = client(simulator, "vm0")
    simulator.schedule("Freeze", vms=["vm0"])
    assert reader.document().incarnation == 2
    simulator.execute("incarnation", group="fleet", value=1)
    assert reader.document().incarnation == 1
    assert len(reader.document().events) == 1


def test_an_id_is_understood_in_either_case(simulator, client):
    event = simulator.schedule("Reboot", vms=["vm0"], event_id="c7061bac-AFDC-4513-B24B-AA5F13A16123")
    reader = client(simulator, "vm0")
    assert reader.document().ids == [event["event"]] == ["c7061bac-AFDC-4513-B24B-AA5F13A16123"]
    reader.approve("C7061BAC-afdc-4513-b24b-aa5f13a16123")
    assert reader.document().events[0].status == "Started"


def test_ids_may_come_in_lower_case(simulator, events):
    event = simulator.schedule("Reboot", vms=["vm0"])
    simulator.inject("odd", variant="lower_case_id", count=1)
    assert events(simulator)["Events"][0]["EventId"] == event["event"].lower()


@pytest.mark.parametrize("event_type", azops_simulator.EVENT_TYPES)
def test_each_type_has_its_effect(make_simulator, event_type):
    hits: List[Any] = []
    simulator = make_simulator(on_impact=lambda vm, event, effect: hits.append((vm.name, effect)))
    event = simulator.schedule(event_type, vms=["vm1"])
    assert hits == []
    simulator.advance(900)
    simulator.advance(300)
    assert hits == [("vm1", event_type)]
    assert simulator.event(event["event"])["status"] == "gone"
    state = {vm["vm"]: vm["state"] for vm in simulator.status()["vms"]}["vm1"]
    assert state == ("deleted" if event_type in ("Preempt", "Terminate") else "running")


def test_a_reboot_may_turn_out_to_be_a_freeze(make_simulator, client):
    hits: List[str] = []
    simulator = make_simulator(on_impact=lambda vm, event, effect: hits.append(effect))
    simulator.schedule("Reboot", vms=["vm0"], turns_out="Freeze")
    simulator.advance(900)
    (event,) = client(simulator, "vm0").document().events
    assert (event.type, hits) == ("Reboot", ["Freeze"])


def test_an_unknown_type_is_carried_through(simulator, client):
    simulator.schedule("Hibernate", vms=["vm0"])
    assert client(simulator, "vm0").document().events[0].type == "Hibernate"


def test_the_status_is_scheduled_then_started_then_the_event_is_gone(simulator, client):
    simulator.schedule("Freeze", vms=["vm0"])
    reader = client(simulator, "vm0")
    seen = []
    for seconds in (0, 899, 1, 299, 1):
        simulator.advance(seconds)
        seen.append([event.status for event in reader.document().events])
    assert seen == [["Scheduled"], ["Scheduled"], ["Started"], ["Started"], []]


def test_a_time_is_rfc_1123_and_empty_once_started(simulator, events):
    event = simulator.schedule("Freeze", vms=["vm0"])
    assert events(simulator)["Events"][0]["NotBefore"] == "Mon, 19 Sep 2016 18:44:47 GMT"
    simulator.advance(900)
    assert events(simulator)["Events"][0]["NotBefore"] == ""
    assert simulator.event(event["event"])["status"] == "Started"


def test_a_time_may_be_iso_8601_as_in_some_mocks(simulator, client, events):
    simulator.schedule("Freeze", vms=["vm0"])
    simulator.inject("odd", variant="iso_time", count=2)
    assert events(simulator)["Events"][0]["NotBefore"] == "2016-09-19T18:44:47Z"
    assert client(simulator, "vm0").document().events[0].not_before == NOW + 900


def test_a_time_may_have_the_wrong_weekday(simulator, events):
    simulator.schedule("Freeze", vms=["vm0"])
    simulator.inject("odd", variant="wrong_weekday", count=1)
    assert events(simulator)["Events"][0]["NotBefore"] == "Tue, 19 Sep 2016 18:44:47 GMT"


@pytest.mark.parametrize("duration,interruptions", [(9, 1), (0, 0), (-1, 1)])
def test_a_duration_of_0_means_no_impact_and_of_minus_1_unknown(make_simulator, client, duration, interruptions):
    hits: List[str] = []
    simulator = make_simulator(on_impact=lambda vm, event, effect: hits.append(vm.name))
    simulator.schedule("Freeze", vms=["vm0"], duration=duration)
    # The core client has no number for what is not known.
    assert client(simulator, "vm0").document().events[0].duration in (duration, None if duration == -1 else duration)
    simulator.advance(900)
    simulator.advance(300)
    assert len(hits) == interruptions


@pytest.mark.parametrize("variant,value", [("absent_fields", "absent"), ("empty_fields", ""), ("null_fields", None)])
def test_the_later_fields_may_be_absent_empty_or_null(simulator, events, variant, value):
    simulator.schedule("Freeze", vms=["vm0"])
    simulator.inject("odd", variant=variant, count=1)
    (event,) = events(simulator)["Events"]
    found = [event.get(key, "absent") for key in ("Description", "EventSource", "DurationInSeconds")]
    assert found == [value] * 3


@pytest.mark.parametrize("variant", azops_simulator.ODDITIES)
def test_the_core_client_reads_every_odd_document(simulator, variant):
    from ansible_collections.azops.maintenance.plugins.module_utils import _client

    event = simulator.schedule("Freeze", vms=["vm0"])
    simulator.inject("odd", variant=variant)
    found = _client.MetadataClient(endpoint=simulator.url_for("vm0")).read_document()
    assert found.incarnation == 2
    assert [seen.event_id.lower() for seen in found.events] == [event["event"].lower()]
    assert [name.lower() for name in found.events[0].resources] == ["vm0"]


def test_an_event_may_span_several_update_domains(simulator, client):
    simulator.schedule("Freeze", vms=["vm0", "vm1", "vm2"])
    domains = {client(simulator, name).who_am_i()["update_domain"] for name in ("vm0", "vm1", "vm2")}
    assert domains == {"0", "1", "2"}
    assert client(simulator, "vm5").document().events[0].resources == ["vm0", "vm1", "vm2"]


def test_names_in_resources_may_come_in_another_case(simulator, events):
    simulator.schedule("Freeze", vms=["VM0"])
    assert events(simulator)["Events"][0]["Resources"] == ["vm0"]
    simulator.inject("odd", variant="upper_case_names", count=1)
    assert events(simulator)["Events"][0]["Resources"] == ["VM0"]


def test_instances_of_a_scale_set_are_called_name_and_number(make_simulator, client):
    simulator = make_simulator({"scopes": [{"name": "web", "type": "scale_set", "instances": 3}]})
    simulator.schedule("Freeze", vms=["web_2"])
    assert client(simulator, "web_0").document().events[0].resources == ["web_2"]


def test_the_list_of_resources_may_be_empty(simulator, client):
    event = simulator.schedule("Freeze", group="fleet")
    assert client(simulator, "vm0").document().events[0].resources == []
    client(simulator, "vm1").approve(event["event"])
    assert simulator.event(event["event"])["status"] == "Started"


@pytest.mark.parametrize(
    "event_type,seconds", [("Freeze", 900), ("Reboot", 900), ("Redeploy", 600), ("Preempt", 30), ("Terminate", 300)]
)
def test_each_type_gives_its_minimum_notice(simulator, client, event_type, seconds):
    simulator.schedule(event_type, vms=["vm0"])
    reader = client(simulator, "vm0")
    assert reader.document().events[0].not_before == NOW + seconds
    simulator.advance(seconds - 1)
    assert reader.document().events[0].status == "Scheduled"
    simulator.advance(1)
    assert reader.document().events[0].status == "Started"


def test_a_freeze_may_give_five_minutes_only(simulator, client):
    simulator.schedule("Freeze", vms=["vm0"], notice=300)
    assert client(simulator, "vm0").document().events[0].not_before == NOW + 300


def test_the_notice_of_a_termination_is_set_by_the_user(simulator, client):
    simulator.schedule("Terminate", vms=["vm0"], notice=900)
    assert client(simulator, "vm0").document().events[0].not_before == NOW + 900


def test_a_predicted_failure_is_announced_days_ahead_and_may_come_early(simulator, client):
    simulator.schedule("Redeploy", vms=["vm0"], predicted=True)
    simulator.schedule("Redeploy", vms=["vm1"], predicted=True, fails_after=3600)
    reader = client(simulator, "vm0")
    assert [event.not_before for event in reader.document().events] == [NOW + 7 * 86400] * 2
    simulator.advance(3600)
    assert [event.status for event in reader.document().events] == ["Scheduled", "Started"]
    assert statuses(simulator)[-1] == ("Scheduled", "Started", "hardware")


def test_a_hardware_failure_is_started_when_first_seen(simulator, client):
    event = simulator.fail_hardware(vms=["vm0"])
    (seen,) = client(simulator, "vm0").document().events
    assert (seen.event_id, seen.status, seen.not_before) == (event["event"], "Started", None)
    assert statuses(simulator) == [(None, "Started", "hardware")]


def test_an_auto_approved_user_action_is_started_when_first_seen(simulator, client):
    simulator.schedule("Reboot", vms=["vm0"], source="User", auto_approved=True)
    assert client(simulator, "vm0").document().events[0].status == "Started"
    assert statuses(simulator) == [(None, "Started", "policy")]


def test_the_policy_of_a_scope_approves_user_reboots_and_redeploys(make_simulator, client):
    policy = {"auto_approve_user_reboots": True, "auto_approve_user_redeploys": True}
    simulator = make_simulator(
        {"scopes": [{"name": "s", "type": "standalone", "instances": 1, "scheduled_events_policy": policy}]}
    )
    simulator.schedule("Reboot", vms=["s-0"], source="User")
    simulator.schedule("Redeploy", vms=["s-0"], source="User")
    simulator.schedule("Reboot", vms=["s-0"], source="Platform")
    found = client(simulator, "s-0").document().events
    assert [event.status for event in found] == ["Started", "Started", "Scheduled"]


# -- who sees what --


@pytest.mark.parametrize(
    "vm,seen_by",
    [
        ("web-0", ["web-0", "web-1", "web-2", "web-3"]),
        ("batch_0", ["batch_0", "batch_1"]),
        ("batch_3", ["batch_2", "batch_3"]),
        ("gpu_0", ["gpu_0"]),
        ("roles-0", ["roles-0", "roles-1"]),
        ("alone-0", ["alone-0"]),
        ("zoned-0", ["zoned-0"]),
    ],
)
def test_an_event_is_seen_by_those_who_share_its_scope_and_by_nobody_else(make_simulator, client, vm, seen_by):
    simulator = make_simulator(FLEET)
    event = simulator.schedule("Freeze", vms=[vm])["event"]
    found = [other.name for other in simulator.topology.vms if client(simulator, other.name).document().ids == [event]]
    assert found == seen_by


def test_everybody_who_sees_an_event_may_approve_it_and_nobody_else(make_simulator, client):
    simulator = make_simulator(FLEET)
    for vm, helper, stranger in (("web-0", "web-3", "batch_0"), ("batch_0", "batch_1", "batch_2")):
        event = simulator.schedule("Reboot", vms=[vm])["event"]
        for name in (vm, helper, stranger):
            client(simulator, name).document()
        with pytest.raises(Exception, match="400"):
            client(simulator, stranger).approve(event)
        assert simulator.event(event)["status"] == "Scheduled"
        client(simulator, helper).approve(event)
        assert simulator.event(event)["approved_by"] == helper


def test_one_event_read_from_many_hosts_has_one_id(simulator, client):
    event = simulator.schedule("Reboot", vms=["vm0", "vm3"])["event"]
    found = [client(simulator, "vm{}".format(number)).document() for number in range(6)]
    assert {tuple(document.ids) for document in found} == {(event,)}
    assert len({document.incarnation for document in found}) == 1


# -- the life of an event --


def test_an_approved_event_starts_before_its_time(simulator, client):
    event = simulator.schedule("Reboot", vms=["vm0"])["event"]
    reader = client(simulator, "vm0")
    reader.document()
    simulator.advance(10)
    reader.approve(event)
    simulator.advance(300)
    assert reader.document().events == []
    assert statuses(simulator) == [
        (None, "Scheduled", "scheduled"),
        ("Scheduled", "Started", "approved"),
        ("Started", "gone", "done"),
    ]


def test_an_event_that_nobody_approves_starts_at_not_before(simulator):
    simulator.schedule("Reboot", vms=["vm0"])
    simulator.advance(899)
    assert statuses(simulator) == [(None, "Scheduled", "scheduled")]
    simulator.advance(301)
    assert statuses(simulator)[1:] == [("Scheduled", "Started", "not_before"), ("Started", "gone", "done")]


def test_a_cancelled_event_is_gone_without_impact(make_simulator, client):
    hits: List[str] = []
    simulator = make_simulator(on_impact=lambda vm, event, effect: hits.append(vm.name))
    event = simulator.schedule("Reboot", vms=["vm0"])["event"]
    simulator.cancel(event)
    assert client(simulator, "vm0").document().events == []
    simulator.advance(2000)
    assert hits == []
    assert statuses(simulator)[1:] == [("Scheduled", "gone", "cancelled")]


def test_a_hardware_failure_goes_from_started_to_gone(simulator):
    simulator.fail_hardware(vms=["vm0"])
    simulator.advance(300)
    assert statuses(simulator) == [(None, "Started", "hardware"), ("Started", "gone", "done")]


def test_an_event_never_goes_backwards(simulator, client):
    event = simulator.schedule("Reboot", vms=["vm0"])["event"]
    reader = client(simulator, "vm0")
    reader.document()
    reader.approve(event)
    with pytest.raises(SimulatorError, match="already started"):
        simulator.cancel(event)
    with pytest.raises(SimulatorError, match="already started"):
        simulator.fail_hardware(event=event)
    reader.approve(event)
    simulator.advance(900)
    order = {None: 0, "Scheduled": 1, "Started": 2, "gone": 3}
    assert all(order[before] < order[after] for before, after, _cause in statuses(simulator))
    assert simulator.events() == []


def test_an_approval_counts_for_all_resources(make_simulator, client):
    hits: List[str] = []
    simulator = make_simulator(on_impact=lambda vm, event, effect: hits.append(vm.name))
    event = simulator.schedule("Reboot", vms=["vm0", "vm3"])["event"]
    client(simulator, "vm0").document()
    client(simulator, "vm3").approve(event)
    assert hits == ["vm0", "vm3"]


def test_a_second_approval_is_answered_200_as_well(simulator, client):
    event = simulator.schedule("Reboot", vms=["vm0", "vm3"], tenant_delay=60)["event"]
    client(simulator, "vm0").document()
    client(simulator, "vm0").approve(event)
    client(simulator, "vm3").approve(event)
    outcomes = [(entry["vm"], entry["outcome"]) for entry in simulator.log_of("approval")]
    assert outcomes == [("vm0", "approved"), ("vm3", "already_approved")]
    assert simulator.event(event)["approved_by"] == "vm0"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"{}", {"StartRequests": []}, {"StartRequests": {}}, {"StartRequests": [{}]},
     {"StartRequests": ["x"]}, {"StartRequests": [{"EventId": 5}]}, {"StartRequests": [{"EventId": ""}]}],
)  # fmt: skip
def test_a_malformed_approval_is_answered_400(simulator, events, approve, body):
    simulator.schedule("Reboot", vms=["vm0"])
    events(simulator)
    assert approve(simulator, "vm0", body).status == 400
    assert [entry["outcome"] for entry in simulator.log_of("approval")] == ["malformed"]


@pytest.mark.parametrize("text", ["", "true", "<html>", '{"unknown": 1}'])
def test_the_body_of_an_approval_can_be_anything(make_simulator, client, text):
    simulator = make_simulator(approve_body=text)
    event = simulator.schedule("Reboot", vms=["vm0"])["event"]
    reader = client(simulator, "vm0")
    reader.document()
    reader.approve(event)
    assert reader.document().events[0].status == "Started"


@pytest.mark.parametrize("status", [200, 400, 410])
def test_what_an_unknown_or_expired_id_answers_can_be_chosen(make_simulator, events, approve, status):
    simulator = make_simulator(unknown_event_status=status)
    expired = simulator.schedule("Reboot", vms=["vm0"])["event"]
    events(simulator)
    simulator.cancel(expired)
    for event_id in (expired, "00000000-0000-0000-0000-000000000000"):
        assert approve(simulator, "vm0", {"StartRequests": [{"EventId": event_id}]}).status == status
    assert [entry["outcome"] for entry in simulator.log_of("approval")] == ["unknown", "unknown"]


@pytest.mark.parametrize("status", [200, 400])
def test_what_a_started_event_answers_can_be_chosen(make_simulator, events, approve, status):
    simulator = make_simulator(started_event_status=status)
    event = simulator.fail_hardware(vms=["vm0"])["event"]
    events(simulator)
    assert approve(simulator, "vm0", {"StartRequests": [{"EventId": event}]}).status == status


def test_an_approved_event_may_wait_for_other_tenants_but_not_beyond_not_before(simulator, client):
    early = simulator.schedule("Reboot", vms=["vm0"], tenant_delay=120)["event"]
    late = simulator.schedule("Reboot", vms=["vm1"], tenant_delay=5000)["event"]
    reader = client(simulator, "vm0")
    reader.document()
    reader.approve(early)
    reader.approve(late)
    simulator.advance(119)
    assert [event.status for event in reader.document().events] == ["Scheduled", "Scheduled"]
    simulator.advance(1)
    assert [event.status for event in reader.document().events] == ["Started", "Scheduled"]
    simulator.advance(780)
    assert simulator.event(late)["status"] == "Started"


def test_an_event_lasts_minutes_and_interrupts_for_seconds_more_than_once_if_need_be(make_simulator):
    simulator = make_simulator()
    simulator.schedule("Freeze", vms=["vm0"], duration=9, interruptions=3)
    simulator.advance(900)
    for _number in range(300):
        simulator.advance(1)
    hits = [(round(entry["mono"]) - 1900, entry["seconds"]) for entry in simulator.log_of("impact")]
    assert hits == [(0, 9.0), (100, 9.0), (200, 9.0)]
    assert simulator.log_of("state")[-1]["after"] == "gone"
    assert round(simulator.log_of("state")[-1]["mono"]) - 1900 == 300


def test_a_user_requested_reboot_takes_15_minutes_unless_it_is_approved(simulator, client):
    simulator.schedule("Reboot", vms=["vm0"], source="User")
    reader = client(simulator, "vm0")
    simulator.advance(899)
    assert reader.document().events[0].status == "Scheduled"
    simulator.advance(1)
    assert reader.document().events[0].status == "Started"


def test_nothing_starts_without_an_approval_or_its_time(simulator, client):
    for event_type in azops_simulator.EVENT_TYPES:
        simulator.schedule(event_type, vms=["vm0"], notice=7200, keep_vm=True)
    reader = client(simulator, "vm0")
    for _number in range(7199):
        simulator.advance(1)
    assert {event.status for event in reader.document().events} == {"Scheduled"}
    simulator.advance(1)
    assert {event.status for event in reader.document().events} == {"Started"}


def test_deallocating_a_vm_clears_its_events(simulator, client):
    simulator.schedule("Reboot", vms=["vm0"])
    shared = simulator.schedule("Reboot", vms=["vm0", "vm3"])["event"]
    simulator.execute("deallocate", vms=["vm0"])
    (left,) = client(simulator, "vm1").document().events
    assert (left.event_id, left.resources) == (shared, ["vm3"])
    assert statuses(simulator)[-1] == ("Scheduled", "gone", "deallocated")


def test_answers_are_json_with_a_length_and_a_date(simulator, get):
    answer = get(simulator, "vm0", EVENTS_PATH + "?api-version=2020-07-01")
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert answer.headers["date"] == "Mon, 19 Sep 2016 18:29:47 GMT"
    assert json.loads(answer.body.decode()) == {"DocumentIncarnation": 1, "Events": []}
