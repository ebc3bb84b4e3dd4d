/* shared_primitives.c: see shared_primitives.h. Clones of a descriptor share its attributes, whose address is the key.
 */
#include "providers/onednn/shared_primitives.h"

#include <string.h>

#include "base/allocator.h"

enum { PROOFS_MIN = 2 };

/* Bytes that a primitive takes with its descriptor and code, by the begin of the implementation's name: measured with
 * version 3.2 for AVX-512. The first that fits counts. */
static const struct {
  const char *name;
  size_t bytes;
} sizes[] = {{"jit:uni", 18 << 10}, /* a reorder */
             {"brgconv_strided", 84 << 10},
             {"brgconv", 48 << 10},
             {"brg", 120 << 10}, /* a product */
             {"", 40 << 10}};

struct hr__dnnl_primitive {
  int reference_count; /* with the list's mutex */
  uint64_t key;
  dnnl_primitive_desc desc;
  hr_mutex mutex;
  dnnl_primitive made; /* NULL: not yet */
  atomic_int proofs;   /* -1: it gave other bits than another primitive; else how often the same */
};

static hr__dnnl_primitives *primitives(void) {
  return &hr__dnnl_opened()->primitives;
}

/* 0: unknown. */
static uint64_t key_of(dnnl_const_primitive_desc desc) {
  dnnl_const_primitive_attr attr = NULL;
  return hr__dnnl()->primitive_desc_get_attr(desc, &attr) == DNNL_SUCCESS ? (uint64_t)(uintptr_t)attr : 0;
}

/* With the list's mutex. */
static hr__dnnl_primitive *find_or_add(dnnl_primitive_desc desc) {
  uint64_t key = key_of(desc);
  hr__dnnl_primitive *found = key != 0 ? hr_table_get(&primitives()->table, key) : NULL;
  if (found != NULL) {
    ++found->reference_count;
    hr__dnnl()->primitive_desc_destroy(desc);
    return found;
  }
  found = hr_calloc(1, sizeof *found);
  if (found == NULL || key == 0 || !hr_table_put(&primitives()->table, key, found)) {
    hr_free(found);
    hr__dnnl()->primitive_desc_destroy(desc);
    return NULL;
  }
  found->reference_count = 1, found->key = key, found->desc = desc;
  hr_mutex_init(&found->mutex);
  return found;
}

hr__dnnl_primitive *hr__dnnl_primitive_of(dnnl_primitive_desc desc) {
  hr_mutex_lock(&primitives()->mutex);
  hr__dnnl_primitive *found = find_or_add(desc);
  hr_mutex_unlock(&primitives()->mutex);
  return found;
}

void hr__dnnl_primitive_release(hr__dnnl_primitive *p) {
  if (p == NULL) {
    return;
  }
  hr_mutex_lock(&primitives()->mutex);
  bool is_last = --p->reference_count == 0;
  if (is_last) {
    (void)hr_table_remove(&primitives()->table, p->key);
  }
  hr_mutex_unlock(&primitives()->mutex);
  if (is_last) {
    if (p->made != NULL) {
      hr__dnnl()->primitive_destroy(p->made);
    }
    hr__dnnl()->primitive_desc_destroy(p->desc);
    hr_mutex_fini(&p->mutex);
    hr_free(p);
  }
}

static size_t bytes_of(dnnl_const_primitive_desc desc) {
  const char *name = NULL;
  int i = 0;
  if (hr__dnnl()->primitive_desc_query(desc, DNNL_QUERY_IMPL_INFO_STR, 0, &name) != DNNL_SUCCESS) {
    name = "";
  }
  while (strncmp(name, sizes[i].name, strlen(sizes[i].name)) != 0) {
    ++i;
  }
  return sizes[i].bytes;
}

size_t hr__dnnl_primitive_footprint(hr__dnnl_primitive *p) {
  hr_mutex_lock(&primitives()->mutex);
  size_t bytes = bytes_of(p->desc) / (size_t)p->reference_count;
  hr_mutex_unlock(&primitives()->mutex);
  return bytes;
}

