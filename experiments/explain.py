"""Hydra's complaints about a command, said in one line that names the field, what was given and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException, ValidationError

from experiments.build import unknown_key
from experiments.errors import choices, one_line, suggestion

HINT = "; see dinfer --help"


def explain(error: BaseException, owners: Mapping[str, list[str]] | None = None) -> str:
    """One line for an error of composing. `owners` maps a key's last name to the options that have it."""
    if isinstance(error, MissingConfigException):
        return _missing(error)
    if isinstance(error, OverrideParseException):
        return not_an_override(error.override)
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    text = str(error)
    if "is not Optional" in str(cause):
        return _null(text)
    if isinstance(cause, ValidationError):
        return _type(cause, text)
    override = re.search(r"Could not override '([^']+)'", text)
    if override and "@" in override.group(1):
        place = override.group(1).rpartition("@")[2]
        return f"{place} is not a key of the chosen {place.split('.')[0]}{HINT}"
    if override:
        return _key(override.group(1), cause, owners or {})
    ambiguous = re.search(r"Ambiguous value for argument '([^']+)'|Sweep parameters '([^']+)'", text)
    if ambiguous:
        word = ambiguous.group(1) or ambiguous.group(2)
        key, _, value = word.partition("=")
        return f"{key} must be one value, got {value}; add -m to sweep over several"
    twice = re.search(r"Multiple values for (\S+?)\.", text)
    if twice:
        return f"{twice.group(1)} must be chosen once, got several options"
    return one_line(text or cause).replace("To append to your", "; to append to your")


def not_an_override(word: str) -> str:
    """The line for a word of the command that is not key=value."""
    if "=" in word:
        return f"{word!r} could not be read; quote values with special characters: key='\"value\"'"
    return f"{word!r} is not of the form key=value{HINT}"


def _missing(error: MissingConfigException) -> str:
    name = error.missing_cfg_file
    given = str(name[0] if isinstance(name, (list, tuple)) and name else name)
    group, _, option = given.rpartition("/")
    if not group:
        return f"the configuration {given!r} does not exist{HINT}"
    options = [str(o) for o in error.options or []]
    return f"{group} must be one of {choices(options)}; got {option!r}{suggestion(option, options)}"


def _key(full: str, cause: BaseException, owners: Mapping[str, list[str]]) -> str:
    parent = getattr(cause, "parent_node", None)
    name = full.rpartition(".")[2]
    if not isinstance(parent, DictConfig):
        return f"{full} is not a key{HINT}"
    allowed = [str(k) for k in parent if str(k) not in ("_target_", "hydra")]
    missing = str(getattr(cause, "key", name))
    place = full.split(".")
    if missing in place:
        full = ".".join(place[: place.index(missing) + 1])
    message = unknown_key(full, allowed)
    elsewhere = [option for option in owners.get(name, []) if option.split("=")[0] == full.split(".")[0]]
    return f"{message}; it is a key of {choices(elsewhere)}" if elsewhere and "mean" not in message else message


def _null(text: str) -> str:
    field = re.search(r"override (\S+?)=", text)
    return f"{field.group(1) if field else 'the value'} must not be null"


def _type(cause: ValidationError, text: str) -> str:
    key = cause.full_key or cause.key or "a value"
    override = re.search(r"override (\S+?)=", text)
    given: Any = cause.value
    value = re.search(r"Value '(.*?)' of type", str(cause))
    if value:
        given = value.group(1)
    kinds = {"int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false"}
    wanted = re.search(r"to (Integer|Float|Boolean)|Optional\[(\w+)\]|reference_type=(\w+)|field_type: (\w+)", str(cause))
    names = {"Integer": "int", "Float": "float", "Boolean": "bool"}
    word = next((g for g in wanted.groups() if g), "") if wanted else ""
    kind = kinds.get(names.get(word, word), "")
    field = override.group(1) if override else key
    if not kind:
        return f"{field}: {one_line(cause.msg or cause)}"
    return f"{field} must be {kind}{' or null' if 'Optional' in str(cause) else ''}, got {given!r}"
