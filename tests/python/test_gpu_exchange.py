"""Tensors of a GPU in the same memory as other libraries', by DLPack; needs a torch with CUDA beside the device's."""

import pytest
import torch
from support import DRIVER, assert_same

pytestmark = [
    pytest.mark.device_only,
    pytest.mark.skipif(DRIVER != "cuda" or not torch.cuda.is_available(), reason="no GPU that both can use"),
]
DTYPES = [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.complex64]
FORMS = [
    lambda t: t,
    lambda t: t[1:, ::2],
    lambda t: t.transpose(0, 2),
    lambda t: t[:, :, :0],
    lambda t: t[0, 0, 0],
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", range(len(FORMS)))
def test_every_dtype_and_layout_goes_both_ways(device, dtype, form):
    host = torch.randn(3, 4, 5).mul(3).to(dtype)
    ours = host.to(device) if dtype == torch.bool else host.to(device) + 0
    theirs = torch.from_dlpack(FORMS[form](ours))
    assert theirs.device.type == "cuda" and theirs.stride() == FORMS[form](host).stride()
    assert_same(theirs.cpu(), FORMS[form](host))
    back = torch.headrace.from_dlpack(FORMS[form](host.cuda()))
    assert back.device.type == "headrace" and back.shape == FORMS[form](host).shape
    assert_same(back.cpu(), FORMS[form](host))


def test_both_see_what_the_other_writes(device):
    ours = torch.zeros(1000, device=device)
    theirs = torch.from_dlpack(ours)
    theirs.add_(3)
    torch.cuda.synchronize()
    ours.mul_(2)
    torch.headrace.synchronize()
    assert theirs.tolist() == [6.0] * 1000
    made = torch.arange(1000.0, device="cuda")
    adopted = torch.headrace.from_dlpack(made)
    adopted.neg_()
    torch.headrace.synchronize()
    assert made[-1].item() == -999.0


def test_the_device_waits_for_work_on_an_array_that_it_takes(device):
    x = torch.randn(4096, 4096, device="cuda")
    for _ in range(3):
        y = x
        for _ in range(8):
            y = (y @ x) / 64
        adopted = torch.headrace.from_dlpack(y)
        assert torch.equal(adopted.cpu(), y.cpu())


def test_memory_lives_as_long_as_one_of_both(device):
    theirs = torch.from_dlpack(torch.arange(1000.0, device=device) + 1)
    ours = torch.headrace.from_dlpack(torch.arange(1000.0, device="cuda") + 1)
    noise = [torch.zeros(1000, device=place) for place in (device, "cuda") for _ in range(50)]
    torch.headrace.synchronize()
    assert theirs.sum().item() == ours.sum().item() == 500500.0
    assert len(noise) == 100


def test_what_cannot_be_exchanged_is_refused(device):
    x = torch.ones(3, device=device)
    with pytest.raises(BufferError, match="require gradient"):
        x.clone().requires_grad_().__dlpack__()
    with pytest.raises(BufferError, match="conjugate"):
        torch.ones(3, dtype=torch.complex64, device=device).conj().__dlpack__()
    capsule = torch.ones(3, device="cuda").__dlpack__()
    first = torch._C._from_dlpack(capsule)
    with pytest.raises(ValueError, match="nobody has taken"):
        from headrace._library import _C

        _C.from_dlpack(capsule, torch.device("headrace", 0))
    assert first.tolist() == [1.0] * 3
