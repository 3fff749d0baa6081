"""The worker process for untrusted code: JSON jobs on standard input, JSON results on output."""

from __future__ import annotations

import json
import resource
import sys
from importlib import import_module

from clara_eval.harness.model import Executed

MAX_OPEN_FILES = 64
MAX_FILE_BYTES = 512 * 1024 * 1024  # a compiled module of CPython is the largest file that is ever written


def main() -> None:
    """Run the function that each line names; this is safe because only our own process writes jobs."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_OPEN_FILES, MAX_OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    for line in sys.stdin.buffer:
        module, function, job = json.loads(line)
        answer = getattr(import_module(module), function)(**job)
        sys.stdout.write(json.dumps(answer, allow_nan=False, default=Executed.to_worker_json) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
