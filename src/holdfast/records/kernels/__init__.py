"""Loops over record bytes, compiled by numba where it is installed, the same loops as plain Python where not.

The package owns no format decisions beyond record format v2 and no I/O. Each function reads bytes it has bounds
for and answers with a status; the callers (records/columns.py, records/columns_out.py) make errors of them.
"""
