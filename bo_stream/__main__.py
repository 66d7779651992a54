"""``python -m bo_stream`` and ``bo-stream``: the command line."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run a command."""
    try:
        from bo_stream.cli.app import start
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        print("bo-stream needs typer (extra 'cli'): pip install 'bo_stream[cli]'", file=sys.stderr)
        raise SystemExit(2) from None
    start(sys.argv[1:])


if __name__ == "__main__":
    main()
