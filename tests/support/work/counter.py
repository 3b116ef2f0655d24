"""Counts the work of code by what it does, not by the time that it takes.

An import hook rewrites the modules of a package before they are compiled: each function, loop and
comprehension counts its steps, and each operation that C code does in proportion to its operands
counts their sizes: `x in list`, slices, concatenation, unpacking, and calls of built-in functions
and methods. So work that grows with the square of the input is visible wherever it is done, and a
count is the same on every machine.

Steps, items and characters are counted apart: what grows too fast in one must not hide behind what
is much and grows as it should in another.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from types import BuiltinFunctionType, BuiltinMethodType, CodeType, MethodDescriptorType, ModuleType
from typing import Any, cast

_NAME = "__work__"
_TEXTS = (str, bytes, bytearray)
_ITEMS = (list, tuple, dict, set, frozenset)
_BUILT_IN = (BuiltinFunctionType, BuiltinMethodType, MethodDescriptorType, type)
_CONSTANT = frozenset(
    {
        *("append", "get", "items", "keys", "values", "popitem", "add", "discard", "popleft"),
        *("len", "isinstance", "issubclass", "getattr", "hasattr", "id", "type", "iter", "next"),
        *("setattr", "callable", "setdefault", "super", "force_setattr", "enumerate", "zip"),
        *("map", "filter", "reversed", "range", "startswith", "endswith", "object"),
    }
)
"""Built-in functions that take the same time for any operand, or whose items are counted later."""


class Counter:
    """The work of one thread; what other threads do does not hold it."""

    def __init__(self) -> None:
        """Nothing is counted yet."""
        self.steps = 0
        self.items = 0
        self.characters = 0
        self.thread: int | None = None
        """The thread whose work is counted; None: of all."""

    def read(self) -> tuple[int, int, int]:
        """Steps, items and characters so far."""
        return self.steps, self.items, self.characters

    @property
    def work(self) -> float:
        """All of it, in steps."""
        return self.steps + self.items / 4 + self.characters / 100

    def _counts(self) -> bool:
        return self.thread is None or self.thread == threading.get_ident()

    def step(self) -> None:
        """A function, or a round of a loop."""
        if self._counts():
            self.steps += 1

    def size(self, value: Any) -> Any:
        """The value, which was made from its members."""
        if self._counts():
            if isinstance(value, _TEXTS):
                self.characters += len(value)
            elif isinstance(value, _ITEMS):
                self.items += len(cast(Sized, value))
        return cast(Any, value)

    def each(self, values: Iterable[Any]) -> Iterator[Any]:
        """The values, each of which is a step."""
        for value in values:
            self.step()
            yield value

    def contains(self, value: Any, container: Any) -> bool:
        """Whether the value is in the container, which is searched unless it is hashed."""
        if isinstance(container, list | tuple | str | bytes):
            self.size(container)
        self.step()
        return value in container

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """The result of the call."""
        if not isinstance(function, _BUILT_IN):
            return function(*args, **options)
        name = getattr(function, "__name__", "")
        owner = getattr(function, "__self__", None)
        moves = name == "pop" and bool(args) and isinstance(owner, list)
        if (name in _CONSTANT or (name == "pop" and not moves)) and not moves:
            return function(*args, **options)
        self.size(owner)
        for operand in args:
            self.size(operand)
        result = function(*args, **options)
        return result if isinstance(function, type) else self.size(result)


class _Rewriter(ast.NodeTransformer):
    """Rewrites the bodies of functions; what runs at import stays as it is."""

    def __init__(self) -> None:
        self._inside = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        if self._inside:
            node.body = self.visit(node.body)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        inside, self._inside = self._inside, 0
        node.body = [self.visit(each) for each in node.body]
        self._inside = inside
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        return self._loop(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        return self._loop(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        if self._inside and not node.is_async:
            node.iter = _counted("each", node.iter)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if not self._inside or len(node.ops) != 1:
            return node
        if not isinstance(node.ops[0], ast.In | ast.NotIn):
            return node
        found = _counted("contains", node.left, node.comparators[0])
        return found if isinstance(node.ops[0], ast.In) else ast.UnaryOp(ast.Not(), found)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        sliced = isinstance(node.slice, ast.Slice) and isinstance(node.ctx, ast.Load)
        return self._sized(node) if sliced else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return self._sized(node) if isinstance(node.op, ast.Add | ast.BitOr | ast.Mult) else node

    def visit_List(self, node: ast.List) -> ast.AST:
        return self._display(node, node.elts)

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        return self._display(node, node.elts)

    def visit_Set(self, node: ast.Set) -> ast.AST:
        return self._display(node, node.elts)

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        self.generic_visit(node)
        return self._sized(node) if None in node.keys else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        self.generic_visit(node)
        return self._sized(node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        node.value = self.visit(node.value)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        node.value = self.visit(node.value)
        if not self._inside or not isinstance(node.op, ast.Add | ast.BitOr):
            return node
        node.value = _counted("size", node.value)
        if not isinstance(node.target, ast.Name):
            return node
        # Texts and tuples are copied whole; lists and the others grow in place.
        grown = ast.Name(node.target.id, ast.Load())
        kinds = ast.Tuple([ast.Name("str", ast.Load()), ast.Name("tuple", ast.Load())], ast.Load())
        check = ast.Call(ast.Name("isinstance", ast.Load()), [grown, kinds], [])
        return [node, ast.If(check, [ast.Expr(_counted("size", grown))], [])]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        own = isinstance(node.func, ast.Name) and node.func.id in ("super", "locals")
        if not self._inside or own:
            return node
        called = ast.Attribute(ast.Name(_NAME, ast.Load()), "call", ast.Load())
        return ast.Call(called, [node.func, *node.args], node.keywords)

    def visit_Match(self, node: ast.Match) -> ast.AST:
        node.subject = self.visit(node.subject)
        for case in node.cases:
            if case.guard is not None:
                case.guard = self.visit(case.guard)
            case.body = _flat(self.visit(each) for each in case.body)
        return node

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        if self._inside == 0 and not _is_plain(node):
            return node
        self._inside += 1
        body = _flat(self.visit(each) for each in node.body)
        self._inside -= 1
        at = 1 if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) else 0
        node.body = [*body[:at], ast.Expr(_counted("step")), *body[at:]]
        return node

    def _loop(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        if self._inside:
            node.body.insert(0, ast.Expr(_counted("step")))
        return node

    def _display(self, node: Any, members: Sequence[ast.expr]) -> ast.AST:
        loads = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        starred = any(isinstance(each, ast.Starred) for each in members)
        self.generic_visit(node)
        return self._sized(node) if loads and starred else node

    def _sized(self, node: ast.expr) -> ast.AST:
        return _counted("size", node) if self._inside else node


def _is_plain(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Overloads have no body, and need none."""
    return not any(
        isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list
    )


