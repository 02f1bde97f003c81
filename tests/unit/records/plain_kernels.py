"""Kernel modules as they are where numba is not installed: every read and write is checked by Python there."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import holdfast.records.kernels as kernel_package


def load_plain(*names: str) -> ModuleType:
    """The last of the modules ``holdfast.records.kernels.<name>``, with those before it as it imports them."""
    directory = Path(kernel_package.__file__).parent
    chain = ("jit", *names)
    hidden = {each: sys.modules.get(each) for each in ("numba", *(f"holdfast.records.kernels.{n}" for n in chain))}
    sys.modules["numba"] = None  # type: ignore[assignment]
    try:
        for each in chain:
            qualified = f"holdfast.records.kernels.{each}"
            spec = importlib.util.spec_from_file_location(qualified, directory / f"{each}.py")
            assert spec and spec.loader
            module = importlib.util.module_from_spec(spec)
            sys.modules[qualified] = module
            spec.loader.exec_module(module)
    finally:
        for each, known in hidden.items():
            sys.modules.pop(each)
            if known is not None:
                sys.modules[each] = known
    return module
