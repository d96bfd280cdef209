#!/usr/bin/python
# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: drain_haproxy
short_description: Drain a VM's server in HAProxy for an event, and make it ready again
version_added: 0.1.0
description:
  - Runs on the host of HAProxy, not on the VM. Puts the VM's server into state C(drain) by the admin socket, and waits
    until its sessions have ended.
  - So that a restart or a reload of HAProxy does not bring the server back, its line is also written into the file from
    which HAProxy takes the states of its servers when it starts. Lines of other servers are left alone, and the line is
    removed when the VM is restored.
  - A server that was in C(maint) or C(drain) before stays as it was.
  - What was done is in the journal of the host of HAProxy, under event and VM.
extends_documentation_fragment:
  - azops.maintenance.scheduled_events
  - azops.maintenance.drain
  - azops.maintenance.attributes
  - azops.maintenance.attributes.actiongroup_maintenance
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  server:
    description:
      - The VM's name as a server in HAProxy. Required with O(state=drained).
      - With O(state=restored), the journal says which servers it is about.
    type: str
  backends:
    description: The backends in which the server is drained. Empty for all that have a server of that name.
    type: list
    elements: str
    default: []
  socket:
    description: HAProxy's admin socket, as a path or as C(HOST:PORT). It has to be of level C(admin).
    type: str
    default: /run/haproxy/admin.sock
  survive_restart:
    description: Whether the drain has to survive a restart and a reload of HAProxy, for which it needs a state file.
    type: bool
    default: true
  state_file:
    description: HAProxy's C(server-state-file). If it is not given, it is looked up in O(config_files).
    type: path
  config_files:
    description: HAProxy's configuration, in the order in which it reads it.
    type: list
    elements: path
    default: [/etc/haproxy/haproxy.cfg]
  wait_for_sessions:
    description: Whether to wait until the server has no sessions any more.
    type: bool
    default: true
  shut_sessions_after:
    description:
      - Seconds after which the sessions that are left are cut off. V(0) for never, in which case sessions that do not
        end within O(timeout) are an error.
    type: int
    default: 0
  own_entry:
    description:
      - Whether the module opens and closes the journal's entry.
      - V(false) if HAProxy runs on the VM itself, whose entry somebody else opens and closes.
    type: bool
    default: true
seealso:
  - module: azops.maintenance.maintenance_journal
author:
  - The azops.maintenance contributors (@azops)
"""

EXAMPLES = r"""
- name: Send no more clients to web_0
  azops.maintenance.drain_haproxy:
    event_ids: ["{{ event_id }}"]
    vm: web_0
    server: web0
    backends: [web]
    timeout: 60
  delegate_to: lb0
  become: true

- name: Send them again
  azops.maintenance.drain_haproxy:
    state: restored
    event_ids: ["{{ event_id }}"]
    vm: web_0
  delegate_to: lb0
  become: true
"""

RETURN = r"""
servers:
  description: What was found and done, one for each server.
  returned: success
  type: list
  elements: dict
  contains:
    server:
      description: The server, as C(BACKEND/SERVER).
      type: str
      sample: web/web0
    before:
      description: Its state before.
      type: str
      sample: ready
    after:
      description: Its state after, or what it would be.
      type: str
      sample: drain
handed_over_to:
  description: The event that the VM is still out for, so that nothing was undone. V(null) if there is none.
  returned: success
  type: str
  sample: null
error_kind:
  description: What kind of error it was.
  returned: failure
  type: str
  sample: drain
