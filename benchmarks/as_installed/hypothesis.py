"""Stands before the real one where Spark's processes are measured: who installs Holdfast has no hypothesis, and kio
imports it where it is there, which takes 0.2 s of each process's start."""

raise ImportError("benchmarks measure what users have installed, which is without hypothesis")
