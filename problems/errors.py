"""Errors for data that are missing, malformed, or cannot be downloaded.

Every message states what was expected, what was found, and a remedy. Each class also subclasses a
built-in error.
"""

from __future__ import annotations


class ProblemDataError(Exception):
    """Base of the errors that :mod:`problems` raises about data."""


class BadData(ProblemDataError, ValueError):
    """A source that does not contain the requested data."""


class DataNotFound(ProblemDataError, FileNotFoundError):
    """A file found neither at the given path nor under ``BO_STREAM_DATA``."""


class MissingExtra(ProblemDataError, ImportError):
    """A missing optional dependency; the message names the extra that installs it."""


class DownloadFailed(ProblemDataError, ConnectionError):
    """A download that failed or did not return a valid file."""
