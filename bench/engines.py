"""Engines that compile a whole network ahead of time, as alternatives for inference.

Each function here accepts a model in eval mode and returns a function of a batch, like torch.compile. The network is
exported at the first call, for that batch's shape. The engine's result is compared with torch's: an engine that
computes with fewer digits is refused. OpenVINO's default is bfloat16 if the CPU supports it. Both are optional: pip
install onnx onnxscript onnxruntime openvino.
"""

import io
import logging
from collections.abc import Callable

import numpy
import torch

Network = Callable[[torch.Tensor], numpy.ndarray]


class ExportedAtFirstCall:
    """`export(model, batch)` returns a function from batch to result, both numpy arrays."""

    def __init__(self, model: torch.nn.Module, export: Callable):
        self.model, self.export = model, export
        self.run: Callable | None = None

    def __call__(self, batch: torch.Tensor):
        if self.run is None:
            self.run = self.export(self.model, batch)
            answer = torch.from_numpy(self.run(batch.numpy()))
            torch.testing.assert_close(answer, self.model(batch), rtol=1e-4, atol=1e-4)
        return self.run(batch.numpy())


def onnxruntime(model: torch.nn.Module) -> Network:
    def export(model, batch):
        import onnxruntime as engine

        file = io.BytesIO()
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of each operator of torchvision
        torch.onnx.export(model, (batch,), dynamo=True, verbose=False).save(file)
        options = engine.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = engine.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return lambda array: session.run(None, {name: array})[0]

    return ExportedAtFirstCall(model, export)


def openvino(model: torch.nn.Module) -> Network:
    def export(model, batch):
        import openvino as engine

        converted = engine.convert_model(model, example_input=batch, input=[tuple(batch.shape)])
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "PERFORMANCE_HINT": "LATENCY",
        }
        request = engine.Core().compile_model(converted, "CPU", settings).create_infer_request()
        return lambda array: request.infer([array], share_inputs=True)[0]

    return ExportedAtFirstCall(model, export)


ENGINES = {"onnxruntime": onnxruntime, "openvino": openvino}
