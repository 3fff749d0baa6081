"""The first line of a file of labels: an eval config with one feature."""

from __future__ import annotations

import json

CONFIG = {
    "version": 1,
    "features": [{"name": "quality", "type": "integer", "min": 0, "max": 9, "better": "higher", "source": "llm"}],
    "criteria": "The better one has more quality; that is all there is to it.",
}
HEAD = json.dumps({"evalConfig": CONFIG})
