"""The guarantees of every PyTorch device apart from its operators' numbers, as device-generic tests in torch's own
style.

usage: device_types.py [--every K] [-k NAME] [-v]        (or any unittest option)

Classes are instantiated for our device by torch.testing._internal.common_device_type, as torch's own suites are, and
each test does the same on the CPU: views and writes through them, promotion of dtypes, factories, indexing, copies
and memory formats, saving, printing, DLPack, autograd and its hooks, lists, and the texts of errors. op_db's samples,
which run.py takes, have none of these. Results are compared exactly, unless the operator is inexact.

--every K runs each K-th test, a fair sample. A test that fails is an error of the device: nothing is listed as
expected.
"""

import copy
import io
import itertools
import operator
import os
import pickle
import sys
import unittest
import warnings

os.environ.setdefault("HEADRACE_JIT", "off")
os.environ.setdefault("HEADRACE_THREADS", "1")

import torch  # noqa: E402

import headrace.torch  # noqa: E402, F401, I001
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests, ops  # noqa: E402
from torch.testing._internal.common_methods_invocations import unary_ufuncs  # noqa: E402
from torch.testing._internal.common_utils import TestCase  # noqa: E402

warnings.simplefilter("ignore")
torch.set_num_threads(1)

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
ALL = (torch.bool, *INTEGERS, *FLOATS, *COMPLEX)


def numbers(shape, dtype, low=-4, high=5):
    """Small whole numbers, on the CPU: exact in every dtype."""
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    found = torch.randint(0 if dtype in (torch.uint8, torch.bool) else low, high, shape, generator=generator)
    return found.to(dtype)


class Base(TestCase):
    def same_on_both(self, function, device, exact=True):
        """function(device) gives the same on our device and on the CPU: results, their layout in memory, or the
        error's type and its text, devices' names apart."""
        expected, error = self.attempt(function, "cpu")
        found, ours = self.attempt(function, device)
        if isinstance(error, NotImplementedError) and ours is None:
            return  # the CPU has no kernel for the dtype, and the device has
        if error is not None or ours is not None:
            if isinstance(ours, NotImplementedError) and isinstance(error, RuntimeError):
                return
            self.assertEqual(type(ours), type(error), f"{str(ours)[:200]!r} where the CPU has {str(error)[:200]!r}")
            return
        self.compare(found, expected, exact)

    def attempt(self, function, device):
        torch.manual_seed(0)
        try:
            found = function(device)
            torch.headrace.synchronize()  # errors of deferred work are raised here at the latest
            return found, None
        except Exception as error:  # noqa: BLE001: every exception is compared
            return None, error

    def compare(self, found, expected, exact):
        if isinstance(expected, torch.Tensor):
            self.assertEqual(found.dtype, expected.dtype)
            self.assertEqual(found.shape, expected.shape)
            self.assertEqual(found.stride(), expected.stride())
            self.assertEqual(found.storage_offset(), expected.storage_offset())
            self.assertEqual(found._is_view(), expected._is_view())
            self.assertEqual(found.requires_grad, expected.requires_grad)
            self.assertEqual((found.is_conj(), found.is_neg()), (expected.is_conj(), expected.is_neg()))
            torch.testing.assert_close(
                found.detach().cpu(), expected.detach(), equal_nan=True, **({"rtol": 0, "atol": 0} if exact else {})
            )
        elif isinstance(expected, list | tuple):
            self.assertEqual(len(found), len(expected))
            for f, e in zip(found, expected):
                self.compare(f, e, exact)
        else:
            self.assertEqual(found, expected)


# ---- views


VIEWS = {
    "select": lambda x: x[1],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "slice": lambda x: x[::2, 1:],
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "movedim": lambda x: x.movedim(0, -1),
    "expand": lambda x: x[:1].expand(3, -1, -1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:1].squeeze(0),
    "view": lambda x: x.view(6, -1),
    "reshape": lambda x: x.reshape(-1),
    "reshape of a transposed": lambda x: x.transpose(0, 1).reshape(-1),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "unfold": lambda x: x.unfold(2, 2, 1),
    "diagonal": lambda x: x.diagonal(0, 0, 1),
    "as_strided": lambda x: x.as_strided((2, 2), (4, 1), 3),
    "split": lambda x: x.split(2, 2)[1],
    "chunk": lambda x: x.chunk(2, 1)[1],
    "unbind": lambda x: x.unbind(2)[3],
    "tensor_split": lambda x: x.tensor_split(3, 2)[2],
    "detach": lambda x: x.detach(),
    "alias": lambda x: torch.ops.aten.alias(x),
    "T": lambda x: x[0].T,
    "mT": lambda x: x.mT,
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "view_as": lambda x: x.view_as(x),
    "ellipsis": lambda x: x[..., -1],
    "none": lambda x: x[:, None, 2],
    "nothing": lambda x: x[1:1],
    "view of a view": lambda x: x[1].t()[::2].unsqueeze(0),
}


