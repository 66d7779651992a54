"""DirichletClassifier: labels of all kinds, bad ones, interruptions, and saving."""

import math
import random
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from bo_stream import DirichletClassifier, load
from bo_stream.errors import (
    BoundsError,
    DtypeError,
    InputError,
    OptionError,
    ShapeError,
    StateError,
)
from bo_stream.mathematics.labels import read_labels
from bo_stream.testing.base import assert_same_state, snapshot
from bo_stream.testing.wholeness import interrupted, lines_of
from tests.bo_stream.surrogates.dirichlet_cases import BOX, SMALL, assert_alike, built, data, varied

# -- labels --------------------------------------------------------------------------------------


def test_labels_come_in_many_ways() -> None:
    X, y = data()
    words = ["low", "mid", "top"]
    named = [words[k] for k in y.tolist()]
    numbers = built("wiski", X, y)
    for ways in (y.tolist(), y.numpy(), y.int(), pd.Series(y.numpy()), y.numpy().astype(np.uint8)):
        same = built("wiski", X, ways)
        assert same.classes == [0, 1, 2]
        assert torch.equal(same.predict_proba(X), numbers.predict_proba(X))
        assert same.predict(X).dtype == torch.long
    for ways in (named, np.array(named), pd.Series(named), pd.Series(named).astype("category")):
        model = built("wiski", X, ways)
        assert model.classes == words
        assert torch.equal(model.predict_proba(X), numbers.predict_proba(X))
        assert model.predict(X) == [words[k] for k in numbers.predict(X).tolist()]
    assert built("wiski", X, named, classes=["top", "low", "mid"]).classes == ["top", "low", "mid"]
    assert built("wiski", X, y + 5, classes=[9]).classes == [9, 5, 6, 7]


