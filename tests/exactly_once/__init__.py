"""Read-process-write under faults: members with transactions, judged by what a read_committed reader sees."""
