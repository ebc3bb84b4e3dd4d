#!/usr/bin/env python3
"""Writes the Python functions of src/functional/functional.def: their table for the extension
(frontends/python/csrc/functions.inc), the names of the module (frontends/python/headrace/_names.py), its stub
(frontends/python/headrace/__init__.pyi) and those of its submodules. --check fails if one of them is stale."""

import ast
import json
import re
import sys
import textwrap

from make_functional import ATTRIBUTE, ROOT, write_or_check

ROW = re.compile(
    r"^HR_FUNCTIONAL\((\w+), (\w+), (\w+), (\w+), (NO_INPUTS|INPUTS\(.*?\)|MANY\(.*?\)), "
    r"(NO_ATTRIBUTES|ATTRIBUTES\((?:\w+\([^()]*\)(?:, )?)+\))(?: RESULTS\((.*?)\))?(?: RESULTS_PER\((\w+)\))?, \"(.*)\"\)$"
)
MODULES = {
    "fft": set("fft ifft rfft irfft hfft ihfft fftn ifftn rfftn irfftn".split()),
    "linalg": set(
        (
            "cholesky cholesky_ex solve solve_triangular inv det slogdet lu lu_factor lu_permutation qr geqrf geqp3 "
            "householder_product ormqr svd svd_ex svdvals eigh eigh_ex eigvalsh eig eig_ex eigvals schur hessenberg tridiagonal "
            "tridiagonal_solve"
        ).split()
    ),
}
BY_HAND = {"full", "arange", "eye", "linspace"}  # frontends/python/csrc/creation.c
INDEXING = {"slice"}  # x[...]
FIRST_RESULT = {"sort"}  # the standard's has one
STARRED = {"broadcast_arrays", "meshgrid"}  # f(*arrays)
BEHIND = {"global_scale": "mode", "global_scale_x": "mode", "global_scale_w": "mode"}  # inputs behind this attribute
METHODS = set(
    "sum prod max min any all mean var std argmax argmin astype squeeze flip sort argsort round clip take".split()
)
CREATION = re.compile(r'^    \{"(\w+)", KEYWORDS\(\w+\),\n?\s*"(.*?)\\n--\\n\\n(.*?)"\},$', re.MULTILINE | re.DOTALL)
KINDS = {"AXES": "INTS", "SIZES": "INTS", "EQUATION": "TEXT"}  # others are called the same
REQUIRED = {"INTS", "EQUATION"}
TYPES = {
    "INT": "int", "FLAG": "_b.bool", "REAL": "float", "AXES": "_Axes", "INTS": "_Axes", "SIZES": "_Axes", "LIST": "_Axes",
    "REALS": "Sequence[float] | None", "DTYPE": "_DType | None", "TEXT": "str", "EQUATION": "str",
}  # fmt: skip
# Emitters that pass numbers on to an element-wise row.
NUMBERS = {"pointwise", "floor_divide", "remainder", "clip", "parametric", "divmod", "ldexp", "rounded"}
NUMBERS |= {f"{name}_update" for name in "sgd adam adamax lion rmsprop adagrad adadelta".split()}
VALUES = {"false": "False", "true": "True"}
CONSTANTS = {"pi": "3.141592653589793", "e": "2.718281828459045", "inf": "inf", "nan": "nan", "newaxis": "None"}
OTHERS = ["eval", "device", "stats", "from_dlpack", "load", "save", "save_gguf", "save_safetensors", "savez", "Array",
          "dtype", "Graph", "Package", "Session", "Value", "open_model", "open_package"]
WRITTEN = ["compiling", "exporting", "files", "standard", "transforms"]  # in Python; their names are headrace's, too
DISTRIBUTIONS = ["_counts", "_distributions"]  # modules in Python whose names are headrace.random's, too
FAMILIES = "frontends/python/headrace/_numpy"  # and a folder of them, which replace functions of the table


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def rows():
    text = re.sub(r"\n {4}", " ", read("src/functional/functional.def"))
    for line in text.splitlines():
        if match := ROW.match(line.replace('" "', "")):
            NAME, name, emit, _, inputs, attributes, results, per, doc = match.groups()
            if name not in BY_HAND | INDEXING:
                names = re.findall(r'"([^"]+)"', inputs)
                count = 1 if not results or name in FIRST_RESULT else len(re.findall(r'"\w+"', results))
                count = {"INPUT": 0, "SLICE": -1, "PART": 0, "MODE": -1}.get(per, count)  # a list, or a tuple
                is_many = inputs.startswith("MANY") and ("*arrays" if name in STARRED else "arrays")
                yield NAME, name, emit, names, is_many, ATTRIBUTE.findall(attributes), count, doc


