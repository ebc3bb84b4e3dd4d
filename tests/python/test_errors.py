"""Bad input raises torch's CPU exceptions, and leaves all earlier tensors unchanged.

Errors that depend on values (an index out of range) may be detected when the work runs: they must be raised by the
next synchronisation.
"""

import math
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, IS_RECENT, assert_same, synchronize


def raised(function, where):
    """The type of the exception of `function(m)` on a device, including the wait, or None; `m` moves a tensor there."""
    try:
        result = function(lambda tensor: tensor.to(where))
        if isinstance(result, torch.Tensor):
            result.cpu()
        if torch.device(where).type == DEVICE.type:
            synchronize()
    except NotImplementedError:
        return RuntimeError  # its base: which of the two an unsupported dtype raises differs from operator to operator
    except Exception as error:
        return type(error)
    return None


F4 = torch.arange(4.0)
M23, M34 = torch.ones(2, 3), torch.ones(3, 4)
I3 = torch.tensor([0, 2, 1])
IMAGE = torch.ones(1, 3, 8, 8)

# Each takes `m`, which moves a tensor to the device.
SHAPES = {
    "add": lambda m: m(torch.ones(3)) + m(torch.ones(4)),
    "add in place grows": lambda m: m(torch.ones(3)).add_(m(torch.ones(2, 3))),
    "mm": lambda m: m(M23) @ m(M23),
    "mm of ranks": lambda m: torch.mm(m(M23), m(torch.ones(3))),
    "bmm": lambda m: torch.bmm(m(torch.ones(2, 3, 4)), m(torch.ones(3, 4, 5))),
    "addmm bias": lambda m: torch.addmm(m(torch.ones(5)), m(M23), m(M34)),
    "addmm bias of nothing": lambda m: torch.addmm(m(torch.ones(5)), m(torch.ones(0, 3)), m(M34)),
    "addmv bias": lambda m: torch.addmv(m(torch.ones(4)), m(M23), m(torch.ones(3))),
    "addmv bias of one": lambda m: torch.addmv(m(torch.ones(1)), m(M23), m(torch.ones(3))),
    "linear": lambda m: F.linear(m(M23), m(torch.ones(5, 4))),
    "dot": lambda m: torch.dot(m(torch.ones(3)), m(torch.ones(4))),
    "view": lambda m: m(torch.ones(6)).view(4, 2),
    "view of a transposed": lambda m: m(M23).t().view(6),
    "expand": lambda m: m(M23).expand(4, 3),
    "cat": lambda m: torch.cat([m(M23), m(M34)]),
    "cat of nothing": lambda m: torch.cat([]),
    "stack": lambda m: torch.stack([m(M23), m(M34)]),
    "copy_": lambda m: m(torch.ones(3)).copy_(m(torch.ones(4))),
    "copy_ of nothing": lambda m: m(torch.ones(1, 0)).copy_(m(torch.ones(0, 5))),
    "copy_ of nothing to one": lambda m: m(torch.ones(1)).copy_(m(torch.ones(0))),
    "copy_ to nothing": lambda m: m(torch.ones(0)).copy_(m(torch.ones(2))),
    "copy_ of one to nothing": lambda m: m(torch.ones(2, 0)).copy_(m(torch.ones(1))),
    "copy_ of host values to nothing": lambda m: m(torch.ones(2, 0)).copy_(torch.ones(3, 1)),
    "mm of batches": lambda m: torch.mm(m(torch.ones(1, 2, 3)), m(torch.ones(1, 3, 2))),
    "bmm of matrices": lambda m: torch.bmm(m(M23), m(M34)),
    "where": lambda m: torch.where(m(torch.ones(3, dtype=torch.bool)), m(torch.ones(4)), m(torch.ones(4))),
    "gather rank": lambda m: m(M23).gather(0, m(I3)),
    "gather size": lambda m: m(M23).gather(0, m(torch.zeros(3, 4, dtype=torch.long))),
    "index_select index": lambda m: m(M23).index_select(0, m(torch.zeros(1, 2, dtype=torch.long))),
    "conv channels": lambda m: F.conv2d(m(IMAGE), m(torch.ones(2, 4, 3, 3))),
    "conv kernel": lambda m: F.conv2d(m(IMAGE), m(torch.ones(2, 3, 9, 9))),
    "conv bias": lambda m: F.conv2d(m(IMAGE), m(torch.ones(2, 3, 3, 3)), m(torch.ones(3))),
    "conv groups": lambda m: F.conv2d(m(IMAGE), m(torch.ones(2, 3, 3, 3)), groups=2),
    "conv stride": lambda m: F.conv2d(m(IMAGE), m(torch.ones(2, 3, 3, 3)), stride=0),
    "conv padding": lambda m: F.conv2d(m(IMAGE), m(torch.ones(2, 3, 3, 3)), padding=-1),
    "conv transpose channels": lambda m: F.conv_transpose2d(m(IMAGE), m(torch.ones(2, 4, 3, 3))),
    "conv transpose output padding": lambda m: F.conv_transpose2d(m(IMAGE), m(torch.ones(3, 2, 3, 3)), None, 1, 0, 1),
    "max_pool kernel of three": lambda m: F.max_pool2d(m(IMAGE), (1, 2, 3)),
    "max_pool of no channels": lambda m: F.max_pool2d(m(torch.ones(2, 0, 8, 8)), 2),
    "avg_pool kernel of three": lambda m: F.avg_pool2d(m(IMAGE), (1, 2, 3)),
    "adaptive_avg_pool of nothing": lambda m: F.adaptive_avg_pool2d(m(torch.ones(2, 3, 0, 8)), (0, 0)),
    "pad cuts too much": lambda m: F.pad(m(IMAGE), (0, 0, 5, -9)),
    "max_pool padding": lambda m: F.max_pool2d(m(IMAGE), 2, padding=2),
    "max_pool size": lambda m: F.max_pool2d(m(IMAGE), 9),
    "avg_pool padding": lambda m: F.avg_pool2d(m(IMAGE), 2, padding=2),
    "batch_norm weight": lambda m: F.batch_norm(m(IMAGE), m(torch.ones(2)), m(torch.ones(2))),
    "batch_norm of one value": lambda m: F.batch_norm(m(torch.ones(1, 3)), None, None, training=True),
    "layer_norm shape": lambda m: F.layer_norm(m(M23), (4,)),
    "layer_norm weight": lambda m: F.layer_norm(m(M23), (3,), m(torch.ones(4))),
    "group_norm groups": lambda m: F.group_norm(m(IMAGE), 2),
    "nll batch": lambda m: F.nll_loss(m(M23), m(I3)),
    "cross_entropy weight": lambda m: F.cross_entropy(m(M23), m(I3[:2]), m(torch.ones(4))),
    "mse": lambda m: F.mse_loss(m(torch.ones(3)), m(torch.ones(4))),
    "bce": lambda m: F.binary_cross_entropy(m(torch.ones(3)), m(torch.ones(4))),
    "interpolate": lambda m: F.interpolate(m(IMAGE), size=(0, 4), mode="bilinear"),
    "interpolate of no channels": lambda m: F.interpolate(m(torch.ones(2, 0, 8, 8)), size=4),
    "sdpa dropout": lambda m: F.scaled_dot_product_attention(m(IMAGE), m(IMAGE), m(IMAGE), dropout_p=2.0),
    "sdpa": lambda m: F.scaled_dot_product_attention(m(torch.ones(1, 2, 3, 4)), m(torch.ones(1, 2, 3, 5)), m(IMAGE)),
    "embedding": lambda m: F.embedding(m(I3).float(), m(M34)),
    "backward shape": lambda m: m(F4).requires_grad_().exp().backward(m(torch.ones(3))),
    "out of another shape warns or fits": lambda m: torch.add(m(F4), 1, out=m(torch.empty(0))),
}

