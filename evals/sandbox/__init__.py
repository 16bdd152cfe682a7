"""Runs model-written Python programs, which are taken to be hostile, and says truthfully how they ended.

It does not judge answers: a verdict on a benchmark is the task's. Linux only in earnest; see client.py for the calls,
confine.py for the layers, drive.py for why a program cannot fake its end and what risk remains.
"""

from evals.sandbox.client import Sandbox, layers, run_program
from evals.sandbox.result import Limits, RunResult, SandboxError

__all__ = ["Limits", "RunResult", "Sandbox", "SandboxError", "layers", "run_program"]
