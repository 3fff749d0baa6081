"""Clara Eval judges on-chain challenges.

The walk of one evaluation, one room after the other:

    eval_config -> challenge -> solutions -> judge -> features -> tournament -> ranking -> winners -> publish
    ------------------------------------------- trace -------------------------------------------------------
"""

__version__ = "0.1.0"