class TestViews(Base):
    @dtypes(torch.float32, torch.int64, torch.bfloat16, torch.complex64, torch.bool)
    def test_written_through(self, device, dtype):
        """Data written into a view is in its base and in the base's other views."""
        for name, view in VIEWS.items():
            with self.subTest(name):

                def write(where, view=view):
                    x = numbers((3, 3, 4), dtype).to(where)
                    other, part = x.transpose(0, 1), view(x)
                    shares = part.untyped_storage()._cdata == x.untyped_storage()._cdata
                    if name != "expand":
                        part.fill_(1)
                    return part, x, other, shares, part._version, x._version

                self.same_on_both(write, device)

    @dtypes(torch.float32, torch.int32)
    def test_base_changed_under_views(self, device, dtype):
        def change(where, view):
            x = numbers((3, 3, 4), dtype).to(where)
            part = view(x)
            x.mul_(2).add_(1)
            return part, x.sum(), part.sum()

        for name, view in VIEWS.items():
            with self.subTest(name):
                self.same_on_both(lambda where, view=view: change(where, view), device)

    @dtypes(*ALL)
    def test_bits_as_another_dtype(self, device, dtype):
        def bits(where, other):
            x = numbers((3, 4), dtype).to(where)
            seen = x.view(other)
            return seen, seen.shape, seen.untyped_storage()._cdata == x.untyped_storage()._cdata

        for other in (torch.uint8, torch.int16, torch.int32, torch.int64, torch.float32, torch.complex64):
            if not (other.is_floating_point or other.is_complex):  # bits of small integers are denormal numbers
                self.same_on_both(lambda where, other=other: bits(where, other), device)

    @dtypes(*COMPLEX)
    def test_conjugate_and_parts(self, device, dtype):
        def parts(where):
            x = torch.complex(*(numbers((2, 3), dtype.to_real()) + i for i in (0, 1))).to(where)
            conj, negative = x.conj(), torch._neg_view(x)
            real, both = x.real, torch.view_as_real(x)
            both[0, 0, 1] = 7
            real[1] = 5
            x.imag.mul_(-1)
            return x, conj, conj.resolve_conj(), negative, conj * 2, x.conj().imag, conj.clone()

        self.same_on_both(parts, device)

    def test_overlapping_writes_are_refused(self, device):
        for write in (
            lambda x: x.add_(1),
            lambda x: x.copy_(torch.ones_like(x)),
            lambda x: torch.add(x, 1, out=x),
            lambda x: x.mul_(x.clone()),
        ):
            self.same_on_both(lambda where, write=write: write(torch.ones(1, device=where).expand(3)), device)

    def test_partial_overlap(self, device):
        def shift(where):
            x = torch.arange(8.0, device=where)
            torch.add(x[:-1], 0, out=x[1:])
            return x

        def copied(where):
            x = torch.arange(8.0, device=where)
            x[1:] = x[:-1].clone()
            return x

        self.same_on_both(shift, device)
        self.same_on_both(copied, device)

    def test_set_and_resize(self, device):
        def change(where):
            x, y = torch.arange(6.0, device=where), torch.arange(4.0, device=where)
            kept = x[2:]
            x.set_(y)
            x.add_(1)
            y.resize_(2, 1)
            z = torch.empty(0, device=where).set_(kept.untyped_storage(), 1, (2, 2), (2, 1))
            return x, y, kept, z

        self.same_on_both(change, device)


# ---- dtypes


