"""Learned predictions of runtime, power and memory at each job's submission."""

from hpctwin.learn.prediction.intervals import WAYS, interval_scores, intervals
from hpctwin.learn.prediction.known import FEATURES, Known
from hpctwin.learn.prediction.mixing import ranked, scores, scores_by
from hpctwin.learn.prediction.online import (
    METHODS,
    RIVALS,
    Training,
    drawing_as_predicted,
    predict,
    with_predictions,
)
from hpctwin.learn.prediction.saved import Predictor, load_predictor, train

__all__ = [
    "FEATURES",
    "METHODS",
    "RIVALS",
    "WAYS",
    "Known",
    "Predictor",
    "Training",
    "drawing_as_predicted",
    "interval_scores",
    "intervals",
    "load_predictor",
    "predict",
    "ranked",
    "scores",
    "scores_by",
    "train",
    "with_predictions",
]
