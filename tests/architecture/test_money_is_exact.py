"""No float comes near money: not as a literal, not by name, not by dividing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

BILLING = Path(__file__).parents[2] / "billing"
MONEY_CODE = sorted(
    path
    for path in (
        *BILLING.glob("pricing/*.py"),
        *BILLING.glob("charging/*.py"),
        *BILLING.glob("ledger/*.py"),
        *BILLING.glob("reconciliation*.py"),
        BILLING / "money.py",
        BILLING / "store_batch.py",
        BILLING / "usage" / "repository.py",
        BILLING / "usage" / "rollup.py",
        BILLING / "usage" / "receipts.py",
        BILLING / "usage" / "report.py",
        *BILLING.glob("*/models.py"),
    )
)


def find_floats(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        is_literal = isinstance(node, ast.Constant) and isinstance(node.value, float)
        is_name = isinstance(node, ast.Name) and node.id in {"float", "Float", "Double", "round"}
        is_division = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
        if is_literal or is_name or is_division:
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


@pytest.mark.parametrize("path", MONEY_CODE, ids=lambda path: str(path.relative_to(BILLING)))
def test_money_code_has_no_floats(path: Path) -> None:
    assert find_floats(path.read_text(encoding="utf-8")) == []


def test_the_check_sees_floats() -> None:
    assert len(find_floats("a = 0.1\nb: float = 1\nc = a / b\nd = round(a)")) == 4
