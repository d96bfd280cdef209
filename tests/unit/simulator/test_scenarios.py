# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stories in time: the shipped ones play on any topology, and a bad one is refused by name."""

import pytest
from azops_simulator import ConfigError, SimulatorError, load_scenario, shipped_scenarios

TOPOLOGIES = {
    "fleet": None,
    "one VM": {"scopes": [{"name": "s", "type": "standalone", "instances": 1}]},
    "mixed": {
        "scopes": [
            {"name": "web", "type": "availability_set", "instances": 6, "update_domains": 3},
            {"name": "batch", "type": "scale_set", "instances": 4, "vm_defaults": {"priority": "Spot"}},
            {"name": "gpu", "type": "scale_set", "instances": 2, "single_fault_domain": True},
            {"name": "zoned", "type": "zonal", "instances": 3},
        ]
    },
}
DAYS = 8 * 24 * 60


def play(simulator, name, minutes=120):
    simulator.play(name)
    for _number in range(minutes):
        simulator.advance(60)
    return [(entry["type"], entry["after"], entry["cause"], entry["vms"]) for entry in simulator.log_of("state")]


def test_at_least_a_dozen_scenarios_are_shipped():
    assert len(shipped_scenarios()) >= 12


@pytest.mark.parametrize("topology", sorted(TOPOLOGIES))
@pytest.mark.parametrize("name", shipped_scenarios())
def test_every_shipped_scenario_plays_to_its_end_on_any_topology(make_simulator, topology, name):
    simulator = make_simulator(TOPOLOGIES[topology], listen=None)
    states = play(simulator, name, DAYS if name == "predicted_failure" else 180)
    assert states
    assert simulator.events() == []
    failed = [entry for entry in simulator.log_of("scenario") if entry["state"] == "failed"]
    assert failed == [] or topology == "one VM"


def test_every_scenario_is_called_as_its_file():
    assert [load_scenario(name).name for name in shipped_scenarios()] == shipped_scenarios()


def test_a_host_update_goes_through_every_domain_one_after_the_other(make_simulator):
    simulator = make_simulator(TOPOLOGIES["mixed"], listen=None)
    states = play(simulator, "host_update_all_domains")
    started = [vms for _type, after, _cause, vms in states if after == "Started"]
    assert started == [["web-0", "web-3"], ["web-1", "web-4"], ["web-2", "web-5"]]
    assert [after for _type, after, _cause, _vms in states] == ["Scheduled", "Started", "gone"] * 3
    gone = [entry["mono"] for entry in simulator.log_of("state") if entry["after"] == "gone"]
    announced = [entry["mono"] for entry in simulator.log_of("state") if entry["after"] == "Scheduled"]
    assert [later - earlier for earlier, later in zip(gone, announced[1:])] == [300.0, 300.0]


def test_a_spot_eviction_takes_a_spot_vm_where_there_is_one(make_simulator):
    simulator = make_simulator(TOPOLOGIES["mixed"], listen=None)
    assert play(simulator, "spot_eviction")[0] == ("Preempt", "Scheduled", "scheduled", ["batch_0"])
    assert {vm["vm"]: vm["state"] for vm in simulator.status()["vms"]}["batch_0"] == "deleted"


def test_a_scale_set_loses_its_last_vm(make_simulator):
    simulator = make_simulator(TOPOLOGIES["mixed"], listen=None)
    assert play(simulator, "scale_set_termination")[0][3] == ["batch_3"]


def test_two_scopes_are_hit_at_once(make_simulator):
    simulator = make_simulator(TOPOLOGIES["mixed"], listen=None)
    play(simulator, "two_scopes", minutes=2)
    assert [event["group"] for event in simulator.events()] == ["web", "batch"]


def test_a_cancelled_story_has_no_impact(make_simulator):
    simulator = make_simulator(listen=None)
    assert play(simulator, "cancelled")[-1][1:3] == ("gone", "cancelled")
    assert simulator.log_of("impact") == []


def test_time_scale_shortens_a_story(make_simulator):
    simulator = make_simulator(listen=None, time_scale=60)
    simulator.play("cancelled")
    simulator.advance(4.9)
    assert len(simulator.events()) == 1
    simulator.advance(0.1)
    assert simulator.events() == []


@pytest.mark.parametrize(
    "step,message",
    [
        ({"do": "explode"}, r"steps\[0\]: do: expected one of"),
        ({"do": "schedule", "colour": "red"}, r'steps\[0\]: unknown key "colour"'),
        ({"do": "cancel", "event": "x"}, r"steps\[0\]: event: expected the label"),
        ({"do": "schedule", "at": "noon"}, r"steps\[0\]: at: expected a number"),
        ({"do": "schedule", "when": {"event": "x", "is": "gone"}}, r"when: event: expected the label"),
    ],
)
def test_a_bad_scenario_is_refused_by_step_and_key(simulator, step, message):
    with pytest.raises(ConfigError, match=message):
        simulator.play({"name": "n", "description": "d", "steps": [step]})


def test_a_scenario_that_does_not_exist_lists_those_that_do(simulator):
    with pytest.raises(ConfigError, match="live_migration"):
        simulator.play("nonsense")


def test_a_step_that_cannot_be_done_is_logged_and_the_story_goes_on(simulator):
    steps = [
        {"do": "schedule", "type": "Freeze", "notice": -1, "select": {"group": 0}},
        {"do": "schedule", "type": "Freeze", "select": {"group": 0}},
    ]
    simulator.play({"name": "n", "description": "d", "steps": steps})
    assert [entry["state"] for entry in simulator.log_of("scenario")] == ["started", "failed"]
    assert len(simulator.events()) == 1


def test_over_the_control_api_no_file_but_a_shipped_scenario_is_opened(simulator):
    with pytest.raises(SimulatorError, match="there is no scenario"):
        simulator.execute("play", scenario="../../../../../../etc/passwd")


def test_a_time_that_fits_into_no_date_is_refused_and_breaks_nothing(simulator):
    with pytest.raises(SimulatorError, match="notice"):
        simulator.schedule("Reboot", vms=["vm0"], notice=1e30)
    assert simulator.status()
