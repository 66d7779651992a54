"""The contract of a rule: its trials are feasible and the same for the same view."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch

from bo_stream.campaign.outcomes.outcome import Observations
from bo_stream.surrogates.registry import surrogate

if TYPE_CHECKING:
    from acquisitions.rule import Proposal, Rule, View

__all__ = ["RuleContract"]

BOX = torch.tensor([[0.0, -2.0], [4.0, 2.0]], dtype=torch.float64)


class RuleContract:
    """What campaigns need of a rule of one outcome.

    Attributes:
        make: Builds the rule, or is its class.
        surrogate: Name of the surrogate that it is asked with.
        pools: Whether it also chooses places of a pool.
        constraints: Whether it keeps to discrete inputs and constraints.
    """

    make: ClassVar[Callable[[], Rule]]
    surrogate: ClassVar[str] = "exact"
    pools: ClassVar[bool] = True
    constraints: ClassVar[bool] = True

    def view(self, **changes: Any) -> View:
        """What a rule may look at after twelve outcomes."""
        from acquisitions.domain import Domain  # not at the top: it imports bo_stream
        from acquisitions.rule import View

        X = Domain.of(BOX).sequence(0, 0, 12)
        data = Observations(X, -(X - 1.0).square().sum(-1, keepdim=True))
        model = surrogate(self.surrogate, data.X, data.Y, bounds=BOX)
        about: dict[str, Any] = {"domain": Domain.of(BOX), "pending": X[:0], "failed": X[:0]}
        return View(model, data, **{**about, **changes})

    def proposed(self, view: View, q: int) -> Proposal:
        """What the rule proposes, from one seed."""
        torch.manual_seed(0)
        return type(self).make().propose(view, q)

    def test_points_are_in_the_box(self) -> None:
        for q in (1, 3):
            points = self.proposed(self.view(), q).points
            assert points.shape == (q, 2) and bool(points.isfinite().all())
            assert bool(((points >= BOX[0]) & (points <= BOX[1])).all())
            assert len(points.unique(dim=0)) == q

    def test_one_view_and_seed_give_the_same_points(self) -> None:
        first, again = (self.proposed(self.view(), 2).points for _ in range(2))
        assert torch.equal(first, again)

    def test_nothing_is_changed(self) -> None:
        view = self.view()
        before = view.data.X.clone(), view.data.Y.clone()
        self.proposed(view, 2)
        assert torch.equal(view.data.X, before[0]) and torch.equal(view.data.Y, before[1])
        assert getattr(view.model, "num_observed", 12) == 12

    def test_running_and_failed_trials_are_known(self) -> None:
        taken = self.proposed(self.view(), 1).points
        for name in ("pending", "failed"):
            points = self.proposed(self.view(**{name: taken}), 2).points
            assert points.shape == (2, 2) and bool(points.isfinite().all())

    def test_places_of_a_pool_are_rows(self) -> None:
        if not self.pools:
            pytest.skip("The rule is for boxes.")
        generator = torch.Generator().manual_seed(1)
        U = torch.rand(40, 2, generator=generator, dtype=torch.float64)
        rows = self.proposed(self.view(places=BOX[0] + (BOX[1] - BOX[0]) * U), 3).points
        assert rows.shape == (3,) and len(rows.unique()) == 3
        assert not rows.is_floating_point() and bool(((rows >= 0) & (rows < 40)).all())

    def test_points_are_feasible(self) -> None:
        if not self.constraints:
            pytest.skip("The rule is for continuous inputs without constraints.")
        from acquisitions.domain import Domain  # not at the top: it imports bo_stream

        limit = [(torch.tensor([0, 1]), torch.tensor([-1.0, -1.0]).double(), -1.0)]
        domain = Domain.of(BOX, limit, {0: torch.tensor([0.0, 1.0, 2.0])})
        points = self.proposed(self.view(domain=domain), 3).points
        assert bool(domain.contains(points).all())

    def test_a_campaign_is_run_by_it(self) -> None:
        from acquisitions.rule import REGISTRY, Rule, register  # not at the top: as above
        from bo_stream.campaign.campaign import Campaign

        rule, box = type(self).make(), {"a": (0.0, 4.0)}

        class Same(Rule):
            family, samples = rule.family, rule.samples
            propose = rule.propose

        register("rule under test", Same)
        try:
            campaign = Campaign(box, self.surrogate, "rule under test", seed=0, initial=3)
            for _ in range(5):
                batch: pd.DataFrame = campaign.ask(2)
                campaign.tell(batch.assign(y=-((batch["a"] - 1.0) ** 2)))
            assert campaign.decision.why
            assert np.isfinite(campaign.trials()["a"]).all()
        finally:
            REGISTRY.pop("rule under test")
