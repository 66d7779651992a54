"""The configuration of a campaign, read from a TOML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import (
    BeforeValidator,
    Field,
    FilePath,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from bo_stream.campaign.options import (
    Finite,
    Options,
    Positive,
    Text,
    Whole,
    check_keys,
    errors_about,
)
from bo_stream.campaign.settings import Choices, Outcome
from bo_stream.cli.toml_reader import TomlDocument, read_document, store_url
from bo_stream.errors import InputError

__all__ = ["CampaignConfig", "EvaluationConfig", "InputConfig", "PoolFile", "read_config"]


def _document(info: ValidationInfo) -> TomlDocument:
    return cast(TomlDocument, info.context)


def _in_folder(path: Any, info: ValidationInfo) -> Any:
    return _document(info).resolve(path) if isinstance(path, str) else path


Count = Annotated[Whole, Field(ge=1)]
Texts = Annotated[list[Text], Field(min_length=1)]


class InputConfig(Options):
    """An input: its bounds, or a list of all its values.

    Attributes:
        low: Lower bound.
        high: Upper bound.
        values: The values: numbers, texts or booleans.
        unit: Its unit.
        log: Whether its scale is logarithmic.
        integer: Whether it takes only the integers between its bounds.
    """

    low: Finite | None = None
    high: Finite | None = None
    values: list[Any] | None = None
    unit: Text | None = None
    log: bool = False
    integer: bool = False

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.values is not None:
            check_keys(dict.fromkeys(self.model_fields_set), ["values", "unit", "log"])
        return self

    @property
    def allowed(self) -> Any:
        """Both bounds, or the values."""
        return (self.low, self.high) if self.values is None else self.values


class PoolFile(Options):
    """A table of places that can be measured.

    Attributes:
        file: A CSV.
        inputs: Columns with the inputs; None: all numeric ones.
        index: Column with the names of the places; None: they are numbered.
        repeats: Whether a place may be measured more than once.
        units: Units by input, for labels.
    """

    file: Annotated[FilePath, BeforeValidator(_in_folder)]
    inputs: Texts | None = None
    index: Text | None = None
    repeats: bool = False
    units: dict[str, Text] = {}


class EvaluationConfig(Options):
    """How an objective is evaluated.

    Attributes:
        workers: Number of local processes; None: evaluate in this process.
        timeout: Seconds after which an evaluation is stopped; only with workers.
        seconds: Seconds after which no further trial is started.
        q: Number of trials asked for at a time; only without workers.
    """

    workers: Count | None = None
    timeout: Positive | None = None
    seconds: Positive | None = None
    q: Count | None = None


class CampaignConfig(Choices):
    """The configuration of a campaign: its settings, and the attributes below.

    Attributes:
        name: Name of the campaign in its store.
        store: URL of the store.
        objective: ``file.py:function`` or ``module:function``, for `run`.
        outcome: Name and unit of the outcome, for labels; or, of counts, their column, likelihood
            and options.
        optimum: The best possible outcome, if known.
        inputs: Inputs by name, or None for a pool.
        pool: A table of places, or None for inputs.
        run: How objectives are evaluated.
    """

    name: Text
    store: str = Field("", validate_default=True)
    objective: Text | None = None
    outcome: Text | Outcome = None  # type: ignore[assignment]
    optimum: Finite | None = None
    inputs: Annotated[dict[str, InputConfig], Field(min_length=1)] | None = None
    pool: PoolFile | None = None
    run: EvaluationConfig = EvaluationConfig()

    _document: TomlDocument = PrivateAttr()

    @field_validator("store")
    @classmethod
    def _store_in_folder(cls, store: str, info: ValidationInfo) -> str:
        return store_url(store or f"{info.data.get('name')}.db", _document(info).path.parent)

    @model_validator(mode="after")
    def _check_space(self) -> Self:
        if (self.inputs is None) == (self.pool is None):
            with errors_about(*([] if self.pool is None else ["pool"])):
                raise InputError(
                    "either tables [inputs.NAME] or one table [pool]",
                    "neither" if self.pool is None else "both",
                    "Inputs have bounds or a list of values; a pool is a table of places.",
                )
        return self

    def model_post_init(self, context: Any) -> None:
        """Keep the TOML."""
        self._document = context

    @property
    def document(self) -> TomlDocument:
        """The TOML."""
        return self._document


def read_config(path: Path) -> CampaignConfig:
    """The configuration in a file.

    Raises:
        ConfigError: naming line and key of an error.
    """
    document = read_document(path)
    with document.errors():
        return CampaignConfig.read(document.values, context=document)
