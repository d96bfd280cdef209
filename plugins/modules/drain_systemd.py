#!/usr/bin/python
# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: drain_systemd
short_description: Stop a VM's systemd units for an event, and start again those that ran
version_added: 0.1.0
description:
  - Stops units and keeps them stopped, also through a reboot, until they are restored.
  - The journal remembers which of them ran. Only those are started again. A unit that somebody had stopped before
    stays stopped.
  - A unit is kept from starting by a drop-in with a condition that is never met, in
    C(/etc/systemd/system/UNIT.d/zzz-azops-maintenance.conf). Unlike C(systemctl mask), this also works for units whose
    file is in C(/etc/systemd/system), and a package upgrade in the meantime does not fail on it.
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
  units:
    description:
      - The units, in the order in which they are stopped. They are started in the reverse order.
      - A name without a suffix is a service. Instances of templates, sockets, timers and other units can be given.
      - Not used with O(state=restored), where the journal says which units it is about.
    type: list
    elements: str
    default: []
  keep_stopped:
    description:
      - Whether the units are also kept from starting until they are restored.
      - With V(false), whatever starts them brings them back, such as the boot after the reboot that the event is about.
    type: bool
    default: true
seealso:
  - module: azops.maintenance.maintenance_journal
author:
  - The azops.maintenance contributors (@azops)
"""

EXAMPLES = r"""
- name: Take the web server out of service
  azops.maintenance.drain_systemd:
    event_ids: ["{{ event_id }}"]
    vm: web_0
    units: [nginx.service]
    timeout: 60
  become: true

- name: Put back what ran
  azops.maintenance.drain_systemd:
    state: restored
    event_ids: ["{{ event_id }}"]
    vm: web_0
  become: true
"""

RETURN = r"""
units:
  description: What was found and done, one for each unit.
  returned: success
  type: list
  elements: dict
  contains:
    unit:
      description: The unit, by its own name.
      type: str
      sample: nginx.service
    before:
      description: Its state before.
      type: str
      sample: active (running)
    after:
      description: Its state after, or what it would be.
      type: str
      sample: inactive (dead), kept from starting
error_kind:
  description: What kind of error it was.
  returned: failure
  type: str
  sample: drain
