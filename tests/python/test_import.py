"""Importing torch with Headrace installed registers the device's name; everything else waits for the first use of the
device."""

import json
import os
import subprocess
import sys
import types

import pytest
import torch
from headrace import _autoload

pytestmark = [
    pytest.mark.device_only,
    pytest.mark.skipif(_autoload.drives_a_gpu(torch), reason="where torch drives a GPU, loading is explicit"),
]

# Describes everything that torch's modules and classes hold, by identity as far as two processes can compare it.
SNAPSHOT = """if True:
    import copyreg, json, sys, types
    from multiprocessing.reduction import ForkingPickler
    import torch
    import torch.multiprocessing, torch.utils.dlpack, torch.utils.checkpoint, torch.profiler

    def describe(value):
        value = value.fget if isinstance(value, property) else value
        value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        code = value.__code__ if isinstance(value, types.FunctionType) else None
        if code is not None:
            return f"{value.__module__}.{value.__qualname__} {code.co_filename}:{code.co_firstlineno}"
        if isinstance(value, int) and value > 1 << 40:
            return "an address"
        if isinstance(value, (str, int, bool, float, type(None))):
            return repr(value)
        if isinstance(value, (type, types.BuiltinFunctionType, types.ModuleType)):
            return f"{type(value).__name__} {getattr(value, '__module__', '')}.{value.__name__}"
        return type(value).__name__

    found = {}
    def look(prefix, holder):
        for name, value in list(vars(holder).items()):
            found[f"{prefix}.{name}"] = describe(value)
            if isinstance(value, type) and (value.__module__ or "").startswith("torch") and len(prefix.split(":")) == 1:
                look(f"{prefix}.{name}:class", value)
    modules = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "torch"}
    for name, module in modules.items():
        if isinstance(module, types.ModuleType):
            look(name, module)
    for where, table in (("copyreg", copyreg.dispatch_table), ("pickler", ForkingPickler._extra_reducers)):
        for kind, function in table.items():
            found[f"{where} {kind}"] = describe(function)
    found["multithreading"] = repr(torch._C._is_multithreading_enabled())
    found["modules"] = sorted(modules)
    found["initialized"] = "headrace._start" in sys.modules or "headrace.torch_compile" in sys.modules
    json.dump(found, sys.stdout)
"""


def run(program, **environment):
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_torch_changes_nothing_but_the_name():
    plain = json.loads(run(SNAPSHOT, TORCH_DEVICE_BACKEND_AUTOLOAD="0"))
    loaded = json.loads(run(SNAPSHOT))
    assert not loaded.pop("initialized") and not plain.pop("initialized")
    assert set(loaded.pop("modules")) - set(plain.pop("modules")) <= {"torch.headrace"}
    differences = {name: (plain.get(name), value) for name, value in loaded.items() if value != plain.get(name)} | {
        name: (value, None) for name, value in plain.items() if name not in loaded
    }
    unexpected = {
        name: pair
        for name, pair in differences.items()
        if "headrace" not in name.lower()
        and name != "torch.utils.backend_registration._privateuse1_backend_name"
        and "torch.utils.backend_registration._rename_" not in str(pair)  # how torch prints the name
    }
    assert not unexpected, "\n".join(f"{name}: {pair}" for name, pair in unexpected.items())


def test_the_first_use_leaves_tensors_of_the_host_to_torch():
    program = """if True:
        import copy, io, pickle, sys
        from multiprocessing.reduction import ForkingPickler
        import numpy, torch
        from torch.multiprocessing import reductions

        def use():
            x = torch.arange(6.0).reshape(2, 3)
            model = torch.nn.Linear(3, 2)
            with torch.no_grad():
                model.weight.fill_(0.5), model.bias.fill_(0.25)
            optimizer = torch.optim.Adam(model.parameters(), foreach=True)
            model(x).square().sum().backward()
            optimizer.step()
            again = pickle.loads(ForkingPickler.dumps(x))
            return [
                repr(x), repr(model.weight), again.tolist(), pickle.loads(pickle.dumps(x)).tolist(),
                torch.from_dlpack(x).tolist(), numpy.from_dlpack(x).tolist(),
                reductions.reduce_storage(x.untyped_storage())[0].__name__,
            ]

        before, dlpack = use(), torch.utils.dlpack.to_dlpack
        assert "headrace._start" not in sys.modules
        assert (torch.ones(3, device="headrace") + 1).tolist() == [2.0, 2.0, 2.0]
        assert "headrace._start" in sys.modules
        assert use() == before and torch.utils.dlpack.to_dlpack is dlpack
        print("same")
    """
    assert run(program).strip() == "same"


def test_the_accelerators_stream_is_no_use_of_the_device():
    """torch 2.15's optimizers ask for it in each step."""
    program = """if True:
        import sys, torch
        stream = torch.accelerator.current_stream()
        assert torch.accelerator.current_device_index() == 0 and str(stream.device) == "headrace:0"
        torch.accelerator.set_stream(stream)
        model = torch.nn.Linear(3, 2)
        for kind in (torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop):
            optimizer = kind(model.parameters())
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
        assert not torch.headrace.is_initialized() and "headrace._start" not in sys.modules
        assert torch.ones(3, device="headrace").tolist() == [1.0, 1.0, 1.0] and torch.headrace.is_initialized()
        print("untouched")
    """
    assert run(program).strip() == "untouched"


