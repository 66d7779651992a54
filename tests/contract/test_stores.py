"""Every store keeps the contract of stores."""

from pathlib import Path

import pytest

from bo_stream.campaign.storage.open_store import open_store
from bo_stream.campaign.storage.store import MemoryStore, Store
from bo_stream.testing import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestSQLite(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        pytest.importorskip("sqlalchemy")
        return open_store(tmp_path / "store.db")
