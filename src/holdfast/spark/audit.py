"""The audit of all replicas as a batch job: what it compares and what it says of it (work under way).

Owns the plan of an audit and its result. It never changes a file and never asks a broker for records.
"""

from __future__ import annotations
