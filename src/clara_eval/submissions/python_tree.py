"""Stands before a Python submission of several files, inside the sandbox: they import each other from memory."""

import sys


def load(files: dict[str, str], first: str, names: dict[str, object]) -> None:
    """Make every file a module by its path, then run the first in `names`."""

    class Tree:
        @staticmethod
        def find_spec(name, path=None, target=None):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN205, ARG004
            place = name.replace(".", "/")
            package = f"{place}/__init__.py"
            is_package = package in files or any(one.startswith(f"{place}/") for one in files)
            if f"{place}.py" not in files and not is_package:
                return None
            spec = sys.modules["_frozen_importlib"].ModuleSpec(name, Tree, is_package=is_package)
            spec.loader_state = package if is_package else f"{place}.py"
            return spec

        @staticmethod
        def create_module(spec: object) -> None:
            """The usual module will do."""

        @staticmethod
        def exec_module(module):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN205
            place = module.__spec__.loader_state
            exec(compile(files.get(place, ""), place, "exec"), module.__dict__)  # noqa: S102 - the sandbox runs this

    sys.meta_path.insert(0, Tree)
    exec(compile(files[first], first, "exec"), names)  # noqa: S102 - the sandbox runs this
