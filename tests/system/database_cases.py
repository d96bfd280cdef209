# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A primary that is rebooted: its drain tasks, those of the documentation, hand its work over first."""

from __future__ import annotations

import contextlib
import itertools
import json

from outcome import Outcome
from scene import BALANCER, HERE, Scene
from story import CaseFailed, Story

from world import read_lines  # isort: skip

ASK = ("runuser", "-u", "postgres", "--", "psql", "--no-psqlrc", "--tuples-only", "--no-align")
WRITER = "/root/writer.py"
ACKNOWLEDGED = "root/acknowledged.jsonl"
FEWEST_AFTERWARDS = 20


def switchover(scene: Scene) -> Outcome:
    story = Story(scene, "PostgreSQL switchover", scene.databases)
    before, after = scene.databases
    acknowledged = scene.root(BALANCER) / ACKNOWLEDGED
    scene.put(BALANCER, HERE / "writer.py", WRITER)
    unit = ["systemd-run", "--quiet", "--unit=writer", "/usr/bin/python3", WRITER, f"/{ACKNOWLEDGED}"]
    scene.execute(BALANCER, *unit)
    try:
        story.until(lambda: len(read_lines(acknowledged)) > FEWEST_AFTERWARDS, "the writer to write")
        story.announce_event([before], notice=scene.form.notices[0])
        story.roll().ends(0)
        written = len(read_lines(acknowledged))
        story.until(
            lambda: len(read_lines(acknowledged)) > written + FEWEST_AFTERWARDS,
            "the writer to go on",
        )
    finally:
        story.stop()
        scene.execute(BALANCER, "systemctl", "stop", "writer")
    lines = read_lines(acknowledged)
    outcome = Outcome(story.name, None, [])
    if ask(scene, after.name, "SELECT pg_is_in_recovery()") != "f":
        outcome.problems.append(f"{after.name} is not the primary")
    if ask(scene, before.name, "SELECT status FROM pg_stat_wal_receiver") != "streaming":
        outcome.problems.append(f"{before.name} does not follow {after.name}")
    for host in scene.databases:
        kept = rows_of(story, host.name, lines[-1]["number"])
        missing = [line["number"] for line in lines if line["number"] not in kept]
        if missing:
            outcome.problems.append(f"{host.name}: {len(missing)} acknowledged rows are lost, first {missing[0]}")
    for host in story.hosts:
        outcome.problems += [
            f"rule 3: the journal of {host.name} says {entry['steps'][-1]['phase']}"
            for entry in story.entries(host)
            if entry["steps"][-1]["phase"] != "closed"
        ]
    gaps = [later["mono"] - earlier["mono"] for earlier, later in itertools.pairwise(lines)]
    outcome.notes.append(
        f"{len(lines)} rows acknowledged, 0 lost, {sum(line['sent'] > 1 for line in lines)} sent again, "
        f"longest without an acknowledgement {max(gaps):.1f} s"
        if not outcome.problems
        else f"{len(lines)} rows acknowledged"
    )
    (story.directory / "acknowledged.json").write_text(json.dumps(lines), encoding="utf-8")
    return outcome


def rows_of(story: Story, name: str, last: int) -> set[int]:
    """The rows of a server; a standby may be a moment behind."""

    def rows() -> set[int]:
        return {int(line) for line in ask(story.scene, name, "SELECT number FROM rows").splitlines()}

    with contextlib.suppress(CaseFailed):  # then it is among those that are missing
        story.until(lambda: last in rows(), f"{name} to have the last row")
    return rows()


def ask(scene: Scene, name: str, question: str) -> str:
    return scene.execute(name, *ASK, "--dbname=shop", "--command", question)
