"""Run the command line as `python -m clara_eval`."""

from clara_eval.interfaces.cli import main

main()
