"""How the kernels are compiled: ``jit``, ``inline_jit``, ``copy_bytes`` and ``word_at``, with numba and without.

Without numba the same functions run as they stand. They then index memoryviews instead of arrays, because an
item of a memoryview is a Python int, which does not overflow. Results are the same either way.

Compiled code is kept on disk by the time stamp of the kernel's own file: after a change here, touch the kernels.
"""

from collections.abc import Callable
from importlib import import_module
from sys import byteorder
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

try:
    numba: Any = import_module("numba")
except ImportError:
    numba = None

COMPILED = numba is not None


def as_word(value: int) -> Any:
    """A constant to calculate with what ``word_at`` answers."""
    return np.uint64(value) if COMPILED else value


def as_source(buffer: Any) -> Any:
    """The bytes of a buffer in the form that kernels read."""
    view = memoryview(buffer)
    return np.frombuffer(view, np.uint8) if COMPILED else view.cast("B")


def as_target(array: Any) -> Any:
    """A uint8 array in the form that kernels write."""
    return array if COMPILED else memoryview(array)


if numba is None:

    def jit(function: F) -> F:
        """numba is not installed: the function as it is."""
        return function

    inline_jit = jit

    def copy_bytes(target: Any, at: int, source: Any, start: int, size: int) -> None:
        """``target[at:at+size] = source[start:start+size]``."""
        target[at : at + size] = source[start : start + size]

    def word_at(source: Any, at: int) -> int:
        """The eight bytes of ``source`` from ``at`` on, as one unsigned number in the machine's order."""
        return int.from_bytes(source[at : at + 8], byteorder)

else:
    _cgutils: Any = import_module("numba.core.cgutils")
    _types: Any = import_module("numba.core.types")
    _extending: Any = import_module("numba.extending")
    _ir: Any = import_module("llvmlite.ir")

    def _memcpy(_typing: Any, target: Any, at: Any, source: Any, start: Any, size: Any) -> Any:
        """LLVM's memcpy between two uint8 arrays, unchecked: ten times as fast as a loop over short pieces."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            target_value, at_value, source_value, start_value, size_value = arguments
            target_array = context.make_array(signature.args[0])(context, builder, target_value)
            source_array = context.make_array(signature.args[2])(context, builder, source_value)
            _cgutils.raw_memcpy(
                builder,
                builder.gep(target_array.data, [at_value]),
                builder.gep(source_array.data, [start_value]),
                size_value,
                context.get_constant(_types.intp, 1),
            )
            return context.get_dummy_value()

        signature = _types.void(target, _types.intp, source, _types.intp, _types.intp)
        return signature, generate

    copy_bytes = _extending.intrinsic(_memcpy)

    def _load(_typing: Any, source: Any, at: Any) -> Any:
        """Eight bytes by one load, unchecked and from wherever they lie."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            place = builder.gep(array.data, [arguments[1]])
            loaded = builder.load(builder.bitcast(place, _ir.IntType(64).as_pointer()))
            loaded.align = 1
            return loaded

        return _types.uint64(source, _types.intp), generate

    word_at = _extending.intrinsic(_load)

    def _compile(function: F, **options: Any) -> F:
        # Without numba's runtime: kernels make no arrays, and counting who uses those that they are given costs a call
        # for each one that is handed on, in all seven times what a walk over a value costs. A kernel that makes an
        # array fails to compile.
        compiled: F
        try:
            compiled = numba.njit(cache=True, nogil=True, _nrt=False, **options)(function)
        except RuntimeError:  # no directory for the cache can be written: compile in each process
            compiled = numba.njit(nogil=True, _nrt=False, **options)(function)
        return compiled

    def jit(function: F) -> F:
        """Compiles on the first call and keeps the code on disk where that is possible."""
        return _compile(function)

    def inline_jit(function: F) -> F:
        """As ``jit``, and put into each caller."""
        return _compile(function, forceinline=True)
