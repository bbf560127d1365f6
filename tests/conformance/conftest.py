# SPDX-License-Identifier: Apache-2.0
"""Conformance tests say how much they compared, and CI cannot lose one unnoticed.

`tally(name, count)` holds a count against the minimum committed in minimums.json. The closing lines print every count; with CI=true in
the environment a skipped test or a minimum that nothing was held against fails the run.
"""

import json
import os
import pathlib

import pytest

MINIMUMS = json.loads((pathlib.Path(__file__).parent / "minimums.json").read_text())
IN_CI = os.environ.get("CI") == "true"
counts = {}
lost = []


@pytest.fixture
def tally():
    """Records that `count` items were compared under a name of minimums.json; fails below the minimum."""

    def record(name, count):
        counts[name] = counts.get(name, 0) + count
        assert counts[name] >= MINIMUMS[name], f"{name}: compared {counts[name]}, the committed minimum is {MINIMUMS[name]}"

    return record


def pytest_collectreport(report):
    if IN_CI and report.skipped and "conformance" in report.nodeid:
        lost.append(f"{report.nodeid} was skipped as a whole")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: a conformance test that is skipped fails in CI ({report.longrepr})"
    return report


def pytest_sessionfinish(session):
    if IN_CI:
        lost.extend(f"{name}: nothing was compared, the committed minimum is {MINIMUMS[name]}" for name in MINIMUMS if name not in counts)
    if lost and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    if counts or lost:
        terminalreporter.section("conformance")
    for name, count in counts.items():
        terminalreporter.write_line(f"{name}: {count} compared (at least {MINIMUMS[name]})")
    for line in lost:
        terminalreporter.write_line(f"FAILED {line}", red=True)
