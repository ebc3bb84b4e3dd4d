/* trees.c: lists, tuples and dicts of arrays and constants, in any depth. Arrays are visited in the same order by all
 * functions. Trees of a compiled function's state may hold objects with an attribute `state`, too, such as optimizers:
 * the tree is that attribute.
 *
 * Dicts and lists of subclasses keep their type. Named tuples are made of their fields.
 */
#include "extension.h"

static bool is_tree(PyObject *object) {
  return PyList_Check(object) || PyTuple_Check(object) || PyDict_Check(object);
}

PyObject *state_of(PyObject *object) {
  bool is_leaf = is_tree(object) || is_array(object) || object == Py_None;
  PyObject *state = is_leaf ? NULL : PyObject_GetAttrString(object, "state");
  if (state == NULL) {
    PyErr_Clear();
    return Py_NewRef(object);
  }
  return state;
}

static PyObject *next_array(tree_arrays *from, PyObject *otherwise) {
  return Py_NewRef(from->arrays != NULL ? (PyObject *)from->arrays[from->at++] : otherwise);
}

/* ---- copies ---- */

static PyObject *call_with(PyTypeObject *type, PyObject *children) {
  PyObject *fields = PyObject_GetAttrString((PyObject *)type, "_fields");
  if (fields == NULL) {
    PyErr_Clear();
    return PyObject_CallFunctionObjArgs((PyObject *)type, children, NULL);
  }
  Py_DECREF(fields);
  return PyObject_CallObject((PyObject *)type, children);
}

/* A list or tuple of `like`'s type from a new list of children, whose reference it takes. */
static PyObject *sequence_like(PyObject *like, PyObject *list) {
  if (list == NULL || PyList_CheckExact(like)) {
    return list;
  }
  PyObject *tuple = PyList_AsTuple(list), *result = tuple;
  Py_DECREF(list);
  if (tuple != NULL && !PyTuple_CheckExact(like)) {
    result = call_with(Py_TYPE(like), tuple);
    Py_DECREF(tuple);
  }
  return result;
}

/* Another dict with the same entries; of a subclass with its attributes, too. */
static PyObject *dict_like(PyObject *dict) {
  if (PyDict_CheckExact(dict)) {
    return PyDict_Copy(dict);
  }
  PyObject *module = PyImport_ImportModule("copy");
  PyObject *copy = module != NULL ? PyObject_CallMethod(module, "copy", "O", dict) : NULL;
  Py_XDECREF(module);
  if (copy != NULL && !PyDict_Check(copy)) {
    PyErr_Format(PyExc_TypeError, "copy.copy() of %R is no dict", dict);
    Py_CLEAR(copy);
  }
  return copy;
}

static PyObject *copy_sequence(PyObject *tree, bool is_state, tree_arrays *from) {
  PyObject *list = PyList_New(0);
  for (Py_ssize_t i = 0; list != NULL && i < PySequence_Size(tree); ++i) {
    PyObject *old = PySequence_GetItem(tree, i);
    PyObject *child = old != NULL ? copy_tree(old, is_state, from) : NULL;
    if (child == NULL || PyList_Append(list, child) < 0) {
      Py_CLEAR(list);
    }
    Py_XDECREF(old);
    Py_XDECREF(child);
  }
  return sequence_like(tree, list);
}

static PyObject *copy_dict(PyObject *tree, bool is_state, tree_arrays *from) {
  PyObject *copy = dict_like(tree), *keys = copy != NULL ? PyDict_Keys(copy) : NULL;
  for (Py_ssize_t i = 0; copy != NULL && keys != NULL && i < PyList_Size(keys); ++i) {
    PyObject *key = PyList_GetItem(keys, i), *old = PyDict_GetItemWithError(copy, key);
    PyObject *child = old != NULL ? copy_tree(old, is_state, from) : NULL;
    if (child == NULL || PyDict_SetItem(copy, key, child) < 0) {
      Py_CLEAR(copy);
    }
    Py_XDECREF(child);
  }
  if (keys == NULL) {
    Py_CLEAR(copy);
  }
  Py_XDECREF(keys);
  return copy;
}

PyObject *copy_tree(PyObject *tree, bool is_state, tree_arrays *from) {
  if (is_array(tree)) {
    return next_array(from, tree);
  }
  if (!is_tree(tree)) {
    PyObject *state = is_state ? state_of(tree) : Py_NewRef(tree);
    PyObject *copy = state == tree ? Py_NewRef(tree) : copy_tree(state, is_state, from);
    Py_DECREF(state);
    return copy;
  }
  if (Py_EnterRecursiveCall(" in a tree of arrays")) {
    return NULL;
  }
  PyObject *copy = PyDict_Check(tree) ? copy_dict(tree, is_state, from) : copy_sequence(tree, is_state, from);
  Py_LeaveRecursiveCall();
  return copy;
}

/* ---- in place: what belongs at a place, which is the container that is there if it can be changed to that ---- */

static PyObject *filled(PyObject *live, PyObject *wanted, tree_arrays *from);

static int remove_others(PyObject *live, PyObject *wanted) {
  PyObject *keys = PyDict_Keys(live);
  int failed = keys == NULL;
  for (Py_ssize_t i = 0; !failed && i < PyList_Size(keys); ++i) {
    PyObject *key = PyList_GetItem(keys, i);
    int has = PyDict_Contains(wanted, key);
    failed = has < 0 || (has == 0 && PyDict_DelItem(live, key) < 0);
  }
  Py_XDECREF(keys);
  return failed ? -1 : 0;
}

