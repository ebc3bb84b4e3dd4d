"""Tensors and modules through files, copies, pickles, loaders and processes."""

import copy
import io
import pickle

import pytest
import torch

D = "headrace"
pytestmark = pytest.mark.device_only


def on_device(tensor):
    return tensor.to(D)


def make_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
    ).to(D)


def test_state_dict_to_and_from_files(tmp_path):
    model, path = make_model(), tmp_path / "model.pt"
    torch.save(model.state_dict(), path)
    for place in (None, "cpu", D):
        state = torch.load(path, map_location=place)
        assert state["0.weight"].device.type == (place or D)
        assert torch.equal(state["0.weight"].cpu(), model[0].weight.detach().cpu())
    other = make_model()
    other.load_state_dict(torch.load(path))
    x = torch.randn(5, 4).to(D)
    assert torch.equal(model(x).cpu(), other(x).cpu())


def test_host_file_loads_onto_the_device(tmp_path):
    torch.save({"x": torch.arange(3)}, tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt", map_location=D)["x"].device.type == D


@pytest.mark.parametrize("new_format", [True, False])
def test_save_formats_keep_sharing(new_format):
    x = on_device(torch.arange(6.0))
    file = io.BytesIO()
    torch.save([x, x[2:4]], file, _use_new_zipfile_serialization=new_format)
    file.seek(0)
    whole, part = torch.load(file)
    part += 1
    assert whole.cpu().tolist() == [0, 1, 3, 4, 4, 5]


def test_moving_a_module_keeps_its_parameters():
    """Tied weights stay one parameter; an optimizer created before the move trains the moved parameters."""
    losses = []
    for device in ("cpu", D):
        torch.manual_seed(5)
        table, head = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 20, bias=False)
        head.weight = table.weight
        model = torch.nn.Sequential(table, torch.nn.Tanh(), head)
        x = torch.arange(12)
        model(x).sum().backward()  # gradients move as well, and a later backward adds to the moved ones
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        weight, before = table.weight, table.weight.grad.clone()
        model.to(device)
        assert model[0].weight is weight and model[2].weight is weight and len(list(model.parameters())) == 1
        assert weight.device.type == device and weight.is_leaf and weight.grad.device.type == device
        torch.testing.assert_close(weight.grad.cpu(), before, rtol=0, atol=0)
        for _ in range(3):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x.to(device)), (x + 1).to(device))
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
        model.cpu()
        assert model[2].weight is weight and weight.device.type == "cpu" and weight.grad.device.type == "cpu"
        losses.append(weight.detach().double().sum().item())
        assert model.to("meta")[0].weight.is_meta
    assert losses[:2] == pytest.approx(losses[2:], rel=1e-4)


def test_pickle_and_deepcopy():
    x = on_device(torch.arange(4.0))
    assert torch.equal(pickle.loads(pickle.dumps(x)).cpu(), x.cpu())
    model = make_model()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin[0].weight.zero_()
    assert model[0].weight.abs().sum().item() > 0 and twin[0].weight.device.type == D


class DeviceDataset(torch.utils.data.Dataset):
    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.values[index]


@pytest.mark.parametrize("pin", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_loader_over_host_data(workers, pin):
    torch.ones(1, device=D).item()  # the device is open before workers fork
    data = torch.utils.data.TensorDataset(torch.arange(20.0).reshape(10, 2))
    total = sum(
        batch[0].to(D).sum().item()
        for batch in torch.utils.data.DataLoader(data, 3, num_workers=workers, pin_memory=pin)
    )
    assert total == 190


def test_forked_child_is_told():
    torch.ones(1, device=D).item()
    loader = torch.utils.data.DataLoader(DeviceDataset(torch.arange(4.0).to(D)), num_workers=1)
    with pytest.raises(RuntimeError, match="forked subprocess"):
        list(loader)
