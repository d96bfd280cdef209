# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest

from ansible_collections.azops.maintenance.plugins.module_utils import _module
from ansible_collections.azops.maintenance.plugins.module_utils._document import API_VERSIONS, parse_document
from ansible_collections.azops.maintenance.plugins.module_utils._errors import InputError, ServiceError


class FakeModule:
    def __init__(self):
        self.ended = []

    def exit_json(self, **result):
        self.ended.append(("exit", result))

    def fail_json(self, **result):
        self.ended.append(("fail", result))


def fallback():
    """Stands for Ansible's env_fallback."""


def test_every_common_option_can_be_set_by_environment():
    options = _module.common_options(fallback)
    assert {name: option["fallback"] for name, option in options.items()} == {
        "endpoint": (fallback, ["AZOPS_MAINTENANCE_ENDPOINT"]),
        "api_version": (fallback, ["AZOPS_MAINTENANCE_API_VERSION"]),
        "journal_dir": (fallback, ["AZOPS_MAINTENANCE_JOURNAL_DIR"]),
        "hold_file": (fallback, ["AZOPS_MAINTENANCE_HOLD_FILE"]),
    }
    assert options["api_version"]["choices"] == list(API_VERSIONS)


def test_a_module_takes_only_the_conditions_that_it_names():
    assert sorted(_module.selection_options("types", "only_mine")) == ["only_mine", "types"]
    with pytest.raises(KeyError):
        _module.selection_options("colour")


def test_a_result_ends_the_module_well():
    module = FakeModule()
    _module.run(module, lambda given: {"changed": given is not module})
    assert module.ended == [("exit", {"changed": False})]


@pytest.mark.parametrize(
    "error, result",
    [
        (InputError("Bad.", "Do better."), {"msg": "Bad. Do better.", "error_kind": "input"}),
        (ServiceError("Bad.", "", 503), {"msg": "Bad.", "error_kind": "service", "http_status": 503}),
    ],
)
def test_our_own_error_ends_the_module_with_what_to_do(error, result):
    module = FakeModule()

    def work(_given):
        raise error

    _module.run(module, work)
    assert module.ended == [("fail", result)]


def test_a_client_is_made_from_the_options_that_a_module_has():
    client = _module.client_from({"endpoint": "http://host:81/x", "api_version": "2017-08-01"})
    assert client.endpoint.url == "http://host:81/x"
    assert client._events_path.endswith("2017-08-01")
    assert (client._retry_for, client._read_timeout) == (0.0, 10.0)
    patient = _module.client_from(
        {"endpoint": "auto", "api_version": "2020-07-01", "first_call": True, "retry_timeout": 70}
    )
    assert (patient._retry_for, patient._read_timeout) == (70.0, 120.0)


def test_everything_odd_about_a_document_is_warned_of():
    document = parse_document({"DocumentIncarnation": None, "Events": [7]})
    assert len(_module.document_warnings(document)) == 2
