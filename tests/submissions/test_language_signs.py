"""Signs of languages: what a text must hold for a sign is in every text that shows it."""

from __future__ import annotations

import random

import pytest
from tests.support.large_round import program
from tests.support.measured_texts import SAMPLES

from clara_eval.code import language


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_no_sign_is_missed_for_want_of_its_words(name: str) -> None:
    """In code, in pieces of it and in its letters shuffled, each sign shows exactly where its pattern is found."""
    rng = random.Random(name)
    texts = [SAMPLES[name], program(3), "Prose, with a class: of its own"]
    texts += [text[start : start + 80] for text in texts for start in range(0, len(text), 40)]
    texts += ["".join(rng.sample(SAMPLES[name], len(SAMPLES[name])))]
    for text in texts:
        for known, signs in language._SIGNS.items():
            shown = [language._has_sign(text, known, number) for number in range(len(signs))]
            assert shown == [sign.search(text) is not None for _, sign in signs]


def test_every_sign_has_its_words() -> None:
    """Each pattern stands beside at least one word that a text must hold."""
    assert all(needed for signs in language._SIGNS.values() for needed, _ in signs)
