# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The local connection, but away while a file says so: refused some times or for ever, or hanging."""

import os
import time

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import Connection as LocalConnection

DOCUMENTATION = """
name: unsteady
short_description: local, but away while a file says so
description: [local, but away while a file says so]
options:
  state_file:
    description: The file, with C(refuse), a number of refusals, or C(hang) in it.
    vars: [{name: unsteady_state_file}]
"""


class Connection(LocalConnection):
    transport = "unsteady"

    def exec_command(self, cmd, in_data=None, sudoable=True):
        self._be_unsteady()
        return super().exec_command(cmd, in_data, sudoable)

    def _be_unsteady(self):
        state_file = self.get_option("state_file")
        if not os.path.exists(state_file):
            return
        with open(state_file, encoding="ascii") as state:
            mood = state.read().strip()
        if mood == "hang":
            while os.path.exists(state_file):
                time.sleep(0.1)
        if mood.isdigit():
            self._one_refusal_less(state_file, int(mood))
        raise AnsibleConnectionFailure("Failed to connect to the host: Connection refused")

    def _one_refusal_less(self, state_file, refusals):
        if refusals > 1:
            with open(state_file, "w", encoding="ascii") as state:
                state.write(str(refusals - 1))
        else:
            os.unlink(state_file)

    def reset(self):
        """A local connection keeps nothing open."""
