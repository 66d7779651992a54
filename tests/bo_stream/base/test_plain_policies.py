"""Policies and likelihoods are plain data in checkpoints and stores."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel

from bo_stream import Box, Campaign, OnlineSGPR, growth
from bo_stream.actions import BlockSparse, ConjugateGradient, Identity, TopEigenvectors
from bo_stream.base.options import from_plain, to_plain
from bo_stream.errors import InputError, OptionError
from bo_stream.likelihoods import Bernoulli, Likelihood, NegativeBinomial
from bo_stream.testing.base import assert_same_state, snapshot

POLICIES = [
    growth.VIPS(0.05, upper="collapsed", max_points=9),
    growth.OIPS(0.9),
    growth.ConditionalVariance(0.1),
    growth.Covering(9),
    growth.FixedSize(7, method="gradient", steps=3),
    growth.FixedGrid(torch.zeros(4, 2)),
    growth.Prescribed([torch.zeros(4, 2), torch.ones(5, 2)]),
    growth.Pruned(growth.VIPS(0.1), tolerance=0.2),
    BlockSparse(5),
    BlockSparse(3, values=torch.arange(1.0, 7.0)),
    ConjugateGradient(4),
    Identity(),
    TopEigenvectors(2),
    Bernoulli(classes=("no", "yes"), nugget=0.0),
    NegativeBinomial(),
]
OPTIONS = {"growth": growth.GrowthPolicy, "likelihood": Likelihood}
OPTIONS["actions"] = object


class EveryPoint:
    def select(self, state: Any, batch: Any, kernel: Kernel) -> growth.Selection:
        raise NotImplementedError


class OwnVIPS(growth.VIPS):
    pass


@pytest.mark.parametrize("policy", [EveryPoint(), OwnVIPS(), growth.Pruned(OwnVIPS())])
def test_policies_of_ones_own_stay_as_they_are(policy: Any) -> None:
    assert to_plain(policy) is policy


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_policies_are_plain_data_in_toml_stores_and_checkpoints(policy: Any) -> None:
    option = next(name for name in OPTIONS if isinstance(policy, OPTIONS[name]))
    plain = json.loads(json.dumps(to_plain(policy)))
    again = from_plain(option, plain)
    assert type(again) is type(policy) and to_plain(again) == plain
    assert from_plain(option, policy) is policy


def test_arguments_that_do_not_fit_a_family() -> None:
    X = torch.zeros(0, 2, dtype=torch.float64)
    known = "options of OnlineSGPR: train_X, train_Y, .*, jitter"
    for arguments, got in (
        ({"train_Y": X[:, :1], "growht": "vips"}, "an unexpected keyword argument 'growht'"),
        ({}, "missing a required argument: 'train_Y'"),
    ):
        with pytest.raises(OptionError, match=f"{known}.*; got {got}"):
            OnlineSGPR(X, **arguments)


def test_names_and_options_of_plain_policies() -> None:
    for name in ("OIPS", "oips"):
        assert from_plain("growth", {"name": name, "rho": 0.9}) == growth.OIPS(0.9)
    assert from_plain("growth", "vips") == growth.VIPS() and from_plain("trust", "vips") == "vips"
    inner = {"name": "fixed_size", "m": 3}
    assert from_plain("growth", {"name": "pruned", "policy": inner}) == growth.Pruned(
        growth.FixedSize(3)
    )
    for wrong in ("kriging", {"rho": 0.9}, "oips", {"name": "oips", "rho": 0.9, "m": 3}):
        with pytest.raises(InputError, match="one of oips|options rho"):
            from_plain("growth", wrong)
    with pytest.raises(InputError, match="of 'oips'; got an unexpected keyword argument 'm'"):
        from_plain("growth", {"name": "oips", "rho": 0.9, "m": 3})
    with pytest.raises(InputError, match="rho between 0 and 1"):
        from_plain("growth", {"name": "oips", "rho": 2.0})


@pytest.mark.parametrize(
    ("family", "option", "policy"),
    [
        ("online_sgpr", "growth", growth.Pruned(growth.OIPS(0.9))),
        ("online_sgpr", "growth", {"name": "FixedSize", "m": 5}),
        ("cagp", "actions", ConjugateGradient(4)),
    ],
)
def test_campaigns_with_policies_are_resumed(
    family: str, option: str, policy: Any, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    pytest.importorskip("sqlalchemy")
    url, space = f"sqlite:///{tmp_path}/oven.db", Box({"x": (0.0, 4.0)})
    given = {"name": family, option: policy}
    campaign = Campaign(space, given, store=url, seed=0, initial=4)
    batch = campaign.ask(6)
    campaign.tell(batch.assign(y=batch["x"]))
    campaign.state.update()
    again = Campaign.resume(url)
    assert getattr(again.model, option) == from_plain(option, policy)
    kept = again.settings.surrogate
    assert kept == {"name": family, option: to_plain(from_plain(option, policy))}
    Campaign(space, given, store=url)
    assert not any("is ignored" in str(one.message) for one in recwarn)


class OwnKernel(RBFKernel):
    pass


def own_surrogate(X: Any, Y: Any, Yvar: Any = None, **options: Any) -> OnlineSGPR:
    kernel = ScaleKernel(OwnKernel(ard_num_dims=X.shape[1]))
    return OnlineSGPR(X, Y, Yvar, covar_module=kernel, growth=OwnVIPS(), **options)


@pytest.mark.parametrize("noise", [None, 0.01])
@pytest.mark.parametrize("given", [own_surrogate, "exact"])
def test_campaigns_with_modules_of_ones_own_are_resumed(
    given: Any, noise: float | None, tmp_path: Path
) -> None:
    """From a snapshot, with the modules of a new surrogate; so is the kernel of categories."""
    pytest.importorskip("sqlalchemy")
    url, space = f"sqlite:///{tmp_path}/oven.db", Box({"x": (0.0, 4.0), "c": ["a", "b", "q"]})
    if callable(given):
        space = Box({"x": (0.0, 4.0)})
    campaign = Campaign(space, given, store=url, seed=0, initial=4, noise=noise)
    batch = campaign.ask(6)
    campaign.tell(batch.assign(y=batch["x"]))
    campaign.state.update()
    with warnings.catch_warnings(action="error"):
        again = Campaign.resume(url, **({"surrogate": given} if callable(given) else {}))
        assert_same_state(snapshot(again.model), snapshot(campaign.model))


def test_what_a_store_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    space, url = Box({"x": (0.0, 4.0)}), f"sqlite:///{tmp_path}/oven.db"
    for option, value in (("growth", EveryPoint()), ("covar_module", RBFKernel())):
        given = {"name": "online_sgpr", option: value}
        assert Campaign(space, given).settings.surrogate == given  # without a store
        with pytest.raises(InputError, match="not JSON.* in surrogate.*callable for the surrogate"):
            Campaign(space, given, store=url)
        assert not (tmp_path / "oven.db").exists()
    campaign = Campaign(space, store=url)
    with pytest.raises(InputError, match="EveryPoint.* in surrogate"):
        campaign.change(surrogate={"name": "online_sgpr", "growth": EveryPoint()})
    campaign.change(surrogate={"name": "online_sgpr", "growth": growth.VIPS(0.1)})
    assert Campaign.resume(url).settings.surrogate == {
        "name": "online_sgpr",
        "growth": {"name": "vips", "delta": 0.1},
    }
