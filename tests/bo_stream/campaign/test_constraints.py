"""Constraints as text."""

import pytest

from bo_stream.campaign.constraints import parse_constraint
from bo_stream.errors import InputError


@pytest.mark.parametrize(
    ("text", "coefficients", "bound"),
    [
        ("a + 2*b <= 3", {"a": 1.0, "b": 2.0}, 3.0),
        ("purity >= 0.95", {"purity": -1.0}, -0.95),
        ("2*(a - b)/4 + 1 < b*3", {"a": 0.5, "b": -3.5}, -1.0),
        ("-a <= -1e-3", {"a": -1.0}, -1e-3),
        ("`energy (kWh)` + `b` <= 4", {"energy (kWh)": 1.0, "b": 1.0}, 4.0),
        ("a + b - a <= 1", {"b": 1.0}, 1.0),
    ],
)
def test_text_is_understood(text: str, coefficients: dict[str, float], bound: float) -> None:
    (found,) = parse_constraint(text)
    assert dict(found.coefficients) == pytest.approx(coefficients)
    assert found.bound == pytest.approx(bound)
    assert found.text == text


def test_a_chain_is_several() -> None:
    low, high = parse_constraint("0 <= a - b <= 1")
    assert low.excess({"a": 3.0, "b": 1.0}) == -2.0
    assert high.excess({"a": 3.0, "b": 1.0}) == 1.0


@pytest.mark.parametrize(
    "text",
    ["a", "a * b <= 1",
     "a ** 2 <= 1", "a != 1", "a + b == 1", "1 <= 2", "a <= ", "f(a) <= 1", "1/a <= 1",
     "a - a <= 1", "a <= True", "a is b", "(" * 300 + "a" + ")" * 300 + " <= 1"],
)  # fmt: skip
def test_what_is_not_linear_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="linear constraint"):
        parse_constraint(text)
