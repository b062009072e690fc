"""Mutants: small changes of a Python source, each of which some test should notice.

Left alone: docstrings, annotations, f-strings, what a `raise` or an `assert` says, `stacklevel`, and the arguments of
`@dataclass`.
"""

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
PAIRS = (
    ("min", "max"), ("amin", "amax"), ("argmin", "argmax"), ("minimum", "maximum"), ("any", "all"),
    ("floor", "ceil"), ("nanmin", "nanmax"), ("ones", "zeros"), ("zeros_like", "ones_like"),
)  # fmt: skip
NAMES = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}


@dataclass(frozen=True)
class Mutant:
    """`line` of the original source, its text, and the change; `number` is the position among the file's mutants.

    `repeat` counts mutants of the file with the same text and change before this one.
    """

    path: str
    number: int
    line: int
    text: str
    change: str
    repeat: int

    @property
    def key(self) -> str:
        """The same for the same change of the same line, wherever the line moves."""
        repeat = f" | {self.repeat}" if self.repeat else ""
        return f"{self.path} | {self.text} | {self.change}{repeat}"


def mutants_of(source: str, path: str) -> list[Mutant]:
    """All mutants of a source, in the order of their lines.

    >>> [one.change for one in mutants_of("if a < 1:\\n    b()", "x.py")]
    ['a < 1 -> a <= 1', 'a < 1 -> not a < 1', '1 -> 2', 'b() -> pass']
    """
    lines = source.splitlines()
    seen: Counter[tuple[str, str]] = Counter()
    mutants = []
    for number, (node, new) in enumerate(_changes(ast.parse(source))):
        text, change = lines[node.lineno - 1].strip(), f"{_text(node)} -> {_text(new)}"
        mutants.append(Mutant(path, number, node.lineno, text, change, seen[text, change]))
        seen[text, change] += 1
    return mutants


def mutated(source: str, number: int) -> str:
    """The source with one of its mutants in place.

    >>> mutated("x = a + 1", 0)
    'x = a - 1'
    """
    tree = ast.parse(source)
    for position, (node, new) in enumerate(_changes(tree)):
        if position == number:
            return ast.unparse(ast.fix_missing_locations(_Replaced(node, new).visit(tree)))
    raise IndexError(f"expected one of {position + 1} mutants, but got {number}")


class _Replaced(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.old else self.generic_visit(node)


def _text(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 90 else f"{text[:60]} ... {text[-25:]}"


def _changes(tree: ast.AST) -> list[tuple[Any, ast.AST]]:
    found = [(node, new) for node, is_test in _mutable(tree) for new in _variants(node, is_test)]
    return sorted(found, key=lambda pair: pair[0].lineno)


def _mutable(node: ast.AST, is_test: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """The nodes to mutate, all except those that the module's docstring names, and whether each decides a branch."""
    yield node, is_test
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _skipped(child):
                yield from _mutable(child, name == "test")


def _skipped(node: ast.AST) -> bool:
    match node:
        case ast.If():
            return "TYPE_CHECKING" in ast.unparse(node.test)
        case ast.Call(func=ast.Name(id="dataclass")) | ast.keyword(arg="stacklevel"):
            return True
    return isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert | ast.Import | ast.ImportFrom)


def _variants(node: ast.AST, is_test: bool) -> Iterator[ast.AST]:
    match node:
        case ast.Compare():
            for position, operator in enumerate(node.ops):
                yield _with(node, ops=_at(node.ops, position, COMPARISONS[type(operator)]()))
        case ast.BinOp() | ast.AugAssign() if type(node.op) in OPERATORS:
            yield _with(node, op=OPERATORS[type(node.op)]())
        case ast.BoolOp():
            yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.UnaryOp():
            yield copy.deepcopy(node.operand)
        case ast.Constant(value=bool()):
            yield _with(node, value=not node.value)
        case ast.Constant(value=int() | float()):
            yield _with(node, value=node.value + 1)
        case ast.Attribute() if node.attr in NAMES:
            yield _with(node, attr=NAMES[node.attr])
        case ast.Name(ctx=ast.Load()) if node.id in NAMES:
            yield _with(node, id=NAMES[node.id])
        case ast.Expr(value=ast.Call()):
            yield ast.copy_location(ast.Pass(), node)
    if is_test and not _is_negated_above(node):
        yield ast.copy_location(ast.UnaryOp(ast.Not(), copy.deepcopy(node)), node)


def _is_negated_above(node: ast.AST) -> bool:
    match node:
        case ast.UnaryOp(op=ast.Not()):
            return True
        case ast.Compare(ops=[ast.Eq() | ast.NotEq() | ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()]):
            return True
    return False


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    new = copy.deepcopy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _at(items: list[Any], position: int, item: Any) -> list[Any]:
    return [*items[:position], item, *items[position + 1 :]]
