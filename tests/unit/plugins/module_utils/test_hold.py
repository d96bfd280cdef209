# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

import os

import pytest

from ansible_collections.azops.maintenance.plugins.module_utils._hold import DEFAULT_FILE, held_by


def test_without_the_file_there_is_no_hold(tmp_path):
    assert held_by(str(tmp_path / "hold")) is None
    (tmp_path / "file").write_text("")
    assert held_by(str(tmp_path / "file" / "hold")) is None


@pytest.mark.parametrize("content, words", [(b"", ""), (b" \n", ""), (b"by  ops\nuntil 9\n", " (by ops until 9)")])
def test_the_file_holds_and_its_words_say_why(content, words, tmp_path):
    (tmp_path / "hold").write_bytes(content)
    assert held_by(str(tmp_path / "hold")) == str(tmp_path / "hold") + words


def test_a_file_of_anything_holds(tmp_path):
    (tmp_path / "hold").write_bytes(b"\xff\x00" * 100000)
    assert len(held_by(str(tmp_path / "hold"))) < 1500


def test_what_is_there_but_cannot_be_read_holds_as_well(tmp_path):
    (tmp_path / "hold").mkdir()
    assert "Is a directory" in held_by(str(tmp_path / "hold"))
    os.symlink(str(tmp_path / "loop"), str(tmp_path / "loop"))
    assert "symbolic links" in held_by(str(tmp_path / "loop"))


def test_the_default_is_the_file_of_the_design():
    assert DEFAULT_FILE == "/etc/azops-maintenance/hold"
