#include "engine/record_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/allocator.h"
#include "base/hash.h"

enum { ROWS_MAX = 1 << 16 };

struct hr_record_row {
  hr_record_row *next; /* of the same hash */
  uint64_t hash;
  hr_profile_kind kind;
  hr_profile_tier tier;
  bool is_number;            /* a copy of one element */
  const char *name, *shapes; /* behind the row, in its block */
  int64_t runs, ns, bytes, flops;
};

const char *hr__tier_name(hr_profile_tier tier) {
  static const char *const names[] = {"", "interpreted", "compiled", "library"};
  return names[tier & 3];
}

/* ---- adding ---- */

static bool is_launch(hr_profile_kind kind) {
  return kind == HR_PROFILE_KERNEL || kind == HR_PROFILE_LIBRARY || kind == HR_PROFILE_CHECK;
}

static bool has_row(hr_profile_kind kind) {
  return hr__is_copy(kind) || is_launch(kind) || kind == HR_PROFILE_FALLBACK || kind == HR_PROFILE_COMPILE ||
         kind == HR_PROFILE_KERNEL_COMPILE || kind == HR_PROFILE_KERNEL_LOAD;
}

/* The record as a row. Copies have one for each direction, compilations one for each kind; others one for each name and
 * its shapes. */
static hr_record_row row_of(const hr_profile_record *record) {
  bool is_named = is_launch(record->kind) || record->kind == HR_PROFILE_FALLBACK;
  hr_record_row row = {.kind = record->kind,
                       .tier = record->tier,
                       .is_number = hr__is_copy(record->kind) && record->elements == 1,
                       .name = is_named ? record->name : "",
                       .shapes = is_named ? record->shapes : "",
                       .runs = 1,
                       .ns = record->end_ns - record->begin_ns,
                       .bytes = record->bytes_read + record->bytes_written,
                       .flops = record->flops};
  row.hash = hr_hash_bytes((uint64_t)row.kind << 8 | (uint64_t)row.tier << 1 | (uint64_t)row.is_number, row.name,
                           strlen(row.name));
  row.hash = hr_hash_bytes(row.hash, row.shapes, strlen(row.shapes));
  return row;
}

static bool is_same(const hr_record_row *a, const hr_record_row *b) {
  return a->kind == b->kind && a->tier == b->tier && a->is_number == b->is_number && strcmp(a->name, b->name) == 0 &&
         strcmp(a->shapes, b->shapes) == 0;
}

static hr_record_row *add_row(hr_record_table *table, const hr_record_row *key, hr_record_row *next) {
  size_t name = strlen(key->name) + 1, shapes = strlen(key->shapes) + 1;
  hr_record_row *row = table->row_count < ROWS_MAX ? hr_malloc(sizeof *row + name + shapes) : NULL;
  if (row == NULL) {
    return NULL;
  }
  *row = *key;
  row->next = next;
  char *text = (char *)(row + 1);
  row->name = memcpy(text, key->name, name);
  row->shapes = memcpy(text + name, key->shapes, shapes);
  if (!hr_table_put(&table->rows, key->hash, row)) {
    hr_free(row);
    return NULL;
  }
  ++table->row_count;
  return row;
}

/* The row of a key, added if there is none; NULL: no memory, or too many rows. */
static hr_record_row *find_row(hr_record_table *table, const hr_record_row *key) {
  hr_record_row *first = hr_table_get(&table->rows, key->hash), *row = first;
  while (row != NULL && !is_same(row, key)) {
    row = row->next;
  }
  row = row != NULL ? row : add_row(table, key, first);
  table->is_incomplete |= row == NULL;
  return row;
}

/* Adds the row's numbers to the table's row like it. */
static void add_numbers(hr_record_table *table, const hr_record_row *more) {
  hr_record_row key = *more;
  key.runs = key.ns = key.bytes = key.flops = 0;
  hr_record_row *row = find_row(table, &key);
  if (row != NULL) {
    row->runs += more->runs;
    row->ns += more->ns;
    row->bytes += more->bytes;
    row->flops += more->flops;
  }
}

