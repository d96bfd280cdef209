# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who there is: the topology file, how VMs are told apart, and what a bad file is answered with."""

import http.client
import json
import urllib.request

import pytest
from azops_simulator import ConfigError, Simulator, SimulatorError, Topology, url_of

PATH = "/metadata/instance/compute/name?api-version=2021-12-13&format=text"


def scopes(*items):
    return {"scopes": list(items)}


def one(**vm):
    return scopes({"name": "s", "type": "standalone", "vms": [dict({"name": "a"}, **vm)]})


@pytest.mark.parametrize(
    "data,message",
    [
        ([], "expected an object"),
        ({}, "scopes: at least one"),
        ({"scopes": {}}, "scopes: expected a list"),
        ({"scopes": [], "colour": 1}, 'unknown key "colour"'),
        ({"version": 2, "scopes": []}, "version: expected 1, got 2"),
        ({"settings": {"time_scale": 0}, "scopes": []}, "settings: time_scale: expected a number from 0.001"),
        ({"settings": {"speed": 1}, "scopes": []}, 'settings: unknown key "speed"'),
        (scopes({"type": "standalone"}), r"scopes\[0\]: name is required"),
        (scopes({"name": "s", "type": "cluster"}), r"scopes\[0\]: type: expected one of .*, got \"cluster\""),
        (scopes({"name": "s", "type": "standalone"}), r"scopes\[0\]: vms: a scope needs at least one VM"),
        (one(name="a/b"), r"vms\[0\]: name: expected a string that matches .*, got \"a/b\""),
        (one(update_domain="0"), r"vms\[0\]: update_domain: expected an integer, got \"0\""),
        (one(priority="Cheap"), r"vms\[0\]: priority: expected one of"),
        (one(tags={"a": 1}), r"vms\[0\]: tags: expected an object of strings"),
        (one(address="example.org:80"), r"vms\[0\]: address: expected ADDRESS:PORT, got \"example.org:80\""),
        (one(client_address="10.0.0.999"), r"vms\[0\]: client_address: expected one or more IP addresses"),
        (one(placement_group="p"), r"placement_group is for scopes of type scale_set"),
        (one(impact="reboot now"), r"vms\[0\]: impact: expected a list of arguments"),
        (one(impact=["podman"]), r"vms\[0\]: impact: expected an absolute path"),
        (one(impact={"Explode": ["/bin/true"]}), r"vms\[0\]: impact: expected keys from"),
        (scopes({"name": "s", "type": "standalone", "vms": [{"name": "a"}, {"name": "A"}]}), "no other VM has"),
        (scopes({"name": "s", "type": "standalone", "instances": 1, "vms": [{"name": "a"}]}), "not both"),
        (scopes({"name": "s", "type": "standalone", "instances": 1, "orchestration": "flexible"}), "scale_set"),
    ],
)
def test_a_bad_topology_is_refused_with_place_key_and_value(tmp_path, data, message):
    path = tmp_path / "fleet.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=message) as caught:
        Topology.load(str(path))
    assert str(caught.value).startswith(str(path))


def test_a_file_that_is_not_json_is_refused_with_its_line(tmp_path):
    path = tmp_path / "fleet.json"
    path.write_text('{\n "scopes": [}\n')
    with pytest.raises(ConfigError, match=r"not JSON: .*line 2"):
        Topology.load(str(path))
    with pytest.raises(ConfigError, match="No such file"):
        Topology.load(str(tmp_path / "absent.json"))


def test_vms_are_told_apart_by_url_prefix_without_regard_to_case(simulator, get):
    assert get(simulator, "vm1", PATH).body == b"vm1"
    request = urllib.request.Request(url_of(simulator.address) + "/vm/VM2" + PATH, headers={"Metadata": "true"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=5) as response:
        assert response.read() == b"vm2"


def test_vms_are_told_apart_by_listening_address(make_simulator, get):
    simulator = make_simulator(
        scopes({"name": "s", "type": "standalone", "vms": [
            {"name": "a", "address": "127.0.0.1:0"}, {"name": "b", "address": "127.0.0.1:0"}]})
    )  # fmt: skip
    assert simulator.url_for("a") != simulator.url_for("b")
    assert [get(simulator, vm, PATH).body for vm in "ab"] == [b"a", b"b"]
    assert "/vm/" not in simulator.url_for("a")


def test_vms_are_told_apart_by_client_address(make_simulator):
    simulator = make_simulator(
        scopes({"name": "s", "type": "standalone", "vms": [
            {"name": "a", "client_address": "127.0.0.11"}, {"name": "b", "client_address": ["127.0.0.12"]}]})
    )  # fmt: skip
    found = []
    for source in ("127.0.0.11", "127.0.0.12", "127.0.0.13"):
        connection = http.client.HTTPConnection(*simulator.address, timeout=5, source_address=(source, 0))
        connection.request("GET", PATH, headers={"Metadata": "true"})
        answer = connection.getresponse()
        found.append((answer.status, answer.read()))
        connection.close()
    assert found[:2] == [(200, b"a"), (200, b"b")]
    assert found[2][0] == 404
    assert [entry["client"] for entry in simulator.log_of("request")] == ["127.0.0.11", "127.0.0.12", "127.0.0.13"]


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "169.254.169.254:80", "[::]:0"])
def test_anything_but_loopback_has_to_be_asked_for(listen):
    with pytest.raises(SimulatorError, match="--allow-non-loopback"):
        Simulator(listen=listen)
    with pytest.raises(SimulatorError, match=r"VM a: .*--allow-non-loopback"):
        Simulator(one(netns="/run/netns/absent"))
    Simulator(listen=listen, allow_non_loopback=True)


