"""Ingestion of larger-than-memory tables with Dask.

Sufficient statistics add up: each worker absorbs its partitions into an empty copy of the
surrogate, chunk by chunk, and the copies are merged pairwise. Workers exchange states only, whose
size does not depend on the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import InputError, StateError, UnsupportedError

__all__ = ["ingest"]

S = TypeVar("S", bound=StreamingGP)


def ingest(
    surrogate: S,
    partitions: Any,
    *,
    X: Sequence[str],
    Y: str | Sequence[str],
    Yvar: str | Sequence[str] | None = None,
    chunk_size: int = 4096,
    scheduler: Any = None,
) -> S:
    """Absorb a partitioned table in place, in parallel.

    The result equals a single `observe` of all rows up to rounding. If it raises, the surrogate is
    unchanged. A worker holds one partition and a few states at a time.

    Start workers with one thread each (``LocalCluster(threads_per_worker=1)``, and
    ``OMP_NUM_THREADS=1`` in their environment).

    Args:
        surrogate: A `WISKI` or `HSGP` without data and with frozen transforms. Give an HSGP
            ``lengthscales`` if its features are not to be those of its current kernel.
        partitions: A Dask data frame (``dask.dataframe.read_parquet(...)``), or a list of
            ``dask.delayed`` objects each of which gives a pandas data frame.
        X: Columns of the inputs, in order.
        Y: Column of the outcome, or columns of several.
        Yvar: Columns of the noise variances, for a surrogate of known noise.
        chunk_size: Rows absorbed at a time, which bounds the memory.
        scheduler: As for `dask.compute`; by default the current client, or Dask's default.

    Returns:
        The surrogate itself.

    Raises:
        UnsupportedError: if the family's streams cannot be merged.
        StateError: if the surrogate has seen data.
        InputError: for missing columns or invalid rows, naming the partition.
    """
    if not (isinstance(surrogate, StreamingGP) and surrogate.promises.additive):
        raise UnsupportedError(
            "a family whose streams merge", type(surrogate).__name__, "Use WISKI or HSGP."
        )
    if surrogate.num_observed:
        raise StateError(
            "a surrogate without data", f"{surrogate.num_observed} rows", "Build an empty one."
        )
    if type(chunk_size) is not int or chunk_size < 1:
        raise InputError("chunk_size >= 1", repr(chunk_size), "4096 suits most tables.")
    import cloudpickle
    from dask.base import compute
    from dask.delayed import delayed

    columns = (list(X), _listed(Y), _listed(Yvar))
    parts = partitions.to_delayed() if hasattr(partitions, "to_delayed") else list(partitions)
    if not parts:
        return surrogate
    empty = delayed(cloudpickle.dumps(surrogate), pure=False)
    absorbed, merged = (delayed(f, pure=False) for f in (_absorbed, _merged))
    level = [absorbed(empty, part, i, columns, chunk_size) for i, part in enumerate(parts)]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [merged(a, b) for a, b in pairs] + level[len(level) - len(level) % 2 :]
    options = {} if scheduler is None else {"scheduler": scheduler}
    (whole,) = compute(level[0], **options)
    surrogate.merge(cloudpickle.loads(whole))
    return surrogate


def _listed(names: str | Sequence[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())


def _absorbed(
    empty: bytes, frame: Any, number: int, columns: tuple[list[str], ...], chunk_size: int
) -> bytes:
    """Absorb one partition into a copy of an empty surrogate; both are pickled by cloudpickle,
    because Dask's own serialisation of modules is incomplete.
    """
    import cloudpickle

    wanted = [name for names in columns for name in names]
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise InputError(
            f"columns {', '.join(wanted)} in partition {number}",
            f"no {', '.join(missing)}",
            "Name the columns of the table.",
        )
    model: StreamingGP = cloudpickle.loads(empty)
    for start in range(0, len(frame), chunk_size):
        rows = frame.iloc[start : start + chunk_size]
        end = start + len(rows) - 1
        try:
            X, Y, Yvar = (_numbers(rows, names, model) for names in columns)
            model.observe(X, Y, Yvar if columns[2] else None)
        except (InputError, TypeError, ValueError) as error:
            reason = str(error).removesuffix(".")
            raise InputError(
                "valid rows",
                f"invalid ones in partition {number}, among its rows {start} to {end}: {reason}",
                "Nothing was absorbed; repair or drop these rows.",
            ) from None
    pickled: bytes = cloudpickle.dumps(model)
    return pickled


def _numbers(rows: Any, names: list[str], model: StreamingGP) -> Tensor:
    """Columns as a tensor in the surrogate's dtype; missing values become NaN and are refused."""
    values = rows[names].to_numpy(dtype="float64", na_value=float("nan"))
    return torch.tensor(np.ascontiguousarray(values), dtype=model.dtype)


def _merged(a: bytes, b: bytes) -> bytes:
    """Merge two pickled streams."""
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(cloudpickle.loads(a).merge(cloudpickle.loads(b)))
    return pickled
