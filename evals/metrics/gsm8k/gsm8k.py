"""GSM8K accuracy for `evaluate.load("evals/metrics/gsm8k")`: numbers extracted and compared as the task does it."""

import datasets
import evaluate

from evals.gsm8k import METRICS, Gsm8k
from evals.gsm8k_styles import STYLES
from evals.task import Answer, Sample

_MARKS = {style.mark: name for name, style in STYLES.items()}

_DESCRIPTION = "Accuracy on GSM8K by number: strict (behind a mark), flexible (last number), stated (final statement)."
_INPUTS = """
Args:
    predictions (list of str): what the model wrote.
    references (list of str): the data set's `answer` column, or the number alone.
    mark (str): what the strict filter looks for: 'hashes' ("#### 18"), 'answer_is' ("The answer is 18") or 'boxed'.
Returns:
    strict, flexible, stated (float): shares of right answers; strict_found (float): share where the mark was found;
    n (int): number of answers.
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _INPUTS)
class Gsm8kMetric(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="Cobbe et al. 2021, arXiv:2110.14168",
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": text, "references": text}),
        )

    def _compute(self, predictions: list[str], references: list[str], mark: str = "hashes") -> dict[str, float]:
        if mark not in _MARKS:
            raise ValueError(f"mark must be one of {', '.join(_MARKS)}, got {mark!r}")
        task = Gsm8k(style=_MARKS[mark])
        totals = dict.fromkeys((*METRICS, "strict_found"), 0.0)
        for index, (text, reference) in enumerate(zip(predictions, references, strict=True)):
            sample = Sample(f"answer {index}", reference={"answer": reference.rpartition("####")[2]})
            for name, value in task.score(sample, Answer(text)).metrics.items():
                totals[name] += value
        return {**{name: total / len(predictions) for name, total in totals.items()}, "n": len(predictions)}
