# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Structured lines in journald, or in syslog where there is no journald."""

import json
import socket
import syslog
from typing import Any, Dict

JOURNALD_SOCKET = "/run/systemd/journal/socket"
IDENTIFIER = "azops-maintenance"


def log_line(
    message: str,
    fields: Dict[str, Any],
    priority: int = syslog.LOG_NOTICE,
    identifier: str = IDENTIFIER,
    journald_socket: str = JOURNALD_SOCKET,
) -> None:
    """Write one line. Values are JSON, so that nothing in them can start another line or field."""
    lines = [
        "MESSAGE={0}".format(_one_line(message, fields)),
        "PRIORITY={0}".format(priority),
        "SYSLOG_IDENTIFIER={0}".format(identifier),
    ]
    lines += ["AZOPS_{0}={1}".format(name.upper(), json.dumps(value)) for name, value in sorted(fields.items())]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journald:
            journald.sendto(("\n".join(lines) + "\n").encode("ascii", "replace"), journald_socket)
    except OSError:
        syslog.openlog(identifier)
        syslog.syslog(priority, _one_line(message, fields))


def _one_line(message: str, fields: Dict[str, Any]) -> str:
    return "{0} {1}".format(json.dumps(message)[1:-1], json.dumps(fields, sort_keys=True))
