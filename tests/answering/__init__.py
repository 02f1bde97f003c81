"""Brokers of the tests that answer on the wire what a console asks, of a cluster that is only described.

For clusters larger than a machine of the tests can run. No log, no controller, no disk: what they say is what the
description says (description.py), and that a console sees the same in them as in a real cluster of this description is
what tests/system/test_console_contract.py is for.
"""
