"""Every command in the order of its help; its module is imported when it is called or its own help is shown."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command


class Entry(NamedTuple):
    """A command: `module:name` (in this folder, or a full name; none for a group), and its line in the help."""

    target: str
    line: str


COMMANDS = {
    "demo": Entry("clara_eval.devnet.demo.command:demo", "Run one challenge from escrow to claimed prizes, locally."),
    "check": Entry("operator:check", "Say what is ready to run and what is missing."),
    "evaluate": Entry("evaluate:evaluate", "Evaluate one challenge and post its winners."),
    "finalize": Entry("challenge:finalize", "Open the claims 12 hours after the post."),
    "status": Entry("operator:status", "Show how far an evaluation has come."),
    "leaderboard": Entry("leaderboard:leaderboard", "Show who stands where, with intervals and prizes."),
    "score": Entry("leaderboard:score", "Say why one entry ended where it did."),
    "trace": Entry("operator:trace", "Print the trace of an evaluated challenge."),
    "verify": Entry("verify:verify", "Check a trace without trusting anybody."),
    "calibrate": Entry("calibrate:calibrate", "Measure how far the judges agree with people."),
    "rank": Entry("rank:rank", "Rank pairwise results from a CSV file."),
    "redteam": Entry("clara_eval.redteam.command:redteam", "Attack the evaluation itself and say how it held."),
    "serve": Entry("serve:serve", "Run the service until it is told to stop."),
    "spend": Entry("operator:spend", "Report what was spent on models."),
    "backup": Entry("backup:backup", "Copy the database while the service runs."),
    "mcp": Entry("serve:mcp", "Serve the challenge tools to an MCP client over stdio."),
    "devnet": Entry("clara_eval.devnet.command:app", "Run a local chain with every contract deployed."),
    "config": Entry("", "Write, check, price and hash eval configs."),
    "config init": Entry("config:init", "Write a starter config that explains itself."),
    "config features": Entry("config:features", "List everything that can be measured or read."),
    "config validate": Entry("config:validate", "List everything that is wrong with a config."),
    "config hash": Entry("config:hash_", "Print the evalConfigHash of a config."),
    "config quote": Entry("config:quote", "Say what an evaluation will cost."),
    "config rehearse": Entry("config:rehearse", "Compile the schema and try it on samples."),
    "harness": Entry("", "Run submissions under a poster's harness."),
    "harness run": Entry("harness:run", "Run a submission and print what is measured."),
    "harness check": Entry("harness:check", "Run a harness on a reference solution."),
    "harness hash": Entry("harness:hash_", "Print the privateSetHash of a hidden harness."),
    "harness prepare": Entry("harness:prepare", "See which engines are here, and make them ready."),
    "harness reveal": Entry("harness:reveal", "Reveal a hidden harness after the deadline."),
    "challenge": Entry("", "Post challenges, submit solutions, claim prizes."),
    "challenge post": Entry("challenge:post", "Post a challenge and escrow its prize."),
    "challenge submit": Entry("challenge:submit", "Submit a solution, or replace your earlier one."),
    "challenge try": Entry("challenge:try_", "Measure a draft before you submit it."),
    "challenge object": Entry("challenge:object_", "Object to an announced result before it is posted."),
    "challenge claim": Entry("challenge:claim", "Claim your prize, or your share of an expired challenge."),
    "challenge list": Entry("challenge:list_", "List challenges, newest first."),
    "challenge show": Entry("challenge:show", "Show one challenge in full."),
    "challenge watch": Entry("challenge:watch", "Follow an evaluation until it ends."),
    "review": Entry("", "Approve or reject results that are waiting for a person."),
    "review list": Entry("review:list_waiting", "List the reviews of this network."),
    "review show": Entry("review:show", "Show why one result is waiting, and what was decided."),
    "review approve": Entry("review:approve", "Let the service post exactly the result you reviewed."),
    "review rule": Entry("review:rule", "Exclude an entry, name the original, or ask another judge."),
    "review reject": Entry("review:reject", "End the evaluation as failed; the poster may still post."),
    "publication": Entry("", "Publish posted results elsewhere."),
    "publication sync": Entry("operator:sync", "Publish whatever a place still lacks."),
    "keys": Entry("", "Create keys for the evaluator."),
    "keys new": Entry("operator:new", "Create a key in an encrypted keystore file."),
}


class LazyGroup(TyperGroup):
    """The commands one word below `path`; the program itself has the empty path."""

    path = ""

    def _below(self) -> dict[str, str]:
        found = (words.rpartition(" ") for words in COMMANDS)
        return {name: COMMANDS[f"{path} {name}".strip()].line for path, _, name in found if path == self.path}

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 - typer's signature
        return list(self._below())

    def format_commands(self, ctx: object, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        with formatter.section("Commands"):
            formatter.write_dl(list(self._below().items()))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        self.commands = dict.fromkeys(self._below())  # type: ignore[assignment] # names for typer's "Did you mean"
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: object, cmd_name: str) -> Any:  # noqa: ARG002 - typer's signature
        words = f"{self.path} {cmd_name}".strip()
        if words not in COMMANDS:
            return None
        target, line = COMMANDS[words]
        if not target:
            group = LazyGroup(name=cmd_name, help=line, no_args_is_help=True, rich_markup_mode=None)
            group.path = words
            return group
        found = load(target)
        if "structlog" in sys.modules:  # a command that logs nothing does not wait for it to be loaded
            log_to_stderr()
        if not isinstance(found, typer.Typer):
            single = typer.Typer(add_completion=False, rich_markup_mode=None)
            single.command(cmd_name)(found)
            found = single
        return get_command(found)


def load(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(module if "." in module else f"clara_eval.interfaces.cli.{module}"), name)


def log_to_stderr() -> None:
    """Keep logs off standard output, unless a service or host program has configured them."""
    import structlog  # noqa: PLC0415 - only where it is loaded already

    if structlog.is_configured():
        return
    lines = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            lines,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_args: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
