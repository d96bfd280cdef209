# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Receives notices as a webhook and as AWX would, over TLS, and writes down what it got.

The first notice to the webhook is answered with 503: it has to come again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Receiver(BaseHTTPRequestHandler):
    """Answers one request."""

    directory: Path
    secret: bytes

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        wanted = "sha256=" + hmac.new(self.secret, body, hashlib.sha256).hexdigest()
        record = {
            "path": self.path,
            "authorization": self.headers["Authorization"],
            "signed": hmac.compare_digest(self.headers["X-Hub-Signature-256"] or "", wanted),
            "body": json.loads(body),
        }
        log = self.directory / "received.jsonl"
        is_first = not log.exists()
        with log.open("a") as target:
            target.write(json.dumps(record) + "\n")
        status, answer = (201, {"job": 1, "ignored_fields": {}}) if "launch" in self.path else (200, {})
        self.answer(503 if is_first else status, answer)

    def answer(self, status: int, value: dict[str, object]) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main(address: str, directory: Path, secret: str) -> None:
    Receiver.directory, Receiver.secret = directory, secret.encode()
    server = ThreadingHTTPServer((address, 8443), Receiver)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    (directory / "pid").write_text(str(os.getpid()))
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
