# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""HAProxy's configuration: where the states of servers are kept, and for which backends."""

import pytest

from ansible_collections.azops.maintenance.plugins.module_utils._errors import DrainError, InputError
from ansible_collections.azops.maintenance.plugins.module_utils._haproxy import AdminSocket, check_name, state_file_of

GLOBAL = "global\n  server-state-file /var/lib/haproxy/state\n"
LOAD = "  load-server-state-from-file global\n"


@pytest.fixture
def config(tmp_path):
    def write(text):
        (tmp_path / "haproxy.cfg").write_text(text)
        return [str(tmp_path / "haproxy.cfg")]

    return write


@pytest.mark.parametrize(
    "text",
    [
        GLOBAL + "defaults\n" + LOAD + "backend web\n",
        GLOBAL + "defaults\nbackend web\n" + LOAD,
        GLOBAL + "defaults\nlisten web\n" + LOAD,
        GLOBAL + "defaults common\n" + LOAD + "defaults other\nbackend web from common\n",
        GLOBAL + "defaults base\n" + LOAD + "defaults more from base\nbackend web from more\n",
        'global # first\n  server-state-file "/var/lib/haproxy/state" # where\ndefaults\n' + LOAD + "backend web\n",
    ],
)
def test_the_state_file_is_found(config, text):
    assert state_file_of(config(text), ["web"]) == "/var/lib/haproxy/state"


def test_a_base_directory_counts(config):
    text = "global\n server-state-base /srv\n server-state-file state\ndefaults\n" + LOAD + "backend web\n"
    assert state_file_of(config(text), ["web"]) == "/srv/state"


@pytest.mark.parametrize(
    "text",
    [
        "defaults\n" + LOAD + "backend web\n",
        GLOBAL + "defaults\nbackend web\n",
        GLOBAL + "defaults\n" + LOAD + "defaults\nbackend web\n",
        GLOBAL + "defaults\n" + LOAD + "backend web\n  load-server-state-from-file none\n",
        GLOBAL + "defaults\n# load-server-state-from-file global\nbackend web\n",
        GLOBAL + "backend other\n" + LOAD + "backend web\n",
    ],
)
def test_what_is_missing_is_said(config, text):
    with pytest.raises(DrainError, match="would not survive a restart") as error:
        state_file_of(config(text), ["web"])
    assert "'server-state-file /var/lib/haproxy/" in error.value.remedy
    assert "'load-server-state-from-file global'" in error.value.remedy


def test_a_configuration_that_cannot_be_read_is_an_error():
    with pytest.raises(DrainError, match="drain_haproxy_config_files"):
        state_file_of(["/nonexistent/haproxy.cfg"], ["web"])


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a;b", "a\n", "ä"])
def test_names_that_haproxy_cannot_have_are_refused(name):
    with pytest.raises(InputError):
        check_name(name)


@pytest.mark.parametrize("address", ["relative.sock", "host:", "host:port"])
def test_an_address_is_a_path_or_host_and_port(address):
    with pytest.raises(InputError):
        AdminSocket(address).ask("show info")
