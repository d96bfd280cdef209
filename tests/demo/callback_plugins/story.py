# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prints a run as a story: the names of plays, and what debug tasks say; errors in full."""

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: story
type: stdout
short_description: prints a run as a story
description: [Prints the names of plays and what debug tasks say.]
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "story"

    def __init__(self):
        super().__init__()
        self._play = ""

    def v2_playbook_on_play_start(self, play):
        self._play = "\n--- {0}".format(play.get_name())

    def _say(self, text, color):
        if self._play:
            self._display.display(self._play, color="bright blue")
            self._play = ""
        self._display.display(text, color=color)

    def v2_runner_on_ok(self, result):
        if result._task.action.endswith("debug") and not result._task.loop:
            self.v2_runner_item_on_ok(result)

    def v2_runner_item_on_ok(self, result):
        said = result._result.get("msg")
        if result._task.action.endswith("debug"):
            for line in said if isinstance(said, list) else said.splitlines():
                if line.strip():
                    self._say("    {0}".format(line.strip("\n")), "green")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        said = "    {0}: {1}".format(result._host.get_name(), result._result.get("msg"))
        self._say(said, "yellow" if ignore_errors else "red")

    v2_runner_on_unreachable = v2_runner_on_failed
