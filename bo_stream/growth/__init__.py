"""Growth policies: the choice of inducing points after a batch, one policy a file."""

from bo_stream.growth.conditional_variance import ConditionalVariance
from bo_stream.growth.covering import Covering
from bo_stream.growth.fixed_grid import FixedGrid
from bo_stream.growth.fixed_size import FixedSize
from bo_stream.growth.oips import OIPS
from bo_stream.growth.policy import GrowthPolicy, Selection
from bo_stream.growth.prescribed import Prescribed
from bo_stream.growth.pruned import Pruned
from bo_stream.growth.vips import VIPS
from bo_stream.mathematics.inducing.posterior import predict

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
