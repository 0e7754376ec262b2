#!/usr/bin/env python3
"""Every name that a Python file of the tests imports from a file beside it is defined there.

Python itself finds out when the file is loaded, which for tests/interop needs gigabytes of packages.
"""
import ast
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent


def defined(tree):
    """The names that a module has once it is loaded: assigned, defined or imported anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (name.asname or name.name.split(".")[0] for name in node.names)


def missing(path, modules):
    """Yields "file:line: module has no name" for each such import of the file."""
    for node in ast.walk(modules[path]):
        if not isinstance(node, ast.ImportFrom) or node.level:
            continue
        sibling = path.with_name(f"{node.module}.py")
        if sibling in modules:
            names = set(defined(modules[sibling]))
            yield from (f"{path.relative_to(TESTS.parent)}:{node.lineno}: {sibling.name} has no {name.name}"
                        for name in node.names if name.name not in names)


def main():
    modules = {path: ast.parse(path.read_bytes(), path) for path in sorted(TESTS.rglob("*.py"))}
    wrong = [line for path in modules for line in missing(path, modules)]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