def module_of(name, names):
    """The submodule of a function: keys and functions of one stand in headrace.random; None: headrace itself."""
    if name == "key" or names[:1] == ["key"]:
        return "random"
    return next((module for module, functions in MODULES.items() if name in functions), None)


def default_of(kind, value):
    return VALUES.get(value, value) if value else "None"


def join_parameters(parts):
    """With `*` in front of the first one that is required after one that is not."""
    optional = [i for i, part in enumerate(parts) if "=" in part]
    late = [i for i, part in enumerate(parts) if "=" not in part and optional and i > optional[0]]
    return ", ".join(parts[: late[0]] + ["*"] + parts[late[0] :] if late else parts)


def arranged(names, inputs, attributes, parts):
    """The entries of inputs and attributes in the order of Python's parameters."""
    late = [BEHIND.get(name.rstrip("?")) for name in names]
    order = [entry for place, entry in zip(late, inputs) if place is None]
    for (_, name, _), part in zip(attributes, parts):
        order += [part] + [entry for place, entry in zip(late, inputs) if place == name]
    return order


def signature(names, is_many, attributes):
    inputs = [is_many or name.rstrip("?") + "=None" * name.endswith("?") for name in names]
    parts = [name if kind in REQUIRED else f"{name}={default_of(kind, value)}" for kind, name, value in attributes]
    return join_parameters(arranged(names, inputs, attributes, parts))


def parameters(names, is_many, attributes):
    many = {"arrays": "MANY", "*arrays": "STAR"}.get(is_many)
    inputs = [("arrays" if is_many else name.rstrip("?"), many or ("OPTIONAL" if name.endswith("?") else "INPUT"),
               not name.endswith("?")) for name in names]  # fmt: skip
    parts = [(name, KINDS.get(kind, kind), kind in REQUIRED) for kind, name, _ in attributes]
    return arranged(names, inputs, attributes, parts)


def c_text(text):
    """A C string, in lines of at most 120 columns."""
    lines = textwrap.wrap(text, 100, drop_whitespace=False, break_on_hyphens=False)
    return "\n     ".join(json.dumps(line) for line in lines)


def table():
    lines = ["/* functions.inc: generated from src/functional/functional.def by scripts/make_python_functions.py; do not",
             " * edit. */", ""]
    for NAME, name, _, names, is_many, attributes, _, _ in rows():
        entries = [f'{{"{p}", PARAMETER_{kind}, {str(needed).lower()}}}' for p, kind, needed in
                   parameters(names, is_many, attributes)]
        text = f"static const parameter parameters_{name}[] = {{{', '.join(entries + ['{NULL, PARAMETER_INPUT, false}'])}}};"
        lines += textwrap.wrap(text, 118, subsequent_indent="    ")
    lines += ["", "static const function_row rows[HR_FUNCTIONAL_COUNT] = {"]
    for NAME, name, emit, _, _, _, count, _ in rows():
        takes = str(emit in NUMBERS).lower()
        lines += textwrap.wrap(
            f'[HR_FUNCTIONAL_{NAME}] = {{HR_FUNCTIONAL_{NAME}, "{name}", {takes}, {count}, parameters_{name}}},',
            118, initial_indent="    ", subsequent_indent="        ")
    lines += ["};", ""]
    lines += [f"FUNCTION({row[0]})" for row in rows()]
    lines += [f"METHOD({row[0]})" for row in rows() if row[1] in METHODS]
    lines += ["", "PyMethodDef function_methods[] = {"]
    for row in rows():
        lines += entry("function", row, row[3])
    lines += ["    {NULL, NULL, 0, NULL}};", "", "PyMethodDef array_function_methods[] = {"]
    for row in rows():
        if row[1] in METHODS:
            lines += entry("method", row, ["$self"] + row[3][1:])
    lines += ["    {NULL, NULL, 0, NULL}};", ""]
    return "\n".join(lines)


def entry(prefix, row, names):
    NAME, name, _, _, is_many, attributes, _, doc = row
    head = c_text(f"{name}({signature(names, is_many, attributes)})")
    body = c_text(sentence(doc))
    return [f'    ENTRY({prefix}, {NAME}, "{name}",', f'     {head} "\\n--\\n\\n"', f"     {body})"]


