"""One side of bench/array_networks.py in a process of its own: arrays, MLX or torch, and the two networks.

The process reads requests from its input, one JSON object a line, and answers with one. A side imports only its own
library and NumPy. Weights, images and classes come from an npz file, in torch's layout; arrays and MLX have channels
last, so that the first linear layer's columns are permuted.
"""

import functools
import itertools
import json
import sys
import time

import numpy as np

CHANNELS, RATE, DROPOUT = (1, 20, 50, 100), 1e-4, 0.3
FEATURES = 3 * 3 * 100


class Torch:
    """torch's modules of examples/networks.py on one of its devices."""

    def __init__(self, device, data):
        import torch

        if device == "headrace":
            import headrace.torch  # noqa: F401  (torch finds it by itself, except where torch also drives CUDA)
        sys.path.insert(0, str(__import__("pathlib").Path(__file__).resolve().parent.parent / "examples"))
        import networks

        self.torch, self.networks, self.device, self.data = torch, networks, torch.device(device), data
        self.wait = (lambda: None) if device == "cpu" else getattr(torch, device).synchronize

    def array(self, values):
        values = np.ascontiguousarray(values)
        tensor = self.torch.from_numpy(values.astype(np.int64) if values.dtype.kind == "i" else values)
        return tensor.to(self.device)

    def images(self, values):
        return self.array(values)

    def model(self, name, trains):
        model = self.networks.CASES[name].build()
        prefix = name + "."
        named = {k[len(prefix) :]: v for k, v in self.data.items() if k.startswith(prefix)}
        model.load_state_dict({k: self.torch.from_numpy(v) for k, v in named.items()})
        return model.to(self.device).train(trains)

    def trainer(self, name, rate=RATE):
        model = self.model(name, True)
        case = self.networks.CASES[name]
        optimizers = case.optimizers(model, lambda parameters: self.torch.optim.Adam(parameters, lr=rate))

        def step(x, y):
            (loss,) = case.step(model, optimizers, (x, y))
            self.wait()
            return loss

        return model, step

    def answers(self, name):
        return self.evaluator(self.model(name, False))

    def evaluator(self, model):
        def call(x):
            with self.torch.no_grad():
                y = model(x)
                self.wait()
            return y

        return call

    def test(self, model):
        def call(x):
            model.eval()
            y = self.evaluator(model)(x)
            model.train()
            return y

        return call

    def host(self, y):
        return y.detach().cpu().numpy()


