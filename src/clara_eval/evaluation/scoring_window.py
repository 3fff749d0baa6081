"""How the scoring window is divided, and how many games fit into what is left of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import comb

SPARE_SHARE = 0.25
LAST_SHARE = 0.1
UNREAD_SHARE, UNREAD_SECONDS = 0.25, 12 * 3600
"""An entry that cannot be read while others can is waited for this share of the window, and not longer than this."""
DECIDE_SHARE = 0.5  # A person has this share of the window to decide a review; then its default is posted
NOTICE_SHARE, NOTICE_SECONDS = 0.1, 6 * 3600
"""However late a review begins, a person has this share of the window, at most so long, while a tenth of it is left."""
RECHECK_SHARE, RECHECK_SECONDS = 0.01, 900.0
"""Pause before an entry that could not be read is tried again; the second is the longest."""
SAFETY = 2.0  # speeds fall when providers are busy: plan with half of what was seen
PUBLISH_SECONDS = 120.0
DEFAULT_CALL_SECONDS = 6.0
LEAST_SECONDS = 60.0
PAUSE_SHARE = 0.05
LEAST_PAUSE_SECONDS = 10.0
READS_PER_SUBMISSION = 3


@dataclass(frozen=True, slots=True)
class Window:
    deadline: int
    scoring_deadline: int
    chain_now: int

    @property
    def size(self) -> int:
        return self.scoring_deadline - self.deadline

    def moment_left(self, share: float) -> int:
        return int(self.scoring_deadline - share * self.size)

    @property
    def decided_until(self) -> int:
        """The moment from which on nothing that could not be read is tried again."""
        return self.moment_left(1 - DECIDE_SHARE)

    @property
    def must_post(self) -> bool:
        """Whether nobody is waited for any more because of an objection."""
        return self.chain_now >= self.moment_left(LAST_SHARE)

    def at(self, chain_now: int) -> Window:
        return replace(self, chain_now=chain_now)

    @property
    def seconds_left(self) -> float:
        """For the models: until a quarter of the window is left, else a tenth, else a minute."""
        for share in (SPARE_SHARE, LAST_SHARE):
            left = self.scoring_deadline - share * self.size - self.chain_now - PUBLISH_SECONDS
            if left > LEAST_SECONDS:
                return left
        return LEAST_SECONDS

    @property
    def is_nearly_over(self) -> bool:
        """Whether outages are waited for no longer, so that the rest can be judged, reviewed and posted."""
        return self.scoring_deadline - self.chain_now <= SPARE_SHARE * self.size

    @property
    def longest_pause_seconds(self) -> float:
        """Between two attempts: at least twenty fit into the window, and none is planned past its end."""
        longest = max(LEAST_PAUSE_SECONDS, PAUSE_SHARE * self.size)
        return min(longest, max(1.0, (self.scoring_deadline - self.chain_now) / 2))

    @property
    def recheck_seconds(self) -> float:
        return max(LEAST_PAUSE_SECONDS, min(RECHECK_SECONDS, RECHECK_SHARE * self.size))

    @property
    def is_over(self) -> bool:
        return self.chain_now > self.scoring_deadline

    @property
    def budget_seconds(self) -> float:
        """The one wall-clock budget of an attempt: it ends a tenth of the window before the scoring deadline."""
        return max(LEAST_SECONDS, self.scoring_deadline - LAST_SHARE * self.size - self.chain_now)


def expected_speed(concurrency: int) -> float:
    """Calls a second, before any was made."""
    return concurrency / DEFAULT_CALL_SECONDS


def all_comparisons(submissions: int, judges: int) -> int:
    """Both orders of every pair, by every judge."""
    return 2 * comb(submissions, 2) * judges


def needed_seconds(submissions: int, judges: int, speed: float) -> float:
    return SAFETY * (submissions * READS_PER_SUBMISSION + all_comparisons(submissions, judges)) / speed


def most_comparisons(window: Window, submissions: int, judges: int, speed: float) -> int | None:
    """The most games that fit, or None if all do; always enough for a chain through all submissions."""
    if judges == 0 or needed_seconds(submissions, judges, speed) <= window.seconds_left:
        return None
    affordable = window.seconds_left * speed / SAFETY - submissions * READS_PER_SUBMISSION
    return max(max(1, submissions - 1) * judges, int(affordable))


def how_degraded(games: int | None, submissions: int, judges: int) -> str | None:
    """For the metric: `one_order` if every pair is still asked once, `fewer_pairs` below that."""
    if games is None:
        return None
    return "one_order" if games >= all_comparisons(submissions, judges) // 2 else "fewer_pairs"
