"""A walk streamed in batches, and learned all at once to compare with."""

from __future__ import annotations

from typing import Any

import pandas as pd

from bo_stream import OnlineSGPR
from bo_stream.growth import VIPS, FixedSize
from bo_stream.scores import score
from experiments.common.progress import Progress
from experiments.field.walk import Walk, path_kernel

__all__ = ["streamed"]


def streamed(walk: Walk, c: dict[str, Any]) -> tuple[OnlineSGPR, pd.DataFrame]:
    """The surrogate after the last batch; size and errors after each, and of a GP on all rows."""
    kw = path_kernel(walk.Y, c)

    def errors(model: OnlineSGPR) -> dict[str, float]:
        result = score(model, walk.X_test, walk.Y_test, walk.Y_test)
        return {"rmse": result.rmse, "nlpd": result.nlpd}

    rows: list[dict[str, Any]] = []
    parts = list(zip(walk.X.chunk(c["batches"]), walk.Y.chunk(c["batches"]), strict=True))
    progress = Progress(len(parts) + 1, "batches")
    model = OnlineSGPR(*parts[0], growth=VIPS(c["delta"]), trust=c["trust"], **kw())
    model.fit()
    for i, part in enumerate(parts):
        if i:
            model.observe(*part)
        M = len(model.inducing_points)
        rows.append({"batch": i, "n": model.num_observed, "points": M} | errors(model))
        progress(f"{M} inducing points; at last all batches at once")
    full = OnlineSGPR(walk.X, walk.Y, growth=FixedSize(c["points"]), **kw())
    full.fit(c["evaluations"])
    last = {"batch": "all at once", "n": len(walk.X), "points": c["points"]}
    return model, pd.DataFrame([*rows, last | errors(full)])
