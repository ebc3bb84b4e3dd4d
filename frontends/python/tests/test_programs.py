"""Programs of torch.export as graphs, compared with torch."""

import sys
import warnings
from pathlib import Path

import headrace as hr
import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402

F = torch.nn.functional
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
warnings.filterwarnings("ignore", module="torch")


class Function(nn.Module):
    def __init__(self, function, model=None):
        super().__init__()
        self.function, self.model = function, model

    def forward(self, *args):
        return self.function(*args) if self.model is None else self.function(self.model, *args)


def as_module(function):
    return function if isinstance(function, nn.Module) else Function(function)


def imported(function, args, **options):
    """The graph of a module or function, and torch's results."""
    dynamic = options.pop("dynamic_shapes", None)
    module = as_module(function)
    with torch.no_grad():
        if dynamic is not None and isinstance(module, Function):
            dynamic = (dynamic,)
        program = torch.export.export(module, tuple(args), dynamic_shapes=dynamic)
    return hr.import_program(program, **options)


def results(function, args):
    with torch.no_grad():
        found = as_module(function)(*args)
    return [one for one in torch.utils._pytree.tree_leaves(found) if isinstance(one, torch.Tensor)]


def expect_results(session, function, args, bound=1e-5):
    feeds = dict(zip(session.inputs, [one.numpy() for one in args if isinstance(one, torch.Tensor)]))
    expected = results(function, args)
    got = session.run(None, feeds)
    assert len(got) == len(expected)
    for y, wanted in zip(got, expected):
        y, wanted = np.asarray(y), wanted.numpy()
        assert y.dtype == wanted.dtype and y.shape == wanted.shape
        if wanted.dtype.kind in "biu":
            np.testing.assert_array_equal(y, wanted)
        elif wanted.size:
            difference = np.sqrt(np.mean(np.square(y.astype(np.float64) - wanted)))
            assert np.isnan(y).sum() == np.isnan(wanted).sum()
            scale = max(np.std(wanted, dtype=np.float64), np.abs(wanted).max() / 10, 1e-30)
            assert difference <= bound * scale or not np.isfinite(wanted).all()


def check(function, *args, **options):
    graph = imported(function, args, **options)
    expect_results(hr.Session(graph), function, args)
    return graph


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + 7 * len(shape))).to(dtype)


X, Y = normal(3, 4), normal(3, 4, seed=1)
I, J = torch.arange(12).reshape(3, 4) - 5, torch.arange(12).reshape(3, 4) % 5 + 1
B = X > 0
IMAGES, SOUND, VOLUME = normal(2, 4, 9, 8), normal(2, 4, 11), normal(1, 2, 5, 6, 4)
AT = torch.tensor([[0, 2, 1, 1], [2, 2, 0, 1]])

