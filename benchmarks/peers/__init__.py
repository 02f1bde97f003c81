"""Brokers to compare with: each module runs one under the contract of ``holdfast up``."""