class TestPromotion(Base):
    @dtypes(*itertools.product(ALL, ALL))
    def test_result_types(self, device, dtypes):
        a, b = dtypes
        for shape_a, shape_b in (((2,), (2,)), ((2,), ()), ((), (2,)), ((), ())):
            for function in (
                operator.add,
                operator.mul,
                operator.truediv,
                operator.gt,
                operator.eq,
                torch.maximum,
                torch.where,
            ):

                def apply(where, function=function, shapes=(shape_a, shape_b)):
                    x, y = numbers(shapes[0], a, 1).to(where), numbers(shapes[1], b, 1).to(where)
                    if function is torch.where:
                        return torch.where(x == y, x, y)
                    result = function(x, y)
                    return result, torch.result_type(x, y) == result.dtype

                self.same_on_both(apply, device, exact=not (a.is_floating_point or b.is_floating_point))

    @dtypes(*ALL)
    def test_numbers_of_python(self, device, dtype):
        for value in (True, 2, 2.5, 1 + 2j):
            for function in (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.lt):
                self.same_on_both(
                    lambda where, f=function, v=value: f(numbers((3,), dtype, 1).to(where), v), device, exact=False
                )
                self.same_on_both(
                    lambda where, f=function, v=value: f(v, numbers((3,), dtype, 1).to(where)), device, exact=False
                )

    @dtypes(*itertools.product(ALL, ALL))
    def test_in_place_and_out(self, device, dtypes):
        a, b = dtypes
        self.same_on_both(lambda where: numbers((3,), a).to(where).add_(numbers((3,), b).to(where)), device)
        self.same_on_both(lambda where: numbers((3,), a).to(where).copy_(numbers((3,), b).to(where)), device)
        self.same_on_both(
            lambda where: torch.mul(numbers((3,), a).to(where), 2, out=torch.zeros(3, dtype=b, device=where)), device
        )

    @dtypes(*itertools.product(ALL, ALL))
    def test_casts_of_special_values(self, device, dtypes):
        a, b = dtypes
        if not a.is_floating_point:
            return
        defined = (
            b.is_floating_point or b.is_complex or b == torch.bool
        )  # results that C leaves undefined are not compared
        special = [float("inf"), float("-inf"), float("nan"), -2.5] if defined else []
        values = torch.tensor([0.0, -0.0, 1.5, 2.5, 0.1, 100.7, *special])
        self.same_on_both(lambda where: values.to(a).to(where).to(b), device)

    @ops(unary_ufuncs, allowed_dtypes=(torch.int64, torch.bool))
    def test_unary_of_integers(self, device, dtype, op):
        self.same_on_both(lambda where: op(numbers((4,), dtype, 1, 3).to(where)), device, exact=False)

    def test_default_dtype(self, device):
        for default in (torch.float64, torch.float16):
            torch.set_default_dtype(default)
            try:
                self.same_on_both(
                    lambda where: (torch.arange(3, device=where) / 2, torch.tensor(1.5, device=where)), device
                )
            finally:
                torch.set_default_dtype(torch.float32)


# ---- factories


class TestFactories(Base):
    @dtypes(*ALL)
    def test_filled(self, device, dtype):
        make = {
            "zeros": lambda w: torch.zeros(2, 3, dtype=dtype, device=w),
            "ones": lambda w: torch.ones((2, 0, 3), dtype=dtype, device=w),
            "full": lambda w: torch.full((3,), 1, dtype=dtype, device=w),
            "eye": lambda w: torch.eye(3, 4, dtype=dtype, device=w),
            "zeros_like": lambda w: torch.zeros_like(numbers((2, 3), dtype).to(w).t()),
            "ones_like": lambda w: torch.ones_like(
                numbers((2, 3, 4, 5), dtype).to(w).to(memory_format=torch.channels_last)
            ),
            "full_like": lambda w: torch.full_like(numbers((2,), dtype).to(w), 1),
            "new_full": lambda w: numbers((2,), dtype).to(w).new_full((3,), 1),
            "new_zeros": lambda w: numbers((2,), dtype).to(w).new_zeros(3, 2),
            "new_tensor": lambda w: numbers((2,), dtype).to(w).new_tensor([1, 0]),
            "tensor": lambda w: torch.tensor([[1, 0], [0, 1]], dtype=dtype, device=w),
            "as_tensor": lambda w: torch.as_tensor(numbers((2, 3), dtype), device=w),
            "scalar_tensor": lambda w: torch.scalar_tensor(1, dtype=dtype, device=w),
            "tril": lambda w: torch.tril(torch.ones(3, 4, dtype=dtype, device=w), 1),
            "vander": lambda w: torch.vander(numbers((3,), dtype).to(w)),
        }
        for name, function in make.items():
            with self.subTest(name):
                self.same_on_both(function, device)

    @dtypes(*INTEGERS, *FLOATS)
    def test_ranges(self, device, dtype):
        make = {
            "arange": lambda w: torch.arange(1, 10, 2, dtype=dtype, device=w),
            "arange of nothing": lambda w: torch.arange(3, 3, dtype=dtype, device=w),
            "arange down": lambda w: torch.arange(10, 1, -3, dtype=dtype, device=w),
            "linspace": lambda w: torch.linspace(0, 8, 5, dtype=dtype, device=w),
            "linspace of one": lambda w: torch.linspace(3, 8, 1, dtype=dtype, device=w),
            "logspace": lambda w: torch.logspace(0, 2, 3, dtype=dtype, device=w),
            "wrong direction": lambda w: torch.arange(1, 10, -2, dtype=dtype, device=w),
            "no step": lambda w: torch.arange(1, 10, 0, dtype=dtype, device=w),
        }
        for name, function in make.items():
            with self.subTest(name):
                self.same_on_both(function, device, exact=not dtype.is_floating_point)

    def test_default_device(self, device):
        with torch.device(device):
            made = [torch.ones(2), torch.arange(3), torch.tensor([1.0]), torch.nn.Linear(2, 2).weight, torch.rand(2)]
        self.assertEqual({t.device.type for t in made}, {torch.device(device).type})
        self.assertEqual(torch.ones(1).device.type, "cpu")

    def test_random(self, device):
        for make in (torch.rand, torch.randn, lambda n, device: torch.randperm(n, device=device)):
            torch.manual_seed(5)
            first, second = make(64, device=device), make(64, device=device)
            torch.manual_seed(5)
            again = make(64, device=device)
            self.assertEqual(first, again)
            self.assertFalse(torch.equal(first, second))
        generator = torch.Generator(device).manual_seed(3)
        state = generator.get_state()
        first = torch.rand(8, generator=generator, device=device)
        generator.set_state(state)
        self.assertEqual(first, torch.rand(8, generator=generator, device=device))


