/* record_table.h: sums of records, as tables for people: operations, copies, fallbacks.
 *
 * One row for each kernel with its shapes and tier, each direction of copies (single numbers apart), each operation
 * that ran on the host, each kind of compilation. Threads: one at a time.
 */
#ifndef HEADRACE_ENGINE_RECORD_TABLE_H_
#define HEADRACE_ENGINE_RECORD_TABLE_H_

#include "base/table.h"
#include "base/text.h"
#include "base/vector.h"
#include "headrace/profile.h"

static inline bool hr__is_copy(hr_profile_kind kind) {
  return kind == HR_PROFILE_COPY_IN || kind == HR_PROFILE_COPY_OUT || kind == HR_PROFILE_COPY_BETWEEN;
}
/* "interpreted", "compiled", "library", or "". */
const char *hr__tier_name(hr_profile_tier tier);

typedef struct hr_record_row hr_record_row;

typedef struct hr_record_table {
  hr_table rows; /* by hash; rows with equal hashes are chained */
  size_t row_count;
  int64_t begin_ns, end_ns; /* of all records; 0: none */
  int64_t operations, dropped, commits, commit_ns;
  bool is_incomplete; /* memory was short, or there were too many different rows */
} hr_record_table;

void hr__record_table_add(hr_record_table *table, const hr_profile_record *record);
/* Adds the sums of another table. */
void hr__record_table_merge(hr_record_table *table, const hr_record_table *from);
void hr__record_table_fini(hr_record_table *table);
/* Appends the tables; `tables`: bits of those above. */
void hr__record_table_write(const hr_record_table *table, unsigned tables, hr_text *text);

#endif
