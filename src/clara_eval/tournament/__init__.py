"""The tournament room: who meets whom, on which side, and what the verdicts so far say about strength.

In come canonical items, judges and the verdicts answered so far; out go the next games to ask, and fitted strengths.
Asking a judge is not done here. What must hold: the same answers always lead to the same games, no ordered pair is
ever put to the same judge twice, and a game without a verdict counts for nobody.
"""