FIRST_USES = {
    "factory": "torch.ones(3, device='headrace')",
    "moved": "torch.ones(3).to('headrace')",
    "method": "torch.ones(3).headrace()",
    "module": "torch.nn.Linear(1, 3, bias=False).headrace().weight.detach().fill_(1).flatten()",
    "generator": "torch.ones(3, device=torch.Generator('headrace').manual_seed(1).device)",
    "drawn": "torch.rand(3, generator=torch.Generator('headrace').manual_seed(1), device='headrace').ceil()",
    "event": "(torch.Event('headrace').record(), torch.ones(3, device='headrace'))[1]",
    "stream": "(torch.Stream('headrace').synchronize(), torch.ones(3, device='headrace'))[1]",
    "default": "(torch.set_default_device('headrace'), torch.ones(3))[1]",
    "seeded": "(torch.manual_seed(1), torch.rand(3, device='headrace').ceil())[1]",
    "like": "torch.ones_like(torch.zeros(3), device='headrace')",
    "memory": "(torch.headrace.memory_stats(), torch.ones(3, device='headrace'))[1]",
    "state": "(torch.headrace.get_rng_state(), torch.headrace.stats(), torch.ones(3, device='headrace'))[2]",
    "storage": "torch.empty(0, device='headrace').set_(torch.UntypedStorage(12, device='headrace')).fill_(1)",
    "loaded": "torch.load(io.BytesIO(saved), map_location='headrace')",
    "scripted": "torch.jit.script(scripted)()",
    "autocast": "(torch.autocast('headrace').__enter__(), torch.ones(3) * 1, torch.ones(3, device='headrace'))[2]",
    "after a backward pass": "(torch.ones(1, requires_grad=True).exp().backward(), "
    "torch.ones(3, device='headrace'))[1]",
    "thread": "ThreadPoolExecutor().submit(lambda: torch.ones(3, device='headrace')).result()",
}


@pytest.mark.parametrize("name", FIRST_USES)
def test_any_first_use_prepares_the_device(name, tmp_path):
    script = tmp_path / "first.py"
    script.write_text(f"""if True:
        import io, sys, torch
        from concurrent.futures import ThreadPoolExecutor
        def scripted():
            return torch.ones([3], device=torch.device('headrace'))
        buffer = io.BytesIO()
        torch.save(torch.ones(3), buffer)
        saved = buffer.getvalue()
        assert not torch.headrace.is_initialized() and "headrace._start" not in sys.modules
        x = {FIRST_USES[name]}
        assert str(x.device) == "headrace:0" and torch.headrace.is_initialized() and "headrace._start" in sys.modules
        print(x.cpu().tolist())
    """)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip() == "[1.0, 1.0, 1.0]", done.stderr


def test_backward_passes_run_in_any_thread_after_one_of_the_host():
    program = """if True:
        import os, threading, torch
        torch.ones(1, requires_grad=True).exp().backward()  # autograd counts devices at its first pass
        x = torch.ones(3, device="headrace", requires_grad=True)
        y = (x * 2).sum()
        thread = threading.Thread(target=lambda: y.backward(torch.tensor(1.0, device="headrace")))
        thread.start(), thread.join()
        print(x.grad.tolist(), flush=True)
        os._exit(0)  # torch's thread still drops the pass, and ends the process if Python ends meanwhile
    """
    assert run(program).strip() == "[2.0, 2.0, 2.0]"


def test_a_torch_without_a_library_costs_one_warning():
    program = """if True:
        import warnings, torch
        from headrace import _autoload
        torch.__version__ = "2.99.1"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _autoload._autoload()
        (warning,) = caught
        print(torch.ones(3).sum().item(), str(warning.message))
    """
    text = run(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0", HEADRACE_TORCH_LIBRARY="")
    minor = ".".join(torch.__version__.split(".")[:2])
    assert text.startswith(
        "3.0 headrace: the device could not be loaded and is not available: this headrace has libraries for torch "
    )
    assert minor in text and "this is torch 2.99.1" in text and text.count("\n") == 1


def test_a_library_that_does_not_load_costs_one_warning(tmp_path):
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    program = "import torch; print(torch.ones(3).sum().item())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"HEADRACE_TORCH_LIBRARY": str(broken)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "3.0\n" and done.stderr.count("RuntimeWarning: headrace: the device could not be loaded") == 1


@pytest.mark.parametrize(
    ("version", "files", "visible", "expected"),
    [
        ((None, None), ["/dev/nvidiactl"], None, False),
        (("13.2", None), [], None, False),
        (("13.2", None), ["/dev/nvidiactl"], None, True),
        (("13.2", None), ["/dev/nvidiactl"], "", False),
        ((None, "7.0"), ["/dev/kfd"], None, True),
    ],
)
def test_a_gpu_that_torch_drives_is_seen_by_its_files(monkeypatch, version, files, visible, expected):
    monkeypatch.setattr(os.path, "exists", lambda path: path in files)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    fake = types.SimpleNamespace(version=types.SimpleNamespace(cuda=version[0], hip=version[1]))
    assert _autoload.drives_a_gpu(fake) is expected
