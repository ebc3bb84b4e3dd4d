/* places.c: places of arrays in modules and trees, for headrace/nn and headrace/optimizers, in one walk a step.
 *
 * A place is an owner, a dict or list, and a key in it: owner[key] is the array. Lists of owners, keys and arrays stand
 * side by side.
 */
#include "extension.h"

/* Lists side by side; new references. */
enum { LISTS_MAX = 5 };
typedef struct side_lists {
  PyObject *lists[LISTS_MAX];
  int count;
} side_lists;

static int make_lists(side_lists *l, int count) {
  *l = (side_lists){.count = count};
  for (int i = 0; i < count; ++i) {
    l->lists[i] = PyList_New(0);
    if (l->lists[i] == NULL) {
      return -1;
    }
  }
  return 0;
}

static void drop_lists(side_lists *l) {
  for (int i = 0; i < l->count; ++i) {
    Py_XDECREF(l->lists[i]);
  }
}

static int append_all(side_lists *l, PyObject *const *items) {
  for (int i = 0; i < l->count; ++i) {
    if (PyList_Append(l->lists[i], items[i]) < 0) {
      return -1;
    }
  }
  return 0;
}

/* A tuple of an object, whose reference it takes, and the lists. */
static PyObject *pack_lists(PyObject *first, const side_lists *l) {
  PyObject *tuple = first != NULL ? PyTuple_New(1 + l->count) : NULL;
  if (tuple == NULL) {
    Py_XDECREF(first);
    return NULL;
  }
  (void)PyTuple_SetItem(tuple, 0, first);
  for (int i = 0; i < l->count; ++i) {
    (void)PyTuple_SetItem(tuple, 1 + i, Py_NewRef(l->lists[i]));
  }
  return tuple;
}

/* ---- trainable parameters of a module ---- */

typedef struct parameter_walk {
  PyTypeObject *module_type;
  PyObject *no_grad; /* "_no_grad", interned, for the cache of types */
  side_lists found;  /* owners, keys, arrays, owners in the new tree, and their keys */
  bool all_floating;
} parameter_walk;

/* The place of a walk: a module, the names of its frozen entries, and the path of a dict or list in it; NULL: itself.
 */
typedef struct position {
  PyObject *module, *frozen, *path;
} position;

static bool is_floating(const array_object *x) {
  switch (x->tensor.dtype) {
    case HR_DTYPE_F16:
    case HR_DTYPE_BF16:
    case HR_DTYPE_F32:
    case HR_DTYPE_F64:
    case HR_DTYPE_C64:
    case HR_DTYPE_C128:
      return true;
    default:
      return false;
  }
}

/* The name of an entry: "layers.0" inside of a list. */
static PyObject *name_of(const position *at, PyObject *key) {
  return at->path == NULL ? PyObject_Str(key) : PyUnicode_FromFormat("%U.%S", at->path, key);
}

/* 1: the entry is among the frozen ones. */
static int is_frozen(const position *at, PyObject *key) {
  Py_ssize_t count = PySet_Size(at->frozen);
  if (count <= 0) {
    return (int)count;
  }
  PyObject *name = name_of(at, key);
  int is = name != NULL ? PySet_Contains(at->frozen, name) : -1;
  Py_XDECREF(name);
  return is;
}

static bool is_container(PyObject *value) {
  return PyDict_Check(value) || PyList_Check(value);
}

/* 1: the entry is an array or container that may have trainable parameters. */
static int is_trainable(const position *at, PyObject *key, PyObject *value) {
  bool is_private =
      at->path == NULL && PyUnicode_Check(key) && PyUnicode_GetLength(key) > 0 && PyUnicode_ReadChar(key, 0) == '_';
  if (is_private || !(is_container(value) || PyObject_TypeCheck(value, array_type))) {
    return 0;
  }
  int frozen = is_frozen(at, key);
  return frozen < 0 ? -1 : !frozen;
}

static PyObject *walk_entries(parameter_walk *w, const position *at, PyObject *entries);

