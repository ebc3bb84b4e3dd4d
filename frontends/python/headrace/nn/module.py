"""Modules: trees of arrays and of other modules, with the functions that use them.

A module is a dict. An attribute that is an array, dict, list or tuple is an entry; others are ordinary attributes.
Parameters are the arrays in entries whose names do not begin with "_", also those in dicts and lists of dicts and
lists. A frozen parameter is a parameter that is not trained.
"""

from headrace import _arrays
from headrace._arrays import Array
from headrace.utils import tree_flatten, tree_unflatten

__all__ = ["Module"]

_FLOATING = frozenset({"float16", "bfloat16", "float32", "float64"})


def _is_floating(dtype):
    return dtype.name in _FLOATING


def _places(target, new):
    """Pairs of key and value of a tree's root, None if it does not fit the target."""
    if isinstance(new, dict) and isinstance(target, dict):
        return new.items()
    return enumerate(new) if isinstance(new, list) and isinstance(target, list) else None


def _replace(target, new, strict, what, is_replaced):
    """Puts values of the tree `new` into the places of `target` with is_replaced(old, value). strict: a value that has
    no place is an error, but not an empty dict; what: the name of values in errors."""
    places = _places(target, new)
    if places is None:
        if strict:
            raise ValueError(f"update: {type(new).__name__} in the place of a {type(target).__name__} of {what}s")
        return
    for key, value in places:
        if key not in (target if isinstance(target, dict) else range(len(target))):
            if strict:
                raise ValueError(f"update: the {type(target).__name__} of length {len(target)} has no {what} {key!r}")
        elif is_replaced(target[key], value):
            target[key] = value
        elif isinstance(target[key], (dict, list)):
            _replace(target[key], value, strict, what, is_replaced)
        elif strict and not (isinstance(value, dict) and not value):
            raise ValueError(f"update: {type(value).__name__} {value!r:.80} can't replace {what} {key!r}")


def _walk(module, key, value, keep, change, is_leaf):
    """The tree of Module.filter_and_map at one entry; keep and is_leaf get "layers.0" as key inside of a list."""
    if is_leaf(module, key, value):
        return change(value)
    if isinstance(value, Module):
        return {k: _walk(value, k, v, keep, change, is_leaf) for k, v in value.items() if keep(value, k, v)}
    if not isinstance(value, (dict, list)):
        raise RuntimeError(f"{type(module).__name__}: entry {key} is {value!r}, expected a dict, a list or a leaf")
    items = value.items() if isinstance(value, dict) else enumerate(value)
    children = {}
    for k, v in items:
        path = f"{key}.{k}"
        children[k] = _walk(module, path, v, keep, change, is_leaf) if keep(module, path, v) else {}
    return children if isinstance(value, dict) else list(children.values())


