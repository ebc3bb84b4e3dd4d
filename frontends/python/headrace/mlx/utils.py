"""mlx.utils: trees."""

from headrace.utils import tree_flatten, tree_map, tree_map_with_path, tree_reduce, tree_unflatten

__all__ = ["tree_flatten", "tree_map", "tree_map_with_path", "tree_merge", "tree_reduce", "tree_unflatten"]


def _is_tree(x):
    return isinstance(x, (dict, list, tuple))


def _like(tree, children):
    return type(tree)(*children) if hasattr(tree, "_fields") else type(tree)(children)


def tree_merge(tree_a, tree_b, merge_fn=None):
    """The tree with the entries of both: where both have one, merge_fn(a, b); without it that is an error. None and
    empty containers give way to a leaf."""
    if tree_a is None or tree_b is None:
        return tree_a if tree_b is None else tree_b
    for tree, other in ((tree_a, tree_b), (tree_b, tree_a)):
        if _is_tree(tree) and not tree and not _is_tree(other):
            return other
    if isinstance(tree_a, (list, tuple)) and isinstance(tree_b, (list, tuple)):
        longer, shorter = (tree_a, tree_b) if len(tree_a) >= len(tree_b) else (tree_b, tree_a)
        merged = [tree_merge(a, b, merge_fn) for a, b in zip(tree_a, tree_b)]
        return _like(tree_a, [*merged, *longer[len(shorter) :]])
    if isinstance(tree_a, dict) and isinstance(tree_b, dict):
        merged = {key: tree_merge(a, tree_b[key], merge_fn) if key in tree_b else a for key, a in tree_a.items()}
        return {**merged, **{key: b for key, b in tree_b.items() if key not in tree_a}}
    if _is_tree(tree_a) or _is_tree(tree_b) or merge_fn is None:
        raise ValueError(f"tree_merge: {tree_a!r} and {tree_b!r} at one place, expected trees alike or a merge_fn")
    return merge_fn(tree_a, tree_b)
