"""Ingestion of tables that fit in no memory, by the workers of Dask.

Sums add up, so each worker absorbs partitions of its own into an empty copy of a surrogate, chunk
by chunk, and the copies are merged two by two. What travels is states, whose size does not depend
on the number of rows.
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
    """Absorb a table in partitions, in place, whatever workers there are.

    The same as one `observe` of all rows, up to the order in which sums are added. Whatever is
    raised, the surrogate is as it was. A worker holds a partition and a few states at a time.

    Start workers with one thread each (``LocalCluster(threads_per_worker=1)``, and
    ``OMP_NUM_THREADS=1`` in their environment).

    Args:
        surrogate: Without data, its transforms frozen: a WISKI, or an HSGP (with ``lengthscales``
            if features are to be other than for its kernel's of now).
        partitions: A Dask data frame (``dask.dataframe.read_parquet(...)``), or a list of
            ``dask.delayed`` objects each of which gives a pandas data frame.
        X: Columns of the inputs, in order.
        Y: Column of the outcome, or columns of several.
        Yvar: Columns of the noise variances, for a surrogate of known noise.
        chunk_size: Rows absorbed at a time; bounds the memory beside a partition and a state.
        scheduler: As for `dask.compute`: None for the client of now, or Dask's default.

    Returns:
        The surrogate itself.

    Raises:
        UnsupportedError: for a family whose streams do not merge.
        StateError: for a surrogate that has seen data.
        InputError: for columns that are missing, and rows that do not fit, naming the partition.
    """
    if not (isinstance(surrogate, StreamingGP) and surrogate.promises.additive):
        raise UnsupportedError(
            "a family whose streams merge", type(surrogate).__name__, "Use WISKI or HSGP."
        )
    if surrogate.num_observed:
        raise StateError(
            "a surrogate without data", f"{surrogate.num_observed} rows", "Build it on none."
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
    """A surrogate that has seen one partition, pickled: Dask has its own way with modules, which
    does not keep all of them.
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
            raise InputError(
                "rows that the surrogate takes",
                f"others in partition {number}, among rows {start} to {end} of it: {error}",
                "Nothing was absorbed; repair or drop these rows.",
            ) from None
    pickled: bytes = cloudpickle.dumps(model)
    return pickled


def _numbers(rows: Any, names: list[str], model: StreamingGP) -> Tensor:
    """Columns as a tensor in the surrogate's dtype; what is missing is NaN, and refused later."""
    values = rows[names].to_numpy(dtype="float64", na_value=float("nan"))
    return torch.tensor(np.ascontiguousarray(values), dtype=model.dtype)


def _merged(a: bytes, b: bytes) -> bytes:
    """Both streams in one."""
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(cloudpickle.loads(a).merge(cloudpickle.loads(b)))
    return pickled
