"""Progress: lines without control characters in a pipe, live facts on a terminal."""

import io
import re

import pandas as pd

from bo_stream import Box, Campaign
from bo_stream.cli.progress import RunProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def measured(progress: RunProgress, steps: int = 3, goal: str = "maximise") -> None:
    box = Box({"x": (0.0, 4.0)}, units={"x": "bar"})
    campaign = Campaign(box, goal=goal, seed=0, initial=50, callbacks=[progress])
    for _ in range(steps):
        batch = campaign.ask()
        campaign.tell(batch.assign(y=batch["x"]))
    campaign.fail(campaign.ask().index, "no reason")
    progress.at_end(campaign)


def test_lines_now_and_then() -> None:
    out, now = io.StringIO(), iter(range(0, 1000, 8))
    measured(RunProgress(out, 5, optimum=4.0, every=20.0, clock=lambda: next(now)))
    lines = out.getvalue().splitlines()
    assert 2 <= len(lines) < 5
    assert lines[0].startswith("trials 1 told (budget 5); best ")
    best, regret = (float(x) for x in re.findall(r"(?:best|regret) ([\d.]+)", lines[0]))
    assert "bar (trial 0); regret " in lines[0] and abs(best + regret - 4.0) < 0.01
    assert lines[-1].startswith("trials 3 told, 1 failed (budget 5); best ")
    assert re.search(r"of which .*store [\d.e-]+ s", lines[-1])
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", out.getvalue())


def test_live_facts_on_a_terminal() -> None:
    out = Terminal()
    measured(RunProgress(out, 5))
    assert "\x1b[" in out.getvalue() and "3 told, 1 failed (budget 5)" in out.getvalue()


def test_a_campaign_that_learns_has_no_best() -> None:
    out = io.StringIO()
    measured(RunProgress(out, 5, optimum=4.0), goal="learn")
    assert "best" not in out.getvalue() and "regret" not in out.getvalue()


def test_hooks_leave_frames_alone() -> None:
    progress = RunProgress(io.StringIO(), 5)
    campaign = Campaign(Box({"x": (0.0, 4.0)}), seed=0)
    progress.after_ask(campaign, pd.DataFrame())
    assert progress.out.getvalue() == ""
