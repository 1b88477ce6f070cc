"""What all sections of a recipe share: strict keys, and the bounds of their numbers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_jsonable_python

MOST = 2**31 - 1  # what every library below takes as a whole number
MOST_SEED = 2**63 - 1
MOST_THREADS = 1024
MOST_OFFSET = 1024
MOST_BEAM = 1000
MOST_PENALTY = 10.0

Count = Annotated[int, Field(ge=1, le=MOST)]
Whole = Annotated[int, Field(ge=0, le=MOST)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
FolderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class Section(BaseModel):
    """Common behaviour: unknown keys are errors, values do not change after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """The JSON form of all settings that have a default, those of sections that cannot stand alone included."""
        found: dict[str, Any] = {}
        for name, field in cls.model_fields.items():
            section = field.annotation
            if isinstance(section, type) and issubclass(section, Section):
                found[name] = section.defaults()
            elif not field.is_required():
                found[name] = to_jsonable_python(field.get_default(call_default_factory=True, validated_data={}))
        return found
