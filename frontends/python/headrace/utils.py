"""Trees: lists, tuples and dicts of leaves, in any depth, as in MLX. Anything else is a leaf, None too.

    tree_flatten({"w": [1, 2]})                    [("w.0", 1), ("w.1", 2)]
    tree_map(lambda x: 2 * x, {"w": [1, 2]})       {"w": [2, 4]}
"""

__all__ = ["tree_flatten", "tree_map", "tree_map_with_path", "tree_reduce", "tree_unflatten"]


def _is_leaf(tree, is_leaf):
    return not isinstance(tree, (list, tuple, dict)) or (is_leaf is not None and is_leaf(tree))


def _like(tree, children):
    """A list, tuple or named tuple of these children."""
    return type(tree)(*children) if hasattr(tree, "_fields") else type(tree)(children)


def _items(tree):
    return tree.items() if isinstance(tree, dict) else enumerate(tree)


def tree_map(fn, tree, *rest, is_leaf=None):
    """The tree with fn(leaf, ...) for each leaf; other trees give the further arguments at the same place."""
    if _is_leaf(tree, is_leaf):
        return fn(tree, *rest)
    children = {
        key: tree_map(fn, child, *[other[key] for other in rest], is_leaf=is_leaf) for key, child in _items(tree)
    }
    return children if isinstance(tree, dict) else _like(tree, children.values())


def tree_map_with_path(fn, tree, *rest, is_leaf=None, path=None):
    """As tree_map, with the leaf's path ("w.0") as fn's first argument."""
    if _is_leaf(tree, is_leaf):
        return fn(path if path is not None else "", tree, *rest)
    prefix = f"{path}." if path else ""
    children = {
        key: tree_map_with_path(fn, child, *(other[key] for other in rest), is_leaf=is_leaf, path=f"{prefix}{key}")
        for key, child in _items(tree)
    }
    return children if isinstance(tree, dict) else _like(tree, children.values())


def tree_flatten(tree, prefix="", is_leaf=None, destination=None):
    """The leaves with their paths, such as "w.0": pairs in a list, or a dict if that is the destination. A prefix is
    prepended to the paths; its first character is left out, as that of ".w.0"."""
    leaves = [] if destination is None else destination
    if not isinstance(leaves, (list, dict)):
        raise ValueError(f"destination must be a list, a dict or None, not {destination!r}")
    if _is_leaf(tree, is_leaf):
        (leaves.append if isinstance(leaves, list) else lambda pair: leaves.update([pair]))((prefix[1:], tree))
        return leaves
    for key, child in _items(tree):
        tree_flatten(child, f"{prefix}.{key}", is_leaf, leaves)
    return leaves


def tree_unflatten(tree):
    """The tree with these leaves, pairs or a dict of tree_flatten: lists where all keys are numbers, else dicts.
    Entries that a list lacks become empty dicts."""
    items = list(tree.items() if isinstance(tree, dict) else tree)
    if len(items) == 1 and items[0][0] == "":
        return items[0][1]
    children = {}
    for path, leaf in items:
        key, _, rest = path.partition(".")
        children.setdefault(key, []).append((rest, leaf))
    if not all(key.isdecimal() and str(int(key)) == key for key in children):
        return {key: tree_unflatten(leaves) for key, leaves in children.items()}
    numbered = {int(key): leaves for key, leaves in children.items()}
    return [tree_unflatten(numbered[i]) if i in numbered else {} for i in range(max(numbered, default=-1) + 1)]


def tree_reduce(fn, tree, initializer=None, is_leaf=None):
    """fn(...fn(fn(initializer, leaf), leaf)...) over all leaves; without an initializer from the first leaf on."""
    result = initializer
    for _, leaf in tree_flatten(tree, is_leaf=is_leaf):
        result = leaf if result is None else fn(result, leaf)
    return result
