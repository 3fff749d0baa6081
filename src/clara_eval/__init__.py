"""Judge on-chain challenges; names are loaded on first use and explained in `docs/python.md`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from clara_eval.core.version import __version__

__all__ = ["EvalConfig", "Settings", "__version__", "parse_eval_config"]  # noqa: F405
__all__ += ["challenge_claim", "challenge_list", "challenge_submit", "challenge_try"]  # noqa: F405
__all__ += ["evaluate", "judge", "rank", "score", "verify"]  # noqa: F405

if TYPE_CHECKING:
    from clara_eval.interfaces.python import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from clara_eval.interfaces import python as public

        return getattr(public, name)

    class _CallablePackage(ModuleType):
        def __call__(self, *args: object, **options: object) -> object:
            from clara_eval.interfaces.python import judge

            return judge(*args, **options)

    class _Package(ModuleType):
        """Keep `clara_eval.judge` callable after the package of that name is imported."""

        def __setattr__(self, name: str, value: object) -> None:
            if name == "judge":
                value.__class__ = _CallablePackage
            super().__setattr__(name, value)

    sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted(__all__)