"""

import contextlib
import os
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
from ansible_collections.azops.maintenance.plugins.module_utils._journal import Journal
from ansible_collections.azops.maintenance.plugins.module_utils._module import common_options, run
from ansible_collections.azops.maintenance.plugins.module_utils._safe_files import sync_directory
from ansible_collections.azops.maintenance.plugins.module_utils._systemctl import Unit, show, unit_name
from ansible_collections.azops.maintenance.plugins.module_utils._systemctl import run as systemctl

BACKEND = "systemd"
UNIT_DIRECTORY = "/etc/systemd/system"
# The last name counts: a drop-in after it could take the condition back.
GUARD = "zzz-azops-maintenance.conf"
GUARD_CONTENT = b"""# Written by azops.maintenance while this VM is drained; removed when it is restored.
# To undo it by hand: remove this file, then run systemctl daemon-reload.
[Unit]
ConditionPathExists=/drained-by-azops-maintenance
"""
RELOAD_WITHIN = 60.0


class Units:
    """The units of one VM, and what is done to them."""

    def __init__(self, module: AnsibleModule, record: Record, deadline: Deadline) -> None:
        self._module = module
        self._record = record
        self._deadline = deadline
        self._dry_run = bool(module.check_mode)
        self.changed = False

    def drain(self, names: List[str], keep_stopped: bool) -> List[Dict[str, str]]:
        units = [self._find(name) for name in names]
        known = self._record.known()
        for unit in units:
            self._remember(unit, keep_stopped, known)
        if keep_stopped:
            for unit in units:
                self._put_guard(unit.name)
            self._reload([unit for unit in units if guard_path(unit.name) not in unit.drop_ins])
        return [self._stop(unit, keep_stopped) for unit in units]

    def restore(self) -> List[Dict[str, str]]:
        changes = self._record.to_undo()
        units = {name: show(name) for name in [fact(change.facts, "unit", str) for change in changes]}
        for change in changes:
            if fact(change.facts, "kept_stopped", bool):
                self._remove_guard(change.facts["unit"])
        self._reload([unit for unit in units.values() if guard_path(unit.name) in unit.drop_ins])
        results: List[Dict[str, str]] = []
        problems: List[DrainError] = []
        for change in changes:
            try:
                results.append(self._bring_back(change, units[change.facts["unit"]]))
            except DrainError as problem:
                problems.append(problem)
        if problems:
            raise DrainError(" ".join(problem.problem for problem in problems), problems[0].remedy)
        return results

    def _find(self, name: str) -> Unit:
        unit = show(unit_name(name))
        if unit.load_state not in ("loaded", "masked"):
            raise InputError(
                "{0}: there is no unit {1} on this VM ({2}).".format(self._record.about, unit.name, unit.load_state),
                "Correct the list of units to drain (drain_systemd_units).",
            )
        return unit

    def _remember(self, unit: Unit, keep_stopped: bool, known: Any) -> None:
        earlier = [change.facts for change in known if change.facts.get("unit") == unit.name]
        if earlier and (not keep_stopped or earlier[-1].get("kept_stopped")):
            return
        ran = bool(earlier[0].get("ran")) if earlier else unit.runs
        if ran or keep_stopped:
            self._record.remember({"unit": unit.name, "ran": ran, "kept_stopped": keep_stopped})
            self.changed = True

    def _stop(self, unit: Unit, keep_stopped: bool) -> Dict[str, str]:
        if not unit.is_stopped:
            self.changed = True
            if not self._dry_run:
                self._call("stop", unit)
        after = unit if unit.is_stopped else Unit(unit.name, unit.load_state, "inactive", "dead", (), ())
        if not self._dry_run:
            after = show(unit.name)
            if not after.is_stopped:
                raise self._error(unit, "is {0} although it was stopped".format(after.words), "stays")
        triggers = [] if keep_stopped else [name for name in unit.triggered_by if show(name).runs]
        if triggers:
            self._module.warn(
                "{0} can be started by {1}; drain that, too, before it.".format(unit.name, " and ".join(triggers))
            )
        words = after.words + (", kept from starting" if keep_stopped else "")
        return {"unit": unit.name, "before": unit.words + self._guarded(unit), "after": words}

    def _bring_back(self, change: OpenChange, unit: Unit) -> Dict[str, str]:
        ran = fact(change.facts, "ran", bool)
        if ran and not unit.runs and unit.is_masked:
            self._module.warn(
                "{0} ran before the drain, but somebody has masked it since: it stays stopped.".format(unit.name)
            )
        elif ran and not unit.runs:
            self.changed = True
            if not self._dry_run:
                self._call("start", unit)
        after = unit.words if self._dry_run else show(unit.name).words
        self.changed = True
        self._record.forget(change)
        return {"unit": unit.name, "before": unit.words + self._guarded(unit), "after": after}

    def _guarded(self, unit: Unit) -> str:
        return ", kept from starting" if guard_path(unit.name) in unit.drop_ins else ""

    def _call(self, verb: str, unit: Unit) -> None:
        outcome = systemctl([verb, "--", unit.name], self._deadline.left)
        if outcome.timed_out:
            raise self._error(
                unit,
                "did not {0} within {1:.0f} s, it is {2}".format(verb, self._deadline.seconds, show(unit.name).words),
            )
        if outcome.status != 0:
            raise self._error(
                unit, "did not {0}: {1}".format(verb, " ".join(outcome.output.split()) or "no reason given")
            )

    def _error(self, unit: Unit, what: str, hint: Optional[str] = None) -> DrainError:
        also = " Something starts it again: drain that, too, before it." if hint else ""
        return DrainError(
            "{0}: {1} {2}.".format(self._record.about, unit.name, what),
            "Look at it on the VM with: journalctl -u {0}.{1} Then run the playbook again.".format(unit.name, also),
        )

    def _reload(self, stale: List[Unit]) -> None:
        if not stale or self._dry_run:
            return
        outcome = systemctl(["daemon-reload"], max(RELOAD_WITHIN, self._deadline.left))
        if outcome.status != 0:
            raise DrainError(
                "{0}: systemctl daemon-reload failed: {1}.".format(
                    self._record.about, " ".join(outcome.output.split()) or "it took too long"
                ),
                "Run it on the VM, mend what it says, then run the playbook again.",
            )

    def _put_guard(self, name: str) -> None:
        path = guard_path(name)
        if read_or_none(path) == GUARD_CONTENT:
            return
        self.changed = True
        if self._dry_run:
            return
        temporary = path + ".tmp"
        try:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            with open(temporary, "wb") as target:
                os.fchmod(target.fileno(), 0o644)
                target.write(GUARD_CONTENT)
                target.flush()
                os.fsync(target.fileno())
            os.rename(temporary, path)
            sync_directory(os.path.dirname(path))
        except OSError as error:
            raise DrainError(
                "{0}: cannot write {1}: {2}.".format(self._record.about, path, error.strerror),
                "Run as root (become: true), or set drain_systemd_keep_stopped to false.",
            ) from None

    def _remove_guard(self, name: str) -> None:
        path = guard_path(name)
        if self._dry_run or read_or_none(path) is None:
            return
        try:
            os.unlink(path)
            sync_directory(os.path.dirname(path))
        except OSError as error:
            raise DrainError(
                "{0}: cannot remove {1}: {2}.".format(self._record.about, path, error.strerror),
                "Run as root (become: true).",
            ) from None
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(path))


def guard_path(name: str) -> str:
    return os.path.join(UNIT_DIRECTORY, unit_name(name) + ".d", GUARD)


def read_or_none(path: str) -> Optional[bytes]:
    try:
        with open(path, "rb") as source:
            return source.read()
    except OSError:
        return None


def act(module: AnsibleModule) -> Dict[str, Any]:
    params = module.params
    journal = Journal(params["journal_dir"], dry_run=module.check_mode)
    record = Record(journal, BACKEND, params["event_ids"], params["vm"])
    units = Units(module, record, Deadline(params["timeout"]))
    is_drain = params["state"] == DRAINED
    results = units.drain(params["units"], params["keep_stopped"]) if is_drain else units.restore()
    return {
        "changed": units.changed,
        "units": results,
        "diff": {side: {result["unit"]: result[side] for result in results} for side in ("before", "after")},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            **common_options(env_fallback),
            **drain_options(),
            units={"type": "list", "elements": "str", "default": []},
            keep_stopped={"type": "bool", "default": True},
        ),
        supports_check_mode=True,
    )
    run(module, act)


if __name__ == "__main__":
    main()
