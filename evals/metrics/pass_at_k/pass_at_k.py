"""pass@k for `evaluate.load("evals/metrics/pass_at_k")`: programs run with their tests in the sandbox of this package."""

import datasets
import evaluate

from evals.passk import mean_pass_at_k
from evals.sandbox import Limits, run_program

_DESCRIPTION = "Unbiased pass@k of Python programs, each run with its tests in a sandbox."
_INPUTS = """
Args:
    predictions (list of list of str): for each problem the programs to try, as complete source.
    references (list of str): for each problem the tests, Python statements that raise when the program is wrong.
    k (list of int): the k of pass@k, each at most the number of programs of every problem. Default [1].
    timeout_s (float): wall and processor time of one program, in seconds. Default 10.
Returns:
    pass@k (float) for every k, and n (int), the number of problems.
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _INPUTS)
class PassAtK(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="Chen et al. 2021, arXiv:2107.03374",
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": datasets.Sequence(text), "references": text}),
        )

    def _compute(
        self, predictions: list[list[str]], references: list[str], k: tuple[int, ...] = (1,), timeout_s: float = 10.0
    ) -> dict[str, float]:
        limits = Limits(wall_s=timeout_s, cpu_s=timeout_s)
        outcomes = {
            f"problem {index}": [run_program(program, tests=tests, limits=limits).passed for program in programs]
            for index, (programs, tests) in enumerate(zip(predictions, references, strict=True))
        }
        found = mean_pass_at_k(outcomes, k)
        return {**{f"pass@{each}": found[each].mean for each in k}, "n": len(outcomes)}
