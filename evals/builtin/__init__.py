"""Procedural tasks: generated from seeds, scored exactly, in the formats of the real benchmarks."""

from evals.builtin.code import BuiltinCode
from evals.builtin.instruct import BuiltinInstruct
from evals.builtin.lists import BuiltinLists
from evals.builtin.math import BuiltinMath
from evals.builtin.mix import Builtin
from evals.builtin.output import BuiltinOutput

__all__ = ["Builtin", "BuiltinCode", "BuiltinInstruct", "BuiltinLists", "BuiltinMath", "BuiltinOutput"]