CASES = {
    # arithmetic and dtypes
    "add_alpha": (lambda x, y: torch.add(x, y, alpha=3) - torch.sub(x, y, alpha=0.5), X, Y),
    "mixed_dtypes": (lambda x, i, b: (x * i, i + 0.5, i / 3, b + i, i * 2, b * 2.5, x.half() + i, i // 2), X, I, B),
    "of_f64_and_bf16": (lambda x, y: ((x.double() * 2 + y).float(), (x.bfloat16() + 1).float(), x.to(torch.int32)), X,
        Y),
    "division": (
        lambda i, j, x, y: (
            torch.div(i, j, rounding_mode="floor"), torch.div(i, j, rounding_mode="trunc"), i % j, torch.fmod(i, j),
            torch.div(x, y, rounding_mode="trunc"), x % y, torch.floor_divide(x, y), 2.0 / y, 5 - i,
        ),
        I, J, X, Y,
    ),
    "powers": (lambda x, j: (x**2, x**3.0, 2.0**x, j**2, torch.pow(x.abs(), x), torch.pow(2, j)), X, J),
    "comparisons": (lambda x, y, i: (x < y, x >= 0.5, i == 3, i > 0.5, torch.ne(x, i), x.eq(x), i.le(2.5)), X, Y, I),
    "logic": (lambda b, c: (b & c, b | ~c, b ^ c, torch.logical_and(b, c), torch.logical_not(b), b == c), B, Y > 0),
    "bits": (lambda i, j: (i & j, i | 3, i ^ j, ~i, i << 2, i >> 1), I, J),
    "bounds": (
        lambda x, y, i: (x.clamp(-0.5, 0.5), x.clamp(min=0.1), x.clamp(max=0), torch.clamp(x, y, y + 1), i.clamp(0, 3),
                         torch.maximum(x, y), torch.minimum(x, y), torch.clamp_min(x, 0.2)),
        X, Y, I,
    ),
    "choices": (lambda x, y, b: (torch.where(b, x, y), torch.where(b, x, 0.0), x.masked_fill(b, -1e9)), X, Y, B),
    "unary": (
        lambda x: (x.abs(), -x, x.exp(), x.sin(), x.cos(), x.tan(), x.tanh(), x.sigmoid(), x.erf(), x.floor(), x.ceil(),
                   x.round(), x.trunc(), x.sign(), x.abs().sqrt(), x.abs().rsqrt(), x.abs().log(), x.abs().log1p(),
                   x.square(), x.reciprocal(), x.expm1(), x.atan(), x.sinh(), x.isnan(), x.isinf(), x.isfinite()),
        X,
    ),
    "of_integers": (lambda i: (i.float().exp(), torch.exp(i), torch.sigmoid(i), i.abs(), -i, i.sign(), i.square()), I),
    "atan2_and_others": (lambda x, y: (torch.atan2(x, y), torch.hypot(x, y), torch.lerp(x, y, 0.3), x.copysign(y)), X,
        Y),
    "addcmul": (lambda x, y: (torch.addcmul(x, x, y, value=0.5), torch.addcdiv(x, x, y), torch.rsub(x, y, alpha=2)), X,
        Y),
    # activations
    "activations": (
        lambda x: (F.relu(x), F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.elu(x), F.elu(x, 0.7),
            F.celu(x, 1.3),
                   F.selu(x), F.leaky_relu(x, 0.2), F.hardtanh(x), F.hardswish(x), F.hardsigmoid(x), F.softplus(x),
                   F.mish(x), F.relu6(x), F.softshrink(x), F.hardshrink(x), F.threshold(x, 0.1, 2.0), F.logsigmoid(x),
                   F.glu(x), F.softsign(x), F.tanhshrink(x), F.softmax(x, 1), F.log_softmax(x, 0), F.softmin(x, 1)),
        X,
    ),
    "prelu": (nn.PReLU(4), X),
    # reductions
    "sums": (
        lambda x, i: (x.sum(), x.sum(0), x.sum((0, 1), keepdim=True), x.mean(1), x.mean(), i.sum(1), x.prod(),
            x.prod(1),
                      i.float().mean(), x.sum(0, dtype=torch.float64), x.logsumexp(1), x.norm(), x.norm(dim=1)),
        X, I,
    ),
    "extremes": (
        lambda x, i: (x.max(), x.min(), *x.max(1), *x.min(0, keepdim=True), x.amax(1), x.amin((0, 1)), x.argmax(),
                      x.argmin(1, keepdim=True), i.max(), *i.max(0)),
        X, I,
    ),
    "any_all": (lambda b: (b.any(), b.all(), b.any(0), b.all(1, keepdim=True)), B),
    "variances": (lambda x: (x.var(), x.var(1), x.std(0, correction=0), *torch.var_mean(x, 1), x.std(1, keepdim=True)),
        X),
    "running": (lambda x, i, b: (x.cumsum(1), x.cumprod(0), i.cumsum(0), b.cumsum(1), torch.logcumsumexp(x, 1)), X, I,
        B),
    "order": (lambda x: (*x.topk(2, 1), *x.topk(2, 0, largest=False), *x.sort(1), *x.sort(0, descending=True),
        x.argsort(1)), X),
    # products
    "products": (
        lambda x, y: (x @ y.T, x.mv(y[0]), x[0].dot(y[0]), torch.addmm(y[:, :3], x, y.T, beta=0.5, alpha=2),
            torch.einsum("ij,kj->ik", x, y),
                      torch.bmm(x[None], y.T[None]), torch.baddbmm(y[None, :, :3], x[None], y.T[None]),
                          torch.outer(x[0], y[0])),
        X, Y,
    ),
    "linear": (nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2, bias=False), nn.ReLU()), X),
    "attention": (
        lambda q, k, v, m, b: (
            F.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, v, is_causal=True),
            F.scaled_dot_product_attention(q, k, v, attn_mask=m), F.scaled_dot_product_attention(q, k, v, attn_mask=b),
            F.scaled_dot_product_attention(q, k, v, scale=0.3), F.scaled_dot_product_attention(q[0], k[0], v[0]),
            F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True),
        ),
        normal(2, 2, 5, 4), normal(2, 2, 6, 4, seed=1), normal(2, 2, 6, 3, seed=2), normal(5, 6),
            normal(2, 1, 5, 6) > -1,
    ),
    "multihead": (lambda m, x: m(x, x, x)[0], nn.MultiheadAttention(8, 2, batch_first=True).eval(), normal(2, 5, 8)),
    "transformer": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), normal(2, 5, 8)),
    # convolutions and images
    "conv1d": (nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), SOUND),
    "conv2d": (nn.Sequential(nn.Conv2d(4, 6, (3, 2), dilation=(1, 2), padding="same"), nn.Conv2d(6, 3, 3, bias=False)),
        IMAGES),
    "conv3d": (nn.Conv3d(2, 3, 2, padding=(1, 0, 1)), VOLUME),
    "conv_of_one_example": (nn.Conv2d(4, 6, 3), IMAGES[0]),
    "conv_transpose": (
        nn.Sequential(nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
            nn.ConvTranspose2d(6, 4, 2, groups=2)),
        IMAGES,
    ),
    "conv_transpose1d": (nn.ConvTranspose1d(4, 6, 3, stride=3, dilation=2), SOUND),
    "max_pools": (
        lambda x, s, v: (F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, (3, 2), ceil_mode=True),
            F.max_pool1d(s, 3),
                         F.max_pool2d(x, 2, dilation=2), F.max_pool3d(v, 2), *F.max_pool2d(x, 2, return_indices=True),
                             F.max_pool2d(x[0], 2)),
        IMAGES, SOUND, VOLUME,
    ),
    "avg_pools": (
        lambda x, s, v: (F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
                         F.avg_pool2d(x, 3, 2, ceil_mode=True), F.avg_pool1d(s, 4), F.avg_pool3d(v, 2),
                             F.avg_pool2d(x, 2, divisor_override=3)),
        IMAGES, SOUND, VOLUME,
    ),
    "adaptive_pools": (
        lambda x, s: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_avg_pool2d(x, 5),
                      F.adaptive_avg_pool1d(s, 4), F.adaptive_avg_pool2d(x, (None, 3)),
                          F.adaptive_max_pool2d(x, (3, 2))),
        IMAGES, SOUND,
    ),
    "upsample": (
        lambda x, s: (F.interpolate(x, scale_factor=2), F.interpolate(x, (5, 13)), F.interpolate(x, scale_factor=1.5),
                      F.interpolate(x, scale_factor=2, mode="bilinear"), F.interpolate(x, (5, 13), mode="bilinear"),
                      F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
                          F.interpolate(s, 17, mode="linear"),
                      F.interpolate(x, (12, 4), mode="bicubic"), F.interpolate(x, (5, 13), mode="nearest-exact"),
                      F.interpolate(x, scale_factor=1.3, mode="bilinear")),
        IMAGES, SOUND,
    ),
    "antialias": (lambda x: (F.interpolate(x, (4, 5), mode="bilinear", antialias=True),
        F.interpolate(x, (4, 5), mode="bicubic", antialias=True)), IMAGES),
    "grid_sample": (
        lambda x, g: (F.grid_sample(x, g, align_corners=False),
            F.grid_sample(x, g, mode="nearest", padding_mode="border", align_corners=True),
                      F.grid_sample(x, g, mode="bicubic", padding_mode="reflection", align_corners=False)),
        IMAGES, normal(2, 3, 5, 2),
    ),
    "pads": (
        lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, -2, 0, 3), value=2.5), F.pad(x, (2, 1, 1, 1), mode="reflect"),
            F.pad(x, (2, 1, 1, 1), mode="replicate"),
                   F.pad(x, (1, 1, 2, 0), mode="circular")),
        IMAGES,
    ),
    "pixel_shuffle": (lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x[..., :8, :], 2),
        F.unfold(x, 3, padding=1)), IMAGES),
    # norms and recurrent layers
    "layer_norm": (nn.Sequential(nn.LayerNorm(8), nn.LayerNorm((9, 8), elementwise_affine=False)), IMAGES),
    "rms_norm": (nn.Sequential(nn.RMSNorm(8), nn.RMSNorm(8, eps=1e-2)), IMAGES),
    "group_norms": (nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.InstanceNorm2d(4)).eval(),
        IMAGES),
    "batch_norm": (nn.Sequential(nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False)).eval(), IMAGES),
    "local_response_norm": (nn.LocalResponseNorm(3), IMAGES),
    "lstm": (lambda m, x: (m(x)[0], *m(x)[1]), nn.LSTM(3, 5, 2, bidirectional=True, batch_first=True), normal(2, 6, 3)),
    "lstm_steps_first": (lambda m, x: m(x)[0], nn.LSTM(3, 5, bias=False), normal(6, 2, 3)),
    "gru": (lambda m, x: m(x), nn.GRU(3, 5, 2, bidirectional=True), normal(6, 2, 3)),
    "rnn": (lambda m, x: m(x), nn.RNN(3, 5, nonlinearity="relu", batch_first=True), normal(2, 6, 3)),
    "cells": (lambda m, x: m(x), nn.LSTMCell(4, 5), X),
    # shapes
    "views": (
        lambda x: (x.view(2, 36, 8), x.reshape(-1), x.flatten(1), x.permute(0, 2, 3, 1), x.transpose(1, 3),
            x.unsqueeze(1), x[:, :1].squeeze(1),
                   x.expand(3, 2, 4, 9, 8), x[:1].expand(5, -1, -1, -1), x.unflatten(1, (2, 2)), x.movedim(1, -1),
                       x.T.shape and x.mT, x.contiguous(),
                   x.swapaxes(0, 1), x[:, 0].t().T if False else x[0, 0].t()),
        IMAGES,
    ),
    "parts": (
        lambda x: (x[1], x[:, 1:3], x[..., -1], x[..., ::2], x[:, None], x.narrow(2, 1, 3), *x.split(3, 2),
            *x.chunk(3, 3), *x.unbind(1),
                   *x.split([1, 3], 1), x.select(1, -1), x[-1, 2:, :-1]),
        IMAGES,
    ),
    "joins": (lambda x, y, i: (torch.cat([x, y]), torch.cat([x, i], 1), torch.stack([x, y], 1), torch.hstack([x, y]),
        x.repeat(2, 1, 2),
                               torch.tile(x, (2,)), x.repeat_interleave(2, 1), torch.cat([torch.zeros(0), x[0]])), X,
                                   Y, I),
    "turns": (lambda x: (x.flip(0), x.flip((0, 1)), x.roll(1, 0), x.roll((1, -2), (0, 1)), x.roll(2), x.rot90(),
        x.tril(), x.triu(1),
                         x.diagonal(), x.diagonal(1), torch.diag(x[0]), x.diff(dim=1)), X),
    "strided": (lambda x: (x.as_strided((2, 3), (4, 1), 1), x.unfold(1, 2, 1)), X),
    "writes": (
        lambda x, y: (written(x, y), torch.slice_scatter(x, y[:, :2], 1, 0, 4, 2), torch.select_scatter(x, y[0], 0, 1)),
        X, Y,
    ),
    # indices
    "embedding": (nn.Embedding(7, 3), torch.tensor([[1, 6, 0], [3, 3, 2]])),
    "takes": (lambda x, a: (x[a], x[:, a], x[a[0], a[1]], x[:, None, a][..., 0], x.index_select(1, a[0]), x[[0, 2]],
        x[a[:, :1], a],
                            torch.gather(x, 0, a), torch.gather(x, 1, a[:, :2]), torch.take_along_dim(x, a[:1], 0),
                                x.take(a)), X, AT),
    "index_apart": (lambda x, a: (x[a[0], :, a[1]], x[:, a[0], :, a[1]]), IMAGES, AT % 2),
    "puts": (
        lambda x, a, y: (x.index_put((a[0], a[1]), y[0]), x.index_put((a[0],), y[:1], accumulate=True),
            x.index_add(0, a[0], y[[0, 1, 2, 0]], alpha=2),
                         x.scatter(0, a, y), x.scatter(1, a[:, :2], 0.5), x.scatter_add(0, a, y),
                             x.scatter_reduce(0, a, y, "amax"),
                         x.scatter_reduce(0, a, y, "prod", include_self=False), x.scatter_reduce(0, a, y, "mean"),
                         x.scatter_reduce(0, a, y, "amin", include_self=False), x.index_copy(0, a[0, :2], y[:2]),
                             x.index_fill(0, a[0], 2.0)),
        X, AT, Y,
    ),
    "masks": (lambda x, b: (x[b], x[b].sum(), b.nonzero(), x[b.any(1)]), X, B),
    "searchsorted": (lambda x, y: (torch.searchsorted(x[0].sort()[0], y),
        torch.bucketize(y, x[0].sort()[0], right=True)), X, Y),
    "one_hot": (lambda a: (F.one_hot(a, 4), F.cross_entropy(F.one_hot(a[0], 4).float(), a[0])), AT),
    # new tensors
    "new": (
        lambda x: (torch.zeros(2, 3), torch.ones_like(x), x.new_full((2,), 3.5), torch.full((2, 2), 7),
            torch.arange(5), torch.arange(1, 6, 2),
                   torch.arange(0, 1, 0.25), torch.eye(3), torch.linspace(0, 1, 5), torch.tensor([1, 2]),
                       torch.tril(torch.ones(3, 3)), x.new_zeros(2),
                   torch.zeros_like(x, dtype=torch.int32), torch.triu_indices(3, 3)),
        X,
    ),
    "losses": (lambda x, y: (F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y),
        F.binary_cross_entropy_with_logits(x, y.sigmoid()),
                             F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
                                 F.cosine_similarity(x, y), torch.cdist(x, y)), X, Y),
    "dropout": (nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 4)).eval(), X),
}  # fmt: skip


