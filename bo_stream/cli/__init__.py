"""The command line.

Its modules are imported when a command first uses one, so that help appears at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

MODULES = ["campaign_page", "formatting", "loading", "measurements", "objective", "progress"]

if TYPE_CHECKING:
    from bo_stream.cli import campaign_page as campaign_page
    from bo_stream.cli import formatting as formatting
    from bo_stream.cli import loading as loading
    from bo_stream.cli import measurements as measurements
    from bo_stream.cli import objective as objective
    from bo_stream.cli import progress as progress
else:

    def __getattr__(name: str) -> Any:
        if name not in MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")
