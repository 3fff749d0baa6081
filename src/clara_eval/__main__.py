"""`python -m clara_eval` is the command line."""

from clara_eval.cli import main

main()
