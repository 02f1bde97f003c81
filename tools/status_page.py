"""Makes docs/status.md from docs/status.toml, the tests that are named after ids, and the table of spoken APIs.

Usage: status_page.py [--check]. With --check nothing is written; exit 1 says that the page is not up to date.
"""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

from kio.schema.index import api_key_map

from holdfast.protocol.apis import INTERNAL, OPERATORS, SPOKEN

ROOT = Path(__file__).parent.parent
PAGE, DATA, TESTS = ROOT / "docs/status.md", ROOT / "docs/status.toml", ROOT / "tests"
IN_TEST_NAME = re.compile(
    r"_(operator_|spark_)?(K112|K113|K426|K1066|K18|ST|R|H|C|F|A|B|D)(_?)(\d+)(?=_|$)", re.IGNORECASE
)
AS_WRITTEN = ("C", "F", "A", "B", "D")
"""C2 is a decision, C-2 (``test_C_2_...``) was found by running clients, operator-C2 (``test_operator_C2_...``) by
operating a cluster, spark-D5 (``test_spark_D5_...``) by reading the source for Spark."""
STATES = ("done", "partly", "not")
LONGEST_LIST = 3

HEAD = """# What is there and what is not

Made from `docs/status.toml` and the tests by `make docs`; `tests/unit/test_docs.py` fails when it is old.

A row is **done** when a test shows it: one that is named after the row's id (`test_K112_06_...`), or the one given.
**partly** and **not** say why. Numbers in the text are Kafka's error codes.
"""


def row_id(prefix: str, family: str, separator: str, number: str) -> str:
    if prefix:
        return f"{prefix.rstrip('_').lower()}-{family}{int(number)}"
    return (
        f"{family}{'-' if separator else ''}{int(number)}"
        if family in AS_WRITTEN
        else f"{family}-{int(number):02}"
        if family != "ST"
        else f"ST-{int(number)}"
    )


def named_tests() -> dict[str, list[str]]:
    """Row id -> the tests whose names have it, as pytest spells them."""
    found = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for prefix, family, separator, number in IN_TEST_NAME.findall(node.name):
                    found[row_id(prefix, family.upper(), separator, number)].append(
                        f"{path.relative_to(ROOT)}::{node.name}"
                    )
    return dict(found)


def section(title: str, rows: dict[str, list[str]], tests: dict[str, list[str]]) -> list[str]:
    lines = [f"\n## {title}\n", "| id | behaviour | state | tests | why |", "|---|---|---|---|---|"]
    for name, (state, what, *rest) in rows.items():
        if state not in STATES:
            raise SystemExit(f"{DATA}: {name} is {state!r}, expected one of {', '.join(STATES)}")
        why, given = ([*rest, "", ""])[:2]
        shown = ([given] if given else []) + tests.get(name, [])
        if state == "done" and not shown:
            raise SystemExit(f"{DATA}: {name} is done, but no test is named after it and none is given")
        links = [f"`{test.rpartition('::')[2]}`" for test in shown[:LONGEST_LIST]]
        if len(shown) > LONGEST_LIST:
            links.append(f"and {len(shown) - LONGEST_LIST} more")
        lines.append(f"| {name} | {what} | {state} | {', '.join(links) or '-'} | {why if state != 'done' else ''} |")
    return lines


def api_tables(reasons: dict[str, list[str]]) -> list[str]:
    why = {name: reason for reason, names in reasons.items() for name in names}
    lines = ["\n## APIs of Kafka\n", "| key | API | versions | state |", "|---|---|---|---|"]
    ours = {int(key): versions for key, versions in SPOKEN.items()}
    inside = {int(key): versions for key, versions in INTERNAL.items()}
    names = {**{int(key): key.name.lower() for key in (*SPOKEN, *INTERNAL)}, **api_key_map}
    spoken = sorted(set(why) - {name for key, name in names.items() if key not in ours and key not in inside})
    if spoken:
        raise SystemExit(f"{DATA}: [api] has reasons for {', '.join(spoken)}: expected APIs that are not spoken")
    for key, name in sorted(names.items()):
        versions = ours.get(key) or inside.get(key)
        if versions is None and name not in why:
            raise SystemExit(f"{DATA}: [api] gives no reason why {name} (key {key}) is not spoken")
        state = "spoken" if key in ours else "between brokers" if key in inside else f"not: {why[name]}"
        if key > max(api_key_map):
            state = "ours, for operators" if key in OPERATORS else "ours, between brokers"
        title = "".join(part.capitalize() for part in name.split("_"))
        lines.append(f"| {key} | {title} | {f'{versions[0]} to {versions[1]}' if versions else '-'} | {state} |")
    return lines


def page() -> str:
    data = tomllib.loads(DATA.read_text())
    tests, lines = named_tests(), [HEAD]
    reasons = data.pop("api")
    states = [row[0] for name, rows in data.items() if name != "C" for key, row in rows.items() if key != "_title"]
    counts = ", ".join(f"{states.count(state)} {state}" for state in STATES)
    lines.append(f"Of {len(states)} behaviours: {counts}.")
    for rows in data.values():
        title = str(rows.pop("_title"))
        lines += section(title, rows, tests)
    return "\n".join(lines + api_tables(reasons)) + "\n"


def main() -> int:
    made = page()
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text() != made)
    PAGE.write_text(made)
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
