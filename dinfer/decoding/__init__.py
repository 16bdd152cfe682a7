"""Decoding strategies: which positions take which token."""

from dinfer.decoding.credit import Credit
from dinfer.decoding.factor import Factor
from dinfer.decoding.hierarchy import Hierarchy
from dinfer.decoding.steps import Steps
from dinfer.decoding.threshold import Threshold
from dinfer.decoding.view import BlockView, Choice, Prediction, Sampled, at_least, ranking, uniform_noise

__all__ = [
    "BlockView",
    "Choice",
    "Credit",
    "Factor",
    "Hierarchy",
    "Prediction",
    "Sampled",
    "Steps",
    "Threshold",
    "at_least",
    "ranking",
    "uniform_noise",
]