def written(x, y):
    """Writes to a copy: the program has none of them."""
    z = x.clone()
    z[1:, ::2] = y[1:, ::2]
    z[0] += 2
    z[:, -1].mul_(3)
    z.relu_()
    return z


@pytest.mark.parametrize("name", CASES)
def test_operators(name):
    function, *args = CASES[name]
    if isinstance(args[0], nn.Module):
        function, args = Function(function, args[0].eval()), args[1:]
    check(function, *args)


# ---- networks


def networks():
    return pytest.importorskip("networks")


@pytest.mark.parametrize("name", ["cnn", "mlp", "resnet50", "gpt2", "lstm", "unet", "dcgan"])
def test_networks(name):
    case = networks().CASES[name]
    torch.manual_seed(1)
    model, batch = case.build(small=True).eval(), case.batch(small=True)
    check(Function(lambda model, *args: case.infer(model, args), model), *batch)


def gallery_case(name):
    """A network of the gallery, as a module, and arguments."""
    if name in ("bert", "llama", "whisper"):
        pytest.importorskip("transformers")
    net = pytest.importorskip("gallery").network(name)
    torch.manual_seed(3)
    model = net.build(small=True).eval()
    batch = net.batch(torch.Generator().manual_seed(4), small=True)
    if name == "bert":
        return Function(lambda model, tokens: model(input_ids=tokens).logits, model), batch[:1]
    if name == "llama":
        return Function(lambda model, tokens: model(input_ids=tokens, use_cache=False).logits, model), (batch[0][:2],)
    if name == "whisper":
        heard = net.spectrogram(model, batch[0][:4])
        answer = torch.full((len(heard), 3), net.BEGIN)

        def listen(model, heard, answer):
            return model(input_features=heard, decoder_input_ids=answer, use_cache=False).logits

        return Function(listen, model), (heard, answer)
    if name == "diffusion":
        return model, (batch[3][:2], batch[2][:2], batch[1][:2])
    return model, batch[: {"graph": 2, "vae": 2}.get(name, 1)]


