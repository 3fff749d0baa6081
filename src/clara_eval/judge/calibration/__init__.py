"""How far a judge agrees with people, measured on pairs that people decided; and the gate that reads it."""

from clara_eval.judge.calibration.labels import Label, Labels, read_labels
from clara_eval.judge.calibration.measure import Calibration, Looked, measure

__all__ = ["Calibration", "Label", "Labels", "Looked", "measure", "read_labels"]
