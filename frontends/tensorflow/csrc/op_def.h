/* op_def.h: the dtypes of an operation's arguments, from TensorFlow's OpDef. */
#ifndef HEADRACE_TENSORFLOW_OP_DEF_H_
#define HEADRACE_TENSORFLOW_OP_DEF_H_

#include "importers/wire.h"

/* Fields of OpDef. */
enum { HTF_OP_INPUT = 2, HTF_OP_OUTPUT = 3 };

/* The dtypes of a node's inputs or outputs (field) in order, one for each tensor of a list. Those of `host` (names with
 * spaces between them) have the flag `host_flag`. Stores at most `most`; -1 if they cannot be told. */
int htf_argument_types(hr__span definition, uint32_t field, hr__span node, const char *host, int host_flag, int most,
                       int *out_types);

#endif
