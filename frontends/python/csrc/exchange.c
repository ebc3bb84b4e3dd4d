/* exchange.c: memory of other libraries as arrays, and arrays' memory for them: the buffer protocol and DLPack.
 *
 * An array on foreign memory keeps its owner until the core drops the memory, on any thread and without the
 * interpreter's lock. The owner then waits in a list, which a thread with the lock clears.
 *
 * Exported memory is read-only: arrays are values. The core knows that its address was given out, and never writes to
 * it again: a later write to the array makes new memory.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "extension.h"

/* ---- owners ---- */

typedef struct owner {
  struct owner *next;
  void (*drop)(struct owner *self); /* with the interpreter's lock */
} owner;

static _Atomic(owner *) returned;

static int drop_returned(void *unused) {
  (void)unused;
  owner *next, *first = atomic_exchange(&returned, NULL);
  for (; first != NULL; first = next) {
    next = first->next;
    first->drop(first);
  }
  return 0;
}

void release_owners(void) {
  if (atomic_load_explicit(&returned, memory_order_relaxed) != NULL) {
    (void)drop_returned(NULL);
  }
}

/* The core's release function. */
static void return_owner(void *arg) {
  owner *mine = arg, *first = atomic_load(&returned);
  do {
    mine->next = first;
  } while (!atomic_compare_exchange_weak(&returned, &first, mine));
  if (first == NULL && Py_IsInitialized()) {
    (void)Py_AddPendingCall(drop_returned, NULL); /* if there is no room, the next array does it */
  }
}

/* ---- strided memory ---- */

typedef struct memory {
  char *address; /* of element (0, 0, ...) */
  hr_dtype dtype;
  int rank;
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX]; /* in bytes */
} memory;

static char *copy_dim(const memory *m, int d, const char *from, char *to) {
  size_t size = hr_dtype_size(m->dtype);
  if (d == m->rank) {
    memcpy(to, from, size);
    return to + size;
  }
  if (d == m->rank - 1 && m->strides[d] == (int64_t)size) {
    memcpy(to, from, (size_t)m->dims[d] * size);
    return to + (size_t)m->dims[d] * size;
  }
  for (int64_t i = 0; i < m->dims[d]; ++i) {
    to = copy_dim(m, d + 1, from + i * m->strides[d], to);
  }
  return to;
}

/* The elements stand one after another, in the order of the dims. *out_bytes: of all. */
static bool is_dense(const memory *m, size_t *out_bytes) {
  bool result = true;
  size_t bytes = hr_dtype_size(m->dtype);
  for (int d = m->rank - 1; d >= 0; --d) {
    result = result && (m->dims[d] == 1 || m->strides[d] == (int64_t)bytes);
    bytes *= (size_t)m->dims[d];
  }
  *out_bytes = bytes;
  return result || bytes == 0;
}

static hr_status copy_memory(const memory *m, hr_stream *stream, hr_tensor *out) {
  size_t bytes;
  if (is_dense(m, &bytes)) {
    return hr_array_from_host(stream, m->dtype, m->rank, m->dims, m->address, out);
  }
  char *elements = malloc(bytes + 1);
  if (elements == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "array: no memory for %zu bytes", bytes);
  }
  if (bytes > 0) {
    (void)copy_dim(m, 0, m->address, elements);
  }
  hr_status status = hr_array_from_host(stream, m->dtype, m->rank, m->dims, elements, out);
  free(elements);
  return status;
}

static bool is_host(hr_stream *stream) {
  hr_device_info info;
  hr_device_describe(hr_stream_device(stream), &info);
  return info.is_host;
}

/* Strides in elements; false if they are no whole elements. */
static bool strides_of(const memory *m, int64_t *strides) {
  int64_t size = (int64_t)hr_dtype_size(m->dtype);
  for (int d = 0; d < m->rank; ++d) {
    strides[d] = m->strides[d] / size;
    if (m->strides[d] % size != 0) {
      return false;
    }
  }
  return true;
}

/* Takes the owner, which is dropped at once after a copy or a failure. */
static array_object *array_of_memory(const memory *m, owner *mine, hr_stream *stream, int copy) {
  array_object *x = new_array(stream);
  int64_t strides[HR_RANK_MAX];
  hr_status status = HR_OK;
  bool is_adopted = false;
  if (x != NULL && copy != 1 && is_host(stream) && strides_of(m, strides)) {
    status = hr_array_adopt(stream, m->dtype, m->rank, m->dims, strides, m->address, return_owner, mine, &x->tensor);
    is_adopted = status == HR_OK;
    if (hr_status_code_of(status) == HR_STATUS_FAILED_PRECONDITION) {
      hr_status_free(status);
      status = HR_OK;
    }
  }
  if (x != NULL && status == HR_OK && !is_adopted) {
    status = copy != 0
                 ? copy_memory(m, stream, &x->tensor)
                 : hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                                  "memory at %p can't be shared, which copy=False requires: expected alignment to "
                                  "16 bytes and strides of whole elements on the device's memory",
                                  (void *)m->address);
  }
  if (!is_adopted) {
    mine->drop(mine);
  }
  return array_or_raise(x, status);
}

