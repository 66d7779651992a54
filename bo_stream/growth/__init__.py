"""Growth policies: the choice of inducing points after a batch."""

from bo_stream.growth.policies import (
    OIPS,
    VIPS,
    ConditionalVariance,
    Covering,
    FixedGrid,
    FixedSize,
    GrowthPolicy,
    Prescribed,
    Pruned,
    Selection,
)
from bo_stream.mathematics.inducing import predict

__all__ = [
    "OIPS",
    "VIPS",
    "ConditionalVariance",
    "Covering",
    "FixedGrid",
    "FixedSize",
    "GrowthPolicy",
    "Prescribed",
    "Pruned",
    "Selection",
    "predict",
]