def test_a_namespace_that_is_not_there_is_named():
    with pytest.raises(SimulatorError, match="VM a: netns: /run/netns/absent-here: No such file"):
        Simulator(one(netns="/run/netns/absent-here"), allow_non_loopback=True).start()


def test_an_address_in_use_is_explained(simulator):
    with pytest.raises(SimulatorError, match="something else listens there"):
        Simulator(listen="127.0.0.1:{}".format(simulator.address[1])).start()


def test_instances_are_spread_over_domains_and_placement_groups():
    topology = Topology.parse(
        scopes({"name": "web", "type": "scale_set", "instances": 6, "update_domains": 3, "placement_groups": 2})
    )
    assert [(vm.name, vm.update_domain, vm.seen_by.name) for vm in topology.vms] == [
        ("web_0", 0, "web/pg0"),
        ("web_1", 1, "web/pg0"),
        ("web_2", 2, "web/pg0"),
        ("web_3", 0, "web/pg1"),
        ("web_4", 1, "web/pg1"),
        ("web_5", 2, "web/pg1"),
    ]


@pytest.mark.parametrize(
    "path,status,body",
    [
        ("/metadata/instance/compute/name?api-version=2021-12-13&format=text", 200, b"vm0"),
        ("/metadata/instance/compute/osProfile/computerName?api-version=2021-12-13&format=text", 200, b"vm0"),
        ("/metadata/instance?api-version=2021-12-13&format=text", 200, b"compute/\nnetwork/"),
        ("/metadata/instance/network/interface?api-version=2021-12-13&format=text", 200, b"0/"),
        ("/metadata/instance/compute/name?api-version=2021-12-13", 400, None),
        ("/metadata/instance/compute/nonsense?api-version=2021-12-13&format=text", 404, None),
        ("/metadata/instance/compute?api-version=2021-12-13&format=xml", 400, None),
        ("/metadata/instance/compute/resourceId?api-version=2018-10-01&format=text", 404, None),
        ("/metadata/instance?api-version=2020-07-01", 400, None),
        ("/metadata/nonsense?api-version=2021-12-13", 404, None),
        ("/metadata/scheduledevents/more?api-version=2020-07-01", 404, None),
    ],
)
def test_routes_of_the_instance_document(simulator, get, path, status, body):
    answer = get(simulator, "vm0", path)
    assert answer.status == status
    assert body is None or answer.body == body


def test_versions_are_listed(simulator, get):
    versions = get(simulator, "vm0", "/metadata/versions").json["apiVersions"]
    assert versions == sorted(versions)
    assert {"2017-03-01", "2020-07-01", "2021-12-13"} <= set(versions)


@pytest.mark.parametrize(
    "options,message",
    [
        ({"vms": []}, "name at least one VM"),
        ({"vms": ["nobody"]}, 'no VM "nobody"'),
        ({"vms": ["vm0", "vm0"]}, "every VM once"),
        ({"vms": ["vm0"], "notice": -1}, "notice"),
        ({"vms": ["vm0"], "notice": "soon"}, "notice: expected a number"),
        ({"vms": ["vm0"], "duration": 1.5}, "duration"),
        ({"vms": ["vm0"], "impact": ["/bin/sh"]}, 'unknown key "impact"'),
        ({"vms": ["vm0"], "event_id": "../x"}, "event_id"),
    ],
)
def test_a_bad_event_is_refused_by_name(simulator, options, message):
    with pytest.raises(SimulatorError, match=message):
        simulator.schedule("Freeze", **options)
    assert simulator.events() == []


def test_an_event_over_vms_that_do_not_see_each_other_is_refused(make_simulator):
    simulator = make_simulator(scopes({"name": "s", "type": "standalone", "instances": 2}))
    with pytest.raises(SimulatorError, match="see each other"):
        simulator.schedule("Freeze", vms=["s-0", "s-1"])