@pytest.mark.parametrize("name", ["bert", "diffusion", "graph", "llama", "lstm", "vae", "vit", "whisper", "yolo"])
def test_gallery(name):
    model, batch = gallery_case(name)
    module = Function(lambda model, *args: results(model, args), model)
    graph = imported(model, batch)
    expect_results(hr.Session(graph), module, batch)


# ---- dims that change


def test_symbols_of_batch_and_steps(tmp_path):
    """One package answers for batches and lengths that the program was not exported for."""
    case = networks().CASES["gpt2"]
    torch.manual_seed(1)
    model, (tokens, *_) = case.build(small=True).eval(), case.batch(small=True)
    names = dict.fromkeys(range(2))
    names[0], names[1] = Dim("batch", max=64), Dim("steps", min=2, max=16)
    with torch.no_grad():
        program = torch.export.export(model, (tokens,), dynamic_shapes=(names,))
    graph = hr.import_program(program)
    (shape,) = [value.shape for value in graph.inputs.values()]
    renamed = hr.import_program(program, symbols={shape[0]: "batch", shape[1]: "steps"}, outputs="scores")
    assert renamed.symbols[:2] == ("batch", "steps") and list(renamed.outputs) == ["scores"]
    renamed.save(tmp_path / "gpt.hrpkg")
    session = hr.Session(tmp_path / "gpt.hrpkg")
    for batch, steps in ((3, 12), (1, 2), (5, 7)):
        expect_results(session, model, (torch.arange(batch * steps).reshape(batch, steps) % 61,))


