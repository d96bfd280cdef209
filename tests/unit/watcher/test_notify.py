# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Notices to a webhook and to AWX: at least once, signed, in turn, and without a secret in any log."""

import hashlib
import hmac
import http.server
import json
import os
import threading
from pathlib import Path

import pytest
from azops_core._errors import InputError
from azops_watcher.config import load_config, load_secrets

SECRETS = {"webhook_secret": "s3cret", "webhook_token": "t0ken", "awx_token": "awx-t0ken"}
LAUNCH = "/api/v2/job_templates/7/launch/"


class Receiver(http.server.BaseHTTPRequestHandler):
    """Keeps what it gets, and answers what the test wants."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, dict(self.headers.items()), body))
        status, answer = self.server.answers.pop(0) if self.server.answers else (200, {})
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *arguments):
        """Be quiet."""


@pytest.fixture
def receiver():
    server = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
    server.received, server.answers = [], []
    server.url = "http://127.0.0.1:{0}".format(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def telling(machine, receiver):
    """A machine whose watcher tells the receiver's webhook."""
    secrets = Path(machine.paths.secrets)
    secrets.write_text(json.dumps(SECRETS))
    secrets.chmod(0o600)
    machine.receiver = receiver
    machine.configure(webhook_url=receiver.url + "/hook")
    return machine


def look(machine):
    """One look, with everything that is due sent before it returns."""
    machine.watcher.once()


def bodies(receiver):
    return [json.loads(body.decode()) for _path, _headers, body in receiver.received]


def test_the_leader_tells_at_once_signed_and_with_its_token(telling, receiver):
    event_id = telling.schedule("vm0", "vm3")
    look(telling)
    path, headers, body = receiver.received[0]
    told = json.loads(body.decode())
    assert path == "/hook"
    assert (told["id"], told["status"], told["vm"]) == (event_id.lower() + ":scheduled", "scheduled", "vm0")
    assert told["time"].endswith("Z")
    assert told["event"]["resources"] == ["vm0", "vm3"]
    digest = hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
    assert headers["X-Hub-Signature-256"] == "sha256=" + digest
    assert headers["Authorization"] == "Bearer t0ken"


def test_each_status_is_told_once(telling, receiver):
    event_id = telling.schedule("vm0", notice=900)
    for _number in range(3):
        look(telling)
    telling.simulator.advance(901)
    look(telling)
    telling.simulator.finish(event_id)
    look(telling)
    look(telling)
    assert [told["status"] for told in bodies(receiver)] == ["scheduled", "started", "gone"]


def test_a_receiver_that_fails_is_tried_again_later_and_across_restarts(telling, receiver):
    receiver.answers[:] = [(503, {}), (500, {})]
    telling.schedule("vm0")
    look(telling)
    telling.start()
    look(telling)
    assert len(receiver.received) == 1
    telling.wait(6)
    telling.start()
    look(telling)
    telling.wait(11)
    look(telling)
    assert len(receiver.received) == 3
    assert len({told["id"] for told in bodies(receiver)}) == 1
    assert len(telling.said("Could not send")) == 1
    look(telling)
    assert len(receiver.received) == 3


def test_a_receiver_that_says_no_is_not_asked_again(telling, receiver):
    receiver.answers[:] = [(403, {})]
    telling.schedule("vm0")
    look(telling)
    telling.wait(600)
    look(telling)
    assert len(receiver.received) == 1
    assert telling.said("Gave up")


def test_a_redirect_is_not_followed(telling, receiver):
    receiver.answers[:] = [(302, {})]
    telling.schedule("vm0")
    look(telling)
    assert len(receiver.received) == 1
    assert telling.said("Gave up")


def test_the_second_waits_its_turn_and_tells_the_same_id(telling, receiver):
    event_id = telling.schedule("vm3", "vm0")
    look(telling)
    telling.wait(28)
    look(telling)
    assert receiver.received == []
    telling.wait(3)
    look(telling)
    assert [told["id"] for told in bodies(receiver)] == [event_id.lower() + ":scheduled"]


def test_the_second_keeps_quiet_about_a_status_that_has_passed(telling, receiver):
    telling.schedule("vm3", "vm0", notice=900)
    look(telling)
    telling.simulator.advance(901)
    telling.wait(10)
    look(telling)
    telling.wait(31)
    look(telling)
    assert [told["status"] for told in bodies(receiver)] == ["started"]


def test_the_fourth_never_tells(telling, receiver):
    telling.schedule("vm1", "vm2", "vm3", "vm0")
    look(telling)
    telling.wait(600)
    look(telling)
    assert receiver.received == []


def test_a_clock_that_jumps_back_does_not_hold_up_a_notice_for_hours(telling, receiver):
    telling.schedule("vm3", "vm0")
    look(telling)
    telling.wall -= 7200
    look(telling)
    assert len(receiver.received) == 1


def test_awx_is_launched_with_the_event_as_the_one_answer(telling, receiver):
    telling.configure(awx_launch_url=receiver.url + LAUNCH, awx_limit="web")
    event_id = telling.schedule("vm0", notice=900)
    look(telling)
    telling.simulator.advance(901)
    look(telling)
    assert [path for path, _headers, _body in receiver.received] == [LAUNCH]
    assert bodies(receiver) == [{"extra_vars": {"maintenance_event_id": event_id}, "limit": "web"}]
    assert receiver.received[0][1]["Authorization"] == "Bearer awx-t0ken"


def test_what_awx_ignored_is_an_error_and_not_launched_again(telling, receiver):
    receiver.answers[:] = [(201, {"job": 42, "ignored_fields": {"limit": "web"}})]
    telling.configure(awx_launch_url=receiver.url + LAUNCH, awx_limit="web")
    telling.schedule("vm0")
    look(telling)
    telling.wait(600)
    look(telling)
    assert len(receiver.received) == 1
    assert telling.said("Gave up")


def test_no_secret_is_said_or_published(telling, receiver, capsys):
    receiver.answers[:] = [(503, {}), (403, {})]
    telling.schedule("vm0")
    look(telling)
    telling.wait(6)
    look(telling)
    files = [Path(directory, name) for directory, _dirs, names in os.walk(str(telling.root)) for name in names]
    seen = "".join(telling.lines) + "".join(path.read_text() for path in files if str(path) != telling.paths.secrets)
    seen += "".join(capsys.readouterr())
    assert not [secret for secret in SECRETS.values() if secret in seen]
    assert "t0ken" not in repr(load_secrets(telling.paths))


def test_secrets_that_others_can_read_are_refused(telling):
    Path(telling.paths.secrets).chmod(0o644)
    with pytest.raises(InputError, match="can be read by others"):
        load_secrets(telling.paths)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"webhook_url": "http://example.com/"}, "webhook_url must be an https URL"),
        ({"awx_launch_url": "https://awx/api/v2/jobs/7/"}, "awx_launch_url must end in /job_templates/ID/launch/"),
        ({"awx_launch_url": "https://awx" + LAUNCH}, "awx_limit is not"),
        ({"poll_seconds": 0}, "poll_seconds must be a whole number from 1 to 3600"),
        ({"act_alone": "yes"}, "act_alone must be true or false"),
        ({"policy": [{"action": "explode"}]}, "Rule 1 of the policy"),
        ({"colour": "blue"}, "unknown key 'colour'"),
        ({"webhook_statuses": ["finished"]}, "webhook_statuses must be one of"),
    ],
)
def test_a_wrong_setting_is_named(machine, config, words):
    Path(machine.paths.config).write_text(json.dumps(config))
    with pytest.raises(InputError) as error:
        load_config(machine.paths)
    assert words in str(error.value)
