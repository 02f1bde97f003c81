"""Says how much of each deciding floor the tests ran, and fails below the limit.

Reads ``.coverage`` in the current directory. Lines and branches are judged apart: coverage's own total mixes them.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

FLOORS = (
    "model", "protocol", "records", "metadata", "controller", "replication", "groups", "transactions", "coordinators",
    "security", "storage",
)  # fmt: skip
LIMIT_PERCENT = 90.0


def totals(floor: str, files: dict[str, dict[str, dict[str, int]]]) -> dict[str, int]:
    """Sums of coverage's counters over the files of one floor."""
    sums = dict.fromkeys(("num_statements", "covered_lines", "num_branches", "covered_branches"), 0)
    for path, report in files.items():
        if f"holdfast/{floor}/" in path:
            for key in sums:
                sums[key] += report["summary"][key]
    return sums


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "coverage.json"
        subprocess.run([sys.executable, "-m", "coverage", "json", "-q", "-o", str(out)], check=True)
        files = json.loads(out.read_text())["files"]
    failed = []
    print(f"{'floor':<14}{'lines':>8}{'branches':>10}")
    for floor in FLOORS:
        count = totals(floor, files)
        lines = 100 * count["covered_lines"] / max(1, count["num_statements"])
        branches = 100 * count["covered_branches"] / max(1, count["num_branches"])
        if count["num_statements"] and min(lines, branches if count["num_branches"] else 100) < LIMIT_PERCENT:
            failed.append(floor)
        print(f"{floor:<14}{lines:>7.1f}%{branches:>9.1f}%{'  below the limit' if floor in failed else ''}")
    if failed:
        print(f"coverage below {LIMIT_PERCENT:g} % in: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