def _counted(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name(_NAME, ast.Load()), name, ast.Load()), list(args), [])


def _flat(nodes: Iterable[Any]) -> list[Any]:
    several = (cast(list[Any], each) if isinstance(each, list) else [each] for each in nodes)
    return [one for each in several for one in each]


class _Loader(importlib.machinery.SourceFileLoader):
    counter: Counter

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:
        tree = ast.fix_missing_locations(_Rewriter().visit(ast.parse(data)))
        return compile(tree, path, "exec", dont_inherit=True)

    def get_code(self, fullname: str) -> CodeType | None:
        # Not from a cache, which holds the module as it was written.
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[_NAME] = self.counter
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, package: str, counter: Counter) -> None:
        self._package = package
        self._counter = counter

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != self._package:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return spec
        loader = _Loader(fullname, spec.loader.path)
        loader.counter = self._counter
        spec.loader = loader
        return spec


def counted(package: str) -> Counter:
    """Count the work of this package's modules; none of them may have been imported yet."""
    loaded = [name for name in sys.modules if name.partition(".")[0] == package]
    if loaded:
        raise RuntimeError(f"already imported: {', '.join(loaded[:5])}")
    counter = Counter()
    sys.meta_path.insert(0, _Finder(package, counter))
    return counter


def growth(measured: Sequence[float]) -> float:
    """How much faster the work grows than the input: 1 is linear, 2 the square.

    `measured` is the work at n, 2n and 4n. Differences leave out what is the same for all.
    """
    first, second, third = measured
    return (third - second) / max(1.0, 2 * (second - first))
