"""The optional packages that commands need, and the line that names the extra of a missing one."""

from __future__ import annotations

__all__ = ["missing"]

EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "matplotlib": "plots",
    "sqlalchemy": "store",
    "loky": "workers",
}
INSTALL = 'pip install "bo_stream[{}]"'


def missing(error: ImportError) -> str | None:
    """One line that says which package is missing and which extra brings it.

    Args:
        error: What an import raised.

    Returns:
        The line; None if the error is not about a package of these extras.
    """
    about = (error.name or str(error)).partition(".")[0]
    name = next((known for known in EXTRAS if known in about), None)
    if name is None:
        return None
    extra = EXTRAS[name]
    wanted = "cli,plots" if extra in ("cli", "plots") else extra
    return (
        f"This command needs {name} (extra {extra!r}), which is not here: {INSTALL.format(wanted)}"
    )
