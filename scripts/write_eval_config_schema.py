"""Write docs/eval-config.schema.json after a change of the config format or the catalogue."""

from __future__ import annotations

from pathlib import Path

from clara_eval.config.eval_config.shape import eval_config_schema_text

if __name__ == "__main__":
    target = Path(__file__).parents[1] / "docs" / "eval-config.schema.json"
    target.write_text(eval_config_schema_text(), encoding="utf-8")
    print(target.name)
