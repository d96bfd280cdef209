#!/usr/bin/python
# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: drain_file
short_description: Set a maintenance flag that a VM's health check reads, and remove it again
version_added: 0.1.0
description:
  - Creates a file that the health check of a service looks for, so that a load balancer's probe fails and the balancer
    sends nobody any more; then waits until the probes have seen it.
  - A flag that was there before is somebody else's, and stays. So does one that somebody has written to since.
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
  path:
    description:
      - The flag, as an absolute path. Its directory has to be there, and has to survive a reboot, unlike C(/run).
      - Required with O(state=drained). With O(state=restored), the journal says which file it is.
    type: path
  settle_seconds:
    description:
      - For how long the flag has to have been there before the VM counts as drained, so that the probes have seen it
        and the balancer's connections have ended.
      - A flag that is already older is not waited for.
    type: int
    default: 0
seealso:
  - module: azops.maintenance.maintenance_journal
author:
  - The azops.maintenance contributors (@azops)
"""

EXAMPLES = r"""
- name: Let the probes of the load balancer fail
  azops.maintenance.drain_file:
    event_ids: ["{{ event_id }}"]
    vm: web_0
    path: /var/www/maintenance
    settle_seconds: 30
  become: true

- name: Let them succeed again
  azops.maintenance.drain_file:
    state: restored
    event_ids: ["{{ event_id }}"]
    vm: web_0
  become: true
"""

RETURN = r"""
files:
  description: What was found and done, one for each flag.
  returned: success
  type: list
  elements: dict
  contains:
    path:
      description: The flag.
      type: str
      sample: /var/www/maintenance
    before:
      description: Whether it was there.
      type: str
      sample: absent
    after:
      description: Whether it is there now, or would be.
      type: str
      sample: present
error_kind:
  description: What kind of error it was.
  returned: failure
  type: str
  sample: drain
"""

import contextlib
import os
import stat
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
from ansible_collections.azops.maintenance.plugins.module_utils._journal import Journal
from ansible_collections.azops.maintenance.plugins.module_utils._module import common_options, run
from ansible_collections.azops.maintenance.plugins.module_utils._safe_files import sync_directory

BACKEND = "file"
LARGEST_TEXT = 4096


class Flags:
    """The flag of one VM, and what is done to it."""

    def __init__(self, module: AnsibleModule, record: Record, deadline: Deadline) -> None:
        self._module = module
        self._record = record
        self._deadline = deadline
        self._dry_run = bool(module.check_mode)
        self.changed = False

    def drain(self, path: str, settle_seconds: int) -> List[Dict[str, str]]:
        self._check_parent(path)
        before = os.path.lexists(path)
        if not before:
            self.changed = True
            known = [change.facts for change in self._record.known() if change.facts.get("path") == path]
            text = known[-1]["text"] if known else flag_text(self._record)
            self._record.remember({"path": path, "text": text})
            if not self._dry_run:
                self._create(path, text)
        if not self._dry_run:
            self._settle(path, settle_seconds)
        return [{"path": path, "before": presence(before), "after": presence(True)}]

    def restore(self) -> List[Dict[str, str]]:
        return [self._remove(change) for change in self._record.to_undo()]

    def _check_parent(self, path: str) -> None:
        parent = os.path.dirname(path)
        if not os.path.isabs(path) or not os.path.basename(path):
            raise InputError(
                "The flag {0!r} is not an absolute path of a file.".format(path), "Correct drain_file_path."
            )
        if not os.path.isdir(parent):
            raise DrainError(
                "{0}: the directory {1} of the flag is not there.".format(self._record.about, parent),
                "Make it, so that the service's health check can find the flag, or correct drain_file_path.",
            )

    def _create(self, path: str, text: str) -> None:
        """All of it or nothing, and never over a file that came in between."""
        temporary = os.path.join(os.path.dirname(path), ".{0}.azops-maintenance".format(os.path.basename(path)))
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                with os.fdopen(handle, "wb") as target:
                    os.fchmod(handle, 0o644)
                    target.write(text.encode("utf-8"))
                    target.flush()
                    os.fsync(target.fileno())
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, path)
            finally:
                os.unlink(temporary)
            sync_directory(os.path.dirname(path))
        except OSError as error:
            raise DrainError(
                "{0}: cannot create the flag {1}: {2}.".format(self._record.about, path, error.strerror),
                "Run as a user that may (become: true), or correct drain_file_path.",
            ) from None

    def _settle(self, path: str, seconds: int) -> None:
        """Until the flag has been there for so long; a clock that was set back does not make it longer."""
        begun = time.monotonic()
        while True:
            try:
                age = time.time() - os.lstat(path).st_mtime
            except OSError:
                raise DrainError(
                    "{0}: the flag {1} went away while the probes were waited for.".format(self._record.about, path),
                    "Find out what removes it, then run the playbook again.",
                ) from None
            left = min(seconds - age, seconds - (time.monotonic() - begun))
            if left <= 0:
                return
            if self._deadline.is_over:
                raise DrainError(
                    "{0}: the flag {1} is set, but probes need {2:.0f} s more than the {3:.0f} s there were.".format(
                        self._record.about, path, left, self._deadline.seconds
                    ),
                    "Lower drain_settle_seconds, or raise maintenance_drain_timeout.",
                )
            time.sleep(max(0.01, min(left, self._deadline.left, 1.0)))

    def _remove(self, change: OpenChange) -> Dict[str, str]:
        path, text = fact(change.facts, "path", str), fact(change.facts, "text", str)
        before = os.path.lexists(path)
        ours = before and content_of(path) == text
        if before and not ours:
            self._module.warn(
                "The flag {0} is not as it was set by the drain: somebody needs it, it stays.".format(path)
            )
        if ours and not self._dry_run:
            try:
                os.unlink(path)
                sync_directory(os.path.dirname(path))
            except OSError as error:
                raise DrainError(
                    "{0}: cannot remove the flag {1}: {2}.".format(self._record.about, path, error.strerror),
                    "Remove it on the VM, then run the playbook again.",
                ) from None
        self.changed = True
        self._record.forget(change)
        return {"path": path, "before": presence(before), "after": presence(before and not ours)}


def flag_text(record: Record) -> str:
    return "{0}: out of service for maintenance (azops.maintenance)\n".format(" ".join(record.about.split()))


def presence(is_there: bool) -> str:
    return "present" if is_there else "absent"


def content_of(path: str) -> Optional[str]:
    """What is in a small file; nothing of anything else."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as source:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            return source.read(LARGEST_TEXT).decode("utf-8", "replace")
    except OSError:
        return None


def act(module: AnsibleModule) -> Dict[str, Any]:
    params = module.params
    journal = Journal(params["journal_dir"], dry_run=module.check_mode)
    record = Record(journal, BACKEND, params["event_ids"], params["vm"])
    flags = Flags(module, record, Deadline(params["timeout"]))
    is_drain = params["state"] == DRAINED
    results = flags.drain(params["path"], params["settle_seconds"]) if is_drain else flags.restore()
    return {
        "changed": flags.changed,
        "files": results,
        "diff": {side: {result["path"]: result[side] for result in results} for side in ("before", "after")},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            **common_options(env_fallback),
            **drain_options(),
            path={"type": "path"},
            settle_seconds={"type": "int", "default": 0},
        ),
        required_if=[("state", DRAINED, ("path",))],
        supports_check_mode=True,
    )
    run(module, act)


if __name__ == "__main__":
    main()
