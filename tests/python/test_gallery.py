"""The gallery's networks in small: losses, every gradient and answers are those of torch's CPU device, and nothing
leaves the device. In float64 rounding does not matter, so the bounds are tight; in float32 the libraries are used."""

import copy

import pytest
import torch
from gallery import NETWORKS, network
from gallery.__main__ import names
from gallery.compare import Run, infer, loss_difference, moved, output_difference, train
from gallery.report import Row, table, write_palette_png
from support import DEVICE, assert_same, norm_difference, total_norm

# Relative to a gradient's norm, or to a hundredth of the whole gradient's if that is larger. A Llama computes its norms
# and rotations in float32 for every dtype of its weights.
BOUNDS = {torch.float64: 1e-9, torch.float32: 2e-4}
IN_FLOAT32 = ("llama",)


def load(name):
    if name in ("whisper", "llama", "bert"):
        pytest.importorskip("transformers")
    return network(name)


def build(net, dtype=torch.float32):
    torch.manual_seed(3)
    return net.build(small=True).to(dtype)


def gradients(net, model, device, dtype):
    """The loss of one batch and the gradient of each parameter; None if the loss does not depend on it."""
    model = copy.deepcopy(model).to(device).train()
    batch = net.batch(torch.Generator().manual_seed(4), small=True)
    batch = [t.to(device, dtype) if t.is_floating_point() else t.to(device) for t in batch]
    loss = net.loss(model, *batch)
    loss.backward()
    found = {name: p.grad for name, p in model.named_parameters()}
    return loss.detach().cpu(), {name: g if g is None else g.cpu() for name, g in found.items()}


@pytest.fixture(autouse=True)
def nothing_leaves_the_device():
    if DEVICE.type == "headrace":
        torch.headrace.set_fallback("error")
        torch.headrace.reset_stats()
    yield
    if DEVICE.type == "headrace":
        assert torch.headrace.stats()["fallbacks"] == 0


@pytest.mark.parametrize("dtype", BOUNDS, ids=["float64", "float32"])
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients(name, dtype, device):
    net = load(name)
    model = build(net, dtype)
    bound = BOUNDS[torch.float32 if name in IN_FLOAT32 else dtype]
    expected_loss, expected = gradients(net, model, "cpu", dtype)
    loss, actual = gradients(net, model, device, dtype)
    assert_same(loss, expected_loss, "loss", rtol=bound / 10, atol=0)
    floor = 0.01 * total_norm(g for g in expected.values() if g is not None)
    assert floor > 0
    for parameter, wanted in expected.items():
        got = actual[parameter]
        assert (got is None) == (wanted is None), parameter
        if wanted is not None:
            difference = norm_difference(got, wanted)
            assert difference <= bound * max(wanted.norm().item(), floor), f"{parameter}: {difference}"


@pytest.mark.parametrize("name", NETWORKS)
def test_training_and_inference(name, device):
    """Like the gallery: some steps of Adam, then the output with the trained weights."""
    net = load(name)
    model = build(net)
    expected, actual = (train(net, model, 4, where, small=True) for where in ("cpu", device))
    assert loss_difference(actual.losses, expected.losses) < 1e-3
    assert expected.losses[0] != expected.losses[-1]
    answers = [infer(net, expected.model, Run(torch.device(where)), small=True, seconds=0) for where in ("cpu", device)]
    assert output_difference(answers[1], answers[0]) < 1e-4


@pytest.mark.parametrize("name", ["vit", "llama"])
def test_autocast(name, device):
    """In bfloat16: as far from float32 as torch's own autocast, with room for another order of rounding."""
    net = load(name)
    model = build(net)
    exact = train(net, model, 4, "cpu", small=True)
    expected, actual = (train(net, model, 4, where, small=True, autocast=torch.bfloat16) for where in ("cpu", device))
    assert actual.losses != exact.losses
    assert loss_difference(actual.losses, exact.losses) < 2e-2
    assert loss_difference(actual.losses, expected.losses) < 2e-2


@pytest.mark.device_only
@pytest.mark.parametrize("name", ["vit", "vae", "diffusion"])
def test_compiled(name, device):
    net = load(name)
    torch._dynamo.reset()
    model = build(net)
    expected = train(net, model, 4, "cpu", small=True)
    moved_model = copy.deepcopy(model).to(device).train()
    run = torch.compile(moved_model, backend="headrace")
    optimizer = torch.optim.Adam(moved_model.parameters(), lr=net.RATE)
    generator, losses = torch.Generator().manual_seed(1), []
    for _ in range(4):
        loss = net.loss(run, *moved(net.batch(generator, small=True), device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert loss_difference(losses, expected.losses) < 1e-3
    stats = torch.headrace.stats()
    assert stats["graph_runs"] > 0
    assert stats["graph_eager_runs"] == 0
    torch._dynamo.reset()


def test_boxes_that_stay():
    """Suppression against the plain loop that it stands for."""
    yolo = network("yolo")
    generator = torch.Generator().manual_seed(6)
    for _ in range(20):
        low = torch.rand(2, 9, 2, generator=generator) * 20
        boxes = torch.cat((low, low + 5 + torch.rand(2, 9, 2, generator=generator) * 15), dim=-1)
        scores = torch.rand(2, 9, generator=generator).sort(descending=True).values
        classes = torch.randint(2, (2, 9), generator=generator)
        stays = yolo.suppress(*moved((boxes, scores, classes), DEVICE), limit=0.3).tolist()
        for image in range(2):
            kept = []
            for index in range(9):
                rivals = [k for k in kept if classes[image, k] == classes[image, index]]
                free = all(yolo.overlap(boxes[image, k], boxes[image, index]) <= 0.3 for k in rivals)
                if scores[image, index] > 0.35 and free:
                    kept.append(index)
            assert [i for i in range(9) if stays[image][i]] == kept


def test_differences_are_found():
    assert loss_difference([1.0, 2.0], [1.0, 2.002]) == pytest.approx(1e-3, rel=1e-2)
    assert loss_difference([1.0, float("nan")], [1.0, 2.0]) != loss_difference([1.0, float("nan")], [1.0, 2.0])
    assert output_difference([torch.tensor([1, 2])], [torch.tensor([1, 3])]) == float("inf")
    assert output_difference([torch.tensor([1.0, 2.0])], [torch.tensor([1.0, 4.0])]) == 0.5
    nan = torch.tensor([float("nan")])
    row = Row("vit", network("vit"), 1, Run(torch.device("cpu"), [1.0], [1.0]), Run(DEVICE, [1.0], [1.0]))
    assert row.is_right
    row.output_difference = output_difference([nan], [torch.ones(1)])
    assert not row.is_right
    assert "Vision transformer" in table([row])


def test_palette_picture(tmp_path):
    from matplotlib import image

    levels = torch.randint(6, (7, 5, 3), generator=torch.Generator().manual_seed(1)) * 51
    write_palette_png(tmp_path / "a.png", levels.to(torch.uint8))
    read = torch.from_numpy(image.imread(tmp_path / "a.png"))[..., :3]
    assert torch.equal((read * 255).round().long(), levels)


def test_names():
    assert names("vit,llama") == ["vit", "llama"]
    with pytest.raises(Exception, match="'resnet' is none of"):
        names("vit,resnet")
