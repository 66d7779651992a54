"""Contract: a change of the targets' units equals a rebuild in the new ones."""

from __future__ import annotations

import pytest
import torch
from botorch.models.transforms.outcome import Standardize

from bo_stream.errors import ShapeError, UnsupportedError
from bo_stream.testing.base import Contract, assert_same_posterior, close

__all__ = ["RestandardiseContract"]


class RestandardiseContract(Contract):
    """`restandardise`, where the state does not depend on the order of the data."""

    @pytest.mark.parametrize("outputs", [1, 2])
    def test_restandardised_is_rebuilt(self, outputs: int) -> None:
        """Posterior, objective and noise; a posterior from before does not survive."""
        self.require(self.build(4), "order_invariant")
        X, Y, Yvar = self.data(14, outputs=self.outputs_of(outputs))
        Y = 5.0 + 3.0 * Y
        half = None if Yvar is None else Yvar[:6]
        stream = self.over(X[:6], Y[:6], half, outcome_transform=Standardize(outputs))
        stream.observe(X[6:], Y[6:], None if Yvar is None else Yvar[6:])
        stream.posterior(X[:3])
        stream.restandardise(Y)
        rebuilt = self.over(X, Y, Yvar, outcome_transform=Standardize(outputs))
        close(stream.outcome_transform.stdvs, rebuilt.outcome_transform.stdvs)
        assert_same_posterior(stream, rebuilt, self.points(5))
        close(stream.make_mll()(), rebuilt.make_mll()())
        close(stream.typical_noise(), rebuilt.typical_noise())

    def test_restandardising_what_it_cannot(self) -> None:
        X, Y, Yvar = self.data(8)
        with pytest.raises(UnsupportedError, match="Standardize"):
            self.over(X, Y, Yvar).restandardise(Y)
        model = self.over(X, Y, Yvar, outcome_transform=Standardize(1))
        before = model.posterior(X).mean
        with pytest.raises(ShapeError):
            model.restandardise(Y[:, 0])
        assert torch.equal(model.posterior(X).mean, before)
