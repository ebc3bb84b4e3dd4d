"""Tests of FSDP and DTensor on two ranks, upon the bases and models of torch's wheel (common_fsdp, common_dtensor).

The tests that torch has upon these bases are in its sources alone. These cover the same ground: training with FSDP
against DistributedDataParallel by torch's own `_test_fsdp_parity`, fully_shard against one process, and operations on
DTensors against the same on whole tensors.
"""

import copy
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
    empty,
    init_device_mesh,
)
from torch.distributed.tensor import rand as rand_dtensor
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module
from torch.testing._internal import common_fsdp
from torch.testing._internal.common_dist_composable import CompositeParamModel
from torch.testing._internal.distributed._tensor import common_dtensor
from torch.testing._internal.distributed._tensor.common_dtensor import with_comms

DEVICE = "headrace"
BACKEND = "cpu:gloo,headrace:headrace"
Init, Place = common_fsdp.FSDPInitMode, common_fsdp.DEVICEInitMode
STRATEGIES = [ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD]
CLOSE = {"atol": 1e-5, "rtol": 1e-4}


def adapt(ranks):
    """torch's bases know CUDA, HPU and XPU."""
    common_fsdp.DEVICE_TYPE, common_fsdp.DISTRIBUTED_BACKEND, common_fsdp.DEVICE_COUNT = DEVICE, BACKEND, ranks
    common_dtensor.DEVICE_TYPE, common_dtensor.PG_BACKEND = DEVICE, BACKEND
    common_dtensor.DEVICE_COUNT = common_dtensor.NUM_DEVICES = ranks
    common_dtensor.TEST_PRIVATEUSE1 = True


def own_part(tensor):
    return tensor.chunk(dist.get_world_size())[dist.get_rank()]


