"""The tournament room: who meets whom, on which side, and what the verdicts so far say about strength.

In come canonical items, judges and the verdicts answered so far; out go the next comparisons to ask, and fitted
strengths. Asking a judge is not done here. What must hold: the same answers always lead to the same comparisons, no
ordered pair is ever put to the same judge twice, and a comparison without a verdict counts for nobody.
"""