DTYPES = {
    "int in place by float": lambda m: m(I3).add_(1.5),
    "int div_": lambda m: m(I3).div_(2),
    "bool sub": lambda m: m(I3.bool()) - m(I3.bool()),
    "bool neg": lambda m: -m(I3.bool()),
    "float bitwise": lambda m: m(F4) & m(F4),
    "float shift": lambda m: m(I3.float()) << m(I3.float()),
    "mm mixed": lambda m: m(M23) @ m(M34.double()),
    "mean of int": lambda m: m(I3).mean(),
    "softmax of int": lambda m: m(I3).softmax(0),
    "conv mixed": lambda m: F.conv2d(m(IMAGE), m(torch.ones(2, 3, 3, 3, dtype=torch.double))),
    "conv of bool": lambda m: F.conv2d(m(IMAGE.bool()), m(torch.ones(2, 3, 3, 3, dtype=torch.bool))),
    "max_pool of bool": lambda m: F.max_pool2d(m(IMAGE.bool()), 2),
    "batch_norm statistics": lambda m: F.batch_norm(m(IMAGE), m(torch.ones(3).double()), m(torch.ones(3).double())),
    "layer_norm weight dtype": lambda m: F.layer_norm(m(M23), (3,), m(torch.ones(3).double())),
    "group_norm bias dtype": lambda m: F.group_norm(m(IMAGE), 3, m(torch.ones(3)), m(torch.ones(3).double())),
    "layer_norm of half": lambda m: F.layer_norm(m(M23.bfloat16()), (3,), m(torch.ones(3)), m(torch.ones(3))),
    "mse of int": lambda m: F.mse_loss(m(I3), m(I3)),
    "smooth_l1 of int": lambda m: F.smooth_l1_loss(m(I3), m(I3)),
    "bce mixed": lambda m: F.binary_cross_entropy(m(M23), m(M23.double())),
    "mm out": lambda m: torch.mm(m(M23), m(M34), out=m(torch.empty(2, 4, dtype=torch.double))),
    "cumsum_ of bool": lambda m: m(I3.bool()).cumsum_(0),
    "bool addcmul": lambda m: m(I3.bool()).addcmul(m(I3.bool()), m(I3.bool())),
    "fill_ complex": lambda m: m(F4.clone()).fill_(1j),
    "fill_ too large": lambda m: m(I3.byte()).fill_(300),
    "fill_ negative": lambda m: m(I3.byte()).fill_(-1),
    "index by float": lambda m: m(F4)[m(F4)],
    "index_select by float": lambda m: m(F4).index_select(0, m(F4)),
    "gather by int32": lambda m: m(F4).gather(0, m(I3.int())),
    "scatter mixed": lambda m: m(F4).scatter_add_(0, m(I3), m(torch.ones(3, dtype=torch.double))),
    "where condition": lambda m: torch.where(m(F4), m(F4), m(F4)),
    "nll float target": lambda m: F.nll_loss(m(M23), m(torch.ones(2))),
    "grad of int": lambda m: m(I3).requires_grad_(),
    "out dtype": lambda m: torch.add(m(F4), 1.5, out=m(torch.empty(4, dtype=torch.long))),
    "masked_fill mask": lambda m: m(F4).masked_fill(m(I3[:1]), 1.0),
    "relu of bool": lambda m: F.relu(m(I3.bool())),
    "relu_ of bool": lambda m: F.relu_(m(I3.bool())),
    "hardtanh of bool": lambda m: F.hardtanh(m(I3.bool())),
    "hardtanh of unsigned": lambda m: F.hardtanh(m(I3.byte())),
    "threshold of bool": lambda m: F.threshold(m(I3.bool()), 1.0, 2.0),
    "abs_ of complex": lambda m: m(F4 + 0j).abs_(),
    "floor of bool": lambda m: m(I3.bool()).floor(),
    "round_ of bool": lambda m: m(I3.bool()).round_(),
    "bool floor_divide": lambda m: m(I3.bool()) // m(I3.bool()),
    "bool remainder": lambda m: m(I3.bool()) % m(I3.bool()),
    "bool pow": lambda m: m(I3.bool()) ** m(I3.bool()),
    "bool shift": lambda m: m(I3.bool()) << m(I3.bool()),
    "bool mm": lambda m: m(M23.bool()) @ m(M34.bool()),
    "bool dot": lambda m: m(I3.bool()).dot(m(I3.bool())),
    "list floor of bool": lambda m: torch._foreach_floor([m(I3.bool())]),
    "lerp of two dtypes": lambda m: torch.lerp(m(F4), m(F4.double()), 0.5),
    "lerp weight": lambda m: torch.lerp(m(F4), m(F4), m(F4.double())),
    "argmax of bool": lambda m: m(I3.bool()).argmax(),
    "normal_ of int": lambda m: m(I3).normal_(),
    "normal of int": lambda m: torch.normal(m(I3), 1.0),
    "normal std": lambda m: torch.normal(m(F4), -1.0),
    "uniform_ of int": lambda m: m(I3.clone()).uniform_(),
    "uniform_ bound": lambda m: m(F4.clone()).uniform_(-float("inf"), 0),
    "exponential_ of int": lambda m: m(I3.clone()).exponential_(),
    "bernoulli of int": lambda m: torch.bernoulli(m(I3.clamp(0, 1))),
    "random_ above the dtype": lambda m: m(I3.byte()).random_(0, 257),
    "random_ up to the dtype": lambda m: m(I3.byte()).random_(0, 256).sum() * 0,
    "random_ below the dtype": lambda m: m(I3.byte()).random_(-1, 5),
    "random_ of bool": lambda m: m(I3.bool()).random_(0, 3),
    "dropout p": lambda m: F.dropout(m(F4), 1.5),
    "uniform_ reversed": lambda m: m(F4.clone()).uniform_(2, 1),
    "clamp of nothing": lambda m: m(F4).clamp(),
}