static PyObject *walk_module(parameter_walk *w, PyObject *module) {
  position at = {module, PyObject_GetAttr(module, w->no_grad), NULL};
  PyObject *tree = at.frozen != NULL ? walk_entries(w, &at, module) : NULL;
  Py_XDECREF(at.frozen);
  return tree;
}

static PyObject *walk_part(parameter_walk *w, const position *at, PyObject *key, PyObject *value) {
  const position inner = {at->module, at->frozen, name_of(at, key)};
  PyObject *tree = inner.path != NULL ? walk_entries(w, &inner, value) : NULL;
  Py_XDECREF(inner.path);
  return tree;
}

/* The tree of a module, dict or list. */
static PyObject *walk_value(parameter_walk *w, const position *at, PyObject *key, PyObject *value) {
  if (Py_EnterRecursiveCall(" in a tree of parameters")) {
    return NULL;
  }
  bool is_module = PyObject_TypeCheck(value, w->module_type);
  PyObject *tree = is_module ? walk_module(w, value) : walk_part(w, at, key, value);
  Py_LeaveRecursiveCall();
  return tree;
}

/* The object that stands in the tree for an entry, a new reference: None for an array. *out NULL: nothing. */
static int walk_entry(parameter_walk *w, const position *at, PyObject *entries, PyObject *key, PyObject *value,
                      PyObject *tree, PyObject **out) {
  int trains = is_trainable(at, key, value);
  *out = NULL;
  if (trains < 0) {
    return -1;
  }
  if (trains && is_array(value)) {
    PyObject *const items[] = {entries, key, value, tree, key};
    *out = Py_NewRef(Py_None);
    w->all_floating = w->all_floating && is_floating(as_array(value));
    trains = append_all(&w->found, items) < 0 ? -1 : trains;
  } else if (trains && is_container(value)) {
    *out = walk_value(w, at, key, value);
    trains = *out == NULL ? -1 : trains;
  } else if (at->path != NULL) {
    *out = PyDict_New();
    trains = *out == NULL ? -1 : trains;
  }
  return trains < 0 ? -1 : 0;
}

/* Takes the child's reference; NULL: none. */
static int add_child(PyObject *tree, PyObject *key, PyObject *child) {
  int failed =
      child != NULL && (PyDict_Check(tree) ? PyDict_SetItem(tree, key, child) : PyList_Append(tree, child)) < 0;
  Py_XDECREF(child);
  return failed ? -1 : 0;
}

static int walk_one(parameter_walk *w, const position *at, PyObject *entries, PyObject *key, PyObject *value,
                    PyObject *tree) {
  PyObject *child;
  int failed = walk_entry(w, at, entries, key, value, tree, &child) < 0;
  if (failed) {
    Py_XDECREF(child);
    return -1;
  }
  return add_child(tree, key, child);
}

static int walk_dict(parameter_walk *w, const position *at, PyObject *entries, PyObject *tree) {
  PyObject *items = PyDict_Items(entries); /* names may run code of the module's class */
  int failed = items == NULL;
  for (Py_ssize_t i = 0; !failed && i < PyList_Size(items); ++i) {
    PyObject *pair = PyList_GetItem(items, i);
    failed = walk_one(w, at, entries, PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1), tree) < 0;
  }
  Py_XDECREF(items);
  return failed ? -1 : 0;
}

static int walk_list(parameter_walk *w, const position *at, PyObject *entries, PyObject *tree) {
  for (Py_ssize_t i = 0; i < PyList_Size(entries); ++i) {
    PyObject *key = PyLong_FromSsize_t(i), *value = Py_NewRef(PyList_GetItem(entries, i));
    int failed = key == NULL || walk_one(w, at, entries, key, value, tree) < 0;
    Py_XDECREF(key);
    Py_DECREF(value);
    if (failed) {
      return -1;
    }
  }
  return 0;
}

