"""No file of a log directory is mapped into memory: a dead disk would answer a load instruction, and the answer is
SIGBUS (H-29)."""

import ast
from pathlib import Path

SOURCES = sorted((Path(__file__).parents[2] / "src").rglob("*.py"))
MAPPED = {"mmap", "memmap", "memory_map", "MemoryMappedFile"}


def names(tree: ast.AST) -> set[str]:
    """Every module that is imported and every attribute that is asked for."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(part for alias in node.names for part in alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            found.update((node.module or "").split("."))
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return found


def test_H_29_nothing_is_mapped_into_memory() -> None:
    assert len(SOURCES) > 100
    assert names(ast.parse("import mmap\nfrom numpy import memmap\npyarrow.memory_map(x)")) & MAPPED == {
        "mmap", "memmap", "memory_map",
    }  # fmt: skip
    assert {str(path): found for path in SOURCES if (found := names(ast.parse(path.read_text())) & MAPPED)} == {}