"""

import time
from typing import Any, Dict, List, Optional

from ansible.module_utils.basic import AnsibleModule, env_fallback

from ansible_collections.azops.maintenance.plugins.module_utils._drain import (
    DRAINED,
    Deadline,
    OpenChange,
    Record,
    drain_options,
    fact,
)
from ansible_collections.azops.maintenance.plugins.module_utils._errors import DrainError, InputError
from ansible_collections.azops.maintenance.plugins.module_utils._haproxy import (
    AdminSocket,
    DownError,
    Server,
    StateFile,
    check_name,
    state_file_of,
)
from ansible_collections.azops.maintenance.plugins.module_utils._journal import Journal, Subject
from ansible_collections.azops.maintenance.plugins.module_utils._module import common_options, run

BACKEND = "haproxy_server"
ACTOR = "drain_haproxy"
LOOK_EVERY = 0.2


class Servers:
    """The servers of one VM in one HAProxy, and what is done to them."""

    def __init__(self, module: AnsibleModule, journal: Journal, record: Record) -> None:
        self._module = module
        self._params = module.params
        self._journal = journal
        self._record = record
        self._deadline = Deadline(module.params["timeout"])
        self._dry_run = bool(module.check_mode)
        self.changed = False
        self.handed_over_to: Optional[str] = None

    def drain(self) -> List[Dict[str, str]]:
        haproxy = AdminSocket(self._params["socket"])
        servers = self._find(haproxy)
        state_file = self._state_file([server.backend for server in servers])
        self._begin()
        for server in servers:
            self._drain(haproxy, server, state_file)
        if self._params["wait_for_sessions"] and not self._dry_run:
            for server in servers:
                self._wait(haproxy, server)
        after = {} if self._dry_run else {server.backend: server for server in self._find(haproxy)}
        for server in after.values():
            if not server.is_out:
                raise self._error(server, "is ready again although it was drained", "Find out what makes it ready.")
        self._enter_drained()
        return [
            result(server, after[server.backend].words if server.backend in after else "drain")
            if not server.is_out or after
            else result(server, server.words)
            for server in servers
        ]

    def restore(self) -> List[Dict[str, str]]:
        if self._params["own_entry"]:
            self.handed_over_to = self._journal.hand_over(self._record.event_ids, self._record.vm)
        results = []
        if self.handed_over_to is None:
            results = [self._restore(change) for change in self._record.to_undo()]
        self._close()
        return results

    def _find(self, haproxy: AdminSocket) -> List[Server]:
        name, wanted = check_name(self._params["server"]), self._params["backends"]
        found = [server for server in haproxy.servers() if server.name == name]
        missing = [backend for backend in wanted if backend not in [server.backend for server in found]]
        if missing or not found:
            raise InputError(
                "{0}: HAProxy on {1} has no server {2} in {3}.".format(
                    self._record.about,
                    haproxy.address,
                    name,
                    "backend " + ", ".join(missing) if missing else "any backend",
                ),
                "Correct drain_haproxy_server (the VM's name as a server there) or drain_haproxy_backends.",
            )
        return [server for server in found if not wanted or server.backend in wanted]

    def _state_file(self, backends: List[str]) -> Optional[StateFile]:
        if not self._params["survive_restart"]:
            return None
        return StateFile(self._params["state_file"] or state_file_of(self._params["config_files"], backends))

    def _drain(self, haproxy: AdminSocket, server: Server, state_file: Optional[StateFile]) -> None:
        known = [change.facts for change in self._record.known() if change.facts.get("socket") == haproxy.address]
        is_ours = any((facts.get("backend"), facts.get("server")) == (server.backend, server.name) for facts in known)
        if server.is_out and not is_ours:
            return
        if not is_ours:
            self._record.remember(
                {
                    "socket": haproxy.address,
                    "backend": server.backend,
                    "server": server.name,
                    "state_file": state_file.path if state_file else None,
                }
            )
        if state_file is not None and not state_file.has(server):
            self.changed = True
            if not self._dry_run:
                state_file.put(server)
        if not server.is_out:
            self.changed = True
            if not self._dry_run:
                haproxy.set_state(server.backend, server.name, "drain")

    def _wait(self, haproxy: AdminSocket, server: Server) -> None:
        shut_after = self._params["shut_sessions_after"]
        begun = time.monotonic()
        while True:
            sessions = haproxy.sessions(server.backend, server.name)
            if sessions == 0:
                return
            if shut_after and time.monotonic() - begun >= shut_after:
                haproxy.shut_sessions(server.backend, server.name)
            if self._deadline.is_over:
                raise self._error(
                    server,
                    "still has {0} session{1} after {2:.0f} s".format(
                        sessions, "" if sessions == 1 else "s", self._deadline.seconds
                    ),
                    "Raise maintenance_drain_timeout, or set drain_haproxy_shut_sessions_after to cut them off.",
                )
            time.sleep(min(LOOK_EVERY, max(0.01, self._deadline.left)))

    def _restore(self, change: OpenChange) -> Dict[str, str]:
        backend, name = fact(change.facts, "backend", str), fact(change.facts, "server", str)
        haproxy = AdminSocket(fact(change.facts, "socket", str))
        if change.facts.get("state_file") is not None and not self._dry_run:
            StateFile(fact(change.facts, "state_file", str)).drop(backend, name)
        before = after = "gone"
        try:
            server = next((one for one in haproxy.servers() if (one.backend, one.name) == (backend, name)), None)
            if server is not None:
                before = after = server.words
            if server is None:
                self._module.warn("{0}/{1} is not in HAProxy any more.".format(backend, name))
            elif server.is_drained:
                after = "ready"
                if not self._dry_run:
                    haproxy.set_state(backend, name, "ready")
            elif server.is_out:
                self._module.warn(
                    "{0}/{1} was put into {2} by somebody since the drain: it stays so.".format(backend, name, before)
                )
        except DownError as error:
            before, after = "down", "ready when HAProxy starts"
            self._module.warn("{0} When it starts, {1}/{2} will be ready.".format(error.problem, backend, name))
        self.changed = True
        self._record.forget(change)
        return {"server": "{0}/{1}".format(backend, name), "before": before, "after": after}

    def _begin(self) -> None:
        if self._params["own_entry"]:
            for event_id in self._record.event_ids:
                self._journal.begin(Subject(event_id, self._record.vm), ACTOR)

    def _enter_drained(self) -> None:
        if self._params["own_entry"]:
            for event_id in self._record.event_ids:
                self._journal.enter_phase(event_id, self._record.vm, "drained", ACTOR)

    def _close(self) -> None:
        if not self._params["own_entry"] or self._dry_run:
            return
        for event_id in self._record.event_ids:
            entry = self._journal.find(event_id, self._record.vm)
            if entry is not None and entry.is_open:
                self.changed = True
                self._journal.close(event_id, self._record.vm, "restored", ACTOR)

    def _error(self, server: Server, what: str, remedy: str) -> DrainError:
        return DrainError(
            "{0}: {1}/{2} in HAProxy {3}.".format(self._record.about, server.backend, server.name, what), remedy
        )


def result(server: Server, after: str) -> Dict[str, str]:
    return {"server": "{0}/{1}".format(server.backend, server.name), "before": server.words, "after": after}


def act(module: AnsibleModule) -> Dict[str, Any]:
    params = module.params
    journal = Journal(params["journal_dir"], dry_run=module.check_mode)
    record = Record(journal, BACKEND, params["event_ids"], params["vm"])
    servers = Servers(module, journal, record)
    results = servers.drain() if params["state"] == DRAINED else servers.restore()
    return {
        "changed": servers.changed,
        "servers": results,
        "handed_over_to": servers.handed_over_to,
        "diff": {side: {one["server"]: one[side] for one in results} for side in ("before", "after")},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            **common_options(env_fallback),
            **drain_options(),
            server={"type": "str"},
            backends={"type": "list", "elements": "str", "default": []},
            socket={"type": "str", "default": "/run/haproxy/admin.sock"},
            survive_restart={"type": "bool", "default": True},
            state_file={"type": "path"},
            config_files={"type": "list", "elements": "path", "default": ["/etc/haproxy/haproxy.cfg"]},
            wait_for_sessions={"type": "bool", "default": True},
            shut_sessions_after={"type": "int", "default": 0},
            own_entry={"type": "bool", "default": True},
        ),
        required_if=[("state", DRAINED, ("server",))],
        supports_check_mode=True,
    )
    run(module, act)


if __name__ == "__main__":
    main()
