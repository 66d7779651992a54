"""How far a sweep is: lines where output is piped, bars on a terminal."""

import io
import sys

import pytest

from experiments.common import progress
from experiments.common.sweep import Outcome
from experiments.common.sweep_display import watching
from tests.experiments.common.toys import Toy

RUNS = [Toy(0, "", steps=4), Toy(1, "", steps=6)]


def test_lines_count_steps_of_all_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    shown = watching(lambda row: f"regret {row['regret']}")(RUNS)
    shown.row("toy_0", 3, {"regret": 2.0})
    shown.row("toy_0", 3, {"regret": 2.0})  # looked at twice
    shown.row("elsewhere", 3, {"regret": 2.0})
    shown.ended(Outcome("toy_1", "failed", 1.0, "LookupError: no such oven"))
    shown.row("toy_1", 2, {"regret": 1.0})  # a glance that came late
    shown.ended(Outcome("toy_0", "done", 1.0))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0].startswith("3 of 10 steps after") and lines[0].endswith("toy_0: regret 2.0")
    assert "to go at this rate" in lines[0]
    assert lines[1] == "toy_1 failed: LookupError: no such oven"
    assert lines[2].startswith("9 of 10") and lines[3].startswith("10 of 10") and len(lines) == 4


def test_bars_end_with_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr(sys, "stdout", terminal := io.StringIO())
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    shown = watching()(RUNS)
    shown.row("toy_0", 2, {})
    shown.ended(Outcome("toy_0", "done", 1.0))
    shown.row("toy_0", 2, {})
    shown.ended(Outcome("toy_1", "failed", 1.0, "LookupError: [oven]"))
    shown.close()
    assert "10/10" in terminal.getvalue() and "LookupError: [oven]" in terminal.getvalue()
