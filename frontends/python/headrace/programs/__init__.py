"""Programs of torch.export as graphs, for headrace.import_program. docs/graphs.md describes it.

The program is decomposed into operators that table.py has a function for, and each of its nodes becomes the call of one
on values of the graph. torch is imported by the call alone.
"""

import collections

from headrace._arrays import Graph, Value
from headrace.programs.table import array_of, dtype_name

_IGNORED = ("_assert_scalar", "_assert_async", "_assert_tensor_metadata", "sym_constrain_range")


def read(program, variables, symbols, outputs):
    """The graph; see headrace.import_program."""
    reader = _Reader(_decomposed(program), variables, symbols)
    reader.check_operators()
    reader.add_inputs()
    reader.add_nodes(reader.program.graph, reader.values)
    reader.add_outputs(outputs)
    return reader.graph


def _decomposed(program):
    """The program without mutations, of operators that have a translation if there is one."""
    import torch

    from headrace.programs import operators

    if not isinstance(program, torch.export.ExportedProgram):
        raise TypeError(f"import_program: {type(program).__name__}, expected what torch.export.export returns")
    table = torch.export.default_decompositions()
    for operator in list(table):
        if _name_of(operator) in operators.OPERATORS and not operator._schema.is_mutable:
            del table[operator]
    return program.run_decompositions(table)


def _name_of(target):
    """aten.add.Tensor is "add", Python's is "operator.add"; a higher-order operator has its own name."""
    packet = getattr(target, "overloadpacket", None)
    if getattr(target, "__module__", None) == "_operator":
        return f"operator.{target.__name__}"
    return packet.__name__ if packet is not None else getattr(target, "__name__", str(target))


