"""Names of configurations and tables in plain words."""

import pytest

from experiments.common.words import in_words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cagp64", "CaGP, 64 actions"),
        ("wiski16", "WISKI, 16 x 16 nodes"),
        ("online_svgp", "OnlineSVGP"),
        ("svdgp", "SVDGP"),
        ("a_policy_2", "a policy 2"),
    ],
)
def test_names_have_words(name: str, words: str) -> None:
    assert in_words(name) == words