# ---- indices


INDICES = {
    "a number": lambda i: 1,
    "from the end": lambda i: -1,
    "a slice": lambda i: slice(1, None),
    "two slices": lambda i: (slice(None), slice(0, 3, 2)),
    "a tensor": lambda i: i([2, 0, 2]),
    "negative ones": lambda i: i([-1, 0]),
    "two tensors": lambda i: (i([0, 2]), i([1, 3])),
    "broadcast": lambda i: (i([[0], [2]]), i([1, 3])),
    "behind a slice": lambda i: (slice(None), i([1, 0])),
    "around a slice": lambda i: (i([0, 1]), slice(None), i([1, 0])),
    "with none": lambda i: (None, i([0, 1]), None),
    "with dots": lambda i: (Ellipsis, i([3, 0])),
    "a mask": lambda i: i([True, False, True]),
    "a full mask": lambda i: i([[True, False, True, True]] * 3),
    "mask and number": lambda i: (i([True, False, True]), 1),
    "no mask holds": lambda i: i([False, False, False]),
    "no index": lambda i: i([]).long(),
    "a number as tensor": lambda i: i(1),
    "a list": lambda i: [0, 2],
    "uint8": lambda i: i([1, 0, 1]).to(torch.uint8),
    "int32": lambda i: i([1, 0]).to(torch.int32),
    "true": lambda i: True,
    "false": lambda i: False,
    "everything": lambda i: (),
    "out of range": lambda i: i([7]),
    "too many": lambda i: (0, 0, 0, 0),
    "a mask of another shape": lambda i: i([True, False]),
    "floating": lambda i: i([0.5]),
}


class TestIndexing(Base):
    def on(self, where, name, dtype=torch.float32):
        x = numbers((3, 4, 2), dtype).to(where)
        return x, INDICES[name](lambda values: torch.tensor(values, device=where))

    def get(self, where, name, dtype):
        x, index = self.on(where, name, dtype)
        return x[index].clone(memory_format=torch.contiguous_format)

    @dtypes(torch.float32, torch.int16, torch.complex64, torch.bool)
    def test_get(self, device, dtype):
        for name in INDICES:
            with self.subTest(name):
                self.same_on_both(lambda where, name=name: self.get(where, name, dtype), device)

    @dtypes(torch.float32, torch.int64, torch.bfloat16)
    def test_set(self, device, dtype):
        for name in INDICES:
            if name == "uint8":  # torch refuses such a mask for some values, ours for none
                continue
            for value in (7, "tensor", "row", "wrong"):
                with self.subTest(f"{name} = {value}"):

                    def write(where, name=name, value=value):
                        x, index = self.on(where, name, dtype)
                        if value == "tensor":
                            x[index] = torch.full_like(x[index], 3)
                        elif value == "row":
                            x[index] = torch.tensor(5, dtype=dtype, device=where)
                        elif value == "wrong":
                            x[index] = torch.ones(7, 5, dtype=dtype, device=where)
                        else:
                            x[index] = value
                        return x

                    self.same_on_both(write, device)

    @dtypes(torch.float32, torch.int64)
    def test_put(self, device, dtype):
        def put(where, accumulate):
            x = numbers((3, 4), dtype).to(where)
            places = (torch.tensor([0, 2, 0], device=where), torch.tensor([1, 3, 1], device=where))
            return x.index_put_(places, torch.tensor([1, 2, 4], dtype=dtype, device=where), accumulate=accumulate)

        self.same_on_both(lambda where: put(where, True), device)
        self.same_on_both(lambda where: put(where, False), device)

        def flat(where):
            places, values = torch.tensor([1, 11], device=where), torch.tensor([5, 6], dtype=dtype, device=where)
            return numbers((3, 4), dtype).to(where).put_(places, values)

        self.same_on_both(flat, device)

    @dtypes(torch.float32)
    def test_gradients(self, device, dtype):
        for name in INDICES:
            with self.subTest(name):

                def gradient(where, name=name):
                    x, index = self.on(where, name)
                    x.requires_grad_()
                    y = x[index]
                    (y * torch.arange(y.numel(), device=where, dtype=dtype).reshape(y.shape)).sum().backward()
                    return x.grad

                self.same_on_both(gradient, device)

    def test_augmented(self, device):
        def apply(where):
            x = torch.arange(12.0, device=where).reshape(3, 4)
            x[1] += 5
            x[:, 1] *= 2
            x[torch.tensor([0, 2], device=where)] -= 1
            x[x > 8] = 0
            x[0, 0] = x[2, 2]
            return x, x.tolist(), x[1, 1].item(), len(x), [float(v) for v in x[0]], bool((x == 0).any())

        self.same_on_both(apply, device)

    def test_indices_of_the_host(self, device):
        """A tensor of the host may be an index, of any other device it may not."""
        x = torch.arange(6.0).reshape(3, 2)
        index = torch.tensor([2, 0])
        self.assertEqual(x.to(device)[index].cpu(), x[index])
        self.assertEqual(x.to(device)[torch.tensor([True, False, True])].cpu(), x[[0, 2]])
        with self.assertRaises((RuntimeError, IndexError)):
            x[index.to(device)]