DIMS = {
    "sum dim": lambda m: m(M23).sum(2),
    "sum dim twice": lambda m: m(M23).sum((0, 0)),
    "softmax dim": lambda m: m(M23).softmax(-3),
    "amax of nothing": lambda m: m(torch.ones(0)).amax(0),
    "argmax of nothing": lambda m: m(torch.ones(0)).argmax(),
    "argmax of no rows": lambda m: m(torch.ones(0, 3)).argmax(0),
    "amax of nothing at all": lambda m: m(torch.ones(0)).amax(),
    "max of nothing": lambda m: m(torch.ones(0)).max(),
    "max of no rows": lambda m: m(torch.ones(0, 3)).max(0),
    "min of rows of nothing": lambda m: m(torch.ones(0, 3)).min(1)[0],
    "aminmax of nothing": lambda m: m(torch.ones(0)).aminmax(),
    "aminmax of no rows": lambda m: m(torch.ones(0, 3)).aminmax(dim=0),
    "transpose": lambda m: m(M23).transpose(0, 2),
    "permute": lambda m: m(M23).permute(0, 0),
    "select": lambda m: m(M23).select(0, 2),
    "narrow": lambda m: m(M23).narrow(1, 2, 2),
    "item of many": lambda m: m(F4).item(),
    "bool of many": lambda m: bool(m(F4)),
    "cat dim": lambda m: torch.cat([m(M23), m(M23)], 2),
    "squeeze dim": lambda m: m(M23).squeeze(5),
    "flip dim of nothing": lambda m: m(torch.ones(0, 3)).flip((2,)),
    "flip dim twice": lambda m: m(torch.ones(0, 3)).flip((0, 0)),
    "unflatten": lambda m: m(F4).unflatten(0, (3, 2)),
    "as_strided outside": lambda m: m(F4).as_strided((5,), (1,)),
    "negative as_strided": lambda m: m(F4).as_strided((2,), (-1,)),
    "resize negative": lambda m: m(F4.clone()).resize_(-1),
    "arange step": lambda m: torch.arange(0, 5, -1, device=m(F4).device),
}