static PyObject *walk_entries(parameter_walk *w, const position *at, PyObject *entries) {
  PyObject *tree = PyDict_Check(entries) ? PyDict_New() : PyList_New(0);
  int failed =
      tree == NULL || (PyDict_Check(entries) ? walk_dict(w, at, entries, tree) : walk_list(w, at, entries, tree)) < 0;
  if (failed) {
    Py_CLEAR(tree);
  }
  return tree;
}

/* Borrowed: the process keeps it. */
static PyObject *name_of_frozen(void) {
  static PyObject *kept;
  if (kept == NULL) {
    kept = PyUnicode_InternFromString("_no_grad");
  }
  return kept;
}

/* _parameters(module, Module): what filter_and_map makes of the trainable parameters, with None for arrays; and lists
 * of their owners, keys and arrays, and of owners and keys in the new tree. None: there is no parameter, or one that is
 * not floating. */
static PyObject *parameters(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *root, *type;
  parameter_walk w = {.no_grad = name_of_frozen(), .all_floating = true};
  if (w.no_grad == NULL || !PyArg_ParseTuple(args, "OO!:_parameters", &root, &PyType_Type, &type)) {
    return NULL;
  }
  w.module_type = (PyTypeObject *)type;
  if (!PyDict_Check(root)) {
    return PyErr_Format(PyExc_TypeError, "_parameters() expects a module, not %R", root);
  }
  PyObject *tree = make_lists(&w.found, LISTS_MAX) == 0 ? walk_module(&w, root) : NULL, *result = NULL;
  if (tree != NULL && (!w.all_floating || PyList_Size(w.found.lists[0]) == 0)) {
    Py_DECREF(tree);
    result = Py_NewRef(Py_None);
  } else {
    result = pack_lists(tree, &w.found);
  }
  drop_lists(&w.found);
  return result;
}

/* ---- what an optimizer updates ---- */

typedef struct update_walk {
  side_lists found; /* gradients, owners of parameters, keys, parameters, states */
  bool can_store;   /* all owners are dicts or lists */
} update_walk;

static int collect(update_walk *w, PyObject *gradients, PyObject *parameters_, PyObject *states);

static int collect_array(update_walk *w, PyObject *gradient, PyObject *owner, PyObject *key, PyObject *parameter,
                         PyObject *state) {
  PyObject *const items[] = {gradient, owner, key, parameter, state};
  w->can_store = w->can_store && (PyDict_Check(owner) || PyList_Check(owner));
  return !is_array(parameter) ? 0 : append_all(&w->found, items) < 0 ? -1 : 1;
}

/* 1: done; 0: there is another leaf than an array; -1: an exception is set. */
static int collect_one(update_walk *w, PyObject *gradient, PyObject *owner, PyObject *key, PyObject *states) {
  bool is_tree = PyDict_Check(gradient) || PyList_Check(gradient) || PyTuple_Check(gradient);
  if (!is_array(gradient) && !is_tree) {
    return 0;
  }
  PyObject *parameter = PyObject_GetItem(owner, key);
  PyObject *state = parameter != NULL ? PyObject_GetItem(states, key) : NULL;
  int done = -1;
  if (state != NULL && !is_tree) {
    done = collect_array(w, gradient, owner, key, parameter, state);
  } else if (state != NULL && !Py_EnterRecursiveCall(" in a tree of gradients")) {
    done = collect(w, gradient, parameter, state);
    Py_LeaveRecursiveCall();
  }
  Py_XDECREF(parameter);
  Py_XDECREF(state);
  return done;
}

static int collect(update_walk *w, PyObject *gradients, PyObject *parameters_, PyObject *states) {
  PyObject *items = PyDict_Check(gradients) ? PyDict_Items(gradients) : PySequence_List(gradients);
  int done = items != NULL ? 1 : -1;
  for (Py_ssize_t i = 0; done == 1 && i < PyList_Size(items); ++i) {
    PyObject *item = PyList_GetItem(items, i);
    if (PyDict_Check(gradients)) {
      done = collect_one(w, PyTuple_GetItem(item, 1), parameters_, PyTuple_GetItem(item, 0), states);
    } else {
      PyObject *key = PyLong_FromSsize_t(i);
      done = key != NULL ? collect_one(w, item, parameters_, key, states) : -1;
      Py_XDECREF(key);
    }
  }
  Py_XDECREF(items);
  return done;
}

