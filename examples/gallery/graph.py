"""A graph network: nodes of a graph find their community from their neighbours, with attention over edges.

Each layer is attention as Velickovic et al. (2017) have it, in torch's own scatters: the softmax over a node's edges
takes its largest score by `scatter_reduce` and its sum by `index_add`; messages are gathered, weighted and added.
One node of twenty has a label in training; all have a faint, noisy hint of their community as features.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TITLE = "Graph attention network"
STEPS, RATE = 120, 5e-3
COMMUNITIES, FEATURES = 5, 32


class GraphAttention(nn.Module):
    def __init__(self, inputs: int, outputs: int, heads: int):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(inputs, outputs * heads, bias=False)
        self.own = nn.Linear(inputs, outputs * heads)
        self.source = nn.Parameter(torch.randn(heads, outputs) / math.sqrt(outputs))
        self.target = nn.Parameter(torch.randn(heads, outputs) / math.sqrt(outputs))

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        count, (source, target) = len(nodes), edges
        x = self.project(nodes).view(count, self.heads, -1)
        scores = (x * self.source).sum(-1)[source] + (x * self.target).sum(-1)[target]
        scores = F.leaky_relu(scores, 0.2)
        index = target[:, None].expand_as(scores)
        largest = scores.new_full((count, self.heads), -math.inf)
        largest = largest.scatter_reduce(0, index, scores.detach(), "amax")
        weights = (scores - largest[target]).exp()
        total = torch.zeros_like(largest).index_add(0, target, weights)
        messages = x[source] * (weights / total[target])[..., None]
        return torch.zeros_like(x).index_add(0, target, messages).flatten(1) + self.own(nodes)


class GraphNetwork(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.first = GraphAttention(FEATURES, width, heads)
        self.second = GraphAttention(width * heads, width, heads)
        self.head = nn.Linear(width * heads, COMMUNITIES)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        x = F.elu(self.first(nodes, edges))
        return self.head(F.elu(self.second(x, edges)))


def build(small: bool = False) -> GraphNetwork:
    return GraphNetwork(4, 2) if small else GraphNetwork(16, 4)


def make_graph(generator: torch.Generator, nodes: int, degree: int) -> tuple[Tensor, ...]:
    """Features, edges in both directions with a loop for each node, and the community of each node."""
    community = torch.randint(COMMUNITIES, (nodes,), generator=generator)
    hint = torch.randn(COMMUNITIES, FEATURES, generator=torch.Generator().manual_seed(7))
    features = 0.4 * hint[community] + torch.randn(nodes, FEATURES, generator=generator)
    # Eight edges of ten stay inside their community: the other end is found in the list of nodes sorted by community.
    order = community.argsort(stable=True)
    begin = torch.searchsorted(community[order], torch.arange(COMMUNITIES + 1))
    source = torch.randint(nodes, (nodes * degree // 2,), generator=generator)
    place = torch.rand(len(source), generator=generator, dtype=torch.double)
    low, high = begin[community[source]], begin[community[source] + 1]
    inside = order[(low + place * (high - low)).long()]
    target = torch.where(torch.rand(len(source), generator=generator) < 0.8, inside, (place * nodes).long())
    loop = torch.arange(nodes)
    return features, torch.stack((torch.cat((source, target, loop)), torch.cat((target, source, loop)))), community


def batch(generator: torch.Generator, small: bool = False) -> tuple[Tensor, ...]:
    nodes, degree = (40, 4) if small else (2000, 12)
    features, edges, community = make_graph(generator, nodes, degree)
    labelled = torch.rand(nodes, generator=generator) < (0.5 if small else 0.05)
    return features, edges, community.where(labelled, torch.tensor(-100))


def loss(model: GraphNetwork, features: Tensor, edges: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(features, edges), labels)


def infer(model: GraphNetwork, features: Tensor, edges: Tensor, labels: Tensor) -> Tensor:
    return model(features, edges)


def draw(figure, model: GraphNetwork, device) -> str:
    """An unseen graph, each node with the colour of the community that the network finds; a cross where it errs."""
    from matplotlib.collections import LineCollection

    generator = torch.Generator().manual_seed(11)
    features, edges, community = make_graph(generator, 300, 10)
    found = model(features.to(device), edges.to(device)).argmax(1).cpu()
    angle = community * (2 * math.pi / COMMUNITIES) + math.pi / 2
    place = torch.stack((angle.cos(), angle.sin()), 1) * 2.4 + torch.randn(300, 2, generator=generator) * 0.48
    axes = figure.subplots()
    axes.add_collection(LineCollection(place[edges.t()].numpy(), colors="#8a8f9830", linewidths=0.4))
    right = found == community
    colors = torch.tensor([0, 1, 2, 4, 5])[found]
    options = {"cmap": "tab10", "vmin": 0, "vmax": 9, "linewidths": 0.8}
    axes.scatter(*place[right].t(), c=colors[right], s=9, **options)
    axes.scatter(*place[~right].t(), c=colors[~right], s=30, marker="x", **options)
    axes.set_aspect("equal")
    axes.axis("off")
    return f"{100 * right.double().mean().item():.1f} % of 300 nodes of an unseen graph are in their community"
