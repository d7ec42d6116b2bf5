"""Screen the Python of a solution.

Nothing is recursive, so deeply nested code can't exhaust the stack.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping

from harness.catalog.screen.file import File, Function, integers, is_constant, targets
from harness.catalog.screen.rules import names, triggers

Found = list[tuple[str, int]]

_MEMBERS = triggers("python")
_ATTRIBUTES = triggers("attributes")
_METHODS = triggers("methods")
_CLOCK_MODULES = names("clock_modules")
_JOINS = names("joins")
_FILLED = names("filled")
_KERNEL_MAKERS = names("kernel_makers")
_KERNEL_DECORATORS = names("kernel_decorators")
_HIDING = names("hiding")

MIN_SIZE = 8
"""Least constant that may hard-code a workload's size; smaller ones are dimensions or indices."""


def python_findings(tree: ast.Module, *, has_kernels: bool) -> Found:
    """Return rule and line of each finding in `tree`.

    Args:
        tree: The parsed file.
        has_kernels: Whether a string of the file has C++ or CUDA with a kernel.
    """
    found = _PythonPass(tree, has_kernels)
    found.run()
    return found.found


class _PythonPass:
    def __init__(self, tree: ast.Module, has_kernels: bool) -> None:
        self.found: Found = []
        self._file = File(tree)
        self._names = self._file.names
        self._classes = {node.name for node in self._file.nodes if isinstance(node, ast.ClassDef)}
        self._has_kernels = has_kernels

    def note(self, rule: str, node: ast.AST) -> None:
        self.found.append((rule, getattr(node, "lineno", 1)))

    def run(self) -> None:
        for node in self._file.nodes:
            match node:
                case ast.Name() | ast.Attribute():
                    self._member(node)
                case ast.Import() | ast.ImportFrom():
                    self._import(node)
                case ast.Call():
                    self._call(node)
                case ast.ClassDef():
                    self._class(node)
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self._function(node)
                case ast.ExceptHandler():
                    if not any(isinstance(item, ast.Raise) for item in ast.walk(node)):
                        self.note("falls_back", node)
                case ast.BinOp(op=ast.MatMult()):
                    if self._file.inside_function(node):
                        self.note("vendor_library", node)
                case ast.Compare():
                    self._compare(node)
                case ast.Subscript():
                    self._key(node.slice, node)
                case ast.Constant(value=str() as text):
                    self._text(text, node)
            for target in targets(node):
                self._target(target, node)
        self._whole_file()

    def _whole_file(self) -> None:
        joined = any(isinstance(node, ast.Attribute) and node.attr in _JOINS for node in self._file.nodes)
        if not joined:
            self.found += [("stream_not_joined", line) for rule, line in list(self.found) if rule == "stream"]
        makers = [node for node in self._file.nodes if isinstance(node, ast.Call) and self._makes_kernels(node)]
        for call in makers:
            self._maker(call)
        classes = [node for node in self._file.nodes if isinstance(node, ast.ClassDef) and node.name == "ModelNew"]
        decorated = any(
            self._is_kernel(item) for node in self._file.nodes for item in getattr(node, "decorator_list", [])
        )
        if not (makers or decorated or self._has_kernels):
            self.found.append(("no_custom_kernel", classes[0].lineno if classes else 1))

    # Members and imports

    def _member(self, node: ast.Name | ast.Attribute) -> None:
        if isinstance(node, ast.Attribute) and node.attr in _ATTRIBUTES and not self._is_own_method(node):
            self.note(_ATTRIBUTES[node.attr], node)
        parent = self._file.parent(node)
        if isinstance(parent, ast.Attribute) or not isinstance(node.ctx, ast.Load):
            return
        dotted = self._names.dotted(node)
        if dotted is None:
            return
        if isinstance(node, ast.Name) and dotted == node.id:
            # Not imported, so a builtin, which counts only if it is called.
            if not (isinstance(parent, ast.Call) or dotted in ("exec", "eval", "get_inputs")):
                return
        elif not ("." in dotted and self._names.is_imported(dotted)):
            return
        self._named(dotted, node)

    def _named(self, dotted: str, node: ast.AST) -> None:
        rule = _lookup(dotted)
        if rule == "vendor_library" and not self._file.inside_function(node):
            return
        if rule is not None:
            self.note(rule, node)
        elif dotted.startswith("torch._") and not dotted.startswith("torch.__"):
            self.note("private_torch", node)
        if "allow_tf32" in dotted or "fp32_precision" in dotted:
            self.note("tf32", node)

    def _is_own_method(self, node: ast.Attribute) -> bool:
        """Tell whether the attribute is the solution's own, such as `self.half`."""
        return isinstance(node.value, ast.Name) and node.value.id == "self"

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.ImportFrom):
            whole = [f"{node.module or ''}.{item.name}" for item in node.names]
        else:
            whole = [item.name for item in node.names]
        for name in whole:
            # An honest kernel does not need these modules. Of other modules, only the used members count.
            rule = _MEMBERS.get(name.partition(".")[0]) or _lookup(name)
            if rule in ("process_memory", "thread", "network", "dynamic_code", "introspection", "monkeypatch"):
                self.note(rule, node)
            if name.partition(".")[0] == "harness":
                self.note("imports_harness", node)
            if name.rpartition(".")[2] in ("Model", "get_inputs") and isinstance(node, ast.ImportFrom):
                self.note("inherits_reference", node)

    # Assignments

    def _target(self, target: ast.expr, statement: ast.AST) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for item in target.elts:
                self._target(item, statement)
            return
        function = self._file.function_of(target)
        in_forward = function is not None and function.name in ("forward", "__call__")
        if isinstance(target, ast.Subscript):
            dotted = self._names.dotted(target.value) or ""
            if dotted == "os.environ":
                self.note("environment", target)
            elif dotted == "sys.modules":
                self.note("monkeypatch", target)
            elif (
                in_forward and isinstance(target.value, ast.Name) and target.value.id in self._file.parameters(function)
            ):
                self.note("changes_input", target)
            elif in_forward and isinstance(target.value, ast.Attribute):
                self.note("kept_between_calls", target)
        elif isinstance(target, ast.Attribute):
            self._attribute_target(target, statement, in_forward=in_forward)
        elif isinstance(target, ast.Name) and function is not None:
            if (id(function), target.id) in self._file.shared:
                self.note("call_counter" if isinstance(statement, ast.AugAssign) else "kept_between_calls", target)
            if isinstance(statement, ast.AugAssign) and in_forward and target.id in self._file.parameters(function):
                self.note("changes_input", target)

    def _attribute_target(self, target: ast.Attribute, statement: ast.AST, *, in_forward: bool) -> None:
        dotted = self._names.dotted(target) or ""
        if self._names.is_imported(dotted):
            self._patched(dotted, target)
        elif in_forward and isinstance(target.value, ast.Name) and target.value.id == "self":
            self.note("call_counter" if isinstance(statement, ast.AugAssign) else "kept_between_calls", target)

    def _patched(self, dotted: str, node: ast.AST) -> None:
        """Note an assignment to a member of a module."""
        if "tf32" in dotted or "fp32_precision" in dotted:
            self.note("tf32", node)
        elif dotted.startswith(("torch.backends.", "torch._dynamo.config", "torch._inductor.config")):
            self.note("global_flags", node)
        elif any(dotted == name or dotted.startswith(name + ".") for name in _CLOCK_MODULES):
            self.note("clock_patch", node)
        else:
            self.note("monkeypatch", node)

    # Calls, keys, comparisons, texts

    def _call(self, node: ast.Call) -> None:
        written = self._names.dotted(node)
        if written is not None and self._names.is_imported(written):
            self._named(written, node)  # `getattr(os, "_exit")`
        if isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr") and node.args:
            base = self._names.dotted(node.args[0]) or ""
            if self._names.is_imported(base):
                member = node.args[1] if len(node.args) > 1 else None
                held = member.value if isinstance(member, ast.Constant) else None
                self._patched(f"{base}.{held if isinstance(held, str) else '?'}", node)
        if isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in ("get", "setdefault", "pop") and node.args:
                self._key(node.args[0], node)
            function = self._file.function_of(node)
            owner = node.func.value
            if (
                name.endswith("_")
                and not name.startswith("_")
                and function is not None
                and function.name == "forward"
                and isinstance(owner, ast.Name)
                and owner.id in self._file.parameters(function)
            ):
                self.note("changes_input", node)
        dotted = self._names.dotted(node.func) or ""
        if dotted.startswith("torch.") and dotted.rpartition(".")[2] in _FILLED and self._file.inside_function(node):
            sizes = [item for item in node.args if not isinstance(item, ast.Starred)]
            numbers = [n for item in sizes for n in integers(item)]
            constant = bool(sizes) and all(is_constant(item) for item in sizes)
            if constant and max(numbers, default=0) >= MIN_SIZE:
                self.note("hard_coded_shape", node)

    def _key(self, key: ast.expr, node: ast.AST) -> None:
        """Note a lookup whose key contains an address, an identity or a shape."""
        marks = set()
        for item in self._file.followed(key):
            if isinstance(item, ast.Attribute) and item.attr in ("data_ptr", "_cdata"):
                marks.add("cache_by_address")
            if isinstance(item, ast.Call) and isinstance(item.func, ast.Name) and item.func.id == "id":
                marks.add("cache_by_address")
            if isinstance(item, ast.Attribute) and item.attr in ("shape", "size", "numel"):
                marks.add("cache_by_shape")
        for mark in marks:
            # `x[: x.shape[0]]` is an index, not a key.
            container = node.value if isinstance(node, ast.Subscript) else None
            plain = isinstance(container, ast.Name) and not self._file.values(container.id)
            index = plain or (isinstance(container, ast.Attribute) and container.attr in ("shape", "size"))
            if mark == "cache_by_address" or not (index or isinstance(key, ast.Slice)):
                self.note(mark, node)

    def _compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        inner = [item for side in sides for item in ast.walk(side)]
        if any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            self._key(node.left, node)
        if any(isinstance(item, ast.Attribute) and item.attr == "data_ptr" for item in inner):
            self.note("cache_by_address", node)
        if any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops) and not any(map(is_constant, sides)):
            kept = any(isinstance(side, ast.Attribute | ast.Subscript) for side in sides)
            function = self._file.function_of(node)
            given = {side.id for side in sides if isinstance(side, ast.Name)}
            if kept and function is not None and given & self._file.parameters(function):
                self.note("cache_by_address", node)
        shaped = any(isinstance(item, ast.Attribute) and item.attr in ("shape", "size", "numel") for item in inner)
        if shaped and any(number >= MIN_SIZE for side in sides for number in integers(side)):
            self.note("hard_coded_shape", node)

    def _text(self, text: str, node: ast.Constant) -> None:
        if len(text) < 200 and text.startswith(("/proc", "/dev/", "/sys/")):
            self.note("process_memory", node)
        if "use_fast_math" in text and len(text) < 200:
            self.note("fast_math", node)

    # Classes and functions

    def _class(self, node: ast.ClassDef) -> None:
        if node.name == "Model":
            self.note("inherits_reference", node)
        for base in node.bases:
            dotted = self._names.dotted(base) or ""
            if dotted in ("torch.Tensor", "torch.nn.Parameter"):
                self.note("lazy_tensor", node)
            foreign = dotted == "Model" or dotted not in self._classes
            if node.name == "ModelNew" and foreign and dotted.rpartition(".")[2] not in ("Module", "ScriptModule"):
                self.note("inherits_reference", node)
        if any(item.arg == "metaclass" for item in node.keywords):
            self.note("special_methods", node)
        for item in node.body:
            if isinstance(item, Function) and item.name in _METHODS:
                self.note(_METHODS[item.name], item)

    def _function(self, node: Function) -> None:
        if node.name != "forward":
            return
        inner = [item for statement in node.body for item in ast.walk(statement)]
        read = {item.id for item in inner if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load)}
        owner = self._file.parent(node)
        if not isinstance(owner, ast.ClassDef) or owner.name == "ModelNew":
            unused = sorted(self._file.parameters(node) - read - {"self"}) if "locals" not in read else []
            if unused and not all(isinstance(item, ast.Pass | ast.Raise) for item in node.body):
                self.note("ignores_input", node)
        uses = Counter(item.id for item in inner if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load))
        for item in inner:
            if isinstance(item, ast.Return) and item.value is not None:
                self._returned(item.value, uses)

    def _returned(self, value: ast.expr, uses: Mapping[str, int]) -> None:
        made = [value]
        if isinstance(value, ast.Name):
            # A tensor that is only created and returned: nothing writes into it.
            made = self._file.values(value.id) if uses[value.id] == 1 else []
        for item in made:
            dotted = self._names.dotted(item.func) or "" if isinstance(item, ast.Call) else ""
            if dotted.startswith("torch.") and dotted.rpartition(".")[2] in _FILLED:
                self.note("constant_answer", item)

    # Kernels made of sources

    def _makes_kernels(self, call: ast.Call) -> bool:
        dotted = self._names.dotted(call.func) or ""
        last = dotted.rpartition(".")[2]
        return last in _KERNEL_MAKERS and (last != "load" or "cpp_extension" in dotted)

    def _is_kernel(self, decorator: ast.expr) -> bool:
        node = decorator.func if isinstance(decorator, ast.Call) else decorator
        return (self._names.dotted(node) or "").startswith(_KERNEL_DECORATORS)

    def _maker(self, call: ast.Call) -> None:
        sources = [
            item.value for item in call.keywords if item.arg in ("cuda_sources", "cpp_sources", "code", "source")
        ]
        for source in sources:
            parts = list(self._file.followed(source))
            hidden = any(
                isinstance(item, ast.Call)
                and (
                    getattr(item.func, "attr", "") in _HIDING
                    or getattr(item.func, "id", "") in {"chr", "open", "bytes"}
                )
                for item in parts
            )
            visible = any(isinstance(item, ast.Constant) and isinstance(item.value, str) for item in parts)
            empty = isinstance(source, ast.Constant | ast.List | ast.Tuple) and not visible
            if hidden or not (visible or empty):
                self.note("hidden_source", source)
        parent = self._file.parent(call)
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            target = parent.targets[0]
            name = target.id if isinstance(target, ast.Name) else getattr(target, "attr", None)
            if name is not None and name not in self._file.read:
                self.note("decoy_kernel", call)


def _lookup(dotted: str) -> str | None:
    """Return the rule of the longest known name that includes `dotted`, or None."""
    while dotted:
        if dotted in _MEMBERS:
            return _MEMBERS[dotted]
        dotted = dotted.rpartition(".")[0]
    return None