def test_symbols_in_shapes_slices_and_sizes():
    def function(x, y):
        count, width = x.shape
        return (
            x[: count - 1] + x[1:],
            x[:, width - 2 :],
            x[-2:, ::2],
            torch.cat([x, y], 1).reshape(count, 2, width)[:, 0],
            x.T.reshape(-1, 1),
            torch.arange(count) * 2,
            torch.zeros(width, count) + x.mean(),
            x.expand(3, count, width).flatten(0, 1),
            F.pad(x, (1, 2)),
            torch.tril(torch.ones(count, count)),
            x[:, None].repeat(1, 2, 1),
            x.sum() / count,
            y.narrow(1, 0, width - 1),
            F.interpolate(x[None, None], scale_factor=2),
        )

    rows, columns = Dim("rows", min=3, max=50), Dim("columns", min=3, max=50)
    graph = imported(function, (normal(4, 5), normal(4, 5)),
        dynamic_shapes=({0: rows, 1: columns}, {0: rows, 1: columns}))
    session = hr.Session(graph)
    for size in ((4, 5), (3, 3), (7, 4), (6, 50)):
        expect_results(session, function, (normal(*size), normal(*size, seed=1)))
    with pytest.raises(ValueError, match="args_1"):
        session.run(None, dict(zip(session.inputs, (np.zeros((4, 5), "f"), np.zeros((4, 6), "f")))))


