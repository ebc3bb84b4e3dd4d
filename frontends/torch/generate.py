"""Writes the kernels and registrations of map.def for the torch that is installed.

usage: generate.py MAP OUT.cpp...

Kernels are distributed evenly over the files, so that these compile in parallel. The operator schemas come from the
torchgen package of the torch wheel (native_functions.yaml), so that one map serves every torch version: forms and
operators that this torch lacks are skipped and listed in a comment of the output.
"""

import os
import re
import sys

import torchgen
from torchgen import local
from torchgen.api.types import NativeSignature
from torchgen.model import FunctionSchema, SchemaKind

RULES = "same|number|float|compare|logical|where|part"
KINDS = "bits|whole|real"
RENAMED = {"grad": "grad_output"}  # arguments as the map names them, and as some torch does


def read_schemas():
    """{full name: (schema, fields)} of native_functions.yaml: fields are structured, const, dispatch keys, functions
    by keys."""
    path = os.path.join(os.path.dirname(torchgen.__file__), "packaged/ATen/native/native_functions.yaml")
    schemas, fields = {}, None
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("- func:"):
                schema = FunctionSchema.parse(line[7:].strip().strip("'\""))
                fields = {"structured": False, "const": False, "dispatch": [], "functions": []}
                schemas[str(schema.name)] = (schema, fields)
            elif fields is not None and re.match(r"  (structured: True|structured_delegate:)", line):
                fields["structured"] = True
            elif fields is not None and line.startswith("  use_const_ref_for_mutable_tensors: True"):
                fields["const"] = True
            elif fields is not None and (match := re.match(r"    ([A-Z][A-Za-z0-9, ]*): *(\w*)", line)):
                keys = match.group(1).replace(" ", "").split(",")
                fields["dispatch"] += keys
                fields["functions"].append((keys, match.group(2)))
    return schemas


def is_composite_implicit(fields):
    """Such operators bring their own gradient, which a kernel of ours would replace."""
    if fields["structured"]:
        return False
    return not fields["dispatch"] or "CompositeImplicitAutograd" in fields["dispatch"]


def read_map(path):
    rows = []
    with open(path, encoding="utf-8") as file:
        for line in re.sub(r"\n +", " ", file.read()).splitlines():  # indented lines continue a row
            line = line.split("#", 1)[0].strip()
            if line:
                name, expression = line.split(":", 1)
                rows.append((name.strip(), expression.strip()))
    return rows


def expand(expression):
    """Turns the short forms into calls of pointwise() and foreach()."""
    expression = expression.removeprefix("library ").removeprefix("exact ")
    expression = re.sub(
        rf"\beach ({RULES}) ([A-Z0-9_]+)\(", lambda m: f"foreach(R, HR_OP_{m[2]}, Rule::{m[1].title()}, ", expression
    )
    expression = re.sub(
        rf"\b({KINDS}) ([A-Z0-9_]+)\(", lambda m: f"pointwise_of(Kinds::{m[1].title()}, R, HR_OP_{m[2]}, ", expression
    )
    return re.sub(
        rf"\b({RULES}) ([A-Z0-9_]+)\(", lambda m: f"pointwise(R, HR_OP_{m[2]}, Rule::{m[1].title()}, ", expression
    )


def signature_of(schema, fields):
    with local.parametrize(
        use_const_ref_for_mutable_tensors=fields["const"], use_ilistref_for_tensor_lists=fields["structured"]
    ):
        signature = NativeSignature(schema, symint=False)
        return signature.returns_type().cpp_type(), [(a.type, a.name) for a in signature.arguments()]


def guard_of(arguments):
    """The statement that makes a kernel's device the current one: the `device` argument, else the first tensor's
    device."""
    names = [n for t, n in arguments if "Device" in t] + [n for t, n in arguments if "Tensor" in t]
    return f"  OnDevice on_device({', '.join(names)});\n" if names else ""


def host_if_missing(schema, arguments, body):
    """The body; on devices without a library for it the operator runs on the host, if the user allows that."""
    if "return" not in body:
        body += "\n    return;"
    operator = "at::_ops::" + schema.name.unambiguous_name()
    call = f"at::native::call_fallback_fn<&run_on_host, {operator}>::call({', '.join(n for _, n in arguments)})"
    return (
        f"try {{\n    {body}\n  }} catch (const c10::NotImplementedError &) {{\n"
        f"    if (fallback_mode() == FallbackMode::Error)\n      throw;\n  }}\n  return {call};"
    )