void hr__record_table_add(hr_record_table *table, const hr_profile_record *record) {
  if (has_row(record->kind)) {
    const hr_record_row row = row_of(record);
    add_numbers(table, &row);
  }
  table->operations += record->kind == HR_PROFILE_RUN ? record->operation_count : 0;
  table->dropped += record->kind == HR_PROFILE_DROPPED ? record->operation_count : 0;
  if (record->kind == HR_PROFILE_COMMIT) {
    ++table->commits;
    table->commit_ns += record->end_ns - record->begin_ns;
  }
  if (record->kind != HR_PROFILE_OPERATION) {
    bool is_first = table->end_ns == 0;
    table->begin_ns = is_first || record->begin_ns < table->begin_ns ? record->begin_ns : table->begin_ns;
    table->end_ns = record->end_ns > table->end_ns ? record->end_ns : table->end_ns;
  }
}

void hr__record_table_merge(hr_record_table *table, const hr_record_table *from) {
  size_t cursor = 0;
  for (const hr_table_entry *entry; (entry = hr_table_next(&from->rows, &cursor)) != NULL;) {
    for (const hr_record_row *other = entry->value; other != NULL; other = other->next) {
      add_numbers(table, other);
    }
  }
  bool is_first = table->end_ns == 0 || (from->end_ns != 0 && from->begin_ns < table->begin_ns);
  table->begin_ns = is_first ? from->begin_ns : table->begin_ns;
  table->end_ns = from->end_ns > table->end_ns ? from->end_ns : table->end_ns;
  table->operations += from->operations;
  table->dropped += from->dropped;
  table->commits += from->commits;
  table->commit_ns += from->commit_ns;
  table->is_incomplete |= from->is_incomplete;
}

void hr__record_table_fini(hr_record_table *table) {
  size_t cursor = 0;
  for (const hr_table_entry *entry; (entry = hr_table_next(&table->rows, &cursor)) != NULL;) {
    for (hr_record_row *row = entry->value, *next; row != NULL; row = next) {
      next = row->next;
      hr_free(row);
    }
  }
  hr_table_fini(&table->rows);
  *table = (hr_record_table){0};
}

/* ---- printing ---- */

typedef struct chosen {
  HR_VECTOR(const hr_record_row *) rows;
  int64_t runs, ns, bytes, flops;
} chosen;

static int by_total(const void *a, const void *b) {
  const hr_record_row *x = *(const hr_record_row *const *)a, *y = *(const hr_record_row *const *)b;
  return (x->ns < y->ns) - (x->ns > y->ns);
}

/* The rows of the kinds that `is` accepts, longest first. */
static bool choose(const hr_record_table *table, bool (*is)(hr_profile_kind kind), chosen *out) {
  size_t cursor = 0;
  bool ok = true;
  *out = (chosen){.runs = 0};
  for (const hr_table_entry *entry; (entry = hr_table_next(&table->rows, &cursor)) != NULL;) {
    for (const hr_record_row *row = entry->value; row != NULL; row = row->next) {
      if (is(row->kind)) {
        ok &= hr_vector_push(&out->rows, row);
        out->runs += row->runs;
        out->ns += row->ns;
        out->bytes += row->bytes;
        out->flops += row->flops;
      }
    }
  }
  if (out->rows.count > 1) {
    qsort(out->rows.data, out->rows.count, sizeof(const hr_record_row *), by_total);
  }
  return ok;
}

static double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

/* "   240      12.5       3.000   41.2 %      0.79    62.9": what all tables have. */
static void write_numbers(hr_text *text, int64_t runs, int64_t ns, int64_t all_ns, int64_t bytes) {
  hr_text_printf(text, "%9lld %11.2f %11.3f %6.1f %% %11.3f %8.1f", (long long)runs,
                 ratio((double)ns * 1e-3, (double)runs), (double)ns * 1e-6, 100 * ratio((double)ns, (double)all_ns),
                 (double)bytes * 1e-6, ratio((double)bytes, (double)ns));
}

#define NUMBER_HEADS "     runs     mean us    total ms    share          MB     GB/s"