/* ---- from the buffer protocol ---- */

typedef struct buffer_owner {
  owner base;
  Py_buffer view;
} buffer_owner;

static void drop_buffer(owner *self) {
  PyBuffer_Release(&((buffer_owner *)self)->view);
  free(self);
}

static bool describe_buffer(const Py_buffer *view, memory *m) {
  m->address = view->buf;
  m->dtype = dtype_of_format(view->format != NULL ? view->format : "B");
  m->rank = view->ndim;
  if (m->dtype == HR_DTYPE_NONE || view->ndim > HR_RANK_MAX) {
    PyErr_Format(view->ndim > HR_RANK_MAX ? PyExc_ValueError : PyExc_TypeError,
                 "an array can't have elements of format \"%s\" in %d dims", view->format != NULL ? view->format : "B",
                 view->ndim);
    return false;
  }
  for (int d = 0; d < m->rank; ++d) {
    m->dims[d] = view->shape[d], m->strides[d] = view->strides[d];
  }
  return true;
}

/* NumPy's arrays of ml_dtypes' types have no format, but integers of the same bits do. Gives the type of the elements;
 * or NONE, with the exception that was raised for the object itself. */
static hr_dtype get_bits(PyObject *object, Py_buffer *out) {
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  PyObject *its = PyObject_GetAttrString(object, "dtype"), *bits = NULL;
  hr_dtype dtype = its != NULL ? dtype_from(its) : HR_DTYPE_NONE;
  if (dtype != HR_DTYPE_NONE) {
    bits = PyObject_CallMethod(object, "view", "s", hr_dtype_size(dtype) == 1 ? "u1" : "u2");
  }
  if (bits == NULL || PyObject_GetBuffer(bits, out, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
    PyErr_Restore(kind, value, traceback);
    dtype = HR_DTYPE_NONE;
  } else {
    Py_XDECREF(kind), Py_XDECREF(value), Py_XDECREF(traceback);
  }
  Py_XDECREF(bits);
  Py_XDECREF(its);
  return dtype;
}

array_object *array_from_buffer(PyObject *object, hr_stream *stream, int copy) {
  buffer_owner *mine = stream != NULL ? malloc(sizeof *mine) : NULL;
  hr_dtype dtype = HR_DTYPE_NONE;
  memory m;
  if (mine == NULL) {
    return stream != NULL ? (array_object *)PyErr_NoMemory() : NULL;
  }
  mine->base.drop = drop_buffer;
  if (PyObject_GetBuffer(object, &mine->view, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
    dtype = PyErr_ExceptionMatches(PyExc_ValueError) ? get_bits(object, &mine->view) : HR_DTYPE_NONE;
    if (dtype == HR_DTYPE_NONE) {
      free(mine);
      return NULL;
    }
  }
  if (!describe_buffer(&mine->view, &m)) {
    drop_buffer(&mine->base);
    return NULL;
  }
  m.dtype = dtype != HR_DTYPE_NONE ? dtype : m.dtype;
  return array_of_memory(&m, &mine->base, stream, copy);
}

/* ---- memory for others ---- */

/* A view whose memory the host can read: the array's own, with a reference, or on other devices a copy. */
typedef struct lent {
  hr_tensor tensor; /* its strides are those at `address` */
  void *address;    /* of element (0, 0, ...) */
  void *copy;       /* NULL: the memory is the buffer's */
} lent;

static void end_loan(lent *loan) {
  hr_buffer_release(loan->tensor.buffer);
  free(loan->copy);
  free(loan);
}

static hr_status lend_own(hr_stream *stream, lent *out) {
  static double nothing;
  void *start = NULL;
  out->address = &nothing;
  if (hr_buffer_bytes(out->tensor.buffer) == 0) {
    return HR_OK;
  }
  hr_status status = hr_stream_address(stream, out->tensor.buffer, &start);
  if (status == HR_OK) {
    out->address = (char *)start + out->tensor.offset * (int64_t)hr_dtype_size(out->tensor.dtype);
  }
  return status;
}

static hr_status lend_copy(hr_stream *stream, lent *out) {
  size_t bytes = (size_t)hr_tensor_count(&out->tensor) * hr_dtype_size(out->tensor.dtype);
  out->address = out->copy = malloc(bytes > 0 ? bytes : 1);
  if (out->copy == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "array: no memory for a copy of %zu bytes on the host", bytes);
  }
  hr_status status = hr_array_read(stream, &out->tensor, out->copy);
  hr_tensor_set_row_major(&out->tensor);
  return status;
}

static lent *lend(array_object *x) {
  hr_stream *stream = x->stream;
  if (refuse_traced(x) < 0) {
    return NULL;
  }
  lent *out = malloc(sizeof *out);
  if (out == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  *out = (lent){.tensor = x->tensor};
  hr_buffer_retain(out->tensor.buffer);
  hr_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = is_host(stream) ? lend_own(stream, out) : lend_copy(stream, out);
  Py_END_ALLOW_THREADS;
  if (status != HR_OK) {
    end_loan(out);
    raise_status(status);
    return NULL;
  }
  return out;
}

typedef struct buffer_loan {
  lent *loan;
  Py_ssize_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
} buffer_loan;

static int fill_buffer(PyObject *self, Py_buffer *view, buffer_loan *out, int flags) {
  const hr_tensor *x = &out->loan->tensor;
  Py_ssize_t size = (Py_ssize_t)hr_dtype_size(x->dtype);
  view->len = size;
  for (int d = 0; d < x->rank; ++d) {
    out->dims[d] = (Py_ssize_t)x->dims[d], out->strides[d] = (Py_ssize_t)x->strides[d] * size;
    view->len *= out->dims[d];
  }
  bool wants_dense = (flags & PyBUF_STRIDES) != PyBUF_STRIDES || (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS;
  if (view->len > 0 && wants_dense && !hr_tensor_is_row_major(x)) {
    PyErr_SetString(PyExc_BufferError, "the array's elements are not contiguous");
    return -1;
  }
  view->buf = out->loan->address, view->obj = Py_NewRef(self);
  view->itemsize = size, view->readonly = 1, view->ndim = x->rank;
  view->format = (flags & PyBUF_FORMAT) != 0 ? (char *)(uintptr_t)format_of_dtype(x->dtype) : NULL;
  view->shape = (flags & PyBUF_ND) != 0 ? out->dims : NULL;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? out->strides : NULL;
  view->suboffsets = NULL, view->internal = out;
  return 0;
}

int export_buffer(PyObject *self, void *to, int flags) {
  Py_buffer *view = to;
  array_object *x = as_array(self);
  view->obj = NULL;
  if ((flags & PyBUF_WRITABLE) != 0 || format_of_dtype(x->tensor.dtype) == NULL) {
    PyErr_Format(PyExc_BufferError,
                 (flags & PyBUF_WRITABLE) != 0 ? "an array's memory is read-only"
                                               : "buffers have no format for elements of %s: use astype() or tolist()",
                 python_name(x->tensor.dtype));
    return -1;
  }
  buffer_loan *out = malloc(sizeof *out);
  if (out == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  out->loan = lend(x);
  if (out->loan == NULL || fill_buffer(self, view, out, flags) < 0) {
    if (out->loan != NULL) {
      end_loan(out->loan);
    }
    free(out);
    return -1;
  }
  return 0;
}

void release_buffer(PyObject *self, void *view) {
  (void)self;
  buffer_loan *out = ((Py_buffer *)view)->internal;
  end_loan(out->loan);
  free(out);
}

/* ---- DLPack: its structs, of which version 1 has two ---- */

typedef struct dl_device {
  int32_t type, number; /* type: 1 the host, 2 CUDA */
} dl_device;

typedef struct dl_tensor {
  void *data;
  dl_device device;
  int32_t rank;
  uint8_t code, bits; /* code: 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool */
  uint16_t lanes;
  int64_t *dims, *strides;
  uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
  dl_tensor tensor;
  void *context;
  void (*deleter)(struct dl_managed *self);
} dl_managed;

typedef struct dl_versioned {
  uint32_t major, minor;
  void *context;
  void (*deleter)(struct dl_versioned *self);
  uint64_t flags; /* 1: read-only */
  dl_tensor tensor;
} dl_versioned;

static const struct {
  hr_dtype dtype;
  uint8_t code, bits;
} dl_types[] = {{HR_DTYPE_BOOL, 6, 8}, {HR_DTYPE_U8, 1, 8},   {HR_DTYPE_I8, 0, 8},    {HR_DTYPE_U16, 1, 16},
                {HR_DTYPE_I16, 0, 16}, {HR_DTYPE_U32, 1, 32}, {HR_DTYPE_I32, 0, 32},  {HR_DTYPE_U64, 1, 64},
                {HR_DTYPE_I64, 0, 64}, {HR_DTYPE_F16, 2, 16}, {HR_DTYPE_BF16, 4, 16}, {HR_DTYPE_F32, 2, 32},
                {HR_DTYPE_F64, 2, 64}, {HR_DTYPE_C64, 5, 64}, {HR_DTYPE_C128, 5, 128}};
enum { DL_TYPES = sizeof dl_types / sizeof *dl_types };

/* One block: what is lent, and the struct of either version. */
typedef struct dl_export {
  lent *loan;
  union {
    dl_managed managed;
    dl_versioned versioned;
  } as;
} dl_export;

static void end_export(dl_export *out) {
  end_loan(out->loan);
  free(out);
}
static void delete_managed(dl_managed *self) {
  end_export(self->context);
}
static void delete_versioned(dl_versioned *self) {
  end_export(self->context);
}

static int describe_export(dl_export *out, dl_tensor *to) {
  hr_tensor *x = &out->loan->tensor;
  for (int i = 0; i < DL_TYPES; ++i) {
    if (dl_types[i].dtype == x->dtype) {
      *to = (dl_tensor){.data = out->loan->address,
                        .device = {1, 0},
                        .rank = x->rank,
                        .code = dl_types[i].code,
                        .bits = dl_types[i].bits,
                        .lanes = 1,
                        .dims = x->dims,
                        .strides = x->strides};
      return 0;
    }
  }
  PyErr_Format(PyExc_BufferError, "DLPack has no type for %s", python_name(x->dtype));
  return -1;
}

static void drop_capsule(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
    managed->deleter(managed);
  } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    dl_versioned *versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    versioned->deleter(versioned);
  }
}

static PyObject *make_capsule(array_object *x, bool is_versioned) {
  dl_export *out = malloc(sizeof *out);
  if (out == NULL) {
    return PyErr_NoMemory();
  }
  out->loan = lend(x);
  if (out->loan == NULL) {
    free(out);
    return NULL;
  }
  dl_tensor *tensor = is_versioned ? &out->as.versioned.tensor : &out->as.managed.tensor;
  if (describe_export(out, tensor) < 0) {
    end_export(out);
    return NULL;
  }
  if (is_versioned) {
    out->as.versioned.major = 1, out->as.versioned.minor = 0, out->as.versioned.flags = 1;
    out->as.versioned.context = out, out->as.versioned.deleter = delete_versioned;
    return PyCapsule_New(&out->as.versioned, "dltensor_versioned", drop_capsule);
  }
  out->as.managed.context = out, out->as.managed.deleter = delete_managed;
  return PyCapsule_New(&out->as.managed, "dltensor", drop_capsule);
}

/* max_version of at least (1, 0) */
static int wants_version(PyObject *version) {
  PyObject *major = version != NULL && version != Py_None ? PySequence_GetItem(version, 0) : NULL;
  int64_t number = major != NULL ? integer_from(major) : 0;
  Py_XDECREF(major);
  return PyErr_Occurred() ? -1 : number >= 1;
}

PyObject *export_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  array_object *x = as_array(self), *copied = NULL;
  PyObject *version = NULL;
  int copies = 0;
  for (Py_ssize_t i = 0; names != NULL && i < PyTuple_Size(names); ++i) {
    PyObject *name = PyTuple_GetItem(names, i);
    version = PyUnicode_CompareWithASCIIString(name, "max_version") == 0 ? args[count + i] : version;
    copies |= PyUnicode_CompareWithASCIIString(name, "copy") == 0 && args[count + i] == Py_True;
  }
  int is_versioned = wants_version(version);
  if (is_versioned < 0) {
    return NULL;
  }
  if (copies) {
    copied = (array_object *)convert_array(x, x->tensor.dtype);
    if (copied == NULL) {
      return NULL;
    }
  }
  PyObject *capsule = make_capsule(copied != NULL ? copied : x, is_versioned);
  Py_XDECREF((PyObject *)copied);
  return capsule;
}

PyObject *dlpack_device(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  return Py_BuildValue("(ii)", 1, 0);
}

/* ---- from DLPack ---- */

typedef struct dl_owner {
  owner base;
  dl_managed *managed;
  dl_versioned *versioned;
} dl_owner;

static void drop_dlpack(owner *self) {
  dl_owner *mine = (dl_owner *)self;
  if (mine->managed != NULL && mine->managed->deleter != NULL) {
    mine->managed->deleter(mine->managed);
  }
  if (mine->versioned != NULL && mine->versioned->deleter != NULL) {
    mine->versioned->deleter(mine->versioned);
  }
  free(mine);
}

static bool describe_dlpack(const dl_tensor *from, memory *m) {
  m->dtype = HR_DTYPE_NONE;
  for (int i = 0; i < DL_TYPES; ++i) {
    bool is_it = dl_types[i].code == from->code && dl_types[i].bits == from->bits && from->lanes == 1;
    m->dtype = is_it ? dl_types[i].dtype : m->dtype;
  }
  if (m->dtype == HR_DTYPE_NONE || from->rank < 0 || from->rank > HR_RANK_MAX || from->device.type != 1) {
    PyErr_Format(PyExc_BufferError,
                 "from_dlpack: a tensor of type (%d, %d) in %d dims on a device of type %d can't be an array",
                 (int)from->code, (int)from->bits, (int)from->rank, (int)from->device.type);
    return false;
  }
  int64_t stride = (int64_t)hr_dtype_size(m->dtype), size = stride;
  m->address = (char *)from->data + from->byte_offset, m->rank = from->rank;
  for (int d = m->rank - 1; d >= 0; --d) {
    m->dims[d] = from->dims[d];
    m->strides[d] = from->strides != NULL ? from->strides[d] * size : stride;
    stride *= from->dims[d];
  }
  return true;
}

static array_object *array_of_capsule(PyObject *capsule, hr_stream *stream, int copy) {
  bool is_versioned = PyCapsule_IsValid(capsule, "dltensor_versioned");
  void *managed = PyCapsule_GetPointer(capsule, is_versioned ? "dltensor_versioned" : "dltensor");
  dl_owner *mine = managed != NULL ? malloc(sizeof *mine) : NULL;
  memory m;
  if (mine == NULL) {
    return managed != NULL ? (array_object *)PyErr_NoMemory() : NULL;
  }
  *mine = (dl_owner){{NULL, drop_dlpack}, is_versioned ? NULL : managed, is_versioned ? managed : NULL};
  (void)PyCapsule_SetName(capsule, is_versioned ? "used_dltensor_versioned" : "used_dltensor");
  if (!describe_dlpack(is_versioned ? &mine->versioned->tensor : &mine->managed->tensor, &m)) {
    drop_dlpack(&mine->base);
    return NULL;
  }
  return array_of_memory(&m, &mine->base, stream, copy);
}

static PyObject *call_dlpack(PyObject *object) {
  PyObject *method = PyObject_GetAttrString(object, "__dlpack__"), *none = PyTuple_New(0);
  PyObject *named = Py_BuildValue("{s:(ii)}", "max_version", 1, 0);
  PyObject *capsule = method != NULL && none != NULL && named != NULL ? PyObject_Call(method, none, named) : NULL;
  if (capsule == NULL && method != NULL && PyErr_ExceptionMatches(PyExc_TypeError)) { /* of before version 1 */
    PyErr_Clear();
    capsule = PyObject_Call(method, none, NULL);
  }
  Py_XDECREF(method);
  Py_XDECREF(none);
  Py_XDECREF(named);
  return capsule;
}

array_object *array_from_dlpack(PyObject *object, hr_stream *stream, int copy) {
  PyObject *capsule = call_dlpack(object);
  array_object *x = capsule != NULL ? array_of_capsule(capsule, stream, copy) : NULL;
  Py_XDECREF(capsule);
  return x;
}

static PyObject *from_dlpack(PyObject *module, PyObject *args, PyObject *names) {
  static char *keywords[] = {"", "device", "copy", NULL};
  PyObject *object, *device = Py_None, *copy = Py_None;
  (void)module;
  if (!PyArg_ParseTupleAndKeywords(args, names, "O|OO:from_dlpack", keywords, &object, &device, &copy)) {
    return NULL;
  }
  int copies = copy == Py_None ? -1 : PyObject_IsTrue(copy);
  hr_stream *stream = stream_of_device(device);
  return stream != NULL && !PyErr_Occurred() ? (PyObject *)array_from_dlpack(object, stream, copies) : NULL;
}

PyMethodDef exchange_methods[] = {
    {"from_dlpack", (PyCFunction)(void (*)(void))from_dlpack, METH_VARARGS | METH_KEYWORDS,
     "from_dlpack(x, /, device=None, copy=None)\n--\n\nAn array on the memory of another library's; see asarray."},
    {NULL, NULL, 0, NULL}};