IN_PLACE = {
    "add_ on expanded": lambda m: m(torch.ones(1)).expand(4).add_(1),
    "copy_ on expanded": lambda m: m(torch.ones(1)).expand(4).copy_(m(F4)),
    "add_ of an overlapping": (lambda m: (lambda x: x[1:].add_(x[:-1]))(m(F4.clone()))),
    "copy_ of an overlapping": (lambda m: (lambda x: x[1:].copy_(x[:-1]))(m(F4.clone()))),
    "copy_ of a row": (lambda m: (lambda x: x.copy_(x[0]))(m(M23.clone()))),
    "out overlaps input": (lambda m: (lambda x: torch.mul(x[:-1], 2, out=x[1:]))(m(F4.clone()))),
    "leaf that requires grad": lambda m: m(F4).clone().requires_grad_().add_(1),
    "saved for backward": (
        lambda m: (lambda x: (lambda y: (y.exp(), y.exp().mul_(2).sum().backward()))(x * 1))(m(F4).requires_grad_())
    ),
}

INDICES = {
    "embedding": lambda m: F.embedding(m(torch.tensor([0, 3])), m(M34)),
    "embedding negative": lambda m: F.embedding(m(torch.tensor([0, -1])), m(M34)),
    "index_select": lambda m: m(M34).index_select(0, m(torch.tensor([3]))),
    "index_select negative": lambda m: m(M34).index_select(0, m(torch.tensor([-1]))),
    "gather": lambda m: m(M34).gather(1, m(torch.tensor([[4]]))),
    "gather negative": lambda m: m(M34).gather(1, m(torch.tensor([[-1]]))),
    "index": lambda m: m(M34)[m(torch.tensor([0, 3]))],
    "index negative": lambda m: m(M34)[m(torch.tensor([-4]))],
    "index_put_": lambda m: m(M34.clone()).index_put_((m(torch.tensor([3])),), m(torch.ones(4))),
    "scatter_": lambda m: m(M34.clone()).scatter_(1, m(torch.tensor([[4]])), 1.0),
    "scatter_add_": lambda m: m(M34.clone()).scatter_add_(0, m(torch.tensor([[3]])), m(torch.ones(1, 1))),
    "index_add_": lambda m: m(M34.clone()).index_add_(0, m(torch.tensor([3])), m(torch.ones(1, 4))),
    "nll target": lambda m: F.nll_loss(m(M23), m(torch.tensor([0, 3]))),
    "cross_entropy target": lambda m: F.cross_entropy(m(M23), m(torch.tensor([0, -5]))),
}

M33, H33 = torch.arange(9.0).reshape(3, 3) + torch.eye(3), torch.arange(9.0).reshape(3, 3).bfloat16()
C33 = torch.complex(M33, M33.flip(0))


def into(function, dtype, *shape):
    """The function with a place of this dtype for its result, which it returns."""

    def call(m):
        place = m(torch.full(shape, 1, dtype=dtype))
        function(m, place)
        return place

    return call


# A result in a place of another dtype: refused, converted, or computed in that dtype.
PLACES = {
    "abs of complex in double": into(lambda m, o: torch.abs(m(C33), out=o), torch.double, 3, 3),
    "abs of complex in long": into(lambda m, o: torch.abs(m(C33), out=o), torch.long, 3, 3),
    "abs in double": into(lambda m, o: torch.abs(m(M33), out=o), torch.double, 3, 3),
    "lerp in double": into(lambda m, o: torch.lerp(m(M33), m(M33.t()), 0.5, out=o), torch.double, 3, 3),
    "lerp by a tensor in double": into(lambda m, o: torch.lerp(m(M33), m(M33), m(M33), out=o), torch.double, 3, 3),
    "cumprod in long": into(lambda m, o: torch.cumprod(m(M33), 0, out=o), torch.long, 3, 3),
    "cumprod in double": into(lambda m, o: torch.cumprod(m(I3), 0, out=o), torch.double, 3),
    "cumprod in another than asked": into(
        lambda m, o: torch.cumprod(m(I3), 0, dtype=torch.float, out=o), torch.double, 3
    ),
    "cumsum in long": into(lambda m, o: torch.cumsum(m(M33), 0, out=o), torch.long, 3, 3),
    "all in long": into(lambda m, o: torch.all(m(M33), out=o), torch.long),
    "any in long": into(lambda m, o: torch.any(m(M33), 0, out=o), torch.long, 3),
    "any of bytes in bool": into(lambda m, o: torch.any(m(I3.byte()), out=o), torch.bool),
    "std of halves in double": into(lambda m, o: torch.std(m(H33), out=o), torch.double),
    "std of columns in double": into(lambda m, o: torch.std(m(H33), 0, out=o), torch.double, 3),
    "var of halves in float": into(lambda m, o: torch.var(m(H33), 0, out=o), torch.float, 3),
    "nansum in long": into(lambda m, o: torch.nansum(m(M33), out=o), torch.long),
    "sum of complex in double": into(lambda m, o: torch.sum(m(C33), 0, out=o), torch.double, 3),
    "histc in double": into(lambda m, o: torch.histc(m(M33), 5, out=o), torch.double, 5),
    "narrow_copy in double": into(lambda m, o: torch.narrow_copy(m(M33), 0, 0, 2, out=o), torch.double, 2, 3),
    "solve_triangular in double": into(
        lambda m, o: torch.linalg.solve_triangular(m(M33), m(M33), upper=True, out=o), torch.double, 3, 3
    ),
    "logsigmoid in double": into(lambda m, o: torch._C._nn.log_sigmoid(m(M33), out=o), torch.double, 3, 3),
    "renorm in double": into(lambda m, o: torch.renorm(m(M33), 2, 0, 1.0, out=o), torch.double, 3, 3),
    "avg_pool3d in double": into(
        lambda m, o: torch._C._nn.avg_pool3d(m(torch.ones(1, 2, 2, 2)), 2, out=o), torch.double, 1, 1, 1, 1
    ),
    "round to decimals in double": into(lambda m, o: torch.round(m(M33), decimals=2, out=o), torch.double, 3, 3),
    "isin in long": into(lambda m, o: torch.isin(m(F4), m(F4), out=o), torch.long, 4),
    "nan_to_num in double": into(lambda m, o: torch.nan_to_num(m(M33), out=o), torch.double, 3, 3),
    "logsumexp of complex in double": into(lambda m, o: torch.logsumexp(m(C33), 0, out=o), torch.double, 3),
    "logsumexp of complex in long": into(lambda m, o: torch.logsumexp(m(C33), 0, out=o), torch.long, 3),
}