# ---- copies


class TestCopies(Base):
    @dtypes(*ALL)
    def test_to_and_back(self, device, dtype):
        for make in (
            lambda x: x,
            lambda x: x.t(),
            lambda x: x[::2, 1:],
            lambda x: x[:0],
            lambda x: x[0, 0],
            lambda x: x[:1].expand(4, -1),
        ):
            x = make(numbers((4, 5), dtype))
            moved = x.to(device)
            self.assertEqual(moved.cpu(), x)
            self.assertEqual(moved.stride() if x.is_contiguous() else None, x.stride() if x.is_contiguous() else None)
            target = torch.zeros(x.shape, dtype=dtype, device=device).copy_(x)
            self.assertEqual(torch.zeros(x.shape, dtype=dtype).copy_(target), x)
            part = torch.zeros(2, *x.shape, dtype=dtype, device=device)
            part[1].copy_(x, non_blocking=True)
            self.assertEqual(part[1].cpu(), x)

    def test_same_tensor_or_another(self, device):
        x = torch.ones(3, device=device)
        self.assertIs(x.to(device), x)
        self.assertIs(x.float(), x)
        self.assertIsNot(x.to(device, copy=True), x)
        self.assertIsNot(x.clone(), x)
        self.assertIs(x.contiguous(), x)
        self.assertEqual(x.to(torch.ones(1, dtype=torch.int64)).device.type, "cpu")

    def test_memory_formats(self, device):
        def formats(where):
            x = numbers((2, 3, 4, 5), torch.float32).to(where)
            last = x.to(memory_format=torch.channels_last)
            return (
                last,
                last.clone(),
                last.clone(memory_format=torch.contiguous_format),
                last + x,
                last.relu(),
                torch.empty_like(last).stride(),
                last.is_contiguous(memory_format=torch.channels_last),
                x.permute(0, 2, 3, 1).contiguous(),
                last.double(),
                last.permute(0, 2, 3, 1).clone(),
            )

        self.same_on_both(formats, device)

    def test_deepcopy_and_pickle(self, device):
        x = torch.arange(6.0, device=device).reshape(2, 3)
        pair = [x, x.t()]
        both = copy.deepcopy(pair)
        both[0].add_(1)
        self.assertEqual(both[1].t(), x + 1)
        again = pickle.loads(pickle.dumps(x))
        self.assertEqual(again.device.type, torch.device(device).type)
        self.assertEqual(again, x)
        leaf = torch.ones(2, device=device, requires_grad=True)
        self.assertTrue(copy.deepcopy(leaf).requires_grad)
        with self.assertRaises(RuntimeError):
            copy.deepcopy(leaf * 2)

    @dtypes(*ALL)
    def test_saved(self, device, dtype):
        x = numbers((3, 4), dtype).to(device)
        saved = {"x": x, "row": x[1], "t": x.t(), "p": torch.nn.Parameter(torch.ones(2, device=device)), "n": 3}
        file = io.BytesIO()
        torch.save(saved, file)
        for options in ({}, {"map_location": "cpu"}, {"map_location": device}):
            file.seek(0)
            found = torch.load(file, **options)
            for name in ("x", "row", "t", "p"):
                self.assertEqual(found[name].cpu(), saved[name].cpu())
                self.assertEqual(found[name].device.type, torch.device(options.get("map_location", device)).type)
            found["x"][1].fill_(1)
            self.assertEqual(found["row"].cpu(), torch.ones(4, dtype=dtype))

    def test_modules_move(self, device):
        layer = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).eval()
        x = torch.randn(5, 3)
        expected = layer(x)
        moved = copy.deepcopy(layer).to(device)
        self.assertEqual({t.device.type for t in moved.state_dict().values()}, {torch.device(device).type})
        moved.load_state_dict(layer.state_dict())
        self.assertEqual(moved(x.to(device)).cpu(), expected)
        self.assertEqual(moved.cpu()(x), expected)
        self.assertEqual(next(moved.half().to(device).parameters()).dtype, torch.float16)

    def test_numpy_and_dlpack(self, device):
        x = torch.arange(3.0, device=device)
        with self.assertRaises(TypeError):
            x.numpy()
        self.assertEqual(x.numpy(force=True).tolist(), [0, 1, 2])
        with self.assertRaises(BufferError):
            torch.utils.dlpack.to_dlpack(x)
        self.assertEqual(torch.from_dlpack(x.cpu()), x.cpu())


