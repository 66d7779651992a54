"""The README's first program runs as it stands."""

import re
from pathlib import Path

import pytest
import torch

README = Path(__file__).parents[1] / "README.md"


def test_the_first_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    torch.manual_seed(0)
    exec(compile(blocks[0], "<README>", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10  # one line a step: observations so far, regret of the batch
    assert lines[-1].split()[0] == "40"
    assert all(float(line.split()[1]) >= 0.0 for line in lines)