class _Reader:
    def __init__(self, program, variables, symbols):
        from headrace.programs import operators

        self.program, self.graph, self.values = program, Graph(), {}
        self.operators, self.contexts = operators.OPERATORS, operators.Context
        self.signature, self.symbols, self.all_are_variables = program.graph_signature, symbols, variables

    # ---- what there is

    def check_operators(self):
        """ValueError for operators without a translation, with how often they occur."""
        missing = collections.Counter()
        modules = [self.program.graph_module, *_inner_modules(self.program.graph_module)]
        for module in modules:
            for node in module.graph.nodes:
                name = _name_of(node.target)
                if node.op == "call_function" and name not in self.operators and name not in _IGNORED:
                    missing[str(node.target)] += 1
        if missing:
            found = ", ".join(f"{name} ({count})" for name, count in sorted(missing.items()))
            raise ValueError(f"import_program: operators without a translation: {found}")

    # ---- inputs

    def add_inputs(self):
        """The values of all placeholders: those of the state first, as they stand."""
        changed = set(self.signature.buffers_to_mutate.values())
        if getattr(self.signature, "user_inputs_to_mutate", None):
            names = ", ".join(sorted(self.signature.user_inputs_to_mutate.values()))
            raise ValueError(f"import_program: the program changes its inputs {names}: return new values instead")
        nodes = {node.name: node for node in self.program.graph.nodes if node.op == "placeholder"}
        for spec in self.signature.input_specs:
            node = nodes[spec.arg.name] if hasattr(spec.arg, "name") and spec.arg.name in nodes else None
            if node is not None:
                self.values[node] = self._input(spec, node, changed)

    def _input(self, spec, node, changed):
        kind = spec.kind.name
        if kind == "USER_INPUT":
            return self._user_input(node)
        if kind not in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            raise ValueError(f"import_program: input {node.name!r} is of kind {kind}, expected a tensor")
        tensor = self.program.state_dict.get(spec.target)
        tensor = self.program.constants[spec.target] if tensor is None else tensor
        array = array_of(tensor)
        is_variable = self.all_are_variables and kind == "PARAMETER"
        if is_variable or spec.target in changed:
            return self.graph.variable(spec.target, array)
        return self.graph.constant(array, name=spec.target)

    def _user_input(self, node):
        import torch

        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            dims = [self._dim(size, f"{node.name}_{axis}") for axis, size in enumerate(value.shape)]
            return self.graph.input(node.name, dtype_name(value.dtype), dims)
        if isinstance(value, torch.SymInt):
            return self.graph.read(self.graph.input(node.name, "int64", ()))
        return value  # a number or None, which the program was made for

    def _dim(self, size, otherwise):
        """A size, or the name of its symbol; an expression of symbols has a name of its own."""
        if isinstance(size, int):
            return size
        text = str(size)
        return self.symbols.get(text, text if text.isidentifier() else otherwise)

    # ---- nodes

    def add_nodes(self, graph, values):
        """Adds the values of all nodes; returns the arguments of the last one, which are the results."""
        for node in graph.nodes:
            if node.op == "call_function":
                if _name_of(node.target) not in _IGNORED:
                    values[node] = self._call(node, values)
            elif node.op == "get_attr":
                values[node] = self._attribute(node)
            elif node.op == "output":
                return node.args[0]
        raise ValueError("import_program: a program without an output")

    def _attribute(self, node):
        found = node.graph.owning_module
        for part in node.target.split("."):
            found = getattr(found, part)
        return self.graph.constant(array_of(found)) if hasattr(found, "dtype") else found

    def _call(self, node, values):
        arguments = _named_arguments(node, lambda one: values[one])
        context = self.contexts(self, node, arguments)
        try:
            return self.operators[_name_of(node.target)](context, **arguments)
        except (ValueError, TypeError, IndexError, RuntimeError) as error:
            at = f"import_program: node {node.name!r} ({node.target})"
            raise (type(error) if type(error) in (ValueError, TypeError) else ValueError)(f"{at}: {error}") from error

    def function(self, module):
        """A module inside as a function of values, for control flow."""

        def call(*inputs):
            places = [node for node in module.graph.nodes if node.op == "placeholder"]
            reader = _Reader(self.program, False, self.symbols)
            reader.graph = next(value.graph for value in inputs if isinstance(value, Value))
            values = dict(zip(places, inputs))
            results = reader.add_nodes(module.graph, values)
            return [values[one] for one in (results if isinstance(results, (tuple, list)) else [results])]

        return call

    # ---- outputs

    def add_outputs(self, names):
        results = next(node for node in self.program.graph.nodes if node.op == "output").args[0]
        given = []
        for spec, node in zip(self.signature.output_specs, results):
            value = self.values.get(node) if hasattr(node, "op") else node
            if spec.kind.name == "BUFFER_MUTATION":
                self.graph.assign(self.graph[spec.target], value)
            elif spec.kind.name != "USER_OUTPUT":
                raise ValueError(
                    f"import_program: an output of kind {spec.kind.name}, expected a result of the program"
                )
            elif isinstance(value, Value):
                given.append(value)
        names = self._output_names(names, len(given))
        for name, value in zip(names, given):
            self.graph.output(name, value)

    def _output_names(self, names, count):
        if names is None:
            return ["output"] if count == 1 else [f"output_{i}" for i in range(count)]
        names = [names] if isinstance(names, str) else list(names)
        if len(names) != count:
            raise ValueError(f"import_program: {len(names)} names of outputs, expected {count}")
        return names


def _inner_modules(module):
    """The modules inside that are graphs, at any depth."""
    for child in module.children():
        if hasattr(child, "graph"):
            yield child
            yield from _inner_modules(child)


def _named_arguments(node, value_of):
    """The arguments of a node by the names of its operator's schema, with values in place of nodes."""
    import torch.fx

    args = torch.fx.node.map_arg(node.args, value_of)
    kwargs = torch.fx.node.map_arg(node.kwargs, value_of)
    schema = getattr(node.target, "_schema", None)
    if schema is None:  # Python's operators, and control flow
        return {"args": args, **kwargs}
    named = {}
    for i, argument in enumerate(schema.arguments):
        given = args[i] if i < len(args) else kwargs.get(argument.name)
        default = argument.default_value if argument.has_default_value() else None
        named[argument.name] = default if i >= len(args) and argument.name not in kwargs else given
    return named