def kernel(schema, fields, expression):
    """The text of one kernel and its function's name."""
    result_type, arguments = signature_of(schema, fields)
    names = [name for _, name in arguments]
    for old, new in RENAMED.items():
        if old not in names and new in names:
            expression = re.sub(rf"\b{old}\b", new, expression)
    name = "k_" + re.sub(r"\W", "_", str(schema.name))
    kind = schema.kind()
    is_list = (
        bool(schema.arguments.flat_non_out)
        and str(schema.arguments.flat_non_out[0].type) == "Tensor[]"
        and str(schema.name).startswith("_foreach")
    )
    result = "ListResult" if is_list or str(schema.name).startswith("_foreach") else "Result"
    outs = [a.name for a in schema.arguments.out]
    if kind == SchemaKind.out:
        form = "exact" if expression.removeprefix("library ").startswith("exact ") else "out"
        places = [f"{result}::{form}({o})" for o in outs]
    elif kind == SchemaKind.inplace:
        places = [f"{result}::inplace(self)"]
    else:
        places = [f"{result}::fresh()"] * 8
    call = re.sub(r"\bR(\d?)\b", lambda m: places[int(m[1] or 0)], expand(expression))
    if kind == SchemaKind.out:
        body = f"{call};\n  return " + (f"{outs[0]};" if len(outs) == 1 else "{" + ", ".join(outs) + "};")
    elif kind == SchemaKind.inplace and result_type != "void":
        body = f"{call};\n  return self;"
    elif result_type == "void":
        body = f"{call};"
    else:
        body = f"return {call};"
    if expression.startswith("library ") and kind != SchemaKind.inplace:
        body = host_if_missing(schema, arguments, body)
    parameters = ", ".join(f"{t} {n}" for t, n in arguments)
    text = f"{result_type} {name}({parameters}) {{\n{guard_of(arguments)}  {body}\n}}\n"
    return name, text


def write(path, kernels, skipped):
    """Writes one file: kernels are (text, registration, operator that runs on the host or None)."""
    bases = sorted({base for _, _, base in kernels if base})
    with open(path, "w", encoding="utf-8") as file:
        file.write("// Generated by generate.py from map.def; do not edit.\n")
        file.write(f"// Not in this torch: {', '.join(skipped) or 'none'}\n")
        file.write(
            '#include "fallback.h"\n#include "kernels_nn.h"\n#include "registration.h"\n\n'
            "#include <ATen/native/CPUFallback.h>\n\n"
        )
        file.write("".join(f"#include <ATen/ops/{base}_ops.h>\n" for base in bases))
        file.write("\nnamespace headrace {\nnamespace {\n\n")
        file.write("\n".join(text for text, _, _ in kernels))
        file.write("\nHEADRACE_KERNELS(aten, PrivateUse1, m) {\n")
        file.write("".join(registration for _, registration, _ in kernels))
        file.write("}\n\n}  // namespace\n}  // namespace headrace\n")


def shards_of(kernels, count):
    """Kernels of one signature are in one shard: each file that has a signature compiles torch's wrapper of it."""
    groups = {}
    for kernel in kernels:
        head = kernel[0].split(" {", 1)[0]
        groups.setdefault(re.sub(r"\bk_\w+\(| \w+(?=[,)])", "", head), []).append(kernel)
    shards, costs = [[] for _ in range(count)], [0] * count
    for group in sorted(groups.values(), key=len, reverse=True):
        least = costs.index(min(costs))
        shards[least] += group
        costs[least] += 4 + len(group)  # a wrapper takes about as long as four kernels
    return shards


def main():
    map_path, out_paths = sys.argv[1], sys.argv[2:]
    schemas = read_schemas()
    groups = {}
    for full_name, (schema, _) in schemas.items():
        groups.setdefault((schema.name.name.base, str(schema.signature())), []).append(full_name)
    kernels, skipped, done = [], [], set()
    for name, expression in read_map(map_path):
        if name not in schemas:
            skipped.append(name)
            continue
        schema = schemas[name][0]
        forms = groups[(schema.name.name.base, str(schema.signature()))]
        if schema.kind() == SchemaKind.out or re.search(r"\bR\d?\b", expand(expression)) is None:
            forms = [name]
        for form in forms:
            form_schema, fields = schemas[form]
            if form in done or is_composite_implicit(fields):
                continue
            done.add(form)
            function, text = kernel(form_schema, fields, expression)
            base = form_schema.name.name.base if "call_fallback_fn" in text else None
            kernels.append((text, f'  m.impl("{form}", &{function});\n', base))
    for path, shard in zip(out_paths, shards_of(kernels, len(out_paths))):
        write(path, shard, skipped)
    print(
        f"generate.py: {len(kernels)} kernels from {map_path}" + (f"; not in this torch: {skipped}" if skipped else "")
    )


if __name__ == "__main__":
    main()
