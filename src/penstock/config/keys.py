"""The settings of a key that stands in the file."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from pydantic import Field, field_validator

from penstock.config.values import Section, Usd, Zone


class KeyBudgetConfig(Section):
    """What a key may spend of its own."""

    limit_usd: Usd = Field(description="US dollars a period.")
    period: Literal["hour", "day", "week", "month", "forever"] = Field(
        default="month", description="Calendar periods; weeks begin on Monday."
    )
    timezone: Zone = Field(default="UTC", description="Whose calendar, such as `Europe/Berlin`.")


class KeyConfig(Section):
    """Who may call the gateway; without keys it serves this machine only, and requires none."""

    hash: str = Field(
        pattern=r"^sha256:[0-9a-f]{64}$",
        description="What `penstock keys hash` prints; the key itself stands in no file.",
    )
    scope: Literal["calls", "metrics"] = Field(
        default="calls",
        description="`metrics`: it opens `/metrics` and nothing else, for a scraper.",
    )
    models: tuple[str, ...] = Field(
        default=(),
        description="What it may ask for: models of this file, `provider/model` or `provider/*`. "
        "Default: everything.",
    )
    requests_per_minute: int | None = Field(
        default=None, ge=1, description="Most requests in any 60 seconds."
    )
    tokens_per_minute: int | None = Field(
        default=None, ge=1, description="Most tokens in any 60 seconds, read and written together."
    )
    expires: datetime | None = Field(
        default=None,
        description="From when on it opens nothing, in UTC unless it says otherwise.",
    )
    tags: dict[str, str] = Field(
        default_factory=dict,
        description="What budgets and reports may go by, over what a request's metadata says.",
    )
    budget: KeyBudgetConfig | None = Field(
        default=None,
        description="`limit_usd`, `period` and `timezone`, as in `[budgets.NAME]`, for this key "
        "alone.",
    )

    @field_validator("expires")
    @classmethod
    def _in_utc(cls, moment: datetime | None) -> datetime | None:
        unzoned = moment is not None and moment.tzinfo is None
        return moment.replace(tzinfo=UTC) if moment is not None and unzoned else moment