static void write_operations(const hr_record_table *table, hr_text *text) {
  chosen c;
  bool ok = choose(table, is_launch, &c);
  hr_text_printf(text,
                 "headrace: operations: %lld launches in %.3f ms; %lld recorded operations in %lld commits, %lld of "
                 "them never needed\n",
                 (long long)c.runs, (double)c.ns * 1e-6, (long long)table->operations, (long long)table->commits,
                 (long long)table->dropped);
  hr_text_append(text, NUMBER_HEADS "  GFLOP/s  tier         name: dtypes and shapes\n");
  for (size_t i = 0; i < c.rows.count; ++i) {
    const hr_record_row *row = c.rows.data[i];
    write_numbers(text, row->runs, row->ns, c.ns, row->bytes);
    hr_text_printf(text, " %8.1f  %-11s  %s%s%s\n", ratio((double)row->flops, (double)row->ns),
                   hr__tier_name(row->tier), row->name, row->shapes[0] != '\0' ? ": " : "", row->shapes);
  }
  if (!ok || table->is_incomplete) {
    hr_text_append(text, "some operations are missing: host memory was short, or there are more than 65,536 rows\n");
  }
  hr_vector_fini(&c.rows);
}

static void write_copies(const hr_record_table *table, hr_text *text) {
  chosen c;
  (void)choose(table, hr__is_copy, &c);
  hr_text_printf(text, "headrace: copies: %lld in %.3f ms\n", (long long)c.runs, (double)c.ns * 1e-6);
  hr_text_append(text, NUMBER_HEADS "    KB each  direction\n");
  for (size_t i = 0; i < c.rows.count; ++i) {
    const hr_record_row *row = c.rows.data[i];
    write_numbers(text, row->runs, row->ns, c.ns, row->bytes);
    hr_text_printf(text, " %10.3f  %s%s\n", ratio((double)row->bytes * 1e-3, (double)row->runs),
                   row->kind == HR_PROFILE_COPY_IN    ? "host to device"
                   : row->kind == HR_PROFILE_COPY_OUT ? "device to host"
                                                      : "device to device",
                   row->is_number ? ", single numbers" : "");
  }
  hr_vector_fini(&c.rows);
}

static bool is_fallback(hr_profile_kind kind) {
  return kind == HR_PROFILE_FALLBACK;
}

static void write_fallbacks(const hr_record_table *table, hr_text *text) {
  chosen c;
  (void)choose(table, is_fallback, &c);
  hr_text_printf(text, "headrace: fallbacks to the host: %lld in %.3f ms\n", (long long)c.runs, (double)c.ns * 1e-6);
  hr_text_append(text, "     runs     mean us    total ms    share   MB copied     GB/s  name\n");
  for (size_t i = 0; i < c.rows.count; ++i) {
    const hr_record_row *row = c.rows.data[i];
    write_numbers(text, row->runs, row->ns, c.ns, row->bytes);
    hr_text_printf(text, "  %s\n", row->name);
  }
  hr_vector_fini(&c.rows);
}

static bool is_compilation(hr_profile_kind kind) {
  return kind == HR_PROFILE_COMPILE || kind == HR_PROFILE_KERNEL_COMPILE || kind == HR_PROFILE_KERNEL_LOAD;
}

/* One line: they don't belong to a table of their own. */
static void write_compilations(const hr_record_table *table, hr_text *text) {
  static const char *const names[HR_PROFILE_KINDS] = {[HR_PROFILE_COMPILE] = "programs compiled",
                                                      [HR_PROFILE_KERNEL_COMPILE] = "runs of the compiler",
                                                      [HR_PROFILE_KERNEL_LOAD] = "kernels loaded"};
  chosen c;
  (void)choose(table, is_compilation, &c);
  for (size_t i = 0; i < c.rows.count; ++i) {
    const hr_record_row *row = c.rows.data[i];
    hr_text_printf(text, "%s%lld %s in %.3f ms", i == 0 ? "headrace: " : ", ", (long long)row->runs, names[row->kind],
                   (double)row->ns * 1e-6);
  }
  hr_text_append(text, c.rows.count > 0 ? "\n" : "");
  hr_vector_fini(&c.rows);
}

void hr__record_table_write(const hr_record_table *table, unsigned tables, hr_text *text) {
  if ((tables & HR_TABLE_OPERATIONS) != 0) {
    write_operations(table, text);
    write_compilations(table, text);
  }
  if ((tables & HR_TABLE_COPIES) != 0) {
    write_copies(table, text);
  }
  if ((tables & HR_TABLE_FALLBACKS) != 0) {
    write_fallbacks(table, text);
  }
}