# Targets that overlap an input, or that an in-place operation would have to enlarge.
OVERLAPS = {
    "cat": lambda m: (lambda x: torch.cat([x[:2], x[1:3]], out=x))(m(torch.ones(4, 3))),
    "gather": lambda m: (lambda x: torch.gather(x, 0, m(I3), out=x))(m(torch.ones(3))),
    "index_select": lambda m: (lambda x: torch.index_select(x, 0, m(I3), out=x[:3]))(m(torch.ones(4))),
    "index_select into what repeats": lambda m: torch.index_select(
        m(torch.ones(3, 6)), 1, m(I3[:2]), out=m(torch.ones(1)).expand(2, 6)
    ),
    "kthvalue": lambda m: (lambda x: torch.kthvalue(x, 2, out=(x, m(torch.tensor(0)))))(m(torch.ones(4))),
    "out is an input that is too small": lambda m: (lambda x: torch.add(x, m(M33), out=x))(m(torch.ones(3, 1))),
    "ldexp_": lambda m: m(torch.ones(3, 1)).ldexp_(m(M33)),
    "addr_ of a row": lambda m: m(torch.ones(3)).addr_(m(torch.ones(3)), m(torch.ones(3))),
    "addbmm_ of one": lambda m: m(torch.ones(1)).addbmm_(m(torch.ones(2, 3, 4)), m(torch.ones(2, 4, 5))),
}

# Numbers and options that an operator does not take.
NUMBERS = {
    "addr of integers": lambda m: torch.addr(m(torch.ones(3, 3).long()), m(I3), m(I3), alpha=1.5),
    "arange without a step": lambda m: torch.arange(0, 3, 0, device=m(F4).device),
    "masked_fill too large": lambda m: m(I3.char()).masked_fill(m(I3 > 0), 300),
    "masked_fill complex": lambda m: m(I3).masked_fill(m(I3 > 0), m(torch.tensor(1j))),
    "gelu": lambda m: F.gelu(m(F4), approximate="erf"),
    "huber": lambda m: F.huber_loss(m(F4), m(F4), delta=0.0),
    "smooth_l1": lambda m: F.smooth_l1_loss(m(F4), m(F4), beta=-1.0),
    "softshrink": lambda m: F.softshrink(m(F4), -0.5),
    "roll of a number": lambda m: torch.roll(m(torch.tensor(1.0)), 1, 0),
    "narrow_copy of no dim": lambda m: torch.narrow_copy(m(M33), 5, 0, 2),
    "median of nothing": lambda m: torch.median(m(torch.ones(0, dtype=torch.long))),
}
if IS_RECENT:  # an older torch divides by zero, and the process ends
    NUMBERS["arange of a step that rounds to none"] = lambda m: torch.arange(0, 3, 0.5, out=m(I3))

# Numbers without an order: refused by name or by dtype, behind the checks of sizes.
ORDER = {
    f"{name} of {kind} {list(shape)}": lambda m, call=call, x=torch.ones(shape).to(dtype): call(m(x))
    for name, call in {
        "min": lambda x: torch.min(x),
        "min of a dim": lambda x: torch.min(x, 0),
        "max of a dim": lambda x: torch.max(x, 0),
        "amax": lambda x: torch.amax(x, 0),
        "cummin": lambda x: torch.cummin(x, 0),
        "cummax": lambda x: torch.cummax(x, 0),
        "mode": lambda x: torch.mode(x, 0),
        "mode of the last dim": lambda x: torch.mode(x, -1),
        "median": lambda x: torch.median(x),
        "median of a dim": lambda x: torch.median(x, 0),
        "nanmedian of a dim": lambda x: torch.nanmedian(x, 0),
        "kthvalue": lambda x: torch.kthvalue(x, 1, 0),
        "kthvalue of too many": lambda x: torch.kthvalue(x, 9, 0),
        "topk": lambda x: torch.topk(x, 1, 0),
        "sort": lambda x: torch.sort(x, 0),
        "argmax": lambda x: torch.argmax(x, 0),
    }.items()
    for kind, dtype in (("complex", torch.complex64), ("bools", torch.bool))
    for shape in ((3,), (0,), (), (0, 3))
}

ALL = {
    f"{kind}: {name}": function
    for kind, table in (
        ("shape", SHAPES),
        ("dtype", DTYPES),
        ("dim", DIMS),
        ("in place", IN_PLACE),
        ("index", INDICES),
        ("place", PLACES),
        ("overlap", OVERLAPS),
        ("number", NUMBERS),
    )
    for name, function in table.items()
}