class Arrays:
    """hr.nn, or mlx.nn, which have the same names; eager or compiled."""

    def __init__(self, library, compiled, data):
        if library == "headrace":
            import headrace as core
            from headrace import nn, optimizers
        else:
            import mlx.core as core
            from mlx import nn, optimizers
        self.core, self.nn, self.optimizers, self.compiled, self.data = core, nn, optimizers, compiled, data
        self.is_lazy = library == "mlx"  # it evaluates what it is given; headrace all that is pending

    def array(self, values):
        return self.core.array(values.astype(np.int32) if values.dtype.kind == "i" else np.ascontiguousarray(values))

    def images(self, values):
        return self.array(values.transpose(0, 2, 3, 1) if values.ndim == 4 else values)

    def wait(self, *trees):
        self.core.eval(*trees) if self.is_lazy else self.core.eval()

    def layers(self, name):
        nn = self.nn
        if name == "mlp":
            sizes = (784, 256, 256, 256, 10)
            pairs = [[nn.Linear(a, b), nn.Softshrink()] for a, b in zip(sizes, sizes[1:])]
            return list(itertools.chain(*pairs))[:-1]
        layers = []
        for a, b in zip(CHANNELS, CHANNELS[1:]):
            layers += [nn.Conv2d(a, b, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2, 2)]
        layers.append(lambda x: x.reshape(x.shape[0], -1))
        n = FEATURES
        for a, b in ((n, n // 2), (n // 2, n // 4)):
            layers += [nn.Linear(a, b), nn.ReLU(), nn.Dropout(DROPOUT)]
        return [*layers, nn.Linear(n // 4, 10)]

    def model(self, name, trains):
        nn, layers = self.nn, self.layers(name)

        class Network(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = [layer for layer in layers if isinstance(layer, nn.Module)]

            def __call__(self, x):
                for layer in layers:
                    x = layer(x)
                return x

        model = Network()
        self.set_weights(name, [layer for layer in layers if isinstance(layer, (nn.Linear, nn.Conv2d))])
        return model.train(trains)

    def set_weights(self, name, layers):
        names = [k for k in self.data if k.startswith(name + ".") and k.endswith(".weight")]
        for layer, key in zip(layers, names, strict=True):
            weight = self.data[key]
            if weight.ndim == 4:
                weight = weight.transpose(0, 2, 3, 1)
            elif name == "cnn" and weight.shape[1] == FEATURES:
                weight = weight.reshape(-1, 100, 3, 3).transpose(0, 2, 3, 1).reshape(-1, FEATURES)
            layer.weight = self.array(weight)
            layer.bias = self.array(self.data[key.removesuffix("weight") + "bias"])

    def trainer(self, name, rate=RATE):
        model = self.model(name, True)
        optimizer = self.optimizers.Adam(learning_rate=rate, bias_correction=True)
        optimizer.init(model.trainable_parameters())
        losses = self.nn.losses
        gradients_of = self.nn.value_and_grad(model, lambda x, y: losses.cross_entropy(model(x), y, reduction="mean"))
        state = [model.state, optimizer.state, self.core.random.state]

        def update(x, y):
            loss, gradients = gradients_of(x, y)
            optimizer.update(model, gradients)
            return loss

        if self.compiled:
            update = functools.partial(self.core.compile, inputs=state, outputs=state)(update)

        def step(x, y):
            loss = update(x, y)
            self.wait(loss, state)
            return loss

        return model, step

    def answers(self, name):
        return self.evaluator(self.model(name, False))

    def evaluator(self, model):
        function = self.core.compile(lambda x: model(x)) if self.compiled else model

        def call(x):
            y = function(x)
            self.wait(y)
            return y

        return call

    def test(self, model):
        def call(x):
            model.eval()
            y = model(x)
            self.wait(y)
            model.train()
            return y

        return call

    def host(self, y):
        return np.array(y)


SIDES = {
    "arrays": functools.partial(Arrays, "headrace", False),
    "arrays compiled": functools.partial(Arrays, "headrace", True),
    "mlx": functools.partial(Arrays, "mlx", False),
    "mlx compiled": functools.partial(Arrays, "mlx", True),
    "torch cpu": functools.partial(Torch, "cpu"),
    "torch cuda": functools.partial(Torch, "cuda"),
    "torch headrace": functools.partial(Torch, "headrace"),
}


class Work:
    """What the requests name. A sample is one call, timed until its result exists."""

    def __init__(self, side, data):
        self.side, self.data, self.samples = side, data, {}

    def sample(self, case):
        name, kind, count = case.split("-")
        images, classes = self.data["images"], self.data["classes"]
        chosen = np.resize(np.arange(len(images)), int(count))
        x = images[chosen] if name == "cnn" else images[chosen].reshape(len(chosen), -1)
        x, y = self.side.images(x), self.side.array(classes[chosen])
        if kind == "train":
            step = self.side.trainer(name)[1]
            return lambda: step(x, y)
        answer = self.side.answers(name)
        return lambda: answer(x)

    def warm(self, case):
        """Prepares a case: at least three calls, and for a second."""
        sample = self.samples[case] = self.sample(case)
        begin = time.perf_counter()
        for i in itertools.count():
            if i >= 3 and time.perf_counter() - begin > 1:
                return {}
            sample()

    def round(self, case, seconds):
        sample, times = self.samples[case], []
        end = time.perf_counter() + seconds
        sample()
        while not times or (time.perf_counter() < end and len(times) < 20000):
            begin = time.perf_counter()
            result = sample()
            times.append(time.perf_counter() - begin)
            del result
        return {"times": times}

    def one_by_one(self, count, limit):
        """Images one by one, each from the host; all answers are held."""
        images = self.data["images"]
        answer, answers = self.side.answers("cnn"), []
        for i in range(20):
            answer(self.side.images(images[i : i + 1]))
        begin = time.perf_counter()
        for i in range(count):
            at = i % len(images)
            answers.append(answer(self.side.images(images[at : at + 1])))
            if time.perf_counter() - begin > limit:
                break
        return {"seconds": time.perf_counter() - begin, "count": len(answers)}

    def logits(self):
        images = self.data["test_images"][:64]
        y = self.side.host(self.side.answers("cnn")(self.side.images(images)))
        return {"logits": (y - y.mean(1, keepdims=True)).tolist()}

    def epochs(self, count, limit, batch):
        """Trains the network from its first weights; loss and accuracy on the test images after each epoch."""
        images, classes = self.data["images"], self.data["classes"]
        model, step = self.side.trainer("cnn", float(self.data["rate"]))
        answer = self.side.test(model)
        test_images = self.side.images(self.data["test_images"])
        order, rows, begin = np.random.default_rng(0), [], time.perf_counter()
        for _ in range(count):
            start, losses = time.perf_counter(), []
            shuffled = order.permutation(len(images))
            for i in range(0, len(images) - batch + 1, batch):
                chosen = shuffled[i : i + batch]
                losses.append(step(self.side.images(images[chosen]), self.side.array(classes[chosen])))
            seconds = time.perf_counter() - start
            loss = float(np.mean([self.side.host(x) for x in losses]))
            right = self.side.host(answer(test_images)).argmax(1) == self.data["test_classes"]
            rows.append({"seconds": seconds, "loss": loss, "accuracy": float(right.mean())})
            if time.perf_counter() - begin > limit:
                break
        return {"epochs": rows}


def main(name, path):
    data = dict(np.load(path))
    work = Work(SIDES[name](data), data)
    print(json.dumps({"ready": name}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(work, request.pop("do"))(**request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
