# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import socket

import pytest

from ansible_collections.azops.maintenance.plugins.module_utils import _audit
from ansible_collections.azops.maintenance.plugins.module_utils._audit import log_line

HOSTILE = 'E1\nPRIORITY=0\x00\x1b[2J\u00e4\ud800"'


@pytest.fixture
def journald(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.settimeout(5)
        yield listener


@pytest.fixture
def syslog(monkeypatch):
    lines = []
    monkeypatch.setattr(_audit.syslog, "openlog", lines.append)
    monkeypatch.setattr(_audit.syslog, "syslog", lambda priority, line: lines.append((priority, line)))
    return lines


def test_a_line_goes_to_journald_with_its_fields(journald, tmp_path, syslog):
    log_line("Approved", {"event_id": "E1", "resources": ["a", "b"]}, journald_socket=str(tmp_path / "socket"))
    assert journald.recv(65536).decode("ascii").splitlines() == [
        'MESSAGE=Approved {"event_id": "E1", "resources": ["a", "b"]}',
        "PRIORITY=5",
        "SYSLOG_IDENTIFIER=azops-maintenance",
        'AZOPS_EVENT_ID="E1"',
        'AZOPS_RESOURCES=["a", "b"]',
    ]
    assert syslog == []


def test_nothing_in_a_value_starts_another_line_or_field(journald, tmp_path):
    log_line("Approved " + HOSTILE, {"event_id": HOSTILE}, journald_socket=str(tmp_path / "socket"))
    lines = journald.recv(65536).decode("ascii").split("\n")
    assert [line.split("=")[0] for line in lines] == ["MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "AZOPS_EVENT_ID", ""]
    assert all(line.isprintable() for line in lines)
    assert json.loads(lines[3].split("=", 1)[1]) == HOSTILE


def test_without_journald_the_line_goes_to_syslog(tmp_path, syslog):
    log_line("Approved " + HOSTILE, {"event_id": "E1"}, journald_socket=str(tmp_path / "nothing"))
    assert syslog[0] == "azops-maintenance"
    priority, line = syslog[1]
    assert priority == 5 and line.isprintable() and line.endswith('{"event_id": "E1"}')


def test_a_line_that_is_too_long_for_journald_goes_to_syslog(journald, tmp_path, syslog):
    log_line("x", {"a": "y" * 5000000}, journald_socket=str(tmp_path / "socket"))
    assert len(syslog) == 2
