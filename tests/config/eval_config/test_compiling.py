"""From names to typed features, by the catalogue."""

from __future__ import annotations

import pytest
from tests.support.configs import config_text

from clara_eval.config.eval_config import (
    MEASURED,
    Feature,
    compile_schema,
    level_feature,
    parse_eval_config,
    with_types,
)
from clara_eval.config.eval_config.catalogue import COMMON
from clara_eval.core.errors import BadInput


def test_unknown_names_become_levels_and_may_be_typed_later() -> None:
    """A name in no catalogue is returned as untyped, stands as level 0–4, and can be replaced by a better type."""
    schema, untyped = compile_schema(parse_eval_config(config_text(features=["novelty", "slippage_bound", "lines"])))
    assert untyped == ("slippage_bound",)
    level = schema.feature("slippage_bound")
    assert level == level_feature("slippage_bound")
    assert (level.type, level.min, level.max, len(level.anchors)) == ("integer", 0, 4, 5)
    better = Feature(name="slippage_bound", type="number", min=0, max=1, better="lower")
    typed_later = with_types(schema, [better, Feature(name="stranger", type="boolean")])
    assert typed_later.names == schema.names
    assert typed_later.feature("slippage_bound") == better
    with pytest.raises(BadInput):
        schema.feature("stranger")


def test_text_features_are_never_judged() -> None:
    """Whatever the order, a text feature is in the schema and not among the judged ones."""
    schema, _ = compile_schema(parse_eval_config(config_text(features=[{"name": "notes", "type": "text"}, "novelty"])))
    assert schema.names == ("notes", "novelty")
    assert [feature.name for feature in schema.judged] == ["novelty"]


def test_the_catalogue_is_sound() -> None:
    """Every catalogue entry is a valid typed feature, none is text, and no name is in both lists."""
    assert not MEASURED.keys() & COMMON.keys()
    for feature in (*MEASURED.values(), *COMMON.values()):
        written = {key: value for key, value in feature.to_json().items() if value not in (None, [], "")}
        parsed = parse_eval_config(config_text(features=[written]))
        assert parsed.features == (feature,)
        assert feature.type != "text"
        assert feature.description
    first = {"bytes", "lines", "words", "parses", "functions", "max_complexity", "mean_complexity", "max_nesting"}
    assert first | {"comment_share", "duplicate_share"} <= MEASURED.keys()
    assert len(COMMON) >= 40