def test_dims_that_depend_on_data():
    def function(x):
        places = x.nonzero()
        return places, x[x > 0] * 2, places[:, 0].float().sum()

    session = hr.Session(imported(function, (X,)))
    for x in (X, -X.abs(), X.abs()):
        expect_results(session, function, (x,))


# ---- control flow


def test_control_flow():
    def branches(x):
        return torch.cond(x.sum() > 0, lambda x: (x * 2, x.sum()), lambda x: (x.sin(), x.max()), (x,))

    def loop(x):
        return torch.while_loop(
            lambda i, x: (i < 5) & (x.sum() < 100), lambda i, x: (i + 1, x * 2), (torch.tensor(0), x)
        )

    for function in (branches, loop):
        session = hr.Session(imported(function, (X,)))
        for x in (X, -X, X.abs() * 10):
            expect_results(session, function, (x,))


# ---- state


def test_parameters_as_variables_are_trained():
    """Gradients of an imported network are torch's."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    graph = imported(model, (X,), variables=True, outputs=["y"])
    assert list(graph.variables) == [name for name, _ in model.named_parameters()]
    loss = hr.mean(hr.square(graph.outputs["y"]))
    for name, gradient in zip(graph.variables, graph.gradient(loss, list(graph.variables.values()))):
        graph.output("d" + name, gradient)
    got = hr.Session(graph)(X.numpy())
    model(X).square().mean().backward()
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(np.asarray(got["d" + name]), parameter.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_buffers_that_the_program_changes():
    """Batch norm in training mode keeps its running statistics from run to run."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm2d(4, momentum=0.3), nn.Conv2d(4, 2, 3)).train()
    program = torch.export.export(model, (IMAGES,))
    session = hr.Session(hr.import_program(program))
    for seed in range(3):
        x = normal(2, 4, 9, 8, seed=seed)
        y = model(x).detach().numpy()
        np.testing.assert_allclose(np.asarray(session.run(None, dict(zip(session.inputs, [x.numpy()])))[0]), y,
            rtol=1e-4, atol=1e-5)
    for name, buffer in model.named_buffers():
        np.testing.assert_allclose(np.asarray(session.variable(name)), buffer.numpy(), rtol=1e-5, atol=1e-6)


