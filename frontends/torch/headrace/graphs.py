"""torch.headrace: graphs that a program captures and replays, with the names of torch.cuda.

A replay appends the captured operations to the device's queue, on the tensors of the capture. They fuse with what comes
before and after, as if the program had issued them again, at a few nanoseconds each. Numbers of the host, such as
learning rates, stay as captured; random numbers are drawn anew.
"""

import contextlib

import torch
from torch.utils import _pytree as pytree

from headrace._library import _C


class Graph:
    """Captured operations. `capture_begin` and `capture_end` enclose them (torch.headrace.graph does it); nothing runs
    meanwhile, and no value can be read. `replay` runs them, on the same tensors."""

    def __init__(self, keep_graph=False):
        self._graph, self._pool = _C.graph_make(), (0, 0)

    def capture_begin(self, pool=None, capture_error_mode="default"):
        """Captures what this thread does from here on, and the backward passes that it starts."""
        self._pool = (0, 0) if pool is None else tuple(pool)
        _C.graph_capture_begin(self._graph)

    def capture_end(self):
        """Ends the capture."""
        _C.graph_capture_end(self._graph)

    def instantiate(self):
        """Does nothing: a replay is compiled together with its neighbours."""

    def replay(self):
        """Appends the captured operations to the queue."""
        _C.graph_replay(self._graph)

    def reset(self):
        """Drops what was captured; a new capture may follow."""
        _C.graph_reset(self._graph)

    def pool(self):
        """The token that `capture_begin` got. Tensors that only the graph needs share memory anyway."""
        return self._pool


class graph:  # noqa: N801 (torch.cuda.graph is lower case too)
    """Context manager that captures into a Graph."""

    def __init__(self, graph, pool=None, stream=None, capture_error_mode="default"):
        self._graph, self._pool = graph, pool
        self._stream = contextlib.nullcontext() if stream is None else torch.headrace.stream(stream)

    def __enter__(self):
        self._stream.__enter__()
        self._graph.capture_begin(*(() if self._pool is None else (self._pool,)))

    def __exit__(self, *error):
        self._graph.capture_end()
        self._stream.__exit__(*error)


def is_current_stream_capturing():
    """True while this thread captures a graph."""
    return _C.is_capturing()


def graph_pool_handle():
    """A token for `pool` arguments, which have no effect."""
    return (0, 0)


# ---- callables with graphs


def make_graphed_callables(callables, sample_args, num_warmup_iters=3, allow_unused_input=False, pool=None):
    """Callables (functions or modules) whose forward and backward passes replay graphs.

    `sample_args` is a tuple of arguments, or one for each callable: tensors of the shapes and of the `requires_grad` of
    later calls. Results stay in the graph's tensors: the next call overwrites them. A module is changed and returned;
    in the other mode of training it runs as before.
    """
    single = not isinstance(callables, tuple)
    if single:
        callables, sample_args = (callables,), (sample_args,)
    made = [_Capture(f, args, num_warmup_iters, allow_unused_input) for f, args in zip(callables, sample_args)]
    for one in made:
        one.capture_forward()
    for one in reversed(made):
        one.capture_backward(allow_unused_input)
    results = tuple(one.graphed() for one in made)
    return results[0] if single else results


def _differentiable(tensors):
    return tuple(tensor for tensor in tensors if tensor.requires_grad)


class _Capture:
    """A callable, its graphs, and the tensors that they read and write."""

    def __init__(self, function, args, warmups, allows_unused):
        self.function, self.args = function, args
        self.parameters = tuple(function.parameters()) if isinstance(function, torch.nn.Module) else ()
        flat, self.arg_form = pytree.tree_flatten(args)
        if not all(isinstance(arg, torch.Tensor) for arg in flat):
            raise TypeError("make_graphed_callables: sample_args must be tensors alone, in tuples, lists and dicts")
        if self.parameters and any(buffer.requires_grad for buffer in function.buffers()):
            raise RuntimeError("make_graphed_callables: a buffer of the module requires a gradient")
        self.arg_count, self.inputs = len(flat), (*flat, *self.parameters)
        self.forward, self.backward = Graph(), Graph()
        for _ in range(warmups):
            outputs = _differentiable(pytree.tree_leaves(function(*args)))
            if outputs and _differentiable(self.inputs):
                ones = [torch.empty_like(output) for output in outputs]
                torch.autograd.grad(outputs, _differentiable(self.inputs), ones, allow_unused=allows_unused)

    def capture_forward(self):
        with graph(self.forward):
            outputs = self.function(*self.args)
        self.outputs, self.output_form = pytree.tree_flatten(outputs)

    def capture_backward(self, allows_unused):
        self.output_gradients = [torch.empty_like(o) if o.requires_grad else None for o in self.outputs]
        wanted, self.gradients = _differentiable(self.inputs), (None,) * len(self.inputs)
        if not wanted or not _differentiable(self.outputs):
            return
        given = [gradient for gradient in self.output_gradients if gradient is not None]
        with graph(self.backward):
            found = torch.autograd.grad(_differentiable(self.outputs), wanted, given, allow_unused=allows_unused)
        found = iter(found)
        self.gradients = tuple(next(found) if tensor.requires_grad else None for tensor in self.inputs)

    def graphed(self):
        apply, capture = self._as_function().apply, self

        def call(*args):
            flat, form = pytree.tree_flatten(args)
            if form != capture.arg_form:
                raise TypeError("a graphed callable must get arguments of the form of sample_args")
            return pytree.tree_unflatten(list(apply(*flat, *capture.parameters)), capture.output_form)

        if not isinstance(self.function, torch.nn.Module):
            return call
        module, training, plain = self.function, self.function.training, self.function.forward

        def forward(*args, **names):
            return call(*args) if module.training == training and not names else plain(*args, **names)

        module.forward = forward
        return module

    def _as_function(self):
        capture = self

        class Graphed(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *inputs):
                for own, given in zip(capture.inputs[: capture.arg_count], inputs):
                    if own.shape != given.shape or own.dtype != given.dtype:
                        raise ValueError(
                            f"a graphed callable got {list(given.shape)} of {given.dtype}, but was captured for "
                            f"{list(own.shape)} of {own.dtype}"
                        )
                    if own.data_ptr() != given.data_ptr():
                        own.detach().copy_(given)
                capture.forward.replay()
                results = tuple(output.detach() for output in capture.outputs)
                constant = (r for r, output in zip(results, capture.outputs) if not output.requires_grad)
                ctx.mark_non_differentiable(*constant)
                return results

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(ctx, *gradients):
                for own, given in zip(capture.output_gradients, gradients):
                    if own is not None and own.data_ptr() != given.data_ptr():
                        own.copy_(given)
                capture.backward.replay()
                return tuple(None if gradient is None else gradient.detach() for gradient in capture.gradients)

        return Graphed