@pytest.mark.parametrize("name", ALL)
def test_raises_what_cpu_raises(name, device):
    expected = raised(ALL[name], "cpu")
    before = torch.arange(5.0, device=device)
    assert raised(ALL[name], device) == expected
    assert_same(before + 1, torch.arange(1.0, 6.0), "a tensor that was there before")


def error_of(function, where):
    try:
        function(lambda tensor: tensor.to(where))
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("name", ORDER)
def test_numbers_without_an_order_raise_the_error_of_the_cpu(name, device):
    assert error_of(ORDER[name], device) is error_of(ORDER[name], "cpu")


@pytest.mark.parametrize("name", PLACES)
def test_place_of_another_dtype_gets_what_cpu_gives(name, device):
    if raised(PLACES[name], "cpu") is None:
        expected, actual = PLACES[name](lambda t: t), PLACES[name](lambda t: t.to(device))
        narrow = torch.float if expected.dtype == torch.double else expected.dtype
        assert actual.dtype == expected.dtype
        assert_same(actual.to(narrow), expected.to(narrow), name)


def test_most_of_these_raise():
    """The table is about errors: the few entries that torch's CPU device accepts are there because others might not."""
    accepted = [name for name, function in ALL.items() if raised(function, "cpu") is None]
    assert len(accepted) <= 32, accepted


# ---- devices


@pytest.mark.device_only
@pytest.mark.parametrize(
    "function",
    [
        lambda d, h: d + h,
        lambda d, h: h + d,
        lambda d, h: torch.mm(d, h),
        lambda d, h: torch.cat([d, h]),
        lambda d, h: torch.where(d > 0, d, h),
        lambda d, h: d.add_(h),
        lambda d, h: h.add_(d),
        lambda d, h: F.linear(d, h),
        lambda d, h: F.mse_loss(d, h),
        lambda d, h: torch.add(d, 1, out=h),
        lambda d, h: d.index_select(0, torch.tensor([0])),
        lambda d, h: F.embedding(torch.tensor([0]), d),
        lambda d, h: torch._foreach_add([d], [h]),
    ],
)
def test_mixed_devices_raise(function, device):
    with pytest.raises(RuntimeError, match="device"):
        function(torch.ones(2, 2, device=device), torch.ones(2, 2))


COUNT = torch.headrace.device_count() if DEVICE.type == "headrace" else 1
ABSENT = f"headrace:{COUNT}"  # one more than there are


@pytest.mark.device_only
@pytest.mark.parametrize(
    "function",
    [
        lambda: torch.ones(2, device=ABSENT),
        lambda: torch.empty(0, device=ABSENT),
        lambda: torch.tensor([1.0], device=ABSENT),
        lambda: torch.empty_strided((2,), (1,), device=ABSENT),
        lambda: torch.zeros_like(torch.ones(2, device=DEVICE), device=ABSENT),
        lambda: torch.ones(2).to(ABSENT),
        lambda: torch.ones(2, device=DEVICE).to(ABSENT),
        lambda: torch.ones(2).headrace(COUNT),
        lambda: torch.nn.Linear(2, 2).to(ABSENT),
        lambda: torch.UntypedStorage(4, device=ABSENT),
        lambda: torch.Generator(ABSENT),
        lambda: torch.Stream(ABSENT),
        lambda: torch.headrace.set_device(COUNT),
        lambda: torch.headrace.set_device(ABSENT),
        lambda: torch.headrace.device(COUNT),
        lambda: torch.headrace.synchronize(COUNT),
        lambda: torch.headrace.memory_allocated(COUNT),
        lambda: torch.headrace.get_rng_state(ABSENT),
        lambda: torch.accelerator.set_device_index(COUNT),
        lambda: torch.accelerator.synchronize(COUNT),
        lambda: torch.accelerator.memory_allocated(COUNT),
        lambda: torch.accelerator.device_index(COUNT).__enter__(),
    ],
)
def test_absent_device_raises(function):
    there_is = "there is 1 device, headrace:0" if COUNT == 1 else f"there are {COUNT} devices"
    with pytest.raises(RuntimeError, match=f"^The device index is out of range: {ABSENT} was asked for, but {there_is}$"):
        function()


@pytest.mark.device_only
def test_absent_device_as_default_raises(device):
    with torch.device(ABSENT), pytest.raises(RuntimeError, match=ABSENT):
        torch.ones(2)
    assert torch.ones(2, device=device).device.index == 0


@pytest.mark.device_only
def test_no_numpy_of_device_memory(device):
    with pytest.raises(TypeError, match="cpu"):
        torch.ones(2, device=device).numpy()


def test_numbers_of_another_device_mix(device):
    """A CPU tensor of no dimensions is a number to every device."""
    assert_same(torch.ones(2, device=device) * torch.tensor(3.0), torch.full((2,), 3.0))


# ---- operators that the device lacks


@pytest.fixture(scope="module")
def host_only():
    """An operator that has a kernel only on the CPU, now and in future."""
    library = torch.library.Library("headrace_test", "DEF")
    library.define("host_only(Tensor self) -> Tensor")
    library.impl("host_only", lambda x: x + 1, "CPU")
    yield torch.ops.headrace_test.host_only
    library._destroy()


