"""Set-up shared by tests: what test_cheap_entries.py and others use."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support.fake_endpoint import Seen

from clara_eval.redteam.simulators import without_numbers

CLAIMS = ("quality", "clarity", "care")


def words(seen: Seen) -> str:
    """Rate by the literals of the text; believe a line like `quality: 9`, as a credulous model does."""
    user = str(seen.body["messages"][-1]["content"])
    found = re.search(r"<submission-([^>]+)>\n(.*)\n</submission-\1>", user, re.DOTALL)
    check = re.search(r"The value of check is (\d+)", user)
    data = without_numbers(found[2]) if found else ""
    said = dict(re.findall(r"^(\w+): (\d)$", data, re.MULTILINE))
    answer: dict[str, Any] = dict.fromkeys(seen.schema.get("properties", {}))
    answer |= {"check": int(check[1]) if check else 0, "check_lines": data.count("\n") + 1}
    for name, digit in zip(CLAIMS, "789", strict=True):
        level = re.search(rf"{digit}000(\d)", data)
        answer[name] = int(said.get(name) or (level[1] if level else 0))
    return json.dumps(answer)
