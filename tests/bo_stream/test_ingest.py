"""`ingest`: partitions absorbed by Dask's workers are one stream."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from bo_stream import HSGP, WISKI, ExactGP, load
from bo_stream.errors import BoundsError, InputError, StateError, UnsupportedError
from bo_stream.ingest import ingest
from bo_stream.testing.base import assert_same_posterior, assert_same_state, snapshot

dask = pytest.importorskip("dask")

BOX = torch.tensor([[0.0, 10.0], [1.0, 20.0]], dtype=torch.float64)
COLUMNS: dict[str, Any] = {"X": ["a", "b"], "Y": "y", "Yvar": "v"}
FAMILIES = {
    "wiski": (WISKI, {"grid_size": 9}),
    "hsgp": (HSGP, {"num_features": 30, "lengthscales": [0.4, 0.4]}),
    "hsgp, held": (HSGP, {"num_features": 30}),
}


def frame(n: int = 500, seed: int = 0) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    a, b = generator.random(n), 10.0 + 10.0 * generator.random(n)
    y = np.sin(5.0 * a) + 0.1 * b + 0.1 * generator.standard_normal(n)
    v = 0.01 + 0.1 * generator.random(n)
    return pd.DataFrame({"v": v, "y": y, "other": "text", "b": b, "a": a})


def empty(family: str = "wiski", known: bool = True) -> Any:
    kind, options = FAMILIES[family]
    X, Y = torch.empty(0, 2, dtype=torch.float64), torch.empty(0, 1, dtype=torch.float64)
    return kind(X, Y, Y if known else None, bounds=BOX, outcome_transform=None, **options)


def tensors(table: pd.DataFrame, names: list[str]) -> torch.Tensor:
    return torch.tensor(table[names].to_numpy().copy())


def pieces(table: pd.DataFrame, cuts: list[int]) -> list[Any]:
    edges = [0, *cuts, len(table)]
    parts = [table.iloc[i:j] for i, j in zip(edges, edges[1:], strict=False)]
    return [dask.delayed(part) for part in parts]


def same(model: Any, table: pd.DataFrame, family: str, known: bool) -> None:
    Yvar = tensors(table, ["v"]) if known else None
    whole = empty(family, known).observe(tensors(table, ["a", "b"]), tensors(table, ["y"]), Yvar)
    assert model.num_observed == len(table)
    torch.testing.assert_close(model.log_evidence(), whole.log_evidence(), rtol=1e-10, atol=0.0)
    assert_same_posterior(model, whole, tensors(frame(6, seed=1), ["a", "b"]), 1e-9)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_partitions_are_one_stream(family: str, known: bool) -> None:
    """Of all sizes, an empty one among them."""
    table, model = frame(), empty(family, known)
    columns = COLUMNS if known else COLUMNS | {"Yvar": None}
    parts = pieces(table, [3, 3, 120, 121, 400])
    assert ingest(model, parts, **columns, chunk_size=50, scheduler="synchronous") is model
    same(model, table, family, known)
    model.fit(5)
    assert torch.isfinite(model.log_evidence())


def test_files_on_a_cluster(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    table = frame()
    paths = [tmp_path / f"{i}.csv" for i in range(5)]
    for path, part in zip(paths, np.array_split(np.arange(500), 5), strict=True):
        table.iloc[part].to_csv(path, index=False)
    parts = [dask.delayed(pd.read_csv)(path) for path in paths]
    model = empty()
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    )
    with cluster, distributed.Client(cluster):
        ingest(model, parts, **COLUMNS)
    same(model, table, "wiski", True)
    model.save(tmp_path / "model.pt")
    assert load(tmp_path / "model.pt").num_observed == 500


def test_a_data_frame_of_dask(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frames = pytest.importorskip("dask.dataframe")
    frames.from_pandas(frame(), npartitions=4).to_parquet(tmp_path / "table")
    model = empty()
    ingest(model, frames.read_parquet(tmp_path / "table"), **COLUMNS, scheduler="synchronous")
    same(model, frame(), "wiski", True)


def test_the_state_alone_is_held() -> None:
    """Merging is a tree: no more than a few states at a time, however many partitions."""
    table = frame(300)
    few, many = empty(), empty()
    ingest(few, pieces(table, [100]), **COLUMNS, scheduler="synchronous")
    ingest(many, pieces(table, list(range(10, 300, 25))), **COLUMNS, scheduler="synchronous")
    assert few.state_bytes == many.state_bytes
    same(many, table, "wiski", True)


BAD = {
    "a": (0.5, 99.0, "inside bounds"),
    "b": (15.0, np.nan, "finite X"),
    "y": (0.0, np.inf, "finite Y"),
    "v": (0.1, -1.0, "positive"),
}


@pytest.mark.parametrize("column", BAD)
def test_bad_rows_are_refused_naming_the_partition(column: str) -> None:
    table, model = frame(100), empty()
    table.loc[63, column] = BAD[column][1]
    before = snapshot(model)
    parts = pieces(table, [30, 60])
    with pytest.raises(InputError, match=f"partition 2, among its rows 0 to 9: .*{BAD[column][2]}"):
        ingest(model, parts, **COLUMNS, chunk_size=10, scheduler="synchronous")
    assert_same_state(before, snapshot(model))


def test_what_is_no_number_is_refused() -> None:
    table, model = frame(20), empty()
    with pytest.raises(InputError, match="partition 1.*text"):
        wrong = COLUMNS | {"Y": "other"}
        ingest(model, pieces(table, [0]), **wrong, scheduler="synchronous")
    with pytest.raises(InputError, match="no z"):
        ingest(model, pieces(table, [9]), **COLUMNS | {"Y": "z"}, scheduler="synchronous")
    missing = table.astype({"y": "Float64"})
    missing.loc[3, "y"] = pd.NA
    with pytest.raises(InputError, match="partition 0.*finite Y"):
        ingest(model, pieces(missing, [9]), **COLUMNS, scheduler="synchronous")
    assert model.num_observed == 0


def test_what_cannot_be_merged_is_refused() -> None:
    X, Y = tensors(frame(5), ["a", "b"]), tensors(frame(5), ["y"])
    with pytest.raises(UnsupportedError):
        ingest(ExactGP(X[:0], Y[:0]), [], **COLUMNS)  # type: ignore[type-var]
    with pytest.raises(StateError):
        ingest(WISKI(X, Y, bounds=BOX), [], **COLUMNS)
    with pytest.raises(InputError):
        ingest(empty(), [], **COLUMNS, chunk_size=0)
    assert ingest(empty(), [], **COLUMNS).num_observed == 0


def test_errors_cross_processes() -> None:
    error = BoundsError("one", "another", "Do this.")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is BoundsError and str(again) == str(error)