BAD = [
    (lambda X, y: (X, y[:-1]), ShapeError),
    (lambda X, y: (X, y.unsqueeze(-1)), ShapeError),
    (lambda X, y: (X, y.double()), DtypeError),
    (lambda X, y: (X, y == 1), DtypeError),
    (lambda X, y: (X, [None, *y.tolist()[1:]]), InputError),
    (lambda X, y: (X, [math.nan, *y.tolist()[1:]]), InputError),
    (lambda X, y: (X, ["a", *y.tolist()[1:]]), DtypeError),
    (lambda X, y: (X, ["a"] * len(X)), DtypeError),
    (lambda X, y: (X, "a"), DtypeError),
    (lambda X, y: (X, 3), DtypeError),
    (lambda X, y: (X * math.nan, y), InputError),
    (lambda X, y: (X + 9.0, y), BoundsError),
    (lambda X, y: (X[:, :1], y), ShapeError),
    (lambda X, y: (X.unsqueeze(0), y[:1]), ShapeError),
    (lambda X, y: (X.float(), y), DtypeError),
    (lambda X, y: (X.tolist(), y), DtypeError),
    (lambda X, y: (X + 9.0, y + 5), BoundsError),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_data_change_nothing(case: int) -> None:
    X, y = data(20)
    model = built("wiski", X, y)
    before, classes = snapshot(model), model.classes
    spoil, error = BAD[case]
    with pytest.raises(error):
        model.observe(*spoil(X, y))
    assert model.classes == classes and model.num_observed == 20
    assert_same_state(before, snapshot(model))


@pytest.mark.parametrize("late", [False, True])
def test_an_interruption_leaves_all_or_nothing(late: bool) -> None:
    """At any line: neither the surrogate nor the sums of one class have changed alone."""
    X, y = data(20)
    new = y + 1 if late else y
    after = built("wiski", X, y)
    total = lines_of(lambda: after.observe(X, new))
    for line in random.Random(0).sample(range(1, total + 1), 5):
        model = built("wiski", X, y)
        before, known = snapshot(model), model.predict_proba(X)
        interrupted(partial(model.observe, X, new), line)
        if model.num_observed == 20:
            assert_same_state(before, snapshot(model))
            assert torch.equal(model.predict_proba(X), known)
            model.observe(X, new)
        assert_alike(model, after, 1e-9)


def test_options_that_contradict_labels_are_refused() -> None:
    X, y = data()
    with pytest.raises(OptionError, match="outcome_transform"):
        built("wiski", X, y, outcome_transform=None)
    with pytest.raises(OptionError):
        built("wiski", X, y, spelling=3)
    for eps in (0.0, -1.0, math.nan, math.inf, "0.01", True):
        with pytest.raises(InputError):
            built("wiski", X, y, alpha_epsilon=eps)
    for classes in ([], [1, 1]):
        with pytest.raises(InputError):
            built("wiski", X, y, classes=classes)
    with pytest.raises(InputError, match="classes"):
        built("wiski", X[:0], y[:0])
    with pytest.raises(InputError):
        DirichletClassifier(X, y, bounds=BOX, surrogate="wisky")
    for count in (0, 2.5):
        with pytest.raises(InputError):
            built("wiski", X, y).predict_proba(X, count)


def test_labels_are_not_kept() -> None:
    X, y = data()
    model = built("wiski", X, y)
    size = model.state_bytes
    for _ in range(3):
        model.observe(X, y)
    assert model.state_bytes == size
    assert read_labels(torch.tensor([1, 2]), 2) == [1, 2]


# -- saving --------------------------------------------------------------------------------------


@pytest.mark.parametrize("family, words", list(zip(SMALL, (False, True), strict=True)))
def test_a_checkpoint_goes_on_bit_identically(family: str, words: bool, tmp_path: object) -> None:
    X, y = data()
    labels = [f"class {k}" for k in y.tolist()] if words else y.tolist()
    model = built(family, X[:40], labels[:40], alpha_epsilon=0.03)
    model.fit(4)
    path = f"{tmp_path}/model.pt"
    model.save(path)
    again = load(path)
    assert type(again) is DirichletClassifier and again.classes == model.classes
    assert again.alpha_epsilon == 0.03 and again.num_observed == 40
    assert_same_state(snapshot(model), snapshot(again))
    for one in (model, again):
        one.observe(X[40:], labels[40:])
        one.observe(X[:3], [9, 9, 8] if not words else ["x", "y", "x"])
    assert_same_state(snapshot(model), snapshot(again))
    assert torch.equal(model.log_evidence(), again.log_evidence())


@pytest.mark.parametrize("family", SMALL)
def test_a_state_brings_its_labels(family: str) -> None:
    X, y = data()
    model = varied(built(family, X, y, alpha_epsilon=0.1))
    other = built(family, X[:0], y[:0], classes=[0, 1, 2], alpha_epsilon=0.1)
    other.load_state_dict(model.state_dict())
    assert other.class_counts == model.class_counts
    assert_alike(other, model)
    assert_alike(other.observe(X[:5], [7] * 5), model.observe(X[:5], [7] * 5))


@pytest.mark.parametrize("family", SMALL)
def test_one_with_labels_takes_hyperparameters(family: str) -> None:
    X, y = data()
    old, new = varied(built(family, X[:20], y[:20])), built(family, X, y)
    new.load_state_dict({name: value.clone() for name, value in old.state_dict().items()})
    assert new.num_observed == len(X)
    for name, value in old.model.named_parameters():
        assert torch.equal(new.model.get_parameter(name), value)


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    X, y = data()
    model = built("wiski", X[:0], y[:0], classes=[0, 1, 2])
    before = snapshot(model)
    good = built("wiski", X, y).state_dict()
    nan = {k: v * math.nan if k == "absent.stream.state_A" else v for k, v in good.items()}
    short = {k: v for k, v in good.items() if not k.startswith("absent.")}
    for bad in (nan, short, {}, model.model.state_dict(), built("hsgp", X, y).state_dict()):
        with pytest.raises(StateError):
            model.load_state_dict(bad)
    node = DirichletClassifier(X, y, surrogate="node_wiski", bounds=BOX)
    with pytest.raises(StateError, match="classes"):
        fewer = DirichletClassifier(X, y % 2, surrogate="node_wiski", bounds=BOX)
        node.load_state_dict(fewer.state_dict())
    assert_same_state(before, snapshot(model))


def test_float32_is_the_interface_only() -> None:
    X, y = data()
    model = built("wiski", X.float(), y)
    assert model.predict_proba(X.float()).dtype == torch.float32
    assert all(one.state.A.dtype == torch.float64 for one in (model.model, model.absent))
