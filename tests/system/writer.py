# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client of the database that numbers its rows, run inside a host of the test bed.

writer.py ACKNOWLEDGED: until SIGTERM. Through libpq itself, which is given both hosts and finds the primary. A number
is written to the file only after the server has said that its transaction is committed; what was not acknowledged is
sent again, until it is. Each row is one line of JSON: number, when it was acknowledged, how often it was sent.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
import time
from typing import Any

CONNECTION = b"host=db0,db1 dbname=shop user=writer target_session_attrs=read-write connect_timeout=2"
EVERY = 0.05  # seconds
COMMAND_OK = 1
CONNECTION_OK = 0

libpq = ctypes.CDLL("libpq.so.5")
libpq.PQconnectdb.restype = ctypes.c_void_p
libpq.PQexec.restype = ctypes.c_void_p
libpq.PQconnectdb.argtypes = [ctypes.c_char_p]
libpq.PQexec.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
libpq.PQfinish.argtypes = libpq.PQstatus.argtypes = [ctypes.c_void_p]
libpq.PQresultStatus.argtypes = libpq.PQclear.argtypes = [ctypes.c_void_p]


class Database:
    """One connection at a time, made again when it is lost."""

    def __init__(self) -> None:
        self._connection: Any = None

    def execute(self, command: str) -> bool:
        """Whether the server has acknowledged the command."""
        if self._connection is None:
            self._connection = libpq.PQconnectdb(CONNECTION)
        if libpq.PQstatus(self._connection) != CONNECTION_OK:
            self._drop()
            return False
        result = libpq.PQexec(self._connection, command.encode())
        acknowledged = bool(libpq.PQresultStatus(result) == COMMAND_OK)
        libpq.PQclear(result)
        if not acknowledged:
            self._drop()
        return acknowledged

    def _drop(self) -> None:
        libpq.PQfinish(self._connection)
        self._connection = None


class Writer:
    def __init__(self) -> None:
        self._is_stopped = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, _number: int, _frame: object) -> None:
        self._is_stopped = True

    def run(self, path: str) -> None:
        database = Database()
        while not database.execute("CREATE TABLE IF NOT EXISTS rows (number integer PRIMARY KEY)"):
            time.sleep(EVERY)
        number = 0
        with open(path, "w", encoding="utf-8") as acknowledged:
            while not self._is_stopped:
                number += 1
                sent = 1
                while not database.execute(f"INSERT INTO rows VALUES ({number:d}) ON CONFLICT DO NOTHING"):  # noqa: S608
                    sent += 1
                    time.sleep(EVERY)
                line = {"number": number, "mono": time.monotonic(), "sent": sent}
                acknowledged.write(json.dumps(line) + "\n")
                acknowledged.flush()
                time.sleep(EVERY)  # the rate itself, not a wait for something


if __name__ == "__main__":
    Writer().run(sys.argv[1])
