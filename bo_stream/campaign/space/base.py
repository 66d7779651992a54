"""What a box and a pool share: frames in the user's labels, values in stores, and points."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bo_stream.campaign.names import in_spelling
from bo_stream.campaign.space.inputs import Category, Input, Range
from bo_stream.mathematics.autograd import lasting_property

__all__ = ["SpaceOfInputs"]


class SpaceOfInputs(ABC):
    """A space of named inputs; see `bo_stream.campaign.space.inputs`."""

    @property
    @abstractmethod
    def kinds(self) -> tuple[Input, ...]:
        """The inputs, in order."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the inputs, in order."""
        return tuple(one.name for one in self.kinds)

    @property
    def dim(self) -> int:
        """Number of inputs."""
        return len(self.kinds)

    @property
    def categories(self) -> tuple[int, ...]:
        """Indices of the categories."""
        return tuple(i for i, one in enumerate(self.kinds) if isinstance(one, Category))

    @property
    def is_continuous(self) -> bool:
        """Whether all inputs are continuous."""
        return all(isinstance(one, Range) for one in self.kinds)

    @cached_property
    def _columns(self) -> pd.Index:
        return pd.Index(self.names)

    @lasting_property
    def choices(self) -> dict[int, Tensor]:
        """Coordinates of the allowed values of every input that is not continuous, by index."""
        listed = enumerate(one.choices for one in self.kinds)
        return {i: torch.from_numpy(given) for i, given in listed if given is not None}

    @property
    def tensor_bounds(self) -> Tensor:
        """Smallest and largest coordinates, ``2 x d``."""
        return self.encode(np.array([one.ends for one in self.kinds]).T)

    def encode(self, values: np.ndarray) -> Tensor:
        """Points ``n x d`` from rows of values."""
        X = np.array(values, dtype=np.float64).reshape(-1, self.dim)
        for i, one in enumerate(self.kinds):
            X[:, i] = one.coordinates(X[:, i])
        return torch.from_numpy(X)

    def decode(self, X: Tensor) -> np.ndarray:
        """Rows of values from points, clipped to the bounds."""
        values = X.detach().cpu().double().numpy().copy()
        for i, one in enumerate(self.kinds):
            values[:, i] = one.values(values[:, i])
        return values

    def read(self, frame: pd.DataFrame, name: str) -> np.ndarray:
        """The values in one column of a user's frame, which need not be allowed.

        Raises:
            InputError: if it is missing, or cannot be read.
        """
        return self.kinds[self.names.index(name)].read(frame)

    def values(self, frame: pd.DataFrame) -> np.ndarray:
        """The values in a user's frame, ``n x d``.

        Raises:
            InputError: for missing columns, or values that are not allowed.
            BoundsError: for inputs outside the bounds.
        """
        frame = in_spelling(frame, self.names)
        columns = [one.settled(one.read(frame)) for one in self.kinds]
        return np.stack(columns, -1)

    def labelled(self, values: np.ndarray, index: Any = None) -> pd.DataFrame:
        """A user's frame of rows of values: integers are integers, categories their labels."""
        values = np.asarray(values, dtype=np.float64).reshape(-1, self.dim)
        if self.is_continuous:  # one block of numbers
            return pd.DataFrame(values, index, self._columns, copy=True)
        columns = {one.name: one.labels(values[:, i]) for i, one in enumerate(self.kinds)}
        return pd.DataFrame(columns, index)
