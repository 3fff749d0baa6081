"""The command `clara-eval redteam`: attack the product, and compare every figure with its target."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.table import Table

from clara_eval.app import open_jury
from clara_eval.config.settings import Settings
from clara_eval.core.errors import BadInput, ConfigError
from clara_eval.core.model import usd
from clara_eval.interfaces.cli.output import JsonFlag, YesToCost, emit_json
from clara_eval.interfaces.cli.screen import agree_to_cost, console
from clara_eval.judge.costs.budgets import FREE, estimated_tokens
from clara_eval.judge.provider import JudgeName, models_of, parse_jury, price_cards
from clara_eval.redteam import copying, lies, placing
from clara_eval.redteam.injection import measure_denial, measure_injection, measure_own, planned_prompts
from clara_eval.redteam.machine_attacks import measure_archives, measure_harnesses
from clara_eval.redteam.report import Figure, RedteamReport
from clara_eval.redteam.simulators import Payload, own_payloads, payloads_in

FEWEST_FILES = 6
HONEST = Path("bench", "honest")
"""Independent solutions of small tasks; only in the repository, not in the installed package."""
SECTIONS: dict[str, Callable[[Attack, list[Payload]], list[Figure]]] = {
    "injection": lambda run, payloads: asyncio.run(
        measure_injection(payloads[:: max(1, round(1 / min(1.0, run.size)))])
    ),
    "denial": lambda run, payloads: asyncio.run(measure_denial(payloads[: run.count(40)])),
    "names": lambda run, _: asyncio.run(lies.measure_names(run.seed)),
    "lies": lambda run, _: [
        *asyncio.run(lies.measure_lies(run.count(32), run.seed)),
        *asyncio.run(lies.measure_measured_only()),
        *asyncio.run(lies.measure_executed(run.count(20), run.seed)),
    ],
    "harness": lambda _run, _: measure_harnesses(),
    "archives": lambda _run, _: measure_archives(),
    "ties": lambda run, _: (
        placing.measure_ties(run.count(300), run.seed) + placing.measure_stability(run.count(60), run.seed)
    ),
    "utility": lambda run, _: placing.measure_utility(run.count(100), run.seed),
    "copies": lambda run, _: (
        copying.measure_copies(files := _find_files(run, 60), seed=run.seed) + copying.measure_clones(files)
    ),
    "ordinary": lambda run, _: copying.measure_ordinary(_find_files(run, 1_000)) + copying.measure_honest(HONEST),
}
LIMITS = (
    "The simulated models show what can reach whom. They cannot show how often a real model is fooled: --judges asks."
)


@dataclass(frozen=True, slots=True)
class Attack:
    """Options of a run. `size` 1 is the usual run; more takes longer and narrows the intervals."""

    sections: Sequence[str] = tuple(SECTIONS)
    corpora: Sequence[Path] = ()  # Corpora of payloads to use instead of ours
    folders: Sequence[Path] = ()  # Folders with real programs, instead of the libraries of this machine
    size: float = 1.0
    seed: int = 1
    tell: Callable[[str], None] = field(default=lambda _: None)

    def count(self, usual: int) -> int:
        return max(1, round(usual * self.size))


def load_payloads(attack: Attack) -> list[Payload]:
    if not attack.corpora:
        return own_payloads()
    return [payload for path in attack.corpora for payload in payloads_in(path)]


def run_attack(attack: Attack) -> RedteamReport:
    unknown = [name for name in attack.sections if name not in SECTIONS]
    if unknown:
        raise BadInput(f"There is no section {unknown[0]!r}.", value=unknown[0], remedy=f"Use {', '.join(SECTIONS)}.")
    payloads = load_payloads(attack)
    figures: list[Figure] = []
    for section in attack.sections:
        attack.tell(section)
        figures += [replace(figure, section=section) for figure in SECTIONS[section](attack, payloads)]
    kinds = dict(sorted(Counter(payload.kind or "other" for payload in payloads).items()))
    return RedteamReport(tuple(figures), attack.seed, {"payloads": len(payloads), **kinds})


def _find_files(attack: Attack, usual: int) -> list[copying.RealFile]:
    count = max(attack.count(usual), FEWEST_FILES)
    files = copying.real_files(attack.folders or copying.default_folders(), count=count, seed=attack.seed)
    if len(files) < FEWEST_FILES:
        raise BadInput(
            f"Only {len(files)} usable source files were found; at least {FEWEST_FILES} are needed.",
            remedy="Name a folder with programs by --files.",
        )
    return files


def redteam(  # noqa: PLR0917 - one parameter per option of the command
    corpus: Annotated[list[Path] | None, typer.Option(help="Payloads as JSON lines, instead of ours (repeat).")] = None,
    files: Annotated[list[Path] | None, typer.Option(help="A folder with real programs to disguise (repeat).")] = None,
    only: Annotated[list[str] | None, typer.Option(help=f"Only this section: {', '.join(SECTIONS)} (repeat).")] = None,
    size: Annotated[float, typer.Option(help="More trials, or fewer: 1 takes some minutes.", min=0.02, max=20)] = 1.0,
    seed: Annotated[int, typer.Option(help="Which files, rounds and disguises.", min=0)] = 1,
    judges: Annotated[str, typer.Option(help="Attack this model, as in CLARA_JUDGES; it costs money.")] = "",
    payloads: Annotated[int, typer.Option(help="With --judges: how many payloads.", min=1)] = 30,
    yes: YesToCost = False,
    as_json: JsonFlag = False,
) -> None:
    """Attack the evaluation: injections, false claims, copies, clones, faults; compare with targets."""
    attack = Attack(
        sections=tuple(only or SECTIONS),
        corpora=tuple(corpus or ()),
        folders=tuple(files or ()),
        size=size,
        seed=seed,
        tell=lambda section: console().print(f"[dim]{section} …[/dim]"),
    )
    report = asyncio.run(_attack_own(judges, attack, payloads, yes=yes)) if judges else run_attack(attack)
    if as_json:
        emit_json(report.to_json())
    else:
        _print_report(report)
    raise typer.Exit(0 if report.met else 1)


async def _attack_own(judges: str, attack: Attack, count: int, *, yes: bool) -> RedteamReport:
    settings = Settings.from_env()
    models = models_of(parse_jury(judges))
    if not models:
        raise ConfigError(f"{judges!r} names no model.", remedy="Name one as in CLARA_JUDGES; rules cannot be fooled.")
    payloads = load_payloads(attack)
    chosen = payloads[:: max(1, len(payloads) // count)][:count]
    _confirm_cost(settings, models[0], chosen, yes=yes)
    name = models[0].text
    with TemporaryDirectory(prefix="clara-redteam-") as folder:  # answers are not cached for later runs
        isolated = settings.model_copy(update={"database_url": f"sqlite:///{folder}/answers.db"})
        async with open_jury(isolated, name) as (askers, _):
            asker = askers[name]
            assert asker is not None, "the jury has a model"
            figures = tuple(replace(figure, section="own judge") for figure in await measure_own(asker, chosen))
    return RedteamReport(figures, attack.seed, {"payloads": len(chosen)}, judge=name)


def _confirm_cost(settings: Settings, model: JudgeName, chosen: list[Payload], *, yes: bool) -> None:
    """Print the highest cost, and ask for consent before the first request."""
    card, prompts = price_cards(settings, [model])[model.text], planned_prompts(chosen)
    tokens = sum(estimated_tokens(prompt.system) + estimated_tokens(prompt.user) for prompt in prompts)
    price = "an unknown price" if card is None else f"at most ${usd(sum(card.worst(prompt) for prompt in prompts))}"
    price = "nothing" if card == FREE else price
    console().print(
        f"{len(prompts)} questions to {model.text}, about {tokens:,} tokens, {price}; an answer that cannot be read is "
        "asked for again, twice at most."
    )
    agree_to_cost(yes=yes or card == FREE)


def _print_report(report: RedteamReport) -> None:
    table = Table("", "figure", "measured", "95 %", "target", "trials", box=None, header_style="dim", pad_edge=False)
    for figure in report.figures:
        mark = {True: "[green]ok[/green]", False: "[red]missed[/red]", None: "[dim]–[/dim]"}[figure.met]
        table.add_row(
            mark,
            f"{figure.section}: {figure.name.replace('_', ' ')}",
            format_value(figure, figure.value),
            f"{format_value(figure, figure.low)} … {format_value(figure, figure.high)}",
            format_target(figure),
            f"{figure.trials:,}",
        )
    screen = console(stderr=False)
    screen.print(table)
    missed = [figure.name for figure in report.figures if figure.met is False]
    screen.print(f"Missed: {', '.join(missed)}." if missed else "Every target is met.", soft_wrap=True)
    screen.print(f"[dim]{LIMITS}[/dim]", soft_wrap=True)


def format_value(figure: Figure, value: float) -> str:
    """Format a share in per cent, and any other number with three digits."""
    return f"{100 * value:.2f} %" if "hits" in figure.detail else f"{value:.3g}"


def format_target(figure: Figure) -> str:
    if figure.at_most is not None:
        return f"≤ {format_value(figure, figure.at_most)}"
    return "report" if figure.at_least is None else f"≥ {format_value(figure, figure.at_least)}"
