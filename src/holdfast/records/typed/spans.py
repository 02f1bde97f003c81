"""Where the values of a binary array are: the form in which kernels read them. Copies nothing."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Values as positions in a buffer. ``starts``, ``stops`` and ``present`` have an item per row."""

    source: Array
    """uint8."""
    starts: Array
    """int64."""
    stops: Array
    """int64, behind the last byte."""
    present: Array
    """uint8: 0 where the value is null."""

    @classmethod
    def of(cls, values: pa.Array) -> "Spans":
        """Of a binary array with 32-bit offsets; slices too. TypeError for another one."""
        if values.type != pa.binary():
            raise TypeError(f"values are {values.type}: expected binary")
        rows = len(values)
        _, offsets, data = values.buffers()
        ends = np.frombuffer(offsets, np.int32, rows + 1, values.offset * 4) if rows else np.zeros(1, np.int32)
        source = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
        present = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.uint8)
        ends = ends.astype(np.int64)
        return cls(source=source, starts=ends[:-1], stops=ends[1:], present=present)

    def __len__(self) -> int:
        return len(self.starts)

    def rows(self, which: Array) -> "Spans":
        """Those rows alone, by number or mask."""
        return Spans(
            source=self.source, starts=self.starts[which], stops=self.stops[which], present=self.present[which]
        )

    @property
    def bytes(self) -> int:
        """In all values together."""
        return int(((self.stops - self.starts) * (self.present != 0)).sum())
