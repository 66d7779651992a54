"""One small tree of errors for data that is missing, malformed, or cannot be fetched.

Every message says what was expected, what came, and what to do instead. Each class also subclasses
the built-in a caller would naturally catch.
"""

from __future__ import annotations


class ProblemDataError(Exception):
    """Root of the errors raised by :mod:`problems` about data."""


class BadData(ProblemDataError, ValueError):
    """A source was found but does not hold what is asked of it."""


class DataNotFound(ProblemDataError, FileNotFoundError):
    """A named file is neither where the name points nor under ``BO_STREAM_DATA``."""


class MissingExtra(ProblemDataError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""


class DownloadFailed(ProblemDataError, ConnectionError):
    """A download that was asked for did not give a file that can be believed."""