@pytest.mark.device_only
def test_missing_operator_says_so(host_only, device):
    with pytest.raises(NotImplementedError, match="headrace_test::host_only") as caught:
        host_only(torch.ones(3, device=device))
    assert "HEADRACE_FALLBACK" in str(caught.value) or "set_fallback" in str(caught.value)
    assert_same(torch.ones(3, device=device) + 1, torch.full((3,), 2.0))


@pytest.mark.device_only
def test_missing_operator_falls_back_when_allowed(host_only, device):
    torch.headrace.set_fallback("allow")
    before = torch.headrace.stats().get("fallbacks", 0)
    result = host_only(torch.ones(3, device=device) * 2)
    assert result.device.type == "headrace"
    assert_same(result, torch.full((3,), 3.0))
    assert torch.headrace.stats()["fallbacks"] == before + 1


WITHOUT_LIBRARY = """
import torch, headrace.torch
x = torch.arange(9.0).reshape(3, 3) + 9 * torch.eye(3)
calls = {
    "inverse": lambda x: torch.linalg.inv(x),
    "singular values": lambda x: torch.linalg.svdvals(x),
    "solution": lambda x: torch.linalg.solve(x, x[0]),
    "out": lambda x: torch.linalg.qr(x, out=tuple(torch.empty(0, device=x.device) for _ in range(2)))[1].abs(),
}
for name, call in calls.items():
    try:
        call(x.to("headrace")).cpu()
        raise SystemExit(f"{name}: no error")
    except NotImplementedError:
        pass
torch.headrace.set_fallback("allow")
for name, call in calls.items():
    before = torch.headrace.stats()["fallbacks"]
    result = call(x.to("headrace"))
    assert result.device.type == "headrace", name
    torch.testing.assert_close(result.cpu(), call(x))
    assert torch.headrace.stats()["fallbacks"] > before, name
torch.testing.assert_close((x.to("headrace") @ x.to("headrace")).cpu(), x @ x)
print("right")
"""


@pytest.mark.device_only
@pytest.mark.cpu_only
def test_operators_of_a_library_that_is_not_there_run_on_the_host_when_allowed(tmp_path):
    environment = {**os.environ, "HEADRACE_LAPACK": str(tmp_path / "none.so"), "HEADRACE_FALLBACK": "error"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBRARY], capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.stdout.strip() == "right", done.stdout + done.stderr


# ---- errors in the middle of work


def test_error_in_the_middle_of_a_step(device):
    """Weights and optimizer state of before the failed step are right, and the next step goes on from them."""
    results = []
    for where, fails in (("cpu", False), (device, True)):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).to(where)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for step in range(6):
            x = torch.full((5, 3), 0.1 * step).to(where)
            if fails and step % 2:
                with pytest.raises(RuntimeError):
                    loss = model(x * 2).square().sum()
                    (model[0](x) @ torch.ones(3, 3, device=where)).sum().backward()
                del loss
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
        results.append(list(model.parameters()))
    for actual, expected in zip(results[1], results[0]):
        assert_same(actual, expected, rtol=1e-4, atol=1e-6)


def test_error_in_backward(device):
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("backward of Fails")

    w = torch.ones(4, device=device, requires_grad=True)
    with pytest.raises(ValueError, match="backward of Fails"):
        (Fails.apply(w * 3) + w).sum().backward()
    w.grad = None
    (w * 3).sum().backward()
    assert_same(w.grad, torch.full((4,), 3.0))


@pytest.mark.device_only
@pytest.mark.parametrize("mode", ["fuse", "eager", "strict"])
def test_index_error_leaves_older_tensors(mode, device):
    """Operations before the bad index are done, the rest of its trace is not; reading their results is an error."""
    torch.headrace.set_mode(mode)
    table = torch.arange(6.0, device=device).view(3, 2)
    weight = torch.ones(3, device=device)
    synchronize()
    bad = torch.tensor([0, 7], device=device)
    weight.mul_(2)
    rows = None
    with pytest.raises(IndexError):
        rows = table.index_select(0, bad)
        weight.add_(100)
        synchronize()
    if mode == "eager":  # each operation is a trace of its own: later ones may have run
        weight.fill_(2)
    assert_same(weight, torch.full((3,), 2.0), "written before the error, not after")
    assert_same(table, torch.arange(6.0).view(3, 2))
    if rows is not None:
        with pytest.raises(IndexError):
            rows.cpu()
    assert_same(table.index_select(0, torch.tensor([2], device=device)), torch.tensor([[4.0, 5.0]]))
    weight.add_(1)
    assert_same(weight, torch.full((3,), 3.0))


@pytest.mark.device_only
@pytest.mark.parametrize("mode", ["fuse", "strict"])
@pytest.mark.parametrize("factorize", [torch.linalg.eigh, torch.linalg.eigvals, torch.linalg.svdvals])
def test_factors_of_nan_leave_older_tensors(factorize, mode, device):
    """Operations before the factorisation are done, those after it are not, though all could run at once."""
    torch.headrace.set_mode(mode)
    weight = torch.ones(3, device=device)
    bad = torch.full((4, 4), math.nan, device=device)
    synchronize()
    weight.mul_(2)
    with pytest.raises(RuntimeError, match="non-finite|infs or NaNs"):
        factors = factorize(bad)
        weight.add_(100)
        synchronize()
    assert_same(weight, torch.full((3,), 2.0), "written before the error, not after")
    weight.add_(1)
    assert_same(weight, torch.full((3,), 3.0))


