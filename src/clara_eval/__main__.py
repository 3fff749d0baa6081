"""`python -m clara_eval` is the command line."""

from clara_eval.interfaces.cli import main

main()
