# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Maintenance again and again: what it leaves behind must not grow.

A round is an event, a rolling run and a fleet that is whole again. The environment variable ROUNDS says how many.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from figures import count
from outcome import Outcome
from scene import BALANCER, Scene
from story import Story, under_load

ROUNDS = int(os.environ.get("ROUNDS", "200"))
# The first rounds make what is made once: interpreters' caches, sockets, directories.
WARM_UP = 3
# Files of the journal besides its entries: a lock.
BESIDES_ENTRIES = 2
KEPT_ENTRIES = 200


# Processes without those of a session, open files, temporary files.
COUNT = """
ps -e --no-headers -o comm | grep -vcE '^(ps|sh|grep|sshd|sudo|systemd|[(]sd-pam[)])$'
ls -d /proc/[0-9]*/fd/* 2>/dev/null | wc -l
find /tmp /root/.ansible /home/ops/.ansible -type f 2>/dev/null | wc -l
"""


class Footprint(NamedTuple):
    """What a host has of what could leak."""

    processes: int
    files: int
    temporary: int
    journal_files: int
    journal_bytes: int


def measure(scene: Scene, name: str) -> Footprint:
    counts = scene.execute(name, "sh", "-c", COUNT)
    processes, files, temporary = (int(word) for word in counts.split())
    paths = _journal_files(scene.journal(name))
    return Footprint(processes, files, temporary, len(paths), sum(path.stat().st_size for path in paths))


def _journal_files(journal: Path) -> list[Path]:
    return [path for path in journal.iterdir() if path.is_file()] if journal.is_dir() else []


def soak(scene: Scene) -> Outcome:
    story = Story(scene, "soak")
    names = [*(host.name for host in scene.web), BALANCER]
    with under_load(story):
        before = {name: measure(scene, name) for name in names}
        ours = _controller_files(scene)
        for number in range(ROUNDS):
            story.announce_event([scene.web[number % len(scene.web)]], notice=scene.form.notices[0])
            story.roll().ends(0)
            story.until_whole()
            if number + 1 == min(WARM_UP * len(scene.web), ROUNDS // 2):
                before = {name: measure(scene, name) for name in names}
                ours = _controller_files(scene)
        after = {name: measure(scene, name) for name in names}
        ours_after = _controller_files(scene)
    counted = count(story)
    outcome = Outcome(story.name, counted, story.broken())
    if counted.lost:
        outcome.problems.append(str(counted))
    for name in names:
        outcome.problems += [f"{name}: {text}" for text in grown(before[name], after[name])]
    if ours_after > ours:
        outcome.problems.append(f"the controller has {ours_after} temporary files, and had {ours}")
    largest = max(after.values(), key=lambda one: one.journal_bytes)
    outcome.notes.append(
        f"{ROUNDS} rounds; largest journal {largest.journal_files} files, {largest.journal_bytes // 1024} KiB"
    )
    return outcome


def grown(before: Footprint, after: Footprint) -> list[str]:
    """What has grown; nginx and systemd have a few files more or less at any time."""
    found = []
    if after.processes > before.processes + 2:
        found.append(f"{after.processes} processes, {before.processes} before")
    if after.files > before.files * 1.2 + 20:
        found.append(f"{after.files} open files, {before.files} before")
    if after.temporary > before.temporary:
        found.append(f"{after.temporary} temporary files, {before.temporary} before")
    if after.journal_files > KEPT_ENTRIES + BESIDES_ENTRIES:
        found.append(f"{after.journal_files} files in the journal")
    return found


def _controller_files(scene: Scene) -> int:
    return sum(1 for path in (scene.directory / "tmp").rglob("*") if path.is_file())
