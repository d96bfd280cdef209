# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every statement in fidelity.md names a test, and the test exists and runs."""

import ast
import importlib.util
import os
import re
from typing import Dict, List, Tuple

HERE = os.path.dirname(os.path.abspath(__file__))
NOT_YET = "Not simulated yet"


def read_table() -> Dict[str, List[List[str]]]:
    sections: Dict[str, List[List[str]]] = {}
    with open(os.path.join(HERE, "fidelity.md"), encoding="utf-8") as stream:
        for line in stream:
            if line.startswith("## "):
                title = line[3:].strip()
                sections[title] = []
            elif line.startswith("|") and not re.match(r"^\| (---|no\.|statement)", line):
                sections[title].append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return sections


def existing_tests() -> Dict[str, List[str]]:
    """All tests of this directory, with the names of their decorators."""
    found: Dict[str, List[str]] = {}
    for name in sorted(os.listdir(HERE)):
        if not re.match(r"test_\w+\.py$", name):
            continue
        with open(os.path.join(HERE, name), encoding="utf-8") as stream:
            tree = ast.parse(stream.read())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[node.name] = [ast.dump(decorator) for decorator in node.decorator_list]
    return found


def statements() -> List[Tuple[str, str, List[str]]]:
    rows = []
    for title, cells in read_table().items():
        if title != NOT_YET:
            rows += [(number, text, re.findall(r"`(\w+)`", tests)) for number, text, tests in cells]
    return rows


def test_every_statement_has_a_test_that_exists():
    known = existing_tests()
    lacking = [text for _number, text, tests in statements() if not tests]
    missing = [name for _number, _text, tests in statements() for name in tests if name not in known]
    assert (lacking, missing) == ([], [])


def test_no_test_of_a_statement_is_skipped():
    known = existing_tests()
    named = {name for _number, _text, tests in statements() for name in tests}
    assert [name for name in sorted(named) if any("skip" in text or "xfail" in text for text in known[name])] == []


def test_statements_are_numbered_without_a_gap():
    assert [number for number, _text, _tests in statements()] == [str(n + 1) for n in range(len(statements()))]


def test_what_is_not_simulated_says_why():
    rows = read_table()[NOT_YET]
    assert rows
    assert all(len(row) == 2 and all(row) for row in rows)


def test_the_plain_client_is_requests_wherever_ansible_is_installed():
    if importlib.util.find_spec("ansible") is not None:
        assert importlib.util.find_spec("requests") is not None
