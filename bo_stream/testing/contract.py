"""The whole streaming contract."""

from __future__ import annotations

from bo_stream.testing.acquisition import AcquisitionContract
from bo_stream.testing.defaults import DefaultsContract
from bo_stream.testing.fantasies import FantasyContract
from bo_stream.testing.fitting import FittingContract
from bo_stream.testing.forgetting import ForgettingContract
from bo_stream.testing.gradients import GradientContract
from bo_stream.testing.inputs import InputContract
from bo_stream.testing.interface import InterfaceContract
from bo_stream.testing.lists import ListContract
from bo_stream.testing.noise import NoiseContract
from bo_stream.testing.pathwise import PathwiseContract
from bo_stream.testing.persistence import PersistenceContract
from bo_stream.testing.processes import ProcessContract
from bo_stream.testing.state import StateContract
from bo_stream.testing.transforms import TransformContract
from bo_stream.testing.units import RestandardiseContract
from bo_stream.testing.wholeness import WholenessContract

__all__ = ["StreamingContract"]


class StreamingContract(
    StateContract,
    PersistenceContract,
    InputContract,
    InterfaceContract,
    TransformContract,
    RestandardiseContract,
    ForgettingContract,
    DefaultsContract,
    NoiseContract,
    FittingContract,
    ProcessContract,
    FantasyContract,
    GradientContract,
    PathwiseContract,
    AcquisitionContract,
    WholenessContract,
    ListContract,
):
    """Every promise of a streaming surrogate, as pytest methods; see `Contract` for what to set."""
