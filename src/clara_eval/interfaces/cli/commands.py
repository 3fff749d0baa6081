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
    """A command: `module:name` (in this folder, or a full name; none for a group), its line in the help, an example."""

    target: str
    line: str
    example: str = ""


A = "0x71c7656ec7ab88b098defb751b7401b5f6d8976f"
"""An address for examples."""
GROUPS = {
    "Try": ("demo", "judge", "devnet"),
    "Post and compete": ("config", "harness", "challenge"),
    "Results": ("status", "leaderboard", "score", "trace", "verify"),
    "Operate": ("check", "settings", "serve", "evaluate", "review", "spend", "backup", "keys", "mcp"),
    "Lab": ("rank", "calibrate", "redteam"),
}
"""What the help of the program lists; the other names are valid."""
COMMANDS = {
    "demo": Entry(
        "clara_eval.devnet.demo.command:demo", "Run one challenge from escrow to claimed prizes, locally.", "demo"
    ),
    "judge": Entry("judge:judge", "Judge a folder of entries, without a chain.", "judge entries --config config.json"),
    "devnet": Entry(
        "clara_eval.devnet.command:app", "Run a local chain with every contract deployed.", "devnet --agents 3"
    ),
    "config": Entry("", "Write, check, price and hash eval configs."),
    "config init": Entry("config:init", "Write a starter config that explains itself.", "init --template measured"),
    "config features": Entry("config:features", "List everything that can be measured or read.", "features --measured"),
    "config validate": Entry("config:validate", "List everything that is wrong with a config.", "validate FILE"),
    "config hash": Entry("config:hash_", "Print the evalConfigHash of a config.", "hash FILE"),
    "config quote": Entry("config:quote", "Say what an evaluation will cost.", "quote FILE --submissions 40"),
    "config rehearse": Entry(
        "config:rehearse", "Show what an evaluation would see in your sample files.", "rehearse FILE --sample DRAFT.py"
    ),
    "harness": Entry("", "Run submissions under a poster's harness."),
    "harness run": Entry(
        "harness:run", "Run a submission and print what is measured.", "run DRAFT.py --harness HARNESS.py"
    ),
    "harness check": Entry(
        "harness:check", "Run a harness on a reference solution.", "check HARNESS.py --reference DRAFT.py"
    ),
    "harness hash": Entry(
        "harness:hash_", "Print the privateSetHash of a hidden harness.", "hash HARNESS.py --out hidden.json"
    ),
    "harness prepare": Entry("harness:prepare", "See which engines are here, and make them ready.", "prepare"),
    "harness reveal": Entry("harness:reveal", "Reveal a hidden harness after the deadline.", f"reveal {A} hidden.json"),
    "challenge": Entry("", "Post challenges, submit solutions, claim prizes."),
    "challenge list": Entry("challenge:list_", "List challenges, newest first.", "list --status any"),
    "challenge show": Entry("challenge:show", "Show one challenge in full.", f"show {A}"),
    "challenge try": Entry("challenge:try_", "Measure a draft before you submit it.", f"try {A} --file DRAFT.py"),
    "challenge submit": Entry(
        "challenge:submit", "Submit a solution, or replace your earlier one.", f"submit {A} --file DRAFT.py --send"
    ),
    "challenge watch": Entry("challenge:watch", "Follow an evaluation until it ends.", f"watch {A}"),
    "challenge object": Entry(
        "challenge:object_", "Show an announced result, or object to it before it is posted.", f"object {A}"
    ),
    "challenge claim": Entry(
        "challenge:claim", "Claim your prize, or your share of an expired challenge.", f"claim {A} --send"
    ),
    "challenge post": Entry(
        "challenge:post",
        "Post a challenge and escrow its prize.",
        'post --title Sort --problem @TASK --prize 100 --deadline "7 days" --config FILE',
    ),
    "challenge finalize": Entry("challenge:finalize", "Open the claims 12 hours after the post.", f"finalize {A}"),
    "status": Entry("operator:status", "Show how far an evaluation has come.", f"status {A}"),
    "leaderboard": Entry(
        "leaderboard:leaderboard", "Show the places with intervals and prizes.", f"leaderboard {A} --limit 10"
    ),
    "score": Entry("leaderboard:score", "Say why one entry ended where it did.", f"score {A} 1"),
    "trace": Entry("operator:trace", "Print the trace of an evaluated challenge.", f"trace {A} --out trace.json"),
    "verify": Entry("verify:verify", "Check a trace without trusting anybody.", "verify trace.json"),
    "check": Entry("operator:check", "Say what is ready to run and what is missing.", "check"),
    "settings": Entry("operator:settings", "List every setting with its value, default and source.", "settings"),
    "serve": Entry("serve:serve", "Run the service until it is stopped.", "serve --port 8080"),
    "evaluate": Entry("evaluate:evaluate", "Evaluate one challenge and post its winners.", f"evaluate {A} --dry-run"),
    "finalize": Entry("challenge:finalize", "Open the claims 12 hours after the post.", f"finalize {A}"),
    "review": Entry("", "Approve or reject results that are waiting for a person."),
    "review list": Entry("review:list_waiting", "List the reviews of this network.", "list"),
    "review show": Entry("review:show", "Show why one result is waiting, and what was decided.", f"show {A}"),
    "review approve": Entry(
        "review:approve", "Let the service post exactly the result you reviewed.", f"approve {A} --digest DIGEST"
    ),
    "review rule": Entry(
        "review:rule",
        "Exclude an entry, name the original, or ask another judge.",
        f"rule {A} --digest DIGEST --exclude {A}",
    ),
    "review reject": Entry(
        "review:reject",
        "End the evaluation as failed; the poster may still post.",
        f'reject {A} --note "The task changed."',
    ),
    "spend": Entry("operator:spend", "Report what was spent on models.", "spend --since 2026-01-01"),
    "backup": Entry("backup:backup", "Copy the database while the service runs.", "backup copy.db"),
    "publication": Entry("", "Publish posted results elsewhere."),
    "publication sync": Entry("operator:sync", "Publish whatever a place still lacks.", "sync"),
    "keys": Entry("", "Create keys for the evaluator."),
    "keys new": Entry("operator:new", "Create a key in an encrypted keystore file.", "new evaluator.json"),
    "mcp": Entry("serve:mcp", "Serve the challenge tools to an MCP client over stdio.", "mcp"),
    "rank": Entry("rank:rank", "Rank pairwise results from a file or a pipe.", "rank games.csv --top 5"),
    "calibrate": Entry(
        "calibrate:calibrate", "Measure how far the judges agree with people.", "calibrate labels.jsonl"
    ),
    "redteam": Entry(
        "clara_eval.redteam.command:redteam", "Attack the evaluation itself and say how it held.", "redteam --size 0.1"
    ),
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
        lines = self._below()
        for title, names in ({"Commands": tuple(lines)} if self.path else GROUPS).items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<11}", lines[name]) for name in names])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[:1] == ["help"]:
            if not args[1:]:
                typer.echo(ctx.get_help())
                ctx.exit()
            args = [*args[1:], "--help"]
        self.commands = dict.fromkeys(self._below())  # type: ignore[assignment] # names for typer's "Did you mean"
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: object, cmd_name: str) -> Any:  # noqa: ARG002 - typer's signature
        words = f"{self.path} {cmd_name}".strip()
        if words not in COMMANDS:
            return None
        target, line, example = COMMANDS[words]
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
        command = get_command(found)
        command.epilog = f"\b\nExample:\n  clara-eval {words.removesuffix(cmd_name)}{example}"
        return command


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