# ---- texts


class TestTexts(Base):
    @dtypes(*ALL)
    def test_printed(self, device, dtype):
        for x in (
            numbers((2, 3), dtype),
            numbers((), dtype),
            numbers((0, 3), dtype),
            numbers((40, 40), dtype),
            numbers((2, 3), dtype).t(),
        ):
            text = "".join(repr(x.to(device)).split()).replace(",device='headrace:0'", "")
            self.assertEqual(text, "".join(repr(x).split()))

    def test_printed_with_gradient(self, device):
        x = torch.ones(2, device=device, requires_grad=True)
        self.assertIn("requires_grad=True", repr(x))
        self.assertIn("grad_fn=<MulBackward0>", repr(x * 2))
        self.assertIn("device='headrace:0'", repr(x))
        self.assertEqual(f"{torch.tensor(1.5, device=device):.2f}", "1.50")
        self.assertEqual(str(torch.ones(1, device=device).device), "headrace:0")

    def test_values_of_one_element(self, device):
        for make in (torch.tensor(3.5), torch.tensor([2]), torch.tensor(True), torch.tensor(1 + 2j)):
            x = make.to(device)
            self.assertEqual(x.item(), make.item())
            self.assertEqual(x.tolist(), make.tolist())
            self.assertEqual(bool(x), bool(make))
        self.assertEqual([1, 2, 3][torch.tensor(1, device=device)], 2)
        for wrong in (torch.ones(2), torch.ones(0)):
            self.same_on_both(lambda where, x=wrong: x.to(where).item(), device)
            self.same_on_both(lambda where, x=wrong: bool(x.to(where)), device)

    def test_errors(self, device):
        """The same kind of exception, and the numbers that it names."""
        wrong = {
            "shapes": lambda w: torch.ones(2, 3, device=w) + torch.ones(4, device=w),
            "matmul": lambda w: torch.ones(2, 3, device=w) @ torch.ones(2, 3, device=w),
            "mm of dims": lambda w: torch.mm(torch.ones(2, device=w), torch.ones(2, 2, device=w)),
            "dtypes of mm": lambda w: torch.mm(torch.ones(2, 2, device=w), torch.ones(2, 2, device=w).double()),
            "view": lambda w: torch.ones(2, 3, device=w).view(4),
            "view of strides": lambda w: torch.ones(2, 3, device=w).t().view(6),
            "reshape": lambda w: torch.ones(2, 3, device=w).reshape(-1, 4),
            "dim": lambda w: torch.ones(2, 3, device=w).sum(5),
            "two dims": lambda w: torch.ones(2, 3, device=w).sum((0, 0)),
            "cat": lambda w: torch.cat([torch.ones(2, 3, device=w), torch.ones(3, 2, device=w)]),
            "cat of nothing": lambda w: torch.cat([]),
            "stack": lambda w: torch.stack([torch.ones(2, device=w), torch.ones(3, device=w)]),
            "narrow": lambda w: torch.ones(3, device=w).narrow(0, 2, 2),
            "index": lambda w: torch.ones(3, device=w)[3],
            "select": lambda w: torch.ones(3, device=w).select(1, 0),
            "gather": lambda w: torch.ones(3, device=w).gather(0, torch.tensor([[1]], device=w)),
            "gather's dtype": lambda w: torch.ones(3, device=w).gather(0, torch.tensor([1.0], device=w)),
            "squeeze": lambda w: torch.ones(3, device=w).squeeze(2),
            "permute": lambda w: torch.ones(2, 3, device=w).permute(0, 0),
            "expand": lambda w: torch.ones(2, 3, device=w).expand(4, 3),
            "out's dtype": lambda w: torch.add(torch.ones(2, device=w), 1.5, out=torch.ones(2, device=w).long()),
            "in place's dtype": lambda w: torch.ones(2, device=w).long().add_(1.5),
            "in place's shape": lambda w: torch.ones(1, device=w).add_(torch.ones(3, device=w)),
            "bool minus": lambda w: torch.ones(2, device=w).bool() - torch.ones(2, device=w).bool(),
            "not of floats": lambda w: ~torch.ones(2, device=w),
            "integer power": lambda w: torch.ones(2, device=w).long() ** -1,
            "max of nothing": lambda w: torch.ones(0, device=w).max(),
            "argmax of nothing": lambda w: torch.ones(0, device=w).argmax(),
            "leaf in place": lambda w: torch.ones(2, device=w, requires_grad=True).add_(1),
            "backward of many": lambda w: torch.ones(2, device=w, requires_grad=True).mul(2).backward(),
            "integers need no gradient": lambda w: torch.ones(2, device=w).long().requires_grad_(),
            "convolution": lambda w: torch.nn.functional.conv2d(
                torch.ones(1, 2, 3, 3, device=w), torch.ones(1, 3, 1, 1, device=w)
            ),
            "linear": lambda w: torch.nn.functional.linear(torch.ones(2, 3, device=w), torch.ones(2, 2, device=w)),
            "layer norm": lambda w: torch.nn.functional.layer_norm(torch.ones(2, 3, device=w), (2,)),
            "negative size": lambda w: torch.ones(-1, device=w),
            "tril of a vector": lambda w: torch.ones(3, device=w).tril(),
            "clamp without bounds": lambda w: torch.ones(3, device=w).clamp(),
            "topk": lambda w: torch.ones(3, device=w).topk(4),
        }
        for name, function in wrong.items():
            with self.subTest(name):
                self.assertIsNotNone(self.attempt(function, "cpu")[1])
                self.same_on_both(function, device)

    def test_devices_do_not_mix(self, device):
        here, host = torch.ones(2, device=device), torch.ones(2)
        for function in (
            torch.add,
            torch.matmul,
            lambda a, b: torch.cat([a, b]),
            lambda a, b: torch.where(a > 0, a, b),
        ):
            for pair in ((here, host), (host, here)):
                with self.assertRaises(RuntimeError):
                    function(*pair)
        self.assertEqual((here + torch.tensor(2.0)).cpu(), torch.full((2,), 3.0))
        with self.assertRaises(RuntimeError):
            host.add_(here)


