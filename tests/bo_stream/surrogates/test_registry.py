import inspect

import pytest
import torch

import bo_stream
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import InputError
from bo_stream.surrogates.registry import FAMILIES, in_loops
from tests.raw import RAW

X = torch.rand(12, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = X.sum(-1, keepdim=True)
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("wiski", bo_stream.WISKI),
        ("projected_wiski", bo_stream.ProjectedWISKI),
        ("hsgp", bo_stream.HSGP),
        ("node_wiski", bo_stream.NodeWISKI),
        ("cagp", bo_stream.CaGP),
        ("exact", bo_stream.ExactGP),
        ("online_sgpr", bo_stream.OnlineSGPR),
        ("svdgp", bo_stream.SVDGP),
        ("trust_region", bo_stream.TrustRegionGP),
        ("warped", bo_stream.WarpedGP),
    ],
)
def test_a_name_builds_its_family(name: str, family: type) -> None:
    model = bo_stream.surrogate(name, X, Y, bounds=BOUNDS, **RAW)
    assert type(model) is family
    assert model.num_observed == 12
    assert model.noise_mode == "learned"


@pytest.mark.parametrize("name", FAMILIES)
def test_noise_and_options_reach_the_family(name: str) -> None:
    model = bo_stream.surrogate(name, X, Y, torch.full_like(Y, 0.1), bounds=BOUNDS, **RAW)
    assert model.noise_mode == "known"
    with pytest.raises(TypeError, match="no_such_option"):
        bo_stream.surrogate(name, X, Y, bounds=BOUNDS, no_such_option=1, **RAW)


def test_wiski_takes_its_grid_options() -> None:
    assert bo_stream.surrogate("wiski", X, Y, bounds=BOUNDS, grid_size=9, **RAW).grid.sizes == (
        9,
        9,
    )
    nodes = [torch.linspace(-0.5, 1.5, 11)] * 2
    assert bo_stream.surrogate("wiski", X, Y, bounds=None, grid=nodes, **RAW).grid.sizes == (11, 11)


def test_an_unknown_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(
        InputError,
        match=r"wiski, projected_wiski, hsgp, node_wiski.*got 'wisky'",
    ):
        bo_stream.surrogate("wisky", X, Y, bounds=BOUNDS, **RAW)


def test_loops_let_a_grid_follow_the_lengthscales() -> None:
    assert in_loops("wiski", {}) == {"grid_size": "auto"}
    for options in ({"grid_size": 9}, {"grid": [torch.linspace(-3.0, 3.0, 9)]}):
        assert in_loops("wiski", options) == options
    assert in_loops("exact", {"a": 1}) == {"a": 1}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_published_signature_is_true(name: str) -> None:
    """Options are taken by position, in the order in which they are shown."""
    family = FAMILIES[name]
    assert torch.equal(family(X, Y, None, BOUNDS).bounds, BOUNDS)
    shown = inspect.signature(family).parameters
    values = [p.default for p in shown.values()][3:]
    assert torch.equal(family(X, Y, None, BOUNDS, *values[1:]).bounds, BOUNDS)
    with pytest.raises(TypeError):
        family(X, Y, None, BOUNDS, bounds=BOUNDS)


@pytest.mark.parametrize("family", FAMILIES.values())
def test_every_family_fits_and_observes_as_the_base_does(family: type[StreamingGP]) -> None:
    assert family.fit is StreamingGP.fit and family.observe is StreamingGP.observe
    assert family.custom_fit is StreamingGP.custom_fit
