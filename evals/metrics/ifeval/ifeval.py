"""IFEval accuracies for `evaluate.load("evals/metrics/ifeval")`: the 25 checkers, per prompt and per instruction."""

import json

import datasets
import evaluate

from evals.ifeval import IfEval
from evals.instructions import arguments
from evals.task import Answer, Sample

_DESCRIPTION = "Instruction following on IFEval: prompt and instruction level, strict and loose."
_INPUTS = """
Args:
    predictions (list of str): what the model wrote.
    references (list of str): for each a row of the data set as JSON; `instruction_id_list` and `kwargs` are used.
Returns:
    prompt_strict, prompt_loose, inst_strict, inst_loose (float): accuracies; n (int): number of answers.
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _INPUTS)
class IfEvalMetric(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="Zhou et al. 2023, arXiv:2311.07911",
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": text, "references": text}),
        )

    def _compute(self, predictions: list[str], references: list[str]) -> dict[str, float]:
        task = IfEval()
        scores = []
        for index, (text, reference) in enumerate(zip(predictions, references, strict=True)):
            row = json.loads(reference)
            names = row["instruction_id_list"]
            kwargs = [arguments(name, given or {}) for name, given in zip(names, row["kwargs"], strict=True)]
            sample = Sample(f"answer {index}", reference={"instructions": names, "kwargs": kwargs})
            scores.append(task.score(sample, Answer(text)))
        return {**task.summarise(scores), "n": len(scores)}
