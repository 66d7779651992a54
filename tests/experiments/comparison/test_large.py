"""The rover's way and the lander."""

from pathlib import Path

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from experiments.common.command import CONFIGS, parsed
from experiments.comparison.study import plan
from experiments.comparison.tasks import registry, rover
from experiments.comparison.tasks.registry import made


def test_the_cost_of_a_way_is_the_integral_along_it() -> None:
    obstacles = rover.drawn_obstacles()
    for x in np.random.default_rng(0).random((3, 60)):
        points = x.reshape(30, 2)
        way = CubicSpline(np.linspace(0, 1, 30), points)(np.linspace(0, 1, 1000))
        rates = []
        for at in way:
            bad = any(max(abs(at - square)) < 0.05 for square in obstacles)
            rates.append(20.05 if bad or min(at) < 0 or max(at) > 1 else 0.05)
        total = sum(
            (rates[i] + rates[i + 1]) / 2 * np.linalg.norm(way[i + 1] - way[i]) for i in range(999)
        )
        total += 10 * (sum(abs(points[0] - 0.05)) + sum(abs(points[-1] - 0.95)))
        evaluated = made("rover", 0, {}).evaluate(x[None], np.random.default_rng(0))
        assert evaluated == pytest.approx(total, rel=1e-9)


def test_obstacles_leave_start_and_goal_free() -> None:
    assert len(rover.drawn_obstacles()) == 15
    ends = np.array([rover.START, rover.GOAL])
    assert (np.abs(rover.drawn_obstacles()[:, None] - ends).max(-1) > 0.05).all()


def test_the_published_rule_lands() -> None:
    pytest.importorskip("gymnasium", reason="the extra 'lander' is not installed")
    pytest.importorskip("Box2D", reason="the extra 'lander' is not installed")
    rule = np.array([[0.5, 1.0, 0.4, 0.55, 0.5, 1.0, 0.5, 0.5, 0.0, 0.5, 0.05, 0.05]])
    task, generator = made("lander", 0, {}), np.random.default_rng(0)
    lacking = task.evaluate(np.vstack([rule, np.full(12, 2.0)]), generator)
    assert lacking[0] < 150.0 < lacking[1]
    assert np.array_equal(task.evaluate(rule, generator)[0], lacking[0])


def test_tasks_whose_packages_are_missing_are_named_and_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    lander = parsed(Path(CONFIGS, "lander.toml"))
    assert plan(lander) == []
    assert "skipped: lander (pip install 'bo_stream[lander]')" in capsys.readouterr().out
    both = {**lander, "task": [*lander["task"], {"name": "rover"}]}
    assert {run.task["name"] for run in plan(both)} == {"rover"}
