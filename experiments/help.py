"""The text of `dinfer --help`, made from the option files. Imports no component."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from experiments.options import Key, Option, defaults, options, root_keys

WIDTH = 100

USAGE = """\
dinfer: run experiments on diffusion language models.

  dinfer [group=option] [key=value] …             one run; the same command again continues or shows it
  dinfer -m group=option,option key=value,value   every combination; group='glob(*)' is all options
  dinfer --help | --cfg job | --config-dir FOLDER this text | the composed configuration | your own options

Also: dinfer-generate (decode one prompt), dinfer-report (table and picture of records), dinfer-score (judge records again,
test a scorer), dinfer-prompt (what the model will read), dinfer-lm-eval (lm-eval with this engine as a model).
"""


def help_text(folders: Sequence[str] = ()) -> str:
    """Every group, option and key with its default and meaning."""
    parts = [USAGE, "Keys\n" + _keys(root_keys(), "")]
    by_group: dict[str, list[Option]] = {}
    for option in options(tuple(folders)):
        by_group.setdefault(option.group, []).append(option)
    for group, found in by_group.items():
        names = " | ".join(f"[{o.name}]" if defaults().get(group) == o.name else o.name for o in found)
        parts.append(f"{group} = {names}\n" + "\n".join(_option(option) for option in found))
    parts.append("[…] is the default. Keys are set as group.key=value, e.g. decoding.threshold=0.8.")
    return "\n".join(parts)


def _option(option: Option) -> str:
    head = textwrap.fill(f"{option.name}: {option.meaning}", WIDTH, initial_indent="  ", subsequent_indent="    ")
    return f"{head}\n{_keys(option.keys, f'{option.group}.')}" if option.keys else f"{head}\n"


def _keys(keys: Iterable[Key], prefix: str) -> str:
    lines = []
    for key in keys:
        if key.name.startswith("_"):
            continue
        left = f"    {prefix}{key.name}={key.default}"
        lines.append(textwrap.fill(f"{left:<40} {key.meaning}", WIDTH + 20, subsequent_indent=" " * 41).rstrip())
    return "\n".join(lines) + "\n"
