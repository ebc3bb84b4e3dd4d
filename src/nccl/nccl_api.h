/* nccl_api.h: the part of NCCL's C interface that we use, found at run time.
 *
 * The numbers are those of NCCL's public header nccl.h. The library is libnccl.so.2 (headrace/nccl.h).
 */
#ifndef HEADRACE_NCCL_NCCL_API_H_
#define HEADRACE_NCCL_NCCL_API_H_

#include <stddef.h>

#include "base/context.h"
#include "base/vendor.h"
#include "headrace/nccl.h"

typedef struct nccl_comm_struct *nccl_comm;

enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7 };
enum { /* ncclDataType_t */
       NCCL_I8 = 0,
       NCCL_U8 = 1,
       NCCL_I32 = 2,
       NCCL_U32 = 3,
       NCCL_I64 = 4,
       NCCL_U64 = 5,
       NCCL_F16 = 6,
       NCCL_F32 = 7,
       NCCL_F64 = 8,
       NCCL_BF16 = 9
};
enum { NCCL_SUM = 0, NCCL_PRODUCT = 1, NCCL_MAX = 2, NCCL_MIN = 3, NCCL_AVERAGE = 4 }; /* ncclRedOp_t */

typedef struct hr__nccl_table {
#define NCCL_SYMBOL(type, name, args) type(*name) args;
#include "nccl/nccl_symbols.def"
#undef NCCL_SYMBOL
} hr__nccl_table;

/* Opens the library once; UNAVAILABLE with the reason. */
HR_MUST_USE hr_status hr__nccl_open(void);
/* The functions of the open library. */
const hr__nccl_table *hr__nccl(void);
/* The status of a function's result. */
HR_MUST_USE hr_status hr__nccl_status(int result, const char *what);

#endif
