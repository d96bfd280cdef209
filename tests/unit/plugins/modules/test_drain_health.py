# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""drain_health: all checks are met at once, or an error says which are not."""

import http.server
import socket
import threading

import pytest


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers with the status codes that the server was given, the last one for ever."""

    def do_GET(self):
        statuses = self.server.statuses
        self.server.hosts.append(self.headers.get("Host"))
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        self.send_header("Location", "http://127.0.0.1:1/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def web():
    server = http.server.HTTPServer(("127.0.0.1", 0), Answers)
    server.statuses, server.hosts = [200], []
    server.url = "http://127.0.0.1:{0}/".format(server.server_port)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def closed_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_a_healthy_vm_passes_at_once(fleet, web):
    result = fleet.call("drain_health", ports=[str(web.server_port)], urls=[{"url": web.url}], timeout=30)
    assert not result.get("changed")
    assert [check["ok"] for check in result["checks"]] == [True, True]


def test_it_looks_again_until_the_status_is_right(fleet, web):
    web.statuses = [503, 500, 204]
    result = fleet.call("drain_health", urls=[{"url": web.url, "status": [200, 204]}], timeout=60)
    assert result["checks"][0]["found"] == "status 204"


def test_what_is_not_met_is_named(fleet, web, closed_port):
    web.statuses = [503]
    ports = ["127.0.0.1:{0}".format(closed_port), str(web.server_port)]
    result = fleet.call("drain_health", ports=ports, urls=[{"url": web.url}], timeout=0)
    assert result["failed"]
    assert "port 127.0.0.1:{0} (Connection refused); {1} (status 503)".format(closed_port, web.url) in result["msg"]


def test_a_redirect_is_not_followed(fleet, web):
    web.statuses = [302]
    assert not fleet.call("drain_health", urls=[{"url": web.url, "status": [302]}], timeout=0).get("failed")


def test_headers_are_sent_and_no_proxy_is_used(fleet, web, monkeypatch, closed_port):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:{0}".format(closed_port))
    fleet.call("drain_health", urls=[{"url": web.url, "headers": {"Host": "shop.example.org"}}], timeout=0)
    assert web.hosts == ["shop.example.org"]


def test_units_have_to_be_active(fleet, tmp_path, monkeypatch):
    program = tmp_path / "systemctl"
    program.write_text("#!/bin/sh\nprintf 'ActiveState=activating\\nSubState=start\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    result = fleet.call("drain_health", units=["nginx"], timeout=0)
    assert "nginx.service (activating (start))" in result["msg"]
    program.write_text("#!/bin/sh\nprintf 'ActiveState=active\\nSubState=running\\n'\n")
    assert fleet.call("drain_health", units=["nginx"], timeout=0)["checks"][0]["ok"]


def test_check_mode_looks_once_and_does_not_fail(fleet, closed_port):
    result = fleet.call("drain_health", ports=[str(closed_port)], timeout=600, check_mode=True)
    assert [check["ok"] for check in result["checks"]] == [False]


@pytest.mark.parametrize("options", [{"ports": ["http"]}, {"ports": ["0"]}, {"urls": [{"url": "file:///etc/passwd"}]}])
def test_what_cannot_be_checked_is_refused(fleet, options):
    assert fleet.call("drain_health", timeout=0, **options)["error_kind"] == "input"


def test_an_answer_that_is_no_http_is_not_healthy(fleet):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        thread = threading.Thread(target=speak_nonsense, args=(listener,))
        thread.start()
        url = "http://127.0.0.1:{0}/".format(listener.getsockname()[1])
        assert "no HTTP answer" in fleet.call("drain_health", urls=[{"url": url}], timeout=0)["msg"]
        thread.join()


def speak_nonsense(listener):
    link, _address = listener.accept()
    with link:
        link.recv(1000)
        link.sendall(b"SSH-2.0-OpenSSH\r\n")
