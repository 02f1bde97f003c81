"""Transactions: the coordinator of transactional ids, a pure state machine over its log."""