def whole_of(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def train(test, single, sharded, make_inputs, steps=3):
    """Trains a module on all inputs, and its sharded copy on each rank's own; losses and parameters must agree.

    The epsilon is above the rounding errors of gradients. Adam's own, 1e-8, makes a step of such an error if the exact
    gradient is near zero."""
    modules = (single, sharded)
    optimizers = [torch.optim.Adam(module.parameters(), lr=1e-2, eps=1e-5) for module in modules]
    for step in range(steps):
        torch.manual_seed(step)
        inputs = make_inputs()
        losses = [module(part).square().mean() for module, part in zip(modules, (inputs, own_part(inputs)))]
        for loss, optimizer in zip(losses, optimizers):
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        mean = losses[1].detach()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        test.assertEqual(losses[0].detach(), mean, **CLOSE)
    for whole, part in zip(single.parameters(), sharded.parameters(), strict=True):
        test.assertEqual(whole, part.full_tensor(), **CLOSE)


def perceptron():
    torch.manual_seed(42)
    return nn.Sequential(nn.Linear(8, 15), nn.LayerNorm(15), nn.GELU(), nn.Linear(15, 8)).to(DEVICE)


class FsdpTests:
    """Of FullyShardedDataParallel, mostly against DistributedDataParallel."""

    def parity(self, model, mode=Init.RECURSIVE, place=Place.DEVICE_BEFORE, **options):
        self._test_fsdp_parity(model, mode, place, **options)

    def test_fsdp_nested(self):
        def check(strategy, use_orig_params):
            self.parity(common_fsdp.NestedWrappedModule, sharding_strategy=strategy, use_orig_params=use_orig_params)

        self.run_subtests({"strategy": STRATEGIES, "use_orig_params": [False, True]}, check)

    def test_fsdp_transformer(self):
        def check(strategy, place):
            self.parity(common_fsdp.TransformerWithSharedParams, place=place, sharding_strategy=strategy)

        self.run_subtests({"strategy": STRATEGIES, "place": [Place.DEVICE_BEFORE, Place.DEVICE_AFTER]}, check)

    def test_fsdp_always_wrapped(self):
        self.parity(common_fsdp.AlwaysWrapNestedWrappedModule)

    def test_fsdp_parameters_without_gradient(self):
        self.parity(common_fsdp.NonUniformReqGradNWM, use_orig_params=True)

    def test_fsdp_experts(self):
        self.parity(common_fsdp.MixtureOfExperts, ref_init_fn=common_fsdp.DummyDDP)

    def test_fsdp_prefetches(self):
        def check(backward, forward):
            self.parity(common_fsdp.TransformerWithSharedParams, backward_prefetch=backward, forward_prefetch=forward)

        self.run_subtests({"backward": [None, *BackwardPrefetch], "forward": [False, True]}, check)

    def test_fsdp_offloads_parameters(self):
        def check(place):
            self.parity(common_fsdp.NestedWrappedModule, place=place, cpu_offload=CPUOffload(True), save_model=False)

        self.run_subtests({"place": [Place.DEVICE_AFTER, Place.DEVICE_NEVER]}, check)

    def test_fsdp_scales_gradients(self):
        self.parity(common_fsdp.NestedWrappedModule, enable_sharded_grad_scaler=True)

    def test_fsdp_hybrid_shards(self):
        def check(strategy):
            mesh = init_device_mesh(DEVICE, (1, 2), mesh_dim_names=("replicate", "shard"))
            self.parity(
                common_fsdp.TransformerWithSharedParams,
                sharding_strategy=strategy,
                init_kwargs={"add_bn": False},
                device_mesh=mesh,
            )

        hybrids = [ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2]
        self.run_subtests({"strategy": hybrids}, check)

    def test_fsdp_mixed_precision(self):
        def check(dtype):
            model = FSDP(perceptron(), mixed_precision=MixedPrecision(dtype, dtype, dtype), use_orig_params=True)
            out = model(torch.randn(5, 8, device=DEVICE))
            self.assertEqual(out.dtype, dtype)
            out.float().square().mean().backward()
            for parameter in model.parameters():
                if parameter.grad is not None:
                    self.assertEqual(parameter.grad.dtype, torch.float32)
                    self.assertTrue(parameter.grad.isfinite().all())

        self.run_subtests({"dtype": [torch.float16, torch.bfloat16]}, check)

    def test_fsdp_accumulates_and_clips(self):
        whole, model = perceptron(), FSDP(perceptron(), use_orig_params=True)
        torch.manual_seed(0)
        batches = [torch.randn(6, 8, device=DEVICE) for _ in range(2)]
        with model.no_sync():
            model(own_part(batches[0])).square().mean().backward()
        model(own_part(batches[1])).square().mean().backward()
        for batch in batches:
            whole(batch).square().mean().backward()
        norms = nn.utils.clip_grad_norm_(whole.parameters(), 0.1), model.clip_grad_norm_(0.1)
        self.assertEqual(*norms, **CLOSE)
        with FSDP.summon_full_params(model, with_grads=True):
            for a, b in zip(whole.parameters(), model.parameters(), strict=True):
                self.assertEqual(a.grad, b.grad, **CLOSE)

    # ---- fully_shard

    def test_fully_shard_mlp(self):
        def check(reshard):
            torch.manual_seed(42)
            single = nn.Sequential(*(common_fsdp.MLP(7, torch.device(DEVICE), dim_multiplier=3) for _ in range(3)))
            sharded = copy.deepcopy(single)
            for layer in sharded:
                fully_shard(layer, reshard_after_forward=reshard)
            train(self, single, fully_shard(sharded), lambda: torch.randn(4, 7, device=DEVICE))

        self.run_subtests({"reshard": [True, False]}, check)

    def test_fully_shard_gradients(self):
        torch.manual_seed(42)
        single = common_fsdp.DoubleLinear(12).to(DEVICE)
        sharded = fully_shard(copy.deepcopy(single))
        torch.manual_seed(dist.get_rank())
        x = torch.randn(2, 12, device=DEVICE)
        for module in (single, sharded):
            first, second = module(x)
            (first + second).sum().backward()
        for parameter in single.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
        common_fsdp.check_sharded_parity(self, single, sharded)

    def test_fully_shard_composite(self):
        torch.manual_seed(42)
        single = CompositeParamModel(torch.device(DEVICE))
        sharded = copy.deepcopy(single)
        for child in (sharded.u1, sharded.u2):
            fully_shard(child)
        train(self, single, fully_shard(sharded), lambda: torch.randn(4, 100, device=DEVICE))

    def test_fully_shard_transformer(self):
        def check(tied, checkpointed):
            arguments = common_dtensor.ModelArgs(
                n_layers=2, dropout_p=0.0, weight_tying=tied, checkpoint_activations=checkpointed
            )
            torch.manual_seed(42)
            single = common_dtensor.Transformer(arguments).to(DEVICE)
            sharded = copy.deepcopy(single)
            for layer in sharded.layers:
                fully_shard(layer)
            sizes = arguments.vocab_size, (4, arguments.max_seq_len)
            train(self, single, fully_shard(sharded), lambda: torch.randint(*sizes, device=DEVICE), steps=2)

        self.run_subtests({"tied": [False, True], "checkpointed": [False, True]}, check)

    def test_fully_shard_mixed_precision(self):
        dtypes = []

        def note(output):
            dtypes.append(output.dtype)

        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        model = fully_shard(perceptron(), mp_policy=policy)
        original = dist.reduce_scatter_tensor

        def reduce_scatter(*arguments, **options):
            return common_fsdp.reduce_scatter_with_assert(self, original, note, *arguments, **options)

        with common_fsdp.patch_reduce_scatter(reduce_scatter):
            out = model(torch.randn(4, 8, device=DEVICE))
            out.sum().backward()
        self.assertEqual(out.dtype, torch.bfloat16)
        self.assertEqual(dtypes, [torch.float32])

    def test_fully_shard_with_tensor_parallel(self):
        def check(shape, with_seq_parallel, checkpointed):
            mesh = init_device_mesh(DEVICE, shape, mesh_dim_names=("dp", "tp"))
            torch.manual_seed(42)
            single = common_fsdp.MLPStack(8, with_seq_parallel=with_seq_parallel).to(DEVICE)
            sharded = copy.deepcopy(single).parallelize(mesh["tp"], mesh["dp"], checkpointed)
            optimizers = [torch.optim.Adam(module.parameters(), foreach=True) for module in (single, sharded)]
            for step in range(3):
                torch.manual_seed(step)
                x = torch.randn(2, 16, 8, device=DEVICE)
                losses = [whole_of(module(x).square().sum()) for module in (single, sharded)]
                for loss, optimizer in zip(losses, optimizers):
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                self.assertEqual(*losses, **CLOSE)

        ways = {"shape": [(2, 1), (1, 2)], "with_seq_parallel": [False, True], "checkpointed": [False, True]}
        self.run_subtests(ways, check)

    def test_fully_shard_checkpoint(self):
        model = fully_shard(perceptron())
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(4, 8, device=DEVICE)).sum().backward()
        optimizer.step()
        folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(folder)
        states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
        checkpoint.save(states, checkpoint_id=folder[0])
        saved = [parameter.full_tensor().clone() for parameter in model.parameters()]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        checkpoint.load(states, checkpoint_id=folder[0])
        set_state_dict(
            model, optimizer, model_state_dict=states["model"], optim_state_dict=states["optimizer"]
        )
        self.assertEqual(saved, [parameter.full_tensor() for parameter in model.parameters()], rtol=0, atol=0)