static int fill_dict(PyObject *live, PyObject *wanted, tree_arrays *from) {
  Py_ssize_t at = 0;
  PyObject *key, *child;
  while (PyDict_Next(wanted, &at, &key, &child)) {
    PyObject *old = PyDict_GetItemWithError(live, key);
    PyObject *now = PyErr_Occurred() ? NULL : filled(old, child, from);
    int failed = now == NULL || (now != old && PyDict_SetItem(live, key, now) < 0);
    Py_XDECREF(now);
    if (failed) {
      return -1;
    }
  }
  return PyDict_Size(live) != PyDict_Size(wanted) ? remove_others(live, wanted) : 0;
}

/* A list of what belongs at each place. */
static PyObject *fill_places(PyObject *live, PyObject *wanted, tree_arrays *from, bool *changes) {
  Py_ssize_t count = PySequence_Size(wanted), before = PySequence_Size(live);
  PyObject *list = PyList_New(0);
  *changes = count != before;
  for (Py_ssize_t i = 0; list != NULL && i < count; ++i) {
    PyObject *old = i < before ? PySequence_GetItem(live, i) : NULL, *child = PySequence_GetItem(wanted, i);
    PyObject *now = child != NULL ? filled(old, child, from) : NULL;
    *changes |= now != old;
    if (now == NULL || PyList_Append(list, now) < 0) {
      Py_CLEAR(list);
    }
    Py_XDECREF(old);
    Py_XDECREF(child);
    Py_XDECREF(now);
  }
  return list;
}

static PyObject *fill_sequence(PyObject *live, PyObject *wanted, tree_arrays *from) {
  bool changes;
  PyObject *list = fill_places(live, wanted, from, &changes);
  if (list == NULL || !changes) {
    Py_XDECREF(list);
    return list != NULL ? Py_NewRef(live) : NULL;
  }
  if (PyTuple_Check(live)) {
    return sequence_like(wanted, list);
  }
  int failed = PyList_SetSlice(live, 0, PY_SSIZE_T_MAX, list);
  Py_DECREF(list);
  return failed ? NULL : Py_NewRef(live);
}

static PyObject *filled(PyObject *live, PyObject *wanted, tree_arrays *from) {
  if (live == NULL || !is_tree(wanted)) {
    return copy_tree(wanted, false, from);
  }
  PyObject *state = state_of(live), *now = NULL;
  bool both_dicts = PyDict_Check(state) && PyDict_Check(wanted);
  bool both_lists = PyList_Check(state) && PyList_Check(wanted);
  if (!both_dicts && !both_lists && !(PyTuple_Check(state) && PyTuple_Check(wanted))) {
    now = copy_tree(wanted, false, from);
  } else if (!Py_EnterRecursiveCall(" in a tree of arrays")) {
    now = !both_dicts                           ? fill_sequence(state, wanted, from)
          : fill_dict(state, wanted, from) == 0 ? Py_NewRef(state)
                                                : NULL;
    Py_LeaveRecursiveCall();
  }
  if (now == state) { /* of the object that is there */
    Py_DECREF(now);
    now = Py_NewRef(live);
  }
  Py_DECREF(state);
  return now;
}

int fill_tree(PyObject *live, PyObject *wanted, tree_arrays *from) {
  PyObject *now = filled(live, wanted, from);
  bool is_same = now == live;
  Py_XDECREF(now);
  if (now != NULL && !is_same) {
    PyErr_SetString(PyExc_ValueError, "compile: the state must be lists, dicts or objects with `state`, which can be "
                                      "changed, not an array or a tuple of arrays");
  }
  return is_same ? 0 : -1;
}

/* ---- containers as they are now ---- */

static int save_container(PyObject *container, PyObject *saved) {
  PyObject *contents = PyDict_Check(container) ? PyDict_Copy(container) : PySequence_List(container);
  PyObject *pair = contents != NULL ? PyTuple_Pack(2, container, contents) : NULL;
  int failed = pair == NULL || PyList_Append(saved, pair) < 0;
  Py_XDECREF(contents);
  Py_XDECREF(pair);
  return failed ? -1 : 0;
}

static int save_children(PyObject *tree, PyObject *saved) {
  if (!PyTuple_Check(tree) && save_container(tree, saved) < 0) {
    return -1;
  }
  PyObject *children = PyDict_Check(tree) ? PyDict_Values(tree) : PySequence_List(tree);
  int failed = children == NULL;
  for (Py_ssize_t i = 0; !failed && i < PyList_Size(children); ++i) {
    failed = save_containers(PyList_GetItem(children, i), saved) < 0;
  }
  Py_XDECREF(children);
  return failed ? -1 : 0;
}

int save_containers(PyObject *tree, PyObject *saved) {
  PyObject *state = state_of(tree);
  int failed = 0;
  if (is_tree(state)) {
    failed = Py_EnterRecursiveCall(" in a tree of arrays");
    if (!failed) {
      failed = save_children(state, saved) < 0;
      Py_LeaveRecursiveCall();
    }
  }
  Py_DECREF(state);
  return failed ? -1 : 0;
}

/* With an exception, too, which stays. */
void restore_containers(PyObject *saved) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  for (Py_ssize_t i = 0; i < PyList_Size(saved); ++i) {
    PyObject *pair = PyList_GetItem(saved, i);
    PyObject *container = PyTuple_GetItem(pair, 0), *contents = PyTuple_GetItem(pair, 1);
    int failed;
    if (PyDict_Check(container)) {
      PyDict_Clear(container);
      failed = PyDict_Update(container, contents);
    } else {
      failed = PyList_SetSlice(container, 0, PY_SSIZE_T_MAX, contents);
    }
    if (failed) {
      PyErr_WriteUnraisable(container);
    }
  }
  PyErr_Restore(type, value, traceback);
}