def test_the_graph_has_elements_of_its_own():
    model = nn.Linear(4, 2)
    graph = imported(model, (X,))
    expected = model(X).detach().numpy()
    with torch.no_grad():
        model.weight.zero_()
    np.testing.assert_allclose(np.asarray(hr.Session(graph)(X.numpy())["output"]), expected, rtol=1e-5, atol=1e-6)


# ---- what is refused


def test_what_has_no_translation_is_named():
    with pytest.raises(ValueError, match=r"operators without a translation: aten\._fft_r2c\.default \(2\)"):
        imported(lambda x: torch.fft.rfft(x).real + torch.fft.rfft(x * 2).real, (X,))
    with pytest.raises(ValueError, match="node 'randn'.*random numbers have no place in a graph"):
        imported(lambda x: x + torch.randn(3, 4), (X,))
    with pytest.raises(ValueError, match="export the model in eval mode"):
        imported(nn.Dropout(0.5).train(), (X,))
    with pytest.raises(ValueError, match="changes its inputs args_0"):
        imported(lambda x: x.add_(1), (X.clone(),))
    with pytest.raises(TypeError, match="Linear, expected what torch.export.export returns"):
        hr.import_program(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="2 names of outputs, expected 1"):
        imported(lambda x: x, (X,), outputs=["a", "b"])


def test_import_alone_imports_neither_torch_nor_numpy():
    import subprocess

    code = "import headrace as hr, sys; hr.import_program; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
