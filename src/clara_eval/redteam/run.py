"""One red-team run: which attacks, how many, with what; out goes a `RedteamReport`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from clara_eval.core.errors import BadInput
from clara_eval.redteam import copying, lies, placing
from clara_eval.redteam.archives import measure_archives
from clara_eval.redteam.corpus import Payload, own_payloads, payloads_in
from clara_eval.redteam.harness_attacks import measure_harnesses
from clara_eval.redteam.injection import measure_denial, measure_injection
from clara_eval.redteam.names import measure_names
from clara_eval.redteam.report import Figure, RedteamReport

SECTIONS = ("injection", "denial", "names", "lies", "harness", "archives", "ties", "utility", "copies", "ordinary")
FEWEST_FILES = 6
HONEST = Path("bench", "honest")
"""Independent solutions of small tasks, in a checkout of the repository; the installed package has none."""


@dataclass(frozen=True, slots=True)
class Attack:
    """What a run does. `size` 1 is the usual run; more takes longer and narrows the intervals."""

    sections: Sequence[str] = SECTIONS
    corpora: Sequence[Path] = ()
    """Other corpora, instead of ours."""
    folders: Sequence[Path] = ()
    """Where real files are taken from, instead of this machine's libraries."""
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
        figures += [replace(figure, section=section) for figure in _measure(section, attack, payloads)]
    kinds = dict(sorted(Counter(payload.kind or "other" for payload in payloads).items()))
    return RedteamReport(tuple(figures), attack.seed, {"payloads": len(payloads), **kinds})


def _measure(section: str, attack: Attack, payloads: list[Payload]) -> list[Figure]:
    seed, step = attack.seed, max(1, round(1 / min(1.0, attack.size)))
    sections: dict[str, Callable[[], list[Figure]]] = {
        "injection": lambda: asyncio.run(measure_injection(payloads[::step])),
        "denial": lambda: asyncio.run(measure_denial(payloads[: attack.count(40)])),
        "names": lambda: asyncio.run(measure_names(seed)),
        "lies": lambda: (
            asyncio.run(lies.measure_lies(attack.count(32), seed))
            + asyncio.run(lies.measure_measured_only())
            + asyncio.run(lies.measure_executed(attack.count(20), seed))
        ),
        "harness": measure_harnesses,
        "archives": measure_archives,
        "ties": lambda: (
            placing.measure_ties(attack.count(300), seed) + placing.measure_stability(attack.count(60), seed)
        ),
        "utility": lambda: placing.measure_utility(attack.count(100), seed),
        "copies": lambda: (
            copying.measure_copies(files := _files(attack, 60), seed=seed) + copying.measure_clones(files)
        ),
        "ordinary": lambda: copying.measure_ordinary(_files(attack, 1_000)) + copying.measure_honest(HONEST),
    }
    return sections[section]()


def _files(attack: Attack, usual: int) -> list[copying.RealFile]:
    count = max(attack.count(usual), FEWEST_FILES)
    files = copying.real_files(attack.folders or copying.default_folders(), count=count, seed=attack.seed)
    if len(files) < FEWEST_FILES:
        raise BadInput(
            f"Only {len(files)} usable source files were found; at least {FEWEST_FILES} are needed.",
            remedy="Name a folder with programs by --files.",
        )
    return files
