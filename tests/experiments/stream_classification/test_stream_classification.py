"""The study of classification, in its smoke mode."""

from pathlib import Path

import pandas as pd
import pytest

from experiments.classification import __main__ as classification
from experiments.classification.rows import made_up
from experiments.classification.streams import ORDERS, late


def test_classification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    classification.main(smoke=True)
    assert "exact GP" in capsys.readouterr().out
    table = pd.read_csv("results/classification_smoke/accuracies.csv").set_index("order")
    exact = table["accuracy"]["all at once"]
    assert exact > 0.85
    for order in ORDERS:
        assert table["accuracy"][order] == pytest.approx(exact, abs=0.04)
        assert table["log loss"][order] == pytest.approx(table["log loss"]["all at once"], abs=0.1)


def test_orders_hold_every_row_once() -> None:
    y = made_up().y
    for order in ORDERS.values():
        assert order(y).sort().values.tolist() == list(range(len(y)))
    rows = late(y)
    assert not bool(y[rows[: len(y) // 4]].any())
