"""Packages around torch find the device. A package that is not installed leaves its tests out."""

import pytest
import torch

D = "headrace"
pytestmark = pytest.mark.device_only


@pytest.fixture
def tensor_file(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    path = tmp_path / "x.safetensors"
    tensors = {"a": torch.randn(3, 4), "b": torch.ones(2, dtype=torch.bfloat16), "empty": torch.zeros(0, 3)}
    safetensors.save_file(tensors, path, metadata={"format": "pt"})
    return path, tensors


@pytest.mark.parametrize("device", [D, D + ":0", torch.device(D), 0])
def test_safetensors_reads_to_the_device(tensor_file, device):
    import safetensors.torch

    path, expected = tensor_file
    tensors = safetensors.torch.load_file(path, device=device)
    assert tensors.keys() == expected.keys()
    for name, tensor in tensors.items():
        assert tensor.device == torch.device(D, 0)
        assert torch.equal(tensor.cpu(), expected[name])


def test_safetensors_opens_for_the_device(tensor_file):
    import safetensors

    path, expected = tensor_file
    with safetensors.safe_open(path, framework="pt", device=D) as file:
        assert isinstance(file, safetensors.safe_open)
        assert set(file.keys()) == set(expected) and file.metadata() == {"format": "pt"}
        assert file.get_tensor("a").device.type == D
        part = file.get_slice("a")
        assert part.get_shape() == [3, 4] and part.get_dtype() == "F32"
        assert part[1:].device.type == D and torch.equal(part[1:, :2].cpu(), expected["a"][1:, :2])


def test_safetensors_of_the_host_stays_its_own(tensor_file):
    import safetensors

    path, expected = tensor_file
    with safetensors.safe_open(path, framework="np") as file:
        assert isinstance(file, safetensors.safe_open)
        assert file.get_tensor("a").tolist() == expected["a"].tolist()
    with safetensors.safe_open(path, framework="pt") as file:
        assert file.get_tensor("a").device.type == "cpu"
    with pytest.raises(safetensors.SafetensorError, match="nowhere"):
        safetensors.safe_open(path, framework="pt", device="nowhere")


def test_safetensors_loads_a_model(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    model, other = torch.nn.Linear(3, 2).to(D), torch.nn.Linear(3, 2).to(D)
    safetensors.save_model(model, tmp_path / "m.safetensors")
    assert safetensors.load_model(other, tmp_path / "m.safetensors", device=D) == (set(), [])
    assert torch.equal(other.weight.cpu(), model.weight.cpu())


@pytest.fixture
def accelerate():
    """accelerate without a state of other tests."""
    if torch.cuda.is_available():
        pytest.skip("accelerate selects torch's own CUDA device")
    package = pytest.importorskip("accelerate")
    package.state.AcceleratorState._reset_state(True)
    yield package
    package.state.AcceleratorState._reset_state(True)


def train_by_accelerate(accelerate, **names):
    torch.manual_seed(0)
    scale = accelerate.utils.GradScalerKwargs(init_scale=256.0)  # the default makes infinities, and skips the steps
    accelerator = accelerate.Accelerator(kwargs_handlers=[scale], **names)
    data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32, 2))
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(data, batch_size=8))
    for x, y in loader:
        with accelerator.autocast():
            out = model(x)
        accelerator.backward(torch.nn.functional.mse_loss(out.float(), y))
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return accelerator, model, out


