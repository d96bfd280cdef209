# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The load: clients that ask HAProxy at a fixed rate, whatever comes back, and write down every response.

load.py ADDRESS PORT RATE RECORD: until SIGTERM; then what has begun is finished. One line of JSON for each request:
when it began (wall and monotonic clock), kind, server that answered, status, duration, error.

Four kinds: short and slow requests, on kept and on fresh connections. As any client does, one that finds its kept
connection closed before it got a single byte asks again on a fresh one; that is written down, too.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any, TextIO

LONGEST = 40.0  # seconds; longer than HAProxy's own limits, so that it is HAProxy that gives up
EVERY = 20  # of so many requests, one is slow on a kept and one slow on a fresh connection, four are fresh
KINDS = {6: "slow kept", 15: "slow fresh", 1: "fresh", 5: "fresh", 9: "fresh", 13: "fresh"}


class ClosedBeforeAnswer(ConnectionError):
    """A kept connection was closed by the other side while it was idle."""


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.is_open = False

    async def get(self, path: str, keep: bool) -> tuple[int, str]:
        """The status and the server that answered, after the last byte has come."""
        self.is_open = False
        words = "keep-alive" if keep else "close"
        try:
            self._writer.write(f"GET {path} HTTP/1.1\r\nHost: shop\r\nConnection: {words}\r\n\r\n".encode())
            await self._writer.drain()
            first = await self._reader.readline()
        except ConnectionError as error:
            raise ClosedBeforeAnswer(str(error)) from error
        if not first:
            raise ClosedBeforeAnswer("closed before an answer")
        headers = {}
        while (line := await self._reader.readline()) not in (b"\r\n", b""):
            name, _colon, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        await self._reader.readexactly(int(headers["content-length"]))
        self.is_open = keep and headers.get("connection", "").lower() != "close"
        return int(first.split()[1]), headers.get("x-served-by", "")

    def close(self) -> None:
        self._writer.close()


class Load:
    def __init__(self, address: str, port: int, record: TextIO) -> None:
        self._address = address
        self._port = port
        self._record = record
        self._idle: list[Connection] = []

    async def run(self, rate: float, stop: asyncio.Event) -> None:
        started = time.monotonic()
        number = 0
        tasks: set[asyncio.Task[None]] = set()
        while not stop.is_set():
            while number < (time.monotonic() - started) * rate:
                task = asyncio.create_task(self._ask(KINDS.get(number % EVERY, "kept")))
                number += 1
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            self._record.flush()
            await asyncio.sleep(min(0.02, 1 / rate))  # the rate itself, not a wait for something
        await asyncio.gather(*tasks)

    async def _ask(self, kind: str) -> None:
        line: dict[str, Any] = {"time": time.time(), "mono": time.monotonic(), "kind": kind}
        line |= {"server": "", "status": 0, "error": "", "again": False}
        try:
            async with asyncio.timeout(LONGEST):
                line["status"], line["server"] = await self._get(kind, line)
        except (OSError, asyncio.IncompleteReadError, ValueError, KeyError, IndexError) as error:
            line["error"] = f"{type(error).__name__}: {error}"
        line["duration"] = round(time.monotonic() - line["mono"], 4)
        self._record.write(json.dumps(line) + "\n")

    async def _get(self, kind: str, line: dict[str, Any]) -> tuple[int, str]:
        path = "/slow" if kind.startswith("slow") else "/"
        keep = kind.endswith("kept")
        if keep and self._idle:
            try:
                return await self._get_on(self._idle.pop(), path, keep)
            except ClosedBeforeAnswer:
                line["again"] = True
        return await self._get_on(Connection(*await asyncio.open_connection(self._address, self._port)), path, keep)

    async def _get_on(self, connection: Connection, path: str, keep: bool) -> tuple[int, str]:
        try:
            return await connection.get(path, keep)
        finally:
            if connection.is_open:
                self._idle.append(connection)
            else:
                connection.close()


async def main(address: str, port: str, rate: str, record: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    with Path(record).open("w", encoding="utf-8", buffering=1 << 16) as stream:
        await Load(address, int(port), stream).run(float(rate), stop)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
