"""From a configuration node to the component it names; the component's own signature is the schema.

Unknown keys, wrong types and the component's own complaints become one-line errors that name the field by its full key.
"""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from experiments.errors import ConfigError, choices, one_line, suggestion

TARGET = "_target_"
#: Field by which a component wraps another one of its kind. Keys it shares with the wrapped one go to both.
WRAPPED = "inner"


def build(node: Any, key: str) -> Any:
    """The object that `node` (a resolved mapping with `_target_`) describes; `key` is its full name in messages."""
    if not isinstance(node, Mapping) or TARGET not in node:
        raise ConfigError(f"{key} must name one of its options (see dinfer --help), got {node!r}")
    component = locate(str(node[TARGET]), key)
    parameters = inspect.signature(component).parameters
    given = {str(k): v for k, v in node.items() if k != TARGET}
    if WRAPPED in parameters:
        given = _share(given, parameters, key)
    allowed = [name for name, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    for name in given:
        if name not in allowed:
            raise ConfigError(unknown_key(f"{key}.{name}", allowed))
    for name, parameter in parameters.items():
        if name in allowed and parameter.default is parameter.empty and given.get(name, "???") == "???":
            raise ConfigError(f"{key}.{name} must be given, it has no default")
    hints = _hints(component)
    values = {name: _value(value, hints.get(name, Any), f"{key}.{name}") for name, value in given.items()}
    try:
        return component(**values)
    except ConfigError:
        raise
    except (ValueError, TypeError) as error:
        raise ConfigError(_located(one_line(error), key, allowed)) from error


def unknown_key(full: str, allowed: Sequence[str]) -> str:
    """The message for a key that nobody has."""
    parent, _, name = full.rpartition(".")
    near = suggestion(name, allowed)
    if near and parent:
        near = near.replace("mean ", f"mean {parent}.")
    return f"{full} is not a key{near}; allowed{f' in {parent}' if parent else ''}: {choices(allowed)}"


def locate(target: str, key: str) -> Any:
    """The class or function at a dotted path. ConfigError when there is none."""
    module, _, name = target.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        missing = getattr(error, "name", None)
        if isinstance(error, ModuleNotFoundError) and missing and not (module == missing or module.startswith(f"{missing}.")):
            raise ConfigError(f"{key} ({target}) needs the package {missing}, which is not installed") from error
        raise ConfigError(f"{key}.{TARGET} must be an importable class, got {target!r} ({one_line(error)})") from error


def _share(given: dict[str, Any], parameters: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Keys of a wrapping component that the wrapped one has too are set on both; null leaves either its own."""
    inner = given.get(WRAPPED)
    if not isinstance(inner, Mapping) or TARGET not in inner:
        return given
    accepted = inspect.signature(locate(str(inner[TARGET]), f"{key}.{WRAPPED}")).parameters
    own: dict[str, Any] = {}
    handed: dict[str, Any] = {}
    for name, value in given.items():
        if name == WRAPPED or (name in parameters and name not in accepted):
            own[name] = value
        elif value is not None and name in accepted:
            handed[name] = value
            if name in parameters:
                own[name] = value
        elif value is not None:
            raise ConfigError(unknown_key(f"{key}.{name}", sorted({*parameters, *accepted})))
    return {**own, WRAPPED: {**inner, **handed}}


def _hints(component: Any) -> dict[str, Any]:
    try:
        return get_type_hints(component)
    except (NameError, TypeError):
        return {}


def _value(value: Any, hint: Any, key: str) -> Any:
    """`value` as `hint` wants it: nested components built, sequences as tuples where asked. ConfigError on a misfit."""
    if isinstance(value, Mapping) and TARGET in value:
        return build(value, key)
    fits, result = _fit(value, hint)
    if not fits:
        raise ConfigError(f"{key} must be {describe(hint)}, got {value!r}")
    return result


def _fit(value: Any, hint: Any) -> tuple[bool, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any or hint is inspect.Parameter.empty:
        return True, value
    if origin in (Union, types.UnionType):
        for option in arguments:
            fits, result = _fit(value, option)
            if fits:
                return True, result
        return False, value
    if origin is Literal:
        return value in arguments, value
    if hint is None or hint is type(None):
        return value is None, None
    if hint is float:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        return fits, float(value) if fits else value
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool), value
    if hint in (bool, str):
        return isinstance(value, hint), value
    if origin in (list, tuple, Sequence) or hint in (list, tuple):
        return _fit_items(value, origin or hint, arguments)
    return not isinstance(value, (bool, int, float, str)) and value is not None, value


def _fit_items(value: Any, kind: Any, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False, value
    item = arguments[0] if arguments else Any
    pairs = [_fit(v, item) for v in value]
    return all(fits for fits, _ in pairs), (list if kind is list else tuple)(result for _, result in pairs)


def describe(hint: Any) -> str:
    """A type in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(a) for a in arguments)
    if origin is Literal:
        return f"one of {choices(map(str, arguments))}"
    if origin in (list, tuple, Sequence):
        return f"a list of {describe(arguments[0])}s" if arguments else "a list"
    words = {float: "a number", int: "a whole number", bool: "true or false", str: "a text", type(None): "null"}
    return words.get(hint, f"a {getattr(hint, '__name__', hint)}")


def _located(message: str, key: str, fields: Sequence[str]) -> str:
    """A component's complaint with its field named in full."""
    first = message.split(" ", 1)[0].rstrip(":,")
    if first in fields:
        return f"{key}.{message}"
    return message if message.startswith(f"{key}.") else f"{key}: {message}"