static dnnl_primitive_desc clone_desc(dnnl_const_primitive_desc desc) {
  dnnl_primitive_desc copy = NULL;
  return hr__dnnl()->primitive_desc_clone(&copy, desc) == DNNL_SUCCESS ? copy : NULL;
}

dnnl_primitive_desc hr__dnnl_primitive_desc(const hr__dnnl_primitive *p) {
  return clone_desc(p->desc);
}

int hr__dnnl_primitive_make(hr__dnnl_primitive *p, int threads, dnnl_primitive *out_made) {
  int code = DNNL_SUCCESS;
  hr_mutex_lock(&p->mutex);
  if (p->made == NULL) {
    int before = hr_library_threads_set(threads);
    code = hr__dnnl()->primitive_create(&p->made, p->desc);
    (void)hr_library_threads_set(before);
  }
  *out_made = p->made;
  hr_mutex_unlock(&p->mutex);
  return code;
}

hr__dnnl_proof hr__dnnl_primitive_proof(const hr__dnnl_primitive *p) {
  int proofs = atomic_load_explicit(&p->proofs, memory_order_relaxed);
  return proofs < 0 ? HR__DNNL_OTHER_BITS : proofs < PROOFS_MIN ? HR__DNNL_UNPROVED : HR__DNNL_SAME_BITS;
}

void hr__dnnl_primitive_prove(hr__dnnl_primitive *p, bool has_same_bits) {
  int before = atomic_load_explicit(&p->proofs, memory_order_relaxed);
  while (before >= 0 && before < PROOFS_MIN &&
         !atomic_compare_exchange_weak(&p->proofs, &before, has_same_bits ? before + 1 : -1)) {
  }
}

/* ---- reorders ---- */

static bool is_reorder(const hr__dnnl_reorder *r, dnnl_const_memory_desc from, dnnl_const_memory_desc to, int threads) {
  const hr__dnnl_table *library = hr__dnnl();
  return r->primitive != NULL && r->threads == threads &&
         library->memory_desc_equal(library->primitive_desc_query_md(r->primitive->desc, DNNL_QUERY_SRC, 0), from) &&
         library->memory_desc_equal(library->primitive_desc_query_md(r->primitive->desc, DNNL_QUERY_DST, 0), to);
}

dnnl_primitive_desc hr__dnnl_known_reorder(dnnl_const_memory_desc from, dnnl_const_memory_desc to, int threads) {
  dnnl_primitive_desc desc = NULL;
  hr_mutex_lock(&primitives()->mutex);
  for (int i = 0; desc == NULL && i < HR__DNNL_REORDERS; ++i) {
    if (is_reorder(&primitives()->reorders[i], from, to, threads)) {
      desc = clone_desc(primitives()->reorders[i].primitive->desc);
    }
  }
  hr_mutex_unlock(&primitives()->mutex);
  return desc;
}

static void set_reorder(int place, hr__dnnl_primitive *primitive, int threads) {
  hr_mutex_lock(&primitives()->mutex);
  hr__dnnl_reorder *r = &primitives()->reorders[place < 0 ? (int)(primitives()->noted++ % HR__DNNL_REORDERS) : place];
  hr__dnnl_primitive *before = r->primitive;
  *r = (hr__dnnl_reorder){primitive, threads};
  hr_mutex_unlock(&primitives()->mutex);
  hr__dnnl_primitive_release(before);
}

void hr__dnnl_note_reorder(dnnl_const_primitive_desc desc, int threads) {
  dnnl_primitive_desc copy = clone_desc(desc);
  hr__dnnl_primitive *primitive = copy != NULL ? hr__dnnl_primitive_of(copy) : NULL;
  if (primitive != NULL) {
    set_reorder(-1, primitive, threads);
  }
}

void hr__dnnl_forget_reorders(void) {
  for (int i = 0; i < HR__DNNL_REORDERS; ++i) {
    set_reorder(i, NULL, 0);
  }
}
