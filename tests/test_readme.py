"""The README's programs run as they stand."""

import re
from pathlib import Path

import pytest
import torch

README = Path(__file__).parents[1] / "README.md"


def printed_by(text: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What the README's program that contains a text prints."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [b for b in blocks if text in b]
    torch.manual_seed(0)
    exec(compile(block, "<README>", "exec"), {})
    return capsys.readouterr().out.splitlines()


def test_the_campaign_finds_the_best_oven(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = printed_by("batch = campaign.ask(3)", capsys)
    best = {line.split()[0]: line.split()[1] for line in lines}
    assert float(best["y"]) < 0.1 and (tmp_path / "oven.db").exists()


def test_optunas_sampler_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna")
    (line,) = printed_by("StreamingSampler(", capsys)
    assert float(line) < 1.0


def test_axs_node_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ax")
    printed_by("StreamingNode()", capsys)


def test_the_first_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed_by("optimize_acqf(", capsys)
    assert len(lines) == 10  # one line a step: observations so far, the best value
    assert lines[-1].split()[0] == "40"
    best = [float(line.split()[-1]) for line in lines]
    assert best == sorted(best)


def test_the_baseline_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = printed_by("import OnlineSVGP", capsys)
    assert line.startswith("tensor(")


def test_the_growth_policy_grows_where_it_is_uncertain(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = printed_by("class Uncertain", capsys)
    points, *words = line.split()
    assert 3 <= int(points) <= 12 and words[-2:] == ["100", "observations"]
