"""Options as plain data: their types are checked in one place, and errors name the option."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from bo_stream.errors import BoStreamError, InputError

__all__ = ["Finite", "Options", "Positive", "Text", "Whole", "check_keys", "errors_about"]


def _plain(number: Any) -> Any:
    """A number of numpy as one of Python, which a store can keep."""
    return number.item() if isinstance(number, np.generic) else number


WORDS = {
    "greater_than": "a positive number",
    "greater_than_equal": "an integer of {ge} or more",
    "model_type": "a table",
    "path_not_file": "an existing file",
    "sequence_str": "a list",
    "string_pattern_mismatch": "a text that is not blank",
    "too_short": "at least one entry",
}
"""What was expected, where pydantic says it otherwise, by its types of errors."""

Text = Annotated[str, Field(pattern=r"\S")]
Finite = Annotated[float, BeforeValidator(_plain), Field(allow_inf_nan=False)]
Positive = Annotated[float, BeforeValidator(_plain), Field(allow_inf_nan=False, gt=0.0)]
Whole = Annotated[int, BeforeValidator(_plain)]


class Options(BaseModel):
    """Options with values of the right types."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", arbitrary_types_allowed=True
    )

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            check_keys(values, cls.model_fields)
        return values

    @classmethod
    def read(cls, values: Mapping[str, Any], context: Any = None) -> Self:
        """Options from plain data.

        Raises:
            BoStreamError: whose ``key`` leads to the option.
        """
        try:
            return cls.model_validate(values, context=context)
        except ValidationError as error:
            raise _in_words(values, error) from error


@contextmanager
def errors_about(*key: str) -> Iterator[None]:
    """Say in errors of the block which option they are about."""
    try:
        yield
    except BoStreamError as error:
        error.key = (*key, *error.key)
        raise


def check_keys(table: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse keys that nobody reads.

    Raises:
        InputError: naming the first of them and the key that may have been meant.
    """
    for name in table:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            remedy = f"Did you mean {near[0]!r}?" if near else "Leave it out."
            with errors_about(name):
                raise InputError(f"keys among {', '.join(known)}", f"unknown {name!r}", remedy)


def _in_words(values: Mapping[str, Any], error: ValidationError) -> BoStreamError:
    """The error for a wrong key; of a value that may be of several kinds, for all kinds."""
    errors = error.errors()
    keys = [_key_in(values, one["loc"]) for one in errors]
    key = max(keys, key=len)
    kinds = [one for one, other in zip(errors, keys, strict=True) if other == key]
    found = [one.get("ctx", {}).get("error") for one in kinds]
    wrong = next((one for one in found if isinstance(one, BoStreamError)), None)
    if wrong is None and kinds[0]["type"] == "missing":
        name = kinds[0]["loc"][-1]
        wrong = InputError(f"a key {name!r}", "none", f"Add {name} = ...")
    if kinds[0]["type"] == "unexpected_keyword_argument":
        known = f"known keys of {'.'.join(key[:-1])}"
        wrong = InputError(known, f"unknown {key[-1]!r}", "Correct the spelling.")
    if wrong is None:
        said = [WORDS.get(one["type"], one["msg"]).format(**one.get("ctx", {})) for one in kinds]
        words = [one.removeprefix("Input should be ").partition(", unable")[0] for one in said]
        got = kinds[0]["input"]
        shown = str(got) if isinstance(got, Path) else repr(got)
        expected = " or ".join(dict.fromkeys(words))
        wrong = InputError(f"{key[-1]}, {expected}", shown, "Correct it, or leave it out.")
    wrong.key = (*key, *wrong.key)
    return wrong


def _key_in(values: Any, path: Sequence[str | int]) -> tuple[str, ...]:
    """The keys in a path that may have other names between them, as far as they are there."""
    found = list[str]()
    for name in path:
        if isinstance(values, Mapping) and name in values:
            found.append(str(name))
            values = values[name]
    return tuple(found)