class Module(dict):
    """The base class of layers and models.

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.hidden, self.out = nn.Linear(2, 16), nn.Linear(16, 1)

            def __call__(self, x):
                return self.out(nn.relu(self.hidden(x)))
    """

    def __init__(self):
        self._no_grad = set()  # names of frozen entries; "weights.0" inside of a list
        self._training = True

    @property
    def training(self):
        """True in training, False in evaluation."""
        return self._training

    @property
    def state(self):
        """The module itself, as the dict of its entries."""
        return self

    # ---- attributes

    def __getattr__(self, key):
        try:
            return self[key]
        except KeyError:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {key!r}") from None

    def __setattr__(self, key, value):
        if isinstance(value, (Array, dict, list, tuple)):
            self.__dict__.pop(key, None)
            self[key] = value
        else:
            super().__setattr__(key, value)
            self.pop(key, None)

    def __delattr__(self, key):
        if key in self:
            del self[key]
        else:
            super().__delattr__(key)

    def _extra_repr(self):
        return ""

    def __repr__(self):
        children = tree_flatten(self.children(), is_leaf=self.is_module)
        lines = ["  " + f"({name}): {child!r}".replace("\n", "\n  ") for name, child in children]
        head = f"{type(self).__name__}({self._extra_repr()}"
        return "\n".join([head, *lines, ")"]) if lines else head + ")"

    # ---- trees of entries

    @staticmethod
    def is_module(value):
        """True for modules."""
        return isinstance(value, Module)

    @staticmethod
    def valid_child_filter(module, key, value):
        """True for entries that may have modules in them."""
        return isinstance(value, (dict, list))

    @staticmethod
    def valid_parameter_filter(module, key, value):
        """True for entries that may have parameters in them."""
        return isinstance(value, (Array, dict, list)) and not key.startswith("_")

    @staticmethod
    def trainable_parameter_filter(module, key, value):
        """True for entries that may have trainable parameters in them."""
        return isinstance(value, (Array, dict, list)) and not key.startswith("_") and key not in module._no_grad

    def filter_and_map(self, filter_fn, map_fn=None, is_leaf_fn=None):
        """The tree of entries with filter_fn(module, key, value), with map_fn(value) for the leaves, which are those
        with is_leaf_fn(module, key, value), by default all but modules, dicts and lists."""
        change = map_fn or (lambda value: value)
        is_leaf = is_leaf_fn or (lambda module, key, value: not isinstance(value, (dict, list)))
        return {k: _walk(self, k, v, filter_fn, change, is_leaf) for k, v in self.items() if filter_fn(self, k, v)}

    def parameters(self):
        """The tree of all parameters: dicts and lists of arrays."""
        return self.filter_and_map(self.valid_parameter_filter)

    def trainable_parameters(self):
        """The tree of the parameters that are not frozen."""
        return self.filter_and_map(self.trainable_parameter_filter)

    def children(self):
        """The modules that are entries of this one, in a tree."""
        return self.filter_and_map(self.valid_child_filter, is_leaf_fn=lambda m, k, v: isinstance(v, Module))

    def leaf_modules(self):
        """The tree of modules in this one that have no modules in them."""
        return self.filter_and_map(
            self.valid_child_filter,
            is_leaf_fn=lambda m, k, v: isinstance(v, Module) and not tree_flatten(v.children()),
        )

    # ---- modules

    def apply_to_modules(self, apply_fn):
        """Calls apply_fn(path, module) for this module, with the path "", and all in it."""
        stack = [("", self)]
        while stack:
            path, module = stack.pop()
            apply_fn(path, module)
            prefix = f".{path}" if path else ""
            stack += tree_flatten(module.children(), prefix=prefix, is_leaf=self.is_module)
        return self

    def modules(self):
        """A list of this module and all in it."""
        return [module for _, module in self.named_modules()]

    def named_modules(self):
        """Pairs of path and module, of this module and all in it."""
        found = []
        self.apply_to_modules(lambda path, module: found.append((path, module)))
        return found

    # ---- updates

    def update(self, parameters, strict=True):
        """Replaces parameters by those of a tree, which may have only some. strict: others in it are an error."""
        is_any = not strict
        _replace(self, parameters, strict, "parameter", lambda old, new: isinstance(old, Array) and (is_any or isinstance(new, Array)))
        return self

    def update_modules(self, modules, strict=True):
        """Replaces modules by those of a tree as that of children(), which may have only some."""
        _replace(self, modules, strict, "module", lambda old, new: isinstance(old, Module) and isinstance(new, Module))
        return self

    def apply(self, map_fn, filter_fn=None):
        """Replaces each parameter x by map_fn(x); filter_fn as in filter_and_map."""
        return self.update(self.filter_and_map(filter_fn or Module.valid_parameter_filter, map_fn))

    def set_dtype(self, dtype, predicate=_is_floating):
        """Converts the parameters whose dtype has predicate(dtype), by default floating ones; None: all."""
        self.apply(lambda x: x.astype(dtype) if predicate is None or predicate(x.dtype) else x)

    # ---- frozen parameters

    def _own_parameters(self):
        """The names of this module's own parameters, those of modules in it left out."""
        own = self.filter_and_map(lambda m, k, v: not isinstance(v, Module) and m.valid_parameter_filter(m, k, v))
        return [name for name, _ in tree_flatten(own)]

    def _check_members(self, keys, recurse):
        members = [set(module) for module in (self.modules() if recurse else [self])]
        for key in keys:
            if not any(key in names for names in members):
                raise KeyError(f"{type(self).__name__} has no parameter {key!r}")

    def _freeze_own(self, keys):
        self._no_grad.update(self._own_parameters() if keys is None else keys)

    def _unfreeze_own(self, keys):
        self._no_grad.difference_update(list(self._no_grad) if keys is None else keys)

    def _change_frozen(self, change, recurse, keys, strict):
        """Calls change(module, keys as a list) for this module, and with recurse for all in it."""
        keys = [keys] if isinstance(keys, str) else keys
        if strict and keys is not None:
            self._check_members(keys, recurse)
        for module in self.modules() if recurse else [self]:
            change(module, keys)
        return self

    def freeze(self, *, recurse=True, keys=None, strict=False):
        """Freezes the parameters with these names, by default all; recurse: also of modules in this one. strict: a name
        that no module has is an error."""
        return self._change_frozen(lambda module, keys: module._freeze_own(keys), recurse, keys, strict)

    def unfreeze(self, *, recurse=True, keys=None, strict=False):
        """The opposite of freeze."""
        return self._change_frozen(lambda module, keys: module._unfreeze_own(keys), recurse, keys, strict)

    # ---- training

    def _set_training_mode(self, mode):
        self._training = mode

    def train(self, mode=True):
        """Training, or evaluation with mode=False, of this module and all in it."""
        return self.apply_to_modules(lambda _, module: module._set_training_mode(mode))

    def eval(self):
        """Evaluation: dropout is off, batch norm uses its running statistics."""
        return self.train(False)

    # ---- files

    def _check_weights(self, weights):
        """Weights are arrays with the names and shapes of all parameters."""
        parameters = tree_flatten(self.parameters(), destination={})
        for title, names in (
            ("not in the model", weights.keys() - parameters.keys()),
            ("without weights", parameters.keys() - weights.keys()),
        ):
            if names:
                raise ValueError(f"load_weights: {len(names)} parameters {title}: {', '.join(sorted(names))}")
        for name, old in parameters.items():
            if not isinstance(weights[name], Array):
                raise ValueError(f"load_weights: {name} is {weights[name]!r}, expected an array")
            if weights[name].shape != old.shape:
                raise ValueError(f"load_weights: {name} has shape {weights[name].shape}, expected {old.shape}")

    def load_weights(self, file_or_weights, strict=True):
        """Replaces the parameters by arrays of a safetensors or npz file, or by pairs of name and array. strict: they
        have the names and shapes of all parameters."""
        is_pairs = isinstance(file_or_weights, (list, tuple))
        weights = dict(file_or_weights if is_pairs else _arrays.load(file_or_weights))
        if strict:
            self._check_weights(weights)
        return self.update(tree_unflatten(weights), strict=False) if weights else self

    def save_weights(self, file):
        """Saves the parameters to a file whose name ends with .safetensors, or .npz."""
        weights, name = tree_flatten(self.parameters(), destination={}), str(file)
        if name.endswith(".safetensors"):
            _arrays.save_safetensors(file, weights)
        elif name.endswith(".npz") and hasattr(_arrays, "savez"):
            _arrays.savez(file, **weights)
        else:
            raise ValueError(f"save_weights: {name} does not end with .safetensors")
