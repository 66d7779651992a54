"""Modules that need a package which is not installed have no doctests to run. Garbage is looked for
where tests make it.
"""

import gc
from importlib.util import find_spec

NEEDS = {
    "bo_stream/cli/*": "typer",
    "bo_stream/campaign/storage/sql_*": "sqlalchemy",
    "bo_stream/integrations/ax.py": "ax",
    "bo_stream/integrations/optuna.py": "optuna",
}

collect_ignore_glob = [path for path, package in NEEDS.items() if find_spec(package) is None]

gc.disable()  # while the suite is imported


def pytest_collection_finish() -> None:
    """Look for garbage among what tests make, not among all that was imported for them."""
    gc.freeze()
    gc.enable()
