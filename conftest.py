"""Modules that need a package which is not installed have no doctests to run."""

from importlib.util import find_spec

NEEDS = {
    "bo_stream/cli/*": "typer",
    "bo_stream/campaign/storage/sql_*": "sqlalchemy",
    "bo_stream/integrations/ax.py": "ax",
    "bo_stream/integrations/optuna.py": "optuna",
}

collect_ignore_glob = [path for path, package in NEEDS.items() if find_spec(package) is None]
