"""What an evaluation found: everything that its trace records and its documents show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clara_eval.config.eval_config import FeatureSchema
from clara_eval.core.address import Address
from clara_eval.core.flags import Flag
from clara_eval.core.submission import Placed
from clara_eval.evaluation.execution import Execution
from clara_eval.evaluation.features import SubmissionFacts
from clara_eval.evaluation.play import Comparison
from clara_eval.evaluation.received import SubmissionResult
from clara_eval.evaluation.round import Round
from clara_eval.evaluation.ruled import RuledComparisons
from clara_eval.evaluation.rulings import Ruling
from clara_eval.judge.attestation import KeyReport
from clara_eval.judge.port import PaidAnswer
from clara_eval.ranking import Ranking, Tally, tally
from clara_eval.submissions.copies import Likeness
from clara_eval.submissions.model import Rejected


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    given: Round
    schema: FeatureSchema
    typed_by_model: tuple[str, ...]
    prompts: dict[str, dict[str, str]]
    rulings: tuple[Ruling, ...]
    pieces: tuple[SubmissionResult, ...]
    likeness: Likeness
    rejected: tuple[Rejected, ...]
    execution: Execution | None
    """None if nothing was to be run."""
    features: dict[Address, SubmissionFacts]
    answers: Mapping[str, PaidAnswer]
    """Read one at a time from a file."""
    unanswered: dict[str, str]
    key_reports: tuple[KeyReport, ...]
    """The attestation of every key that signed an answer."""
    schedule: str
    schedule_reason: str
    comparisons: Sequence[Comparison]
    ranking: Ranking | None
    """None if every submission was rejected."""
    placed: tuple[Placed, ...]
    behind_by_default: Mapping[Address, str]
    """Accounts that give way if nobody decides, each with the code of the flag."""
    flags: tuple[Flag, ...]


def judges_of(comparisons: Sequence[Comparison]) -> list[str]:
    if isinstance(comparisons, RuledComparisons):
        return list(comparisons.table.judges)
    return sorted({comparison.judge for comparison in comparisons})


def tally_of(items: Sequence[str], comparisons: Sequence[Comparison]) -> Tally:
    """The games that have a verdict, as columns in canonical order."""
    if isinstance(comparisons, RuledComparisons):
        return comparisons.table
    return tally(items, [comparison.result for comparison in comparisons if comparison.winner is not None])
