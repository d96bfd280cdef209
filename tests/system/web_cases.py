# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same maintenance three times: with the collection, with nobody there, and with a playbook written by hand."""

from __future__ import annotations

from figures import LONGEST_BATCH, batches, count, slack
from outcome import Outcome
from scene import HERE, Scene
from story import Story, under_load

# Without anybody who approves, Azure starts by itself; in the short form nobody waits for that so long.
SHORT_NOTICES = (300.0, 900.0, 1500.0)


def with_the_collection(scene: Scene) -> Outcome:
    story = Story(scene, "with the collection")
    story.announce_wave(scene.form.notices)
    with under_load(story, scene.form.requests):
        story.roll().ends(0)
        story.until_whole()
    counted = count(story)
    outcome = Outcome(story.name, counted, story.broken())
    if counted.lost:
        outcome.problems.append(f"{counted}")
    if counted.sent < scene.form.requests:
        outcome.problems.append(f"only {counted.sent} requests were sent, not {scene.form.requests}")
    outcome.batches = batches(story)
    for batch in outcome.batches:
        # What else the machine does tells more in the short form than what we do.
        if batch.own > LONGEST_BATCH and scene.form.name == "full":
            outcome.problems.append(f"{', '.join(batch.hosts)}: {batch.own:.1f} s of our own is too long")
    outcome.notes.append(f"latest approval {slack(story):.0f} s ahead of NotBefore")
    if slack(story) <= 0:
        outcome.problems.append("an event was approved after its NotBefore")
    return outcome


def with_nothing(scene: Scene) -> Outcome:
    story = Story(scene, "with nothing")
    story.announce_wave(scene.form.notices if scene.form.name == "full" else SHORT_NOTICES)
    with under_load(story):
        story.until_all_gone()
        story.until_whole()
    counted = count(story)
    outcome = Outcome(story.name, counted, [])
    if not counted.lost:
        outcome.problems.append("nothing was lost: the maintenance does not hurt, and proves nothing")
    return outcome


def with_the_naive_playbook(scene: Scene) -> Outcome:
    story = Story(scene, "with the naive playbook")
    story.announce_wave(scene.form.notices)
    with under_load(story):
        run = story.roll(playbook=str(HERE / "naive.yml"))
        story.until(lambda: run.is_over, "the naive playbook to end")
        for event in story.events:
            # In full they come at their time, as they would; in the short form nobody waits for that so long.
            if story.state(event) == "Scheduled" and scene.form.name == "short":
                scene.azure("cancel", event=event.event_id)
        story.until_all_gone()
        for host in scene.web:
            scene.execute(host.name, "systemctl", "start", "nginx")
        story.until_whole()
    return Outcome(story.name, count(story), [])