/* _updates(gradients, parameters, states): for each gradient of a tree, lists of it, the owner of its parameter, the
 * key, the parameter and the state; before them, if all owners can be changed. None: the tree has no gradient, or
 * another leaf than an array. */
static PyObject *updates(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *gradients, *parameters_, *states, *result = NULL;
  update_walk w = {.can_store = true};
  if (!PyArg_ParseTuple(args, "OOO:_updates", &gradients, &parameters_, &states)) {
    return NULL;
  }
  int done = make_lists(&w.found, LISTS_MAX) == 0 ? collect(&w, gradients, parameters_, states) : -1;
  if (done == 1 && PyList_Size(w.found.lists[0]) > 0) {
    result = pack_lists(PyBool_FromLong(w.can_store), &w.found);
  } else if (done >= 0) {
    result = Py_NewRef(Py_None);
  }
  drop_lists(&w.found);
  return result;
}

/* ---- places ---- */

/* Key i of a list, or the key of all; borrowed. */
static PyObject *key_at(PyObject *keys, Py_ssize_t i) {
  return PyList_CheckExact(keys) ? PyList_GetItem(keys, i) : keys;
}

/* _store(owners, keys, values): owners[i][keys[i]] = values[i]; keys may be one for all. */
static PyObject *store(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *owners, *keys, *values;
  if (!PyArg_ParseTuple(args, "O!OO!:_store", &PyList_Type, &owners, &keys, &PyList_Type, &values)) {
    return NULL;
  }
  Py_ssize_t count = PyList_Size(owners);
  if (PyList_Size(values) != count) {
    return PyErr_Format(PyExc_ValueError, "_store: %zd values for %zd places", PyList_Size(values), count);
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *key = key_at(keys, i);
    if (key == NULL || PyObject_SetItem(PyList_GetItem(owners, i), key, PyList_GetItem(values, i)) < 0) {
      return NULL;
    }
  }
  Py_RETURN_NONE;
}

/* _load(owners, key): the list of owners[i][key]. */
static PyObject *load(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *owners, *key;
  if (!PyArg_ParseTuple(args, "O!O:_load", &PyList_Type, &owners, &key)) {
    return NULL;
  }
  Py_ssize_t count = PyList_Size(owners);
  PyObject *values = PyList_New(count);
  for (Py_ssize_t i = 0; values != NULL && i < count; ++i) {
    PyObject *value = PyObject_GetItem(PyList_GetItem(owners, i), key);
    if (value == NULL || PyList_SetItem(values, i, value) < 0) {
      Py_CLEAR(values);
    }
  }
  return values;
}

/* _common_dtype(arrays): the dtype of all; None if they have several, or there is none. */
static PyObject *common_dtype(PyObject *module, PyObject *list) {
  (void)module;
  hr_dtype common = HR_DTYPE_NONE;
  Py_ssize_t count = PyList_Size(list);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *x = PyList_GetItem(list, i);
    if (!is_array(x) || (i > 0 && as_array(x)->tensor.dtype != common)) {
      Py_RETURN_NONE;
    }
    common = as_array(x)->tensor.dtype;
  }
  return count < 0 ? NULL : count == 0 ? Py_NewRef(Py_None) : dtype_object_of(common);
}

PyMethodDef place_methods[] = {
    {"_parameters", parameters, METH_VARARGS, NULL}, {"_updates", updates, METH_VARARGS, NULL},
    {"_store", store, METH_VARARGS, NULL},           {"_load", load, METH_VARARGS, NULL},
    {"_common_dtype", common_dtype, METH_O, NULL},   {NULL, NULL, 0, NULL}};