def sentence(doc):
    return doc + "."


def creations():
    for name, call, doc in CREATION.findall(read("frontends/python/csrc/creation.c")):
        yield name, call[call.index("(") + 1 : -1], re.sub(r'"\s*"', "", doc)


def dtypes():
    return re.findall(r'^    \[HR_DTYPE_\w+\] = \{"(\w+)"', read("frontends/python/csrc/dtypes.c"), re.MULTILINE)


def assigned(module, name):
    """The value of a global of a module in Python, a literal."""
    for node in ast.parse(read(f"frontends/python/headrace/{module}.py")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return ast.literal_eval(node.value)
    return []


def written_names(module):
    return assigned(module, "__all__")


def families():
    """The modules of NumPy's names, and the names of each; those of aliases are the keys of a dict."""
    for path in sorted((ROOT / FAMILIES).glob("*.py")):
        module = f"_numpy/{path.stem}"
        names = assigned(module, "ALIASES") if path.stem == "aliases" else written_names(module)
        if names:
            yield path.stem, sorted(names)


def family_lines():
    for module, names in families():
        text = textwrap.wrap(" ".join(names), 104)
        yield from [f'    "{module}": """', *text, '""",'] if len(text) > 1 else [f'    "{module}": "{text[0]}",']


def names_module():
    written = [name for module in WRITTEN for name in written_names(module)]
    written += [name for _, names in families() for name in names]
    functions = [row[1] for row in rows() if module_of(row[1], row[3]) is None]
    names = sorted({*functions, *[row[0] for row in creations()], *dtypes(), *OTHERS, *written, *CONSTANTS})
    body = textwrap.fill(" ".join(names), 116)
    families_text = "\n".join(family_lines())
    return f'''"""The names of arrays in `headrace`: generated by scripts/make_python_functions.py; do not edit."""

NAMES = frozenset(
    """
{body}
""".split()
)

# Names by the module of headrace._numpy that has them; it is loaded when one is used.
_FAMILIES = {{
{families_text}
}}
FAMILY = {{name: module for module, names in _FAMILIES.items() for name in names.split()}}
'''


STUB = '''\
"""Stub of `headrace`: generated by scripts/make_python_functions.py; do not edit."""
# ruff: noqa

import builtins as _b
from typing import Any, Callable, Iterator, Self, Sequence

_Axes = int | Sequence[int] | None
_Like = Any  # an array, a number, nested lists, or an object with the buffer protocol

class dtype:
    name: str
    itemsize: int

_DType = dtype | str | type

class Array:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> dtype: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def T(self) -> Array: ...
    @property
    def mT(self) -> Array: ...
    @property
    def at(self) -> Any: ...
    @property
    def real(self) -> Array: ...
    @property
    def imag(self) -> Array: ...
    def to_device(self, device: str, /, *, stream: None = None) -> Array: ...
    def __array_namespace__(self, *, api_version: str | None = None) -> Any: ...
    def item(self) -> Any: ...
    def tolist(self) -> Any: ...
    def reshape(self, *shape: Any) -> Array: ...
    def copy(self) -> Array: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Array]: ...
    def __getitem__(self, key: Any) -> Array: ...
    def __setitem__(self, key: Any, value: _Like) -> None: ...
    def __bool__(self) -> _b.bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __complex__(self) -> complex: ...
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any: ...
    def __dlpack__(self, **options: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
'''
GRAPH_STUBS = '''\
class Value:
    @property
    def shape(self) -> tuple[int | str, ...]: ...
    @property
    def dtype(self) -> dtype: ...
    @property
    def ndim(self) -> int: ...
    @property
    def graph(self) -> Graph: ...
    @property
    def T(self) -> Value: ...
    name: str | None
    def reshape(self, *shape: Any) -> Value: ...
    def __getitem__(self, key: Any) -> Value: ...
'''
SESSION_STUBS = '''\
class Graph:
    """Functions on named values, whose dims may be symbols."""

    def __init__(self) -> None: ...
    def input(self, name: str, dtype: _DType, dims: int | str | Sequence[int | str] = ()) -> Value: ...
    def constant(self, value: _Like, /, name: str | None = None, dtype: _DType | None = None) -> Value: ...
    def output(self, name: str | None, value: Value | _Like) -> None: ...
    def symbol(self, name: str, /) -> Value: ...
    def shape(self, x: Value, /) -> Value: ...
    def gradient(self, of: Value, by: Any, seed: Any = None) -> Any: ...
    def simplify(self, fold: _b.bool = True) -> Graph: ...
    def call(self, callee: Any, *args: Any) -> list[Value]: ...
    def cond(self, condition: Any, then: Any, otherwise: Any, *args: Any) -> list[Value]: ...
    def while_loop(self, condition: Any, body: Any, carried: Any, args: Any = ()) -> list[Value]: ...
    def for_loop(self, count: Any, body: Any, carried: Any, args: Any = ()) -> list[Value]: ...
    def scan(self, body: Any, carried: Any, sequences: Any, args: Any = ()) -> list[Value]: ...
    def vmap(self, callee: Any, *args: Any, in_axes: Any = 0, out_axes: Any = 0) -> list[Value]: ...
    def read(self, x: Value, /) -> Value: ...
    def variable(self, name: str, value: _Like, dtype: _DType | None = None) -> Value: ...
    def assign(self, variable: Value, value: Any) -> None: ...
    def derive(
        self, outputs: Sequence[str] | None = None, inputs: dict[str, Sequence[int | str]] | None = None
    ) -> Graph: ...
    def save(self, path: Any, notes: dict[str, str] | None = None) -> None: ...
    @staticmethod
    def parse(text: str, data: Sequence[_Like] = ()) -> Graph: ...
    @property
    def inputs(self) -> dict[str, Value]: ...
    @property
    def outputs(self) -> dict[str, Value]: ...
    @property
    def symbols(self) -> tuple[str, ...]: ...
    @property
    def operations(self) -> int: ...
    @property
    def constant_bytes(self) -> int: ...
    def __getitem__(self, name: str) -> Value: ...

class Package:
    """A graph in a file, with notes."""

    @property
    def graph(self) -> Graph: ...
    @property
    def notes(self) -> dict[str, str]: ...
    @property
    def bytes(self) -> int: ...
    @property
    def text_bytes(self) -> int: ...
    @property
    def path(self) -> Any: ...
    def verify(self) -> None: ...
    def trust(self) -> int: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: Any) -> None: ...

def open_model(
    source: Any, /, dims: dict[str, int] | None = None, constants: dict[str, _Like] | None = None
) -> Graph:
    \"\"\"The graph of a package or an ONNX model.\"\"\"

def open_package(path: Any, /) -> Package:
    """Opens a package."""

class Session:
    """A graph, or that of a file, which answers for arrays."""

    def __init__(
        self,
        source: Any,
        device: str | None = None,
        instances: int = 64,
        simplify: _b.bool = True,
        instance_bytes: int = 67108864,
        buckets: dict[str, Sequence[int]] | None = None,
        precision: str | None = None,
        threads: int = 0,
    ) -> None: ...
    def __call__(self, *args: _Like, **inputs: _Like) -> dict[str, Array]: ...
    def run(self, outputs: Sequence[str] | None, feeds: dict[str, _Like], share: _b.bool = False, /) -> list[Array]: ...
    def warm(self, **inputs: Any) -> None: ...
    def variable(self, name: str, /) -> Array: ...
    def set_variable(self, name: str, value: _Like, /) -> None: ...
    def snapshot(self) -> Graph: ...
    def stats(self) -> dict[str, int]: ...
    @property
    def graph(self) -> Graph: ...
    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...
    @property
    def device(self) -> str: ...

'''
TRANSFORM_STUBS = '''\
_Numbers = int | Sequence[int] | None
_Strings = str | Sequence[str]
def grad(fun: Callable[..., Any], argnums: _Numbers = None, argnames: _Strings = ()) -> Callable[..., Any]:
    """The gradient of a function whose result is an array without dims."""

def value_and_grad(fun: Callable[..., Any], argnums: _Numbers = None, argnames: _Strings = ()) -> Callable[..., Any]:
    """The result and the gradient of a function; the first of several results is differentiated."""

def vjp(
    fun: Callable[..., Any], primals: Sequence[Array], cotangents: Sequence[Array]
) -> tuple[list[Array], list[Array]]:
    """The results of a function, and the product of the cotangents and its Jacobian."""

def jvp(
    fun: Callable[..., Any], primals: Sequence[Array], tangents: Sequence[Array]
) -> tuple[list[Array], list[Array]]:
    """The results of a function, and the product of its Jacobian and the tangents."""

def stop_gradient(x: Array, /) -> Array:
    """x's elements as a constant: gradients do not go through it."""

class custom_function:
    """A function with a vjp, jvp and vmap of its own, set by decorators."""

    def __init__(self, f: Callable[..., Any]) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def vjp(self, f: Callable[..., Any]) -> Self:
        """f(primals, cotangents, outputs) returns the gradients by the primals."""

    def jvp(self, f: Callable[..., Any]) -> Self:
        """f(primals, tangents) returns the products of the outputs."""

    def vmap(self, f: Callable[..., Any]) -> Self:
        """f(inputs, axes) returns the outputs and their axes."""

def vmap(fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """The function applied to each slice of its arguments along an axis, and the results joined along another."""

def checkpoint(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose gradients keep no values between its inputs and outputs: it runs again for them."""

def compile(
    fun: Callable[..., Any], inputs: Any = None, outputs: Any = None, shapeless: _b.bool = False
) -> Callable[..., Any]:
    """The function with its operations captured once for each structure of arguments."""
'''


def late_methods():
    """Methods of arrays in Python (headrace/_numpy/methods.py), and their arguments behind self."""
    places = {**assigned("_numpy/methods", "_FUNCTIONS"), "_numpy.methods": assigned("_numpy/methods", "_OWN")}
    for module, names in places.items():
        for node in ast.parse(read(f"frontends/python/headrace/{module.replace('.', '/')}.py")).body:
            if isinstance(node, ast.FunctionDef) and node.name in names:
                first = node.args.posonlyargs or node.args.args
                del first[0]
                arguments = ast.unparse(node.args)
                yield node.name, f", {arguments}" if arguments else ""


OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()


def stub_parameters(names, is_many, attributes):
    many = {"arrays": "arrays: Sequence[_Like]", "*arrays": "*arrays: _Like"}.get(is_many)
    inputs = [many or f"{name.rstrip('?')}: _Like" + " | None = None" * name.endswith("?") for name in names]
    parts = []
    for kind, name, value in attributes:
        default = "" if kind in REQUIRED else f" = {default_of(kind, value)}"
        parts.append(f"{name}: {TYPES[kind]}{default}")
    return join_parameters(arranged(names, inputs, attributes, parts))


def value_stub():
    lines = GRAPH_STUBS.splitlines()
    for operator in OPERATORS:
        lines += [f"    def __{side}{operator}__(self, other: Any) -> Value: ..." for side in ("", "r")]
    lines += [f"    def __{name}__(self) -> Value: ..." for name in ("neg", "pos", "abs", "invert")]
    lines += [f"    def __{name}__(self, other: Any) -> Value: ...  # type: ignore" for name in "lt le eq ne gt ge".split()]
    for _, name, _, names, is_many, attributes, _, _ in rows():
        if name in METHODS:
            rest = stub_parameters(names[1:], is_many, attributes)
            lines.append(f"    def {name}(self{', ' + rest if rest else ''}) -> Value: ...")
    return [*lines, ""]


def stub():
    lines = [STUB.rstrip()]
    for operator in OPERATORS:
        lines += [f"    def __{side}{operator}__(self, other: _Like) -> Array: ..." for side in ("", "r")]
    lines += [f"    def __{name}__(self) -> Array: ..." for name in ("neg", "pos", "abs", "invert")]
    lines += [f"    def __{name}__(self, other: Any) -> Array: ...  # type: ignore" for name in "lt le eq ne gt ge".split()]
    late = dict(late_methods())
    lines += [f"    def {name}(self{arguments}) -> Any: ..." for name, arguments in sorted(late.items())]
    for _, name, _, names, is_many, attributes, _, _ in rows():
        if name in METHODS - set(late):
            rest = stub_parameters(names[1:], is_many, attributes)
            lines.append(f"    def {name}(self{', ' + rest if rest else ''}) -> Array: ...")
    lines += ["", *value_stub(), *SESSION_STUBS.splitlines()]
    lines += [f"{name}: dtype" for name in dtypes()]
    lines += [f"{name}: {'None' if name == 'newaxis' else 'float'}" for name in CONSTANTS]
    lines += ["", "def eval(*arrays: Any) -> None: ...", "def device(name: str | None = None, /) -> str: ...",
              "def stats() -> dict[str, int]: ...",
              "def from_dlpack(x: Any, /, device: str | None = None, copy: _b.bool | None = None) -> Array: ...",
              "def load(file: Any, return_metadata: _b.bool = False, device: str | None = None) -> Any: ...",
              "def save(file: Any, array: _Like, /) -> None: ...",
              "def save_safetensors(file: Any, arrays: dict[str, _Like], metadata: dict[str, str] | None = None) -> None: ...",
              "def save_gguf(file: Any, arrays: dict[str, _Like], metadata: dict[str, Any] | None = None) -> None: ...",
              "def savez(file: Any, /, *args: _Like, **kwargs: _Like) -> None: ...",
              "def savez_compressed(file: Any, /, *args: _Like, **kwargs: _Like) -> None: ...",
              "def get_include() -> str: ...", "", *TRANSFORM_STUBS.splitlines(), "",
              "__array_api_version__: str", *python_stubs("standard", ()), *python_stubs("exporting", ())]
    replaced = {name for _, names in families() for name in names}
    lines += [f"def {name}({arguments}) -> Array: ..." for name, arguments, _ in creations() if name not in replaced]
    written = replaced | {name for module in WRITTEN for name in written_names(module)}
    own = [row for row in rows() if module_of(row[1], row[3]) is None and row[1] not in written]
    lines += [line for row in own for line in function_stub(*row)]
    lines += [line for module, names in families() for line in family_stub(module, names)]
    return "\n".join(lines).rstrip() + "\n"


def family_stub(module, names):
    if module == "aliases":
        return [f"{name} = {function}" for name, function in assigned("_numpy/aliases", "ALIASES").items()] + [""]
    return [line for line in python_stubs(f"_numpy/{module}", (), set(names))]


def function_stub(_, name, emit, names, is_many, attributes, count, doc):
    several = {0: "list[Array]", -1: "tuple[Array, ...]"}
    result = "Array" if count == 1 else several.get(count, f"tuple[{', '.join(['Array'] * count)}]")
    return [
        f"def {name}({stub_parameters(names, is_many, attributes)}) -> {result}:",
        f'    """{sentence(doc)}"""',
        "",
    ]


def python_stubs(module, but, only=None):
    """The functions that the module's file defines."""
    for node in ast.parse(read(f"frontends/python/headrace/{module}.py")).body:
        is_ours = isinstance(node, ast.FunctionDef) and re.match("__|[^_]", node.name)
        if is_ours and node.name not in but and (only is None or node.name in only):
            doc = ast.get_docstring(node)
            yield from [f"def {node.name}({ast.unparse(node.args)}) -> Any:", f'    """{doc}"""', ""]


def imported(module, source):
    """The names that a module in Python imports from another one."""
    for node in ast.parse(read(f"frontends/python/headrace/{module}.py")).body:
        if isinstance(node, ast.ImportFrom) and node.module == source:
            yield from (alias.name for alias in node.names)


def module_stub(module):
    lines = [
        f'"""Stub of `headrace.{module}`: generated by scripts/make_python_functions.py; do not edit."""',
        "# ruff: noqa",
        "",
        "import builtins as _b",
        "from typing import Any",
        "",
        "from headrace import Array, _Axes, _DType, _Like",
        "",
    ]
    late = {name: file for file in DISTRIBUTIONS for name in written_names(file)} if module == "random" else {}
    own = [row for row in rows() if module_of(row[1], row[3]) == module and row[1] not in late]
    if module == "linalg":  # functions of headrace, too
        shared = set(imported(module, "headrace._arrays"))
        own += [row for row in rows() if row[1] in shared - MODULES[module]]
    lines += [line for row in own for line in function_stub(*row)]
    lines += [f"from headrace import {name} as {name}" for name in imported(module, "headrace.standard")]
    lines += python_stubs(module, {row[1] for row in own})
    for file in DISTRIBUTIONS if late else ():
        lines += python_stubs(file, (), late)
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    texts = {
        "frontends/python/csrc/functions.inc": table(),
        "frontends/python/headrace/_names.py": names_module(),
        "frontends/python/headrace/__init__.pyi": stub(),
        **{f"frontends/python/headrace/{name}.pyi": module_stub(name) for name in ("random", *MODULES)},
    }
    return write_or_check("make_python_functions.py", texts)


if __name__ == "__main__":
    sys.exit(main())