# ---- autograd


class TestAutograd(Base):
    def test_hooks(self, device):
        def hooked(where):
            x, seen = torch.tensor([1.0, 2.0], device=where, requires_grad=True), []
            x.register_hook(lambda g: seen.append(g.clone()) or g * 2)
            x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
            y = x * 3
            y.retain_grad()
            y.register_hook(lambda g: g + 1)
            y.grad_fn.register_hook(lambda given, wanted: (given[0] * 10, *given[1:]))
            y.sum().backward()
            return seen, x.grad, y.grad

        self.same_on_both(hooked, device)

    def test_module_hooks(self, device):
        def hooked(where):
            torch.manual_seed(0)
            layer, seen = torch.nn.Linear(2, 2), []
            layer.to(where)
            layer.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
            layer.register_forward_hook(lambda m, args, out: out * 2)
            layer.register_full_backward_hook(lambda m, given, wanted: seen.append(wanted[0].clone()))
            x = torch.ones(3, 2, device=where, requires_grad=True)
            layer(x).sum().backward()
            return seen, x.grad, layer.weight.grad

        self.same_on_both(hooked, device, exact=False)

    def test_functions_of_the_user(self, device):
        class Cube(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x**3

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                return grad * 3 * x * x

        def twice(where):
            x = torch.tensor([1.0, 2.0, -3.0], device=where, requires_grad=True)
            (first,) = torch.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
            return first, torch.autograd.grad(first.sum(), x)[0]

        self.same_on_both(twice, device)

    def test_saved_tensors_and_versions(self, device):
        def changed(where):
            x = torch.ones(2, device=where, requires_grad=True)
            y = x.exp()
            y.add_(1)
            y.sum().backward()

        def packed(where):
            x, seen = torch.ones(2, device=where, requires_grad=True), []
            with torch.autograd.graph.saved_tensors_hooks(
                lambda t: seen.append(t.clone()) or t.cpu(), lambda t: t.to(where)
            ):
                y = (x * 2).pow(2)
            y.sum().backward()
            return x.grad, len(seen)

        def freed(where):
            y = torch.ones(2, device=where, requires_grad=True).exp().sum()
            y.backward()
            y.backward()

        self.same_on_both(changed, device)
        self.same_on_both(packed, device)
        self.same_on_both(freed, device)

    def test_views_in_place(self, device):
        def view(where):
            x = torch.arange(6.0, device=where, requires_grad=True)
            y = (x * 1).reshape(2, 3)
            y[0].mul_(3)
            y.t()[1].add_(y[0, 0])
            y.pow(2).sum().backward()
            return x.grad, y

        def leaf(where):
            x = torch.zeros(4, device=where, requires_grad=True)
            with torch.no_grad():
                x[1:3] = 5
            (x * x).sum().backward()
            return x.grad, x.is_leaf

        self.same_on_both(view, device)
        self.same_on_both(leaf, device)

    def test_modes(self, device):
        def modes(where):
            x = torch.ones(2, device=where, requires_grad=True)
            with torch.no_grad():
                a = x * 2
            with torch.inference_mode():
                b = x * 2
            with torch.enable_grad():
                c = x * 2
            return a.requires_grad, b.is_inference(), c.requires_grad, x.detach().requires_grad

        self.same_on_both(modes, device)

    def test_accumulated(self, device):
        def train(where):
            x = torch.ones(3, device=where, requires_grad=True)
            for factor in (1.0, 2.0):
                (x * factor).sum().backward()
            kept = x.grad
            x.grad = None
            torch.autograd.backward([x.sum(), (x * x).sum()])
            return kept, x.grad, torch.autograd.grad(x.prod(), x)[0]

        self.same_on_both(train, device)

    def test_checkpoint(self, device):
        from torch.utils.checkpoint import checkpoint

        def run(where):
            x = torch.linspace(-1, 1, 5, device=where, requires_grad=True)
            checkpoint(lambda t: t.tanh().exp(), x, use_reentrant=False).sum().backward()
            return x.grad

        self.same_on_both(run, device, exact=False)

    def test_functional_transforms(self, device):
        def all_of_them(where):
            x = torch.linspace(0.5, 2, 4, device=where)

            def f(t):
                return (t.sin() * t).sum()

            return (
                torch.func.grad(f)(x),
                torch.func.hessian(f)(x),
                torch.func.jacrev(torch.cumprod, 0)(x, 0),
                torch.func.jacfwd(lambda t: t.cumprod(0))(x),
                torch.func.jvp(f, (x,), (torch.ones_like(x),))[1],
                torch.func.vjp(f, x)[1](torch.tensor(2.0, device=where))[0],
                torch.func.vmap(torch.func.grad(f))(torch.stack([x, x + 1])),
                torch.func.vmap(torch.dot, in_dims=(1, None))(torch.stack([x, x + 1], 1), x),
            )

        expected, found = all_of_them("cpu"), all_of_them(device)
        for f, e in zip(found, expected, strict=True):
            torch.testing.assert_close(f.cpu(), e)


# ---- lists


class TestLists(Base):
    @dtypes(torch.float32, torch.float16, torch.int64)
    def test_foreach(self, device, dtype):
        def lists(where):
            return [[numbers(s, dtype, 1).to(where) for s in ((2, 3), (), (0,), (4,))] for _ in range(2)]

        for name in ("add", "sub", "mul", "div", "maximum", "minimum"):
            self.same_on_both(lambda w, n=name: getattr(torch, f"_foreach_{n}")(*lists(w)), device, exact=False)
            self.same_on_both(lambda w, n=name: getattr(torch, f"_foreach_{n}")(lists(w)[0], 2), device, exact=False)
            self.same_on_both(
                lambda w, n=name: getattr(torch, f"_foreach_{n}")(lists(w)[0], [1, 2, 3, 4]), device, exact=False
            )
        for name in ("neg", "abs", "sign", "sqrt", "exp", "zero"):

            def in_place(where, name=name):
                first = lists(where)[0]
                views = [t.view(-1) for t in first]
                getattr(torch, f"_foreach_{name}_")(first)
                return first, views

            self.same_on_both(in_place, device, exact=False)
        self.same_on_both(lambda w: torch._foreach_norm(lists(w)[0]), device, exact=False)
        self.same_on_both(lambda w: torch._foreach_add(lists(w)[0], lists(w)[1][:2]), device)

    @dtypes(torch.float32)
    def test_clipping_and_vectors(self, device, dtype):
        def clip(where):
            layer = torch.nn.Linear(2, 3)
            with torch.no_grad():
                layer.weight.fill_(0.5), layer.bias.fill_(1)
            layer.to(where)
            layer(torch.ones(4, 2, device=where)).pow(2).sum().backward()
            norm = torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
            torch.nn.utils.clip_grad_value_(layer.parameters(), 0.25)
            return norm, layer.weight.grad, torch.nn.utils.parameters_to_vector(layer.parameters())

        self.same_on_both(clip, device, exact=False)


for generic in (TestViews, TestPromotion, TestFactories, TestIndexing, TestCopies, TestTexts, TestAutograd, TestLists):
    instantiate_device_type_tests(generic, globals(), only_for=("headrace",))
del generic


def every(suite, step):
    """Each step-th test of a suite, in the order of their names."""
    flat, stack = [], [suite]
    while stack:
        item = stack.pop()
        if isinstance(item, unittest.TestSuite):
            stack.extend(item)
        else:
            flat.append(item)
    return unittest.TestSuite(sorted(flat, key=lambda test: test.id())[::step])


def main():
    step = 1
    if "--every" in sys.argv:
        at = sys.argv.index("--every")
        step = int(sys.argv[at + 1])
        del sys.argv[at : at + 2]
    if step > 1:
        found = every(unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__]), step)
        result = unittest.TextTestRunner(verbosity=1).run(found)
        print(f"{result.testsRun} tests, {len(result.failures)} failures, {len(result.errors)} errors")
        return 0 if result.wasSuccessful() else 1
    return 0 if unittest.main(exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
