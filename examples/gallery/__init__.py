"""Well-known networks, one small file each, trained on torch's CPU device and on Headrace from the same weights.

    cd examples && python -m gallery --help          or, from the repository's root,          make gallery

A network is a module of this package with these names:

    TITLE                             its name in the table
    STEPS, RATE                       steps of Adam that make it good enough for its picture, and their learning rate
    build(small=False)                the network, with fresh weights from torch's default generator
    batch(generator, small=False)     tensors of one step, on the CPU
    loss(model, *batch)               what a step minimises
    infer(model, *batch)              a tensor or a tuple of them: the trained network's output, without gradients
    draw(figure, model, device)       its picture, made by the network on that device; returns one line of text about it
    sound(model, device)              optional: samples between -1 and 1, and their number per second

A small network takes milliseconds a step, for the tests. Nothing is downloaded: data are synthetic, scikit-learn's
digits, or this repository's own documentation.
"""

from importlib import import_module

NETWORKS = ("yolo", "diffusion", "whisper", "llama", "bert", "vit", "lstm", "graph", "vae")


def network(name: str):
    """The module of that name; ImportError if it needs a package that is not installed."""
    return import_module(f"{__name__}.{name}")
