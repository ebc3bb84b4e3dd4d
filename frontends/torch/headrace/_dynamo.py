"""The `torch_dynamo_backends` entry point: torch.compile(..., backend="headrace") finds the backend by it."""


def headrace(module, inputs, **names):
    from headrace.torch_compile import headrace as backend

    return backend(module, inputs, **names)


def _trace_kernels():
    """torch.compile looks the backend up before it traces: kernels of expressions become traceable now."""
    import sys

    if elementwise := sys.modules.get("headrace.elementwise"):
        elementwise.trace_made_kernels()


_trace_kernels()