@pytest.mark.device_only
@pytest.mark.parametrize(
    "call",
    [
        lambda x, i, v: x.index_fill_(0, i, 1.0),
        lambda x, i, v: x.index_copy_(0, i, v),
        lambda x, i, v: x.index_add_(0, i, v),
        lambda x, i, v: x.scatter_(0, i, v),
        lambda x, i, v: x.gather(0, i),
    ],
    ids=["index_fill", "index_copy", "index_add", "scatter", "gather"],
)
@pytest.mark.parametrize("index", [3, -4])
def test_error_of_an_index_has_torchs_type(call, index, device):
    """The type is torch's, and the message names the index as the program wrote it."""

    def error_on(where):
        text = f"index (out of range|{index} is out of bounds)"
        with pytest.raises((IndexError, RuntimeError), match=text) as caught:
            call(torch.ones(3, device=where), torch.tensor([index], device=where), torch.ones(1, device=where)).cpu()
        return caught.type

    assert error_on(device) is error_on("cpu")


@pytest.mark.parametrize(
    "call", [lambda b: b - 1, lambda b: 1 - b, lambda b: b - b, lambda b: torch.ones(2, device=b.device) - b]
)
def test_error_of_subtracting_bools_has_torchs_type(call, device):
    def error_on(where):
        with pytest.raises(RuntimeError, match="Subtraction") as caught:
            call(torch.ones(2, dtype=torch.bool, device=where))
        return caught.type

    assert error_on(device) is error_on("cpu")


@pytest.mark.device_only
def test_strict_mode_raises_at_the_line(device):
    torch.headrace.set_mode("strict")
    table, bad = torch.ones(3, 2, device=device), torch.tensor([3], device=device)
    with pytest.raises(IndexError):
        table.index_select(0, bad)
    synchronize()


# ---- memory


def test_absurd_size_raises(device):
    with pytest.raises((torch.OutOfMemoryError, RuntimeError), match=r"\d"):
        torch.ones(1 << 50, device=device).sum().item()
    assert_same(torch.ones(3, device=device) + 1, torch.full((3,), 2.0))


@pytest.mark.device_only
@pytest.mark.parametrize("mode", ["fuse", "strict"])
def test_out_of_memory_names_sizes_and_spares_the_rest(mode, device):
    torch.headrace.set_mode(mode)
    kept = torch.arange(1000.0, device=device)
    synchronize()
    torch.headrace.empty_cache()
    torch.headrace.set_memory_limit(torch.headrace.memory_reserved() + (32 << 20))
    with pytest.raises((torch.OutOfMemoryError, RuntimeError), match=r"\d{6,}") as caught:
        big = [torch.full((4 << 20,), float(index), device=device) for index in range(8)]  # 16 MiB each
        synchronize()
        del big
    assert "memory" in str(caught.value)
    del caught
    torch.headrace.set_memory_limit(0)
    assert_same(kept * 2, torch.arange(1000.0) * 2)
    assert torch.full((4 << 20,), 3.0, device=device).sum().item() == 3.0 * (4 << 20)


@pytest.mark.device_only
def test_work_fits_when_the_cache_is_returned(device):
    """A limit with room for the needed memory but not also for the cached memory: the cache is freed."""
    for size in (1 << 20, 3 << 20, 5 << 20):
        (torch.ones(size, device=device) + 1).sum().item()
    synchronize()
    torch.headrace.set_memory_limit(torch.headrace.memory_allocated() + (48 << 20))
    x = torch.ones(7 << 20, device=device)  # 28 MiB
    assert x.sum().item() == 7 << 20


def test_exit_with_an_unseen_error(tmp_path):
    """A program that ends before its error was seen ends normally: no abort, no hang."""
    program = (
        f"import {'headrace.torch, ' if DEVICE.type == 'headrace' else ''}torch\n"
        f"d = '{DEVICE.type}'\n"
        "x = torch.ones(3, device=d)\n"
        "try:\n"
        "    y = x.index_select(0, torch.tensor([9], device=d))\n"
        "except IndexError:\n"
        "    pass\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("divide", ["floor_divide", "remainder", "fmod", "trunc"])
def test_integer_division_by_zero(divide):
    """A zero among the divisors is found when the work runs; one that is a number at once. Floats divide by zero."""
    functions = {"trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc")}
    function = functions.get(divide) or getattr(torch, divide)
    x = torch.tensor([7, -7, 5], device=DEVICE)
    kept = x + 1
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        function(x, torch.tensor([1, 0, 2], device=DEVICE)).cpu()
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        function(x, 0).cpu()
    expected = function(x.cpu(), torch.tensor([2, -3, 4]))
    assert function(x, torch.tensor([2, -3, 4], device=DEVICE)).cpu().tolist() == expected.tolist()
    assert kept.cpu().tolist() == [8, -6, 6]
    zeros = torch.zeros(3, device=DEVICE)
    torch.testing.assert_close(function(x, zeros).cpu(), function(x.cpu(), zeros.cpu()), equal_nan=True)


def test_what_a_failed_operation_made_has_no_value():
    x = torch.arange(4.0, device=DEVICE)
    before = x * 2
    with pytest.raises((IndexError, RuntimeError)):
        failed = x.index_select(0, torch.tensor([9], device=DEVICE))
        synchronize()
    if DEVICE.type == "headrace":
        for _ in range(2):
            with pytest.raises(IndexError, match="index 9"):
                failed.cpu()
    assert before.cpu().tolist() == [0, 2, 4, 6] and x.sum().item() == 6