@pytest.mark.parametrize(
    "precision, dtype", [("no", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_accelerate_trains_on_the_device(accelerate, precision, dtype):
    accelerator, model, out = train_by_accelerate(accelerate, mixed_precision=precision)
    assert accelerator.device.type == out.device.type == D
    accelerator.free_memory()
    accelerate.state.AcceleratorState._reset_state(True)
    _, expected, _ = train_by_accelerate(accelerate, cpu=True)
    bound = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 5e-3}[dtype]
    torch.testing.assert_close(model.weight.cpu(), expected.weight, rtol=bound, atol=bound)
    assert expected.weight.device.type == "cpu"
    if precision == "fp16":
        assert accelerator.scaler.is_enabled() and accelerator.scaler.get_scale() > 1


def test_accelerate_counts_the_memory_of_the_device(accelerate):
    from accelerate.utils import get_max_memory

    sizes = get_max_memory()
    assert 0 in sizes and sizes[0] > 0
    assert ("cpu" in sizes) == (not torch.headrace.get_device_properties(0).is_host)
    assert get_max_memory({"cpu": 10, 0: "1KB"}) == {0: 1000, "cpu": 10}


def test_accelerate_dispatches_to_the_device(accelerate, tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    expected = model(torch.ones(1, 8)).detach()
    accelerate.Accelerator().save_model(model, tmp_path)
    for sizes, devices in ((None, {D}), ({0: 600, "cpu": 10**6}, {D, "meta"})):
        with accelerate.init_empty_weights():
            empty = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
        loaded = accelerate.load_checkpoint_and_dispatch(empty, str(tmp_path), device_map="auto", max_memory=sizes)
        assert {parameter.device.type for parameter in loaded.parameters()} == devices
        torch.testing.assert_close(loaded(torch.ones(1, 8, device=D)).cpu(), expected)
    accelerate.utils.release_memory()


@pytest.fixture
def language_model(accelerate, monkeypatch):
    transformers = pytest.importorskip("transformers")
    import transformers.trainer

    monkeypatch.setattr(transformers.trainer, "is_datasets_available", lambda: False)  # examples/ has the name
    config = transformers.GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    torch.manual_seed(0)
    return transformers, transformers.GPT2LMHeadModel(config)


@pytest.mark.parametrize("names", [{}, {"bf16": True}, {"fp16": True}])
def test_trainer_trains_on_the_device(language_model, tmp_path, names):
    transformers, model = language_model
    rows = [{"input_ids": torch.arange(8) + i, "labels": torch.arange(8) + i} for i in range(8)]
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=4, learning_rate=1e-2, report_to=[], disable_tqdm=True, save_strategy="no", **names
    )
    assert arguments.device.type == D
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=rows)
    first = trainer.evaluate(rows)["eval_loss"]
    trainer.train()
    assert next(model.parameters()).device.type == D
    assert trainer.evaluate(rows)["eval_loss"] < first - 0.1


def test_trainer_stays_on_the_host_when_asked(language_model, tmp_path):
    transformers, _ = language_model
    assert transformers.TrainingArguments(str(tmp_path), use_cpu=True).device.type == "cpu"


def test_transformers_places_a_model_by_itself(language_model, tmp_path):
    transformers, model = language_model
    model.save_pretrained(tmp_path)
    loaded = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, device_map="auto")
    assert loaded.device == torch.device(D, 0)
    ids = torch.arange(8)[None]
    torch.testing.assert_close(loaded(ids.to(D)).logits.cpu(), model.eval()(ids).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
def test_lightning_trains_on_the_device(package, precision, tmp_path):
    lightning = pytest.importorskip(package)

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, _):
            assert self.layer.weight.device.type == batch.device.type == D
            return self.layer(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    model = Model()
    before = model.layer.weight.detach().clone()
    trainer = lightning.Trainer(
        accelerator=D, precision=precision, max_steps=4, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(model, torch.utils.data.DataLoader(torch.randn(16, 4), batch_size=4))
    assert trainer.strategy.root_device == torch.device(D, 0)
    assert model.layer.weight.norm().item() < before.norm().item()


def test_fabric_places_on_the_device():
    fabric = pytest.importorskip("lightning.fabric").Fabric(accelerator=D, precision="bf16-mixed")
    assert fabric.device == torch.device(D, 0)


def test_timer_measures_dropped_results():
    from torch.utils.benchmark import Timer

    x = torch.randn(64, device=D)
    x.sum().item()
    for statement in ("x.exp()", "y = x.exp()\ny + 1", "for _ in range(2): z = x.cos()"):
        timer = Timer(statement, globals={"x": x})
        before = torch.headrace.stats()["groups"]
        timer.timeit(5)
        assert torch.headrace.stats()["groups"] >= before + 5
    assert timer._task_spec.stmt == statement
    assert Timer("1 + 1").timeit(5).mean > 0


def test_flex_attention_runs_by_its_reference():
    flex = pytest.importorskip("torch.nn.attention.flex_attention").flex_attention
    q, k, v = (torch.randn(1, 2, 16, 8) for _ in "qkv")

    def causal(score, batch, head, i, j):
        return torch.where(i >= j, score, -float("inf"))

    expected = flex(q, k, v, score_mod=causal)
    torch.testing.assert_close(flex(q.to(D), k.to(D), v.to(D), score_mod=causal).cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_of_jagged_tensors(is_causal):
    offsets, values = torch.tensor([0, 2, 5, 7]), [torch.randn(7, 2, 4) for _ in "qkv"]

    sdpa = torch.nn.functional.scaled_dot_product_attention

    def attend_jagged():
        leaves = [value.to(D).requires_grad_() for value in values]
        nested = [torch.nested.nested_tensor_from_jagged(x, offsets.to(D)).transpose(1, 2) for x in leaves]
        return sdpa(*nested, is_causal=is_causal).transpose(1, 2).values(), leaves

    def attend_each():
        leaves = [value.clone().requires_grad_() for value in values]
        items = zip(*(x.split([2, 3, 2]) for x in leaves), strict=True)
        outs = [sdpa(*(x.transpose(0, 1) for x in item), is_causal=is_causal).transpose(0, 1) for item in items]
        return torch.cat(outs), leaves

    results = []
    for out, leaves in (attend_jagged(), attend_each()):
        out.square().sum().backward()
        results.append([out.detach(), *(leaf.grad for leaf in leaves)])
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)


class Noisy(torch.nn.Module):
    """A model with random numbers of the device in each step."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 6)

    def forward(self, x):
        return torch.nn.functional.dropout(self.layer(x), 0.5) + torch.randn_like(x) * 0.1


def test_accelerate_resumes_to_the_bit(accelerate, tmp_path):
    def begin():
        accelerate.state.AcceleratorState._reset_state(True)
        accelerator = accelerate.Accelerator()
        accelerate.utils.set_seed(3)
        model = Noisy()
        return accelerator, *accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.1))

    def train(accelerator, model, optimizer):
        for _ in range(3):
            accelerator.backward(model(torch.ones(4, 6, device=D)).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        return model.layer.weight.detach().cpu()

    unbroken = begin()
    train(*unbroken)
    unbroken[0].save_state(str(tmp_path))
    expected = train(*unbroken)
    resumed = begin()
    torch.rand(5, device=D)
    resumed[0].load_state(str(tmp_path))
    assert torch.equal(train(*resumed), expected)


def test_trainer_resumes_to_the_bit(language_model, tmp_path):
    transformers, model = language_model
    rows = [{"input_ids": torch.arange(8) + i, "labels": torch.arange(8) + i} for i in range(16)]

    def trainer(folder, **names):
        names |= {"per_device_train_batch_size": 4, "max_steps": 4, "save_steps": 2}
        arguments = transformers.TrainingArguments(
            str(tmp_path / folder), report_to=[], disable_tqdm=True, **names
        )
        torch.manual_seed(0)
        fresh = transformers.GPT2LMHeadModel(model.config)
        return transformers.Trainer(model=fresh, args=arguments, train_dataset=rows)

    unbroken = trainer("x", learning_rate=1e-2)
    unbroken.train()
    resumed = trainer("x", learning_rate=1e-2)
    resumed.train(resume_from_checkpoint=str(tmp_path / "x" / "checkpoint-2"))
    for actual, expected in zip(resumed.model.parameters(), unbroken.model.parameters(), strict=True):
        assert torch.equal(actual.cpu(), expected.cpu())


def test_distributed_checkpoints_hold_the_generators(tmp_path):
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    torch.manual_seed(7)
    torch.rand(3, device=D)
    states = {"generators": torch.headrace.get_rng_state_all()}
    checkpoint.save(states, checkpoint_id=str(tmp_path), no_dist=True)
    expected = torch.rand(3, device=D).cpu()
    loaded = {"generators": torch.headrace.get_rng_state_all()}
    checkpoint.load(loaded, checkpoint_id=str(tmp_path), no_dist=True)
    torch.headrace.set_rng_state_all(loaded["generators"])
    assert torch.equal(torch.rand(3, device=D).cpu(), expected)