class DTensorTests:
    """Of DTensors on a mesh of two ranks."""

    def distribute(self, *shape, placement=None, dtype=None, requires_grad=False):
        """(a tensor, which is the same on all ranks; that as a DTensor)"""
        if not hasattr(self, "mesh"):
            self.mesh = self.build_device_mesh()
            torch.manual_seed(7)
        whole = torch.randn(shape, device=DEVICE, dtype=dtype).requires_grad_(requires_grad)
        return whole, distribute_tensor(whole.detach(), self.mesh, [placement or Shard(0)]).requires_grad_(requires_grad)

    @with_comms
    def test_dtensor_redistributes(self):
        for shape in ((4, 6), (5, 3), (1, 2)):
            for before in (Shard(0), Shard(1), Replicate()):
                for after in (Shard(0), Shard(1), Shard(-1), Replicate()):
                    whole, x = self.distribute(*shape, placement=before, requires_grad=True)
                    y = x.redistribute(self.mesh, [after])
                    self.assertEqual(whole, y.full_tensor(), rtol=0, atol=0)
                    self.assertEqual(y.to_local(), distribute_tensor(whole, self.mesh, [after]).to_local())
                    (y * y).sum().full_tensor().backward()
                    self.assertEqual(2 * whole, x.grad.full_tensor())

    @with_comms
    def test_dtensor_partial_sums(self):
        mesh = self.build_device_mesh()
        for op, expected in (("sum", 3.0), ("avg", 1.5), ("max", 2.0), ("min", 1.0)):
            for after in (Replicate(), Shard(0)):
                local = torch.full((5, 2), float(self.rank + 1), device=DEVICE)
                x = DTensor.from_local(local, mesh, [Partial(op)]).redistribute(mesh, [after])
                self.assertEqual(x.full_tensor(), torch.full((5, 2), expected, device=DEVICE))

    @with_comms
    def test_dtensor_products(self):
        for a, b in ((Shard(0), Replicate()), (Replicate(), Shard(1)), (Shard(1), Shard(0)), (Shard(0), Shard(0))):
            (wa, da), (wb, db) = (
                self.distribute(6, 4, placement=a, requires_grad=True),
                self.distribute(4, 6, placement=b, requires_grad=True),
            )
            whole, product = wa @ wb, da @ db
            self.assertEqual(whole, product.full_tensor(), **CLOSE)
            whole.square().sum().backward()
            product.square().sum().full_tensor().backward()
            self.assertEqual(wa.grad, da.grad.full_tensor(), **CLOSE)
            self.assertEqual(wb.grad, db.grad.full_tensor(), **CLOSE)

    @with_comms
    def test_dtensor_operations(self):
        whole, x = self.distribute(6, 4)
        for op in (
            torch.exp,
            torch.tanh,
            lambda t: t.mul(2).add(t, alpha=3),
            lambda t: t.sum(0),
            lambda t: t.mean(1),
            lambda t: t.amax(),
            lambda t: t.softmax(1),
            lambda t: t.log_softmax(0),
            lambda t: t.transpose(0, 1).contiguous(),
            lambda t: t.reshape(2, 12),
            lambda t: t.unsqueeze(0).expand(2, 6, 4),
            lambda t: torch.cat([t, t], 1),
            lambda t: torch.stack([t, t]),
            lambda t: t.cumsum(1),
            lambda t: torch.where(t > 0, t, 0.0),
            lambda t: F.layer_norm(t, (4,)),
            lambda t: F.pad(t, (1, 1)),
            lambda t: t.norm(),
            lambda t: t.var(0),
            lambda t: t.to(torch.bfloat16).float(),
            lambda t: t[:, 1:3],
        ):
            self.assertEqual(op(whole), op(x).full_tensor(), **CLOSE)

    @with_comms
    def test_dtensor_all_shardings(self):
        mesh = self.build_device_mesh()
        torch.manual_seed(7)
        x, y = (torch.randn(4, 2, device=DEVICE) for _ in range(2))
        for op in (torch.add, torch.mul, torch.maximum):
            self._test_op(mesh, op, x, y)
        for op in (torch.sigmoid, torch.sum, torch.argmax):
            self._test_op(mesh, op, x)
        self._test_op(mesh, torch.addmm, torch.randn(4, device=DEVICE), x, torch.randn(2, 4, device=DEVICE))
        self._test_op(mesh, torch.bmm, torch.randn(4, 2, 6, device=DEVICE), torch.randn(4, 6, 2, device=DEVICE))

    @with_comms
    def test_dtensor_in_place(self):
        whole, x = self.distribute(5, 4)
        for t in (whole, x):
            t.add_(1).mul_(t).clamp_(max=2)
            t[:, 0].zero_()
        self.assertEqual(whole, x.full_tensor())

    @with_comms
    def test_dtensor_random_numbers(self):
        mesh = self.build_device_mesh()
        torch.manual_seed(5)
        sharded = rand_dtensor(8, 4, device_mesh=mesh, placements=[Shard(0)])
        whole = sharded.full_tensor()
        self.assertNotEqual(whole[:4], whole[4:])
        torch.manual_seed(5)
        again = rand_dtensor(8, 4, device_mesh=mesh, placements=[Shard(0)]).full_tensor()
        self.assertEqual(whole, again, rtol=0, atol=0)
        same = rand_dtensor(8, 4, device_mesh=mesh, placements=[Replicate()]).to_local()
        parts = [torch.empty_like(same) for _ in range(2)]
        dist.all_gather(parts, same)
        self.assertEqual(*parts, rtol=0, atol=0)
        dropped = F.dropout(sharded * 0 + 1, 0.5).full_tensor()
        self.assertTrue(((dropped == 0) | (dropped == 2)).all())
        self.assertNotEqual(dropped[:4], dropped[4:])

    @with_comms
    def test_dtensor_initialization(self):
        mesh = self.build_device_mesh()
        for fill in (nn.init.uniform_, nn.init.normal_, nn.init.kaiming_uniform_):
            x = fill(empty(64, 64, device_mesh=mesh, placements=[Shard(0)])).full_tensor()
            self.assertGreater(x.std().item(), 0.01)
            self.assertNotEqual(x[:32], x[32:])

    @with_comms
    def test_dtensor_embedding_and_loss(self):
        mesh = self.build_device_mesh()
        torch.manual_seed(3)
        single = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 10)).to(DEVICE)
        plan = {
            "0": common_dtensor.RowwiseParallel(input_layouts=Replicate()),
            "1": ColwiseParallel(use_local_output=False),
        }
        sharded = parallelize_module(copy.deepcopy(single), mesh, plan)
        words, labels = torch.randint(10, (6,), device=DEVICE), torch.randint(10, (6,), device=DEVICE)
        F.cross_entropy(single(words), labels).backward()
        with loss_parallel():
            F.cross_entropy(sharded(words), labels).backward()
        for a, b in zip(single.parameters(), sharded.parameters(), strict=True):
            self.assertEqual(a.grad, b.grad.full_tensor(), **CLOSE)

    @with_comms
    def test_dtensor_transformer(self):
        def check(use_seq_parallel, tied):
            arguments = common_dtensor.ModelArgs(n_layers=2, dropout_p=0.0, weight_tying=tied)
            torch.manual_seed(42)
            single = common_dtensor.Transformer(arguments).to(DEVICE)
            sharded = common_dtensor.Transformer.parallelize(
                copy.deepcopy(single), self.build_device_mesh(), use_seq_parallel
            )
            optimizers = [torch.optim.Adam(module.parameters(), lr=1e-3, foreach=False) for module in (single, sharded)]
            for _ in range(2):
                words = torch.randint(arguments.vocab_size, (3, arguments.max_seq_len), device=DEVICE)
                losses = [module(words).square().mean() for module in (single, sharded)]
                for loss, optimizer in zip(losses, optimizers):
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                self.assertEqual(*losses, **CLOSE)

        self.run_subtests({"use_seq_parallel": [False, True], "tied": [False, True]}, check)

    @with_comms
    def test_dtensor_attention(self):
        masks = [None, (1, 1, 5, 5), (4, 1, 5, 5), (4, 2, 5, 5), (5, 5)]
        for placement in (Shard(0), Shard(1), Replicate()):
            for shape, causal in ((shape, causal) for shape in masks for causal in (False, shape is None)):
                pairs = [self.distribute(4, 2, 5, 8, placement=placement, requires_grad=True) for _ in range(3)]
                if shape is not None:
                    pairs.append(self.distribute(*shape, placement=Replicate(), requires_grad=True))
                outs = [F.scaled_dot_product_attention(*ts, is_causal=causal) for ts in zip(*pairs)]
                self.assertEqual(outs[1].placements, (placement,))
                self.assertEqual(outs[0], outs[1].full_tensor(), **CLOSE)
                outs[0].square().sum().backward()
                outs[1].square().sum().full_tensor().backward()
                for whole, x in pairs:
                    self.assertEqual(whole.grad, x.grad.full_tensor(), **CLOSE)

    @with_comms
    def test_dtensor_modules_and_optimizers(self):
        mesh = self.build_device_mesh()
        torch.manual_seed(9)
        single = common_dtensor.MLPModule(DEVICE)
        plan = {"net1": ColwiseParallel(), "net2": common_dtensor.RowwiseParallel()}
        for make in (torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad):
            pair = single, parallelize_module(copy.deepcopy(single), mesh, plan)
            x = torch.randn(5, 10, device=DEVICE)
            for module in pair:
                module(x).square().sum().backward()
                nn.utils.clip_grad_norm_(module.parameters(), 1.0)
                make(module.parameters(), lr=1e-2).step()
                module.zero_grad()
            for a, b in zip(*(module.parameters() for module in pair), strict=True):
                self.assertEqual(a, b.full_tensor(), **CLOSE)


def test_classes(forked, ranks):
    """The classes; `forked` makes their processes."""
    adapt(ranks)

    class TestFsdp(forked, FsdpTests, common_fsdp.FSDPTest):
        pass

    class TestDTensor(forked, DTensorTests, common_dtensor.DTensorTestBase):
        @property
        def backend(self):
            return BACKEND

    return TestFsdp, TestDTensor
