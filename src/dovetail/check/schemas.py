"""JSON Schema as servers send it: is it valid, and does a value keep it?"""

import importlib
from typing import Any

__all__ = ["json_schema_problem", "value_problem"]

DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _validator(schema: dict[str, Any]) -> Any:
    validators: Any = importlib.import_module("jsonschema.validators")
    default = validators.validator_for({"$schema": DEFAULT_DIALECT})
    return validators.validator_for(schema, default=default)


def json_schema_problem(schema: Any) -> str | None:
    """Why this is no valid schema in its dialect (2020-12 unless it names one), or None."""
    if not isinstance(schema, dict):
        return f"it is {str(schema)[:100]}, not an object"
    error = next(
        iter(
            _validator(_validator(schema).META_SCHEMA)(_validator(schema).META_SCHEMA).iter_errors(
                schema
            )
        ),
        None,
    )
    return None if error is None else f"{error.json_path}: {error.message[:200]}"


def value_problem(schema: dict[str, Any], value: Any) -> str | None:
    """Where a value breaks a schema, or None."""
    error = next(iter(_validator(schema)(schema).iter_errors(value)), None)
    return None if error is None else f"{error.json_path}: {error.message[:200]}"
