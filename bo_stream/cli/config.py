"""The configuration of a campaign, read from a TOML and checked without importing torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FilePath,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from bo_stream.campaign.outcomes.goals import Failures, Goal
from bo_stream.cli.toml_reader import (
    ConfigError,
    TomlDocument,
    WrongKey,
    check_keys,
    read_document,
    store_url,
)

__all__ = ["CampaignConfig", "EvaluationConfig", "InputConfig", "PoolFile", "read_config"]

WORDS = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "finite_number": "a finite number",
    "float_type": "a finite number",
    "greater_than": "a positive number",
    "greater_than_equal": "an integer of {ge} or more",
    "int_type": "an integer",
    "list_type": "a list",
    "literal_error": "one of {expected}",
    "model_type": "a table",
    "path_not_file": "an existing CSV of places",
    "path_type": "a file in quotation marks",
    "string_pattern_mismatch": "a text in quotation marks",
    "string_type": "a text in quotation marks",
    "too_short": "a list that is not empty",
}
"""What is expected where pydantic finds an error, by its type."""


def missing(name: str) -> WrongKey:
    """The error for a table without a key."""
    return WrongKey((), f"a key {name!r}", "none", f"Add {name} = ...")


def _document(info: ValidationInfo) -> TomlDocument:
    return cast(TomlDocument, info.context)


def _in_folder(path: Any, info: ValidationInfo) -> Any:
    return _document(info).resolve(path) if isinstance(path, str) else path


def _table_with(*required: str) -> AfterValidator:
    def check(table: dict[str, Any]) -> dict[str, Any]:
        for name in required:
            if name not in table:
                raise missing(name)
        return table

    return AfterValidator(check)


Text = Annotated[str, Field(pattern=r"\S")]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(allow_inf_nan=False, gt=0.0)]
Count = Annotated[int, Field(ge=1)]
Texts = Annotated[list[Text], Field(min_length=1)]
Chosen = Annotated[dict[str, Any], _table_with("name")]


class ConfigTable(BaseModel):
    """A table of the TOML."""

    model_config = ConfigDict(strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            check_keys(values, list(cls.model_fields))
        return values


class InputConfig(ConfigTable):
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
        for name in ("low", "high"):
            if self.values is None and getattr(self, name) is None:
                raise missing(name)
        return self

    @property
    def allowed(self) -> Any:
        """Both bounds, or the values."""
        return (self.low, self.high) if self.values is None else self.values


class PoolFile(ConfigTable):
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


class EvaluationConfig(ConfigTable):
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

    @model_validator(mode="after")
    def _check_workers(self) -> Self:
        if self.timeout is not None and self.workers is None:
            remedy = "Add workers = 1: an evaluation in the campaign's process cannot be stopped."
            raise WrongKey(("timeout",), "timeout with workers", "no workers", remedy)
        if self.q is not None and self.workers is not None:
            remedy = "Leave out q: each worker keeps one trial running."
            raise WrongKey(("q",), "workers or q", "both", remedy)
        return self


class CampaignConfig(ConfigTable):
    """The configuration of a campaign.

    Attributes:
        name: Name of the campaign in its store.
        store: URL of the store.
        goal: ``maximise``, ``minimise`` or ``learn``, or goals by outcome.
        budget: Number of trials in all.
        objective: ``file.py:function`` or ``module:function``, for `run`.
        outcome: Name and unit of the outcome, for labels; or, of counts, their column, likelihood
            and options.
        optimum: The best possible outcome, if known.
        seed: Seed of the campaign.
        initial: Number of outcomes from which a surrogate is built.
        inputs: Inputs by name, or None for a pool.
        pool: A table of places, or None for inputs.
        surrogate: Name and options; None: the default.
        acquisition: Name and options; None: the default.
        noise: ``learned``, ``none`` or the variance of every outcome's noise; None: the default.
        constraints: Constraints as texts.
        failures: ``ignored`` or ``infeasible``; None: the default.
        reference: Objectives that a hypervolume is measured from; None: inferred.
        run: How objectives are evaluated.
    """

    name: Text
    store: str = Field("", validate_default=True)
    goal: Goal | Annotated[dict[str, Goal], Field(min_length=1)]
    budget: Annotated[int, Field(ge=2)] | None = None
    objective: Text | None = None
    outcome: Text | Annotated[dict[str, Any], _table_with("column", "likelihood")] | None = None
    optimum: Finite | None = None
    seed: Annotated[int, Field(ge=0)] | None = None
    initial: Annotated[int, Field(ge=2)] | None = None
    inputs: Annotated[dict[str, InputConfig], Field(min_length=1)] | None = None
    pool: PoolFile | None = None
    surrogate: Chosen | None = None
    acquisition: Chosen | None = None
    noise: Literal["learned", "none"] | Positive | None = None
    constraints: Texts = []
    failures: Failures | None = None
    reference: dict[str, Finite] | None = None
    run: EvaluationConfig = EvaluationConfig()

    _document: TomlDocument = PrivateAttr()

    @field_validator("store")
    @classmethod
    def _store_in_folder(cls, store: str, info: ValidationInfo) -> str:
        return store_url(store or f"{info.data.get('name')}.db", _document(info).path.parent)

    @model_validator(mode="after")
    def _check_space(self) -> Self:
        if (self.inputs is None) == (self.pool is None):
            raise WrongKey(
                () if self.pool is None else ("pool",),
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
    try:
        return CampaignConfig.model_validate(document.values, context=document)
    except ValidationError as error:
        raise _in_our_words(document, error) from error


def _in_our_words(document: TomlDocument, error: ValidationError) -> ConfigError:
    """The error for the first wrong key; of a value that may be of several kinds, for all kinds."""
    first, *others = error.errors()
    of_key = [first, *(other for other in others if other["loc"][:1] == first["loc"][:1])]
    keys = [document.key(one["loc"]) for one in of_key]
    key = max(keys, key=len)
    kinds = [one for one, other in zip(of_key, keys, strict=True) if other == key]
    for one in kinds:
        wrong = one.get("ctx", {}).get("error")
        if one["type"] == "missing":
            wrong = missing(str(one["loc"][-1]))
        if isinstance(wrong, WrongKey):
            return document.wrong_key(key, wrong)
    words = [WORDS[one["type"]].format(**one.get("ctx", {})) for one in kinds]
    got = kinds[0]["input"]
    shown = str(got) if isinstance(got, Path) else repr(got)
    return document.error(key, " or ".join(dict.fromkeys(words)), shown, "Correct it.")
