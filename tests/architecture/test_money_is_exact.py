"""No float comes near money: not as a literal, not by name, not by dividing."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.tree import PRODUCT, parse, python_files, relative

_MONEY_NAME = re.compile(r"(?:^|_)(?:charge|amount|price|balance|per_million)(?:d|s)?(?:_|$)")

BILLING = Path(__file__).parents[2] / "billing"
# Bytes, seconds and operations of a model on a GPU: physics, in which no money occurs.
PHYSICS = frozenset(
    (
        *("capacity", "gpus", "kept_modules", "model_context", "propose_flags", "quantization"),
        *("roofline", "weights"),
    )
)
MONEY_CODE = sorted(
    path
    for path in (
        *BILLING.glob("pricing/*.py"),
        *BILLING.glob("charging/*.py"),
        *BILLING.glob("ledger/*.py"),
        *BILLING.glob("reconciliation*.py"),
        *(path for path in BILLING.glob("costing/*.py") if path.stem not in PHYSICS),
        *BILLING.glob("budgets/credit*.py"),
        BILLING / "budgets" / "read_credit.py",
        BILLING / "budgets" / "spend.py",
        BILLING / "budgets" / "fill.py",
        BILLING / "budgets" / "prove_spend.py",
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


def find_float_money(source: ast.Module) -> list[str]:
    """Return the fields, parameters and variables that are named after money and typed float."""
    typed = [
        (node.arg, node.annotation) if isinstance(node, ast.arg) else (node.target, node.annotation)
        for node in ast.walk(source)
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None
    ]
    named = [
        (name if isinstance(name, str) else ast.unparse(name), annotation)
        for name, annotation in typed
    ]
    return [
        name
        for name, annotation in named
        if _MONEY_NAME.search(name.rpartition(".")[2])
        and any(isinstance(part, ast.Name) and part.id == "float" for part in ast.walk(annotation))
    ]


def test_nothing_named_after_money_is_a_float() -> None:
    found = {
        relative(path): names
        for path in python_files(*PRODUCT)
        if "float" in path.read_text(encoding="utf-8") and (names := find_float_money(parse(path)))
    }
    assert found == {}


def test_the_check_sees_floats() -> None:
    source = ast.parse(
        "class A:\n    charge: float\n    charged_at: str\ndef f(input_per_million: float | None,"
        " seconds: float): pass"
    )
    assert find_float_money(source) == ["charge", "input_per_million"]
    assert len(find_floats("a = 0.1\nb: float = 1\nc = a / b\nd = round(a)")) == 4
