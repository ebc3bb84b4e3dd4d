/* plugin_threads_test.c: kernels, clusters, copies, statistics and profiles of the plug-in on eight threads, with a
 * fake TensorFlow around it. Under the thread sanitizer: `make sanitize-tensorflow`.
 */
#include <pthread.h>

#include "../csrc/cluster.h"
#include "fake_graph.h"
#include "hr_test.h"

enum { THREADS = 8, DIMS_MAX = 2, TENSORS_MAX = 3, BUILDERS_MAX = 1 << 13, ROUNDS = 200 };

void SE_InitPlugin(tf_registration *registration, tf_status *status);
void TF_InitKernel(void);
void TF_InitProfiler(tf_profiler_registration *registration, tf_status *status);
bool headrace_tensorflow_stats(int ordinal, size_t bytes, hr_stats *out_stats);

/* ---- a fake TensorFlow: tensors, variables, kernels and their calls ---- */

struct TF_Tensor {
  int dtype, rank;
  int64_t dims[DIMS_MAX];
  tf_memory memory;
  struct variable *variable; /* of a resource */
  atomic_int references;
};

typedef struct variable {
  pthread_mutex_t mutex;
  tf_tensor *value;
} variable;

struct TF_KernelBuilder {
  const char *op;
  uint32_t types; /* bits of the first constraint; 0: none */
  tf_create_kernel create;
  tf_compute compute;
  void (*destroy)(void *);
};

struct TF_OpKernelConstruction {
  hr__span body; /* the attribute of a cluster */
  tf_status status;
};

struct TF_OpKernelContext {
  tf_stream *stream;
  int64_t step;
  int input_count, output_count;
  tf_tensor *inputs[TENSORS_MAX], *outputs[TENSORS_MAX];
  tf_status status;
};

struct TF_VariableInputLockHolder {
  variable *locked;
};

static tf_device device;
static tf_executor executor;
static tf_builder builders[BUILDERS_MAX];
static int builder_count;

tf_symbols tf;

bool tf_resolve(size_t bytes, char *text) {
  (void)bytes, (void)text;
  return true;
}

bool tf_is_deterministic(void) {
  return false;
}

static tf_tensor *new_tensor(int rank, const int64_t *dims) {
  tf_tensor *tensor = calloc(1, sizeof *tensor);
  tensor->dtype = TF_FLOAT, tensor->rank = rank, atomic_init(&tensor->references, 1);
  uint64_t bytes = sizeof(float);
  for (int d = 0; d < rank; ++d) {
    tensor->dims[d] = dims[d], bytes *= (uint64_t)dims[d];
  }
  executor.allocate(&device, bytes, 0, &tensor->memory);
  return tensor;
}

static void delete_tensor(tf_tensor *tensor) {
  if (atomic_fetch_sub(&tensor->references, 1) == 1) {
    executor.deallocate(&device, &tensor->memory);
    free(tensor);
  }
}

static tf_tensor *shared(tf_tensor *tensor) {
  atomic_fetch_add(&tensor->references, 1);
  return tensor;
}

static int tensor_type(const tf_tensor *tensor) {
  return tensor->dtype;
}
static int num_dims(const tf_tensor *tensor) {
  return tensor->rank;
}
static int64_t dim_of(const tf_tensor *tensor, int d) {
  return tensor->dims[d];
}
static void *tensor_data(const tf_tensor *tensor) {
  return tensor->memory.address;
}
static int64_t element_count(const tf_tensor *tensor) {
  return (int64_t)(tensor->memory.bytes / sizeof(float));
}

static tf_builder *new_builder(const char *op, const char *type, tf_create_kernel create, tf_compute compute,
                               void (*destroy)(void *)) {
  (void)type;
  HR_ASSERT(builder_count < BUILDERS_MAX);
  builders[builder_count] = (tf_builder){op, 0, create, compute, destroy};
  return &builders[builder_count++];
}
/* The first field of a message with this number, which is bytes. */
static hr__span field_of(hr__span message, uint32_t number) {
  hr__wire wire = hr__wire_of(message);
  for (hr__field field; hr__wire_next(&wire, &field);) {
    if (field.number == number && field.type == HR__WIRE_BYTES) {
      return field.bytes;
    }
  }
  return (hr__span){0};
}

/* The types of a kernel's first type attribute, from its KernelDef. */
static void define(const char *definition, const char *name, tf_builder *builder, tf_status *status) {
  enum { CONSTRAINT = 3, ALLOWED = 2, LIST = 1, TYPE = 6 };
  (void)name, (void)status;
  hr__span all = {(const uint8_t *)definition, strlen(definition)};
  hr__wire types = hr__wire_of(field_of(field_of(field_of(all, CONSTRAINT), ALLOWED), LIST));
  for (hr__field field; hr__wire_next(&types, &field);) {
    builder->types |= field.number == TYPE ? 1u << field.value : 0;
  }
}
static void set_host_memory(tf_builder *builder, const char *argument) {
  (void)builder, (void)argument;
}
static void register_builder(const char *op, tf_builder *builder, tf_status *status) {
  (void)op, (void)builder, (void)status;
}
static tf_op_builder *new_op(const char *name) {
  (void)name;
  static char op;
  return (tf_op_builder *)&op;
}
static void add_to_op(tf_op_builder *op, const char *text) {
  (void)op, (void)text;
}
static void set_stateful(tf_op_builder *op, bool is_stateful) {
  (void)op, (void)is_stateful;
}
static void set_shapes(tf_op_builder *op, void (*infer)(tf_inference *, tf_status *)) {
  (void)op, (void)infer;
}
static void register_op(tf_op_builder *op, tf_status *status) {
  (void)op, (void)status;
}

static void attribute_size(tf_construction *c, const char *name, int32_t *count, int32_t *bytes, tf_status *status) {
  (void)name, (void)status;
  *count = 1, *bytes = (int32_t)c->body.size;
}
static void attribute_text(tf_construction *c, const char *name, char *text, size_t bytes, tf_status *status) {
  (void)name, (void)status;
  memcpy(text, c->body.data, bytes);
}
static void attribute_flag(tf_construction *c, const char *name, tf_bool *flag, tf_status *status) {
  (void)c, (void)name, (void)status;
  *flag = 0;
}
static void construction_failure(tf_construction *c, tf_status *status) {
  c->status = *status;
}

static tf_stream *get_stream(tf_context *context, tf_status *status) {
  (void)status;
  return context->stream;
}
static int64_t step_id(tf_context *context) {
  return context->step;
}
static tf_string_view kernel_name(tf_context *context) {
  (void)context;
  return (tf_string_view){"node", 4};
}
static int num_inputs(tf_context *context) {
  return context->input_count;
}
static int num_outputs(tf_context *context) {
  return context->output_count;
}
static int input_type(tf_context *context, int index) {
  return context->inputs[index]->dtype;
}
static void get_input(tf_context *context, int index, tf_tensor **out_tensor, tf_status *status) {
  (void)status;
  *out_tensor = shared(context->inputs[index]);
}
static int output_type(tf_context *context, int index) {
  (void)context, (void)index;
  return TF_FLOAT;
}
static tf_tensor *allocate_output(tf_context *context, int index, int dtype, const int64_t *dims, int rank,
                                  size_t bytes, tf_status *status) {
  (void)dtype, (void)bytes, (void)status;
  context->outputs[index] = new_tensor(rank, dims);
  return shared(context->outputs[index]);
}
static void context_failure(tf_context *context, tf_status *status) {
  context->status = *status;
}

static void lock_variables(tf_context *context, bool locks, bool is_sparse, const int *inputs, size_t count,
                           tf_copy_tensor copy, tf_locks **out_locks, tf_status *status) {
  (void)locks, (void)is_sparse, (void)count, (void)copy, (void)status;
  tf_locks *holder = malloc(sizeof *holder);
  holder->locked = context->inputs[inputs[0]]->variable;
  pthread_mutex_lock(&holder->locked->mutex);
  *out_locks = holder;
}
static void get_variable(tf_context *context, int input, bool is_locked, bool is_variant, bool is_sparse,
                         tf_copy_tensor copy, tf_tensor **out_tensor, tf_status *status) {
  (void)is_locked, (void)is_variant, (void)is_sparse, (void)copy, (void)status;
  *out_tensor = shared(context->inputs[input]->variable->value);
}
static void release_locks(tf_locks *locks) {
  pthread_mutex_unlock(&locks->locked->mutex);
  free(locks);
}

static void fill_kernels(void) {
  fill_table();
  tf.DeleteTensor = delete_tensor, tf.TensorType = tensor_type, tf.NumDims = num_dims, tf.Dim = dim_of;
  tf.TensorData = tensor_data, tf.TensorElementCount = element_count;
  tf.NewKernelBuilder = new_builder, tf.RegisterKernelBuilderWithKernelDef = define;
  tf.KernelBuilder_HostMemory = set_host_memory, tf.RegisterKernelBuilder = register_builder;
  tf.NewOpDefinitionBuilder = new_op, tf.OpDefinitionBuilderAddAttr = add_to_op;
  tf.OpDefinitionBuilderAddInput = tf.OpDefinitionBuilderAddOutput = add_to_op;
  tf.OpDefinitionBuilderSetIsStateful = set_stateful;
  tf.OpDefinitionBuilderSetShapeInferenceFunction = set_shapes, tf.RegisterOpDefinition = register_op;
  tf.OpKernelConstruction_GetAttrSize = attribute_size, tf.OpKernelConstruction_GetAttrString = attribute_text;
  tf.OpKernelConstruction_GetAttrBool = attribute_flag, tf.OpKernelConstruction_Failure = construction_failure;
  tf.GetStream = get_stream, tf.StepId = step_id, tf.GetOpKernelName = kernel_name;
  tf.NumInputs = num_inputs, tf.NumOutputs = num_outputs, tf.InputDatatype = input_type, tf.GetInput = get_input;
  tf.ExpectedOutputDataType = output_type, tf.AllocateOutput = allocate_output;
  tf.OpKernelContext_Failure = context_failure;
  tf.MaybeLockVariableInputMutexesInOrder = lock_variables, tf.GetInputTensorFromVariable = get_variable;
  tf.ReleaseVariableInputLockHolder = release_locks;
}

/* ---- the plug-in ---- */

typedef struct kernel {
  const tf_builder *builder;
  void *self;
} kernel;

static tf_stream *stream;
static tf_profiler_functions profiler;

static void start_plugin(void) {
  static tf_platform platform;
  static tf_platform_functions functions;
  static tf_profiler named;
  tf_status status = {0};
  if (stream != NULL) {
    return;
  }
  fill_kernels();
  SE_InitPlugin(&(tf_registration){.platform = &platform, .functions = &functions}, &status);
  functions.create_device(&platform, &(tf_create_device){.device = &device}, &status);
  functions.create_executor(&platform, &(tf_create_executor){.executor = &executor}, &status);
  executor.create_stream(&device, &stream, &status);
  TF_InitKernel();
  TF_InitProfiler(&(tf_profiler_registration){.profiler = &named, .functions = &profiler}, &status);
  HR_ASSERT_EQ(status.code, 0);
}

static kernel create(const char *op, int dtype, hr__span body) {
  kernel found = {0};
  for (int i = 0; i < builder_count; ++i) {
    if (strcmp(builders[i].op, op) == 0 && (dtype == 0 || (builders[i].types >> dtype & 1) != 0)) {
      found.builder = &builders[i];
    }
  }
  HR_ASSERT_NOT_NULL(found.builder);
  tf_construction construction = {.body = body};
  found.self = found.builder->create(&construction);
  HR_ASSERT_STR_EQ(construction.status.message, "");
  return found;
}

/* The kernel of the one cluster that a graph becomes. */
static kernel create_cluster(const node_row *rows, size_t count) {
  hr_text text = make(rows, count), out = {0};
  const tf_buffer buffer = {.data = hr_text_chars(&text), .size = text.length};
  HR_ASSERT_OK(htf_make_clusters(&buffer, 0, NULL, &out));
  htf_graph graph;
  HR_ASSERT_OK(htf_graph_read(span_of(&out), &graph));
  kernel made = {0};
  for (int i = 0; i < graph.count; ++i) {
    hr__span value;
    hr__field body;
    if (hr__span_is(graph.nodes[i].op, HTF_CLUSTER)) {
      HR_ASSERT(made.self == NULL);
      HR_ASSERT(htf_find_attribute(graph.nodes[i].message, "body", &value) && htf_find_field(value, 2, &body));
      made = create(HTF_CLUSTER, 0, body.bytes);
    }
  }
  HR_ASSERT_NOT_NULL(made.self);
  htf_graph_fini(&graph);
  hr_text_fini(&text);
  hr_text_fini(&out);
  return made;
}

static void destroy(kernel *k) {
  k->builder->destroy(k->self);
}

/* The output of a call; NULL: it has none. */
static tf_tensor *call(const kernel *k, int64_t step, int count, tf_tensor *const *inputs, int *failures) {
  tf_context context = {.stream = stream, .step = step, .input_count = count, .output_count = 1};
  memcpy(context.inputs, inputs, (size_t)count * sizeof *inputs);
  k->builder->compute(k->self, &context);
  *failures += context.status.code != 0;
  return context.outputs[0];
}

/* ---- threads ---- */

static const node_row sum_rows[] = {{"a", "_Arg", "", "T"},
                                    {"b", "_Arg", "", "T"},
                                    {"sum", "AddV2", "a b", "T"},
                                    {"square", "Mul", "sum sum", "T"},
                                    {"r", "_Retval", "square", "T"}};
static const node_row step_rows[] = {{"a", "_Arg", "", "T"},
                                     {"v", "_Arg", "", "T"},
                                     {"read", "ReadVariableOp", "v", "dtype"},
                                     {"sum", "AddV2", "read a", "T"},
                                     {"twice", "AddV2", "sum sum", "T"},
                                     {"assign", "AssignVariableOp", "v sum", "dtype"},
                                     {"r", "_Retval", "twice ^assign", "T"}};

typedef struct shared_state {
  kernel add, sum, step, add_to_variable;
  tf_tensor *resource;
  atomic_bool is_done;
} shared_state;

typedef struct worker {
  shared_state *shared;
  int number, rounds, failures;
} worker;

static tf_tensor *filled(int64_t count, float first) {
  tf_tensor *tensor = new_tensor(1, &count);
  tf_status status = {0};
  float *numbers = malloc((size_t)count * sizeof *numbers);
  for (int64_t i = 0; i < count; ++i) {
    numbers[i] = first + (float)i;
  }
  executor.copy_in(&device, stream, &tensor->memory, numbers, (uint64_t)count * sizeof *numbers, &status);
  free(numbers);
  return tensor;
}

/* Counts the elements that are not scale * (first + i) to a power, and deletes the tensor. */
static int wrong(tf_tensor *tensor, float first, int power) {
  if (tensor == NULL) {
    return 1;
  }
  int64_t count = tensor->dims[0];
  float *numbers = calloc((size_t)count, sizeof *numbers);
  tf_status status = {0};
  executor.synchronize(&device, &status);
  executor.copy_out(&device, stream, numbers, &tensor->memory, (uint64_t)count * sizeof *numbers, &status);
  int found = status.code != 0;
  for (int64_t i = 0; i < count; ++i) {
    float x = first + 2 * (float)i;
    found += numbers[i] != (power == 2 ? x * x : x);
  }
  free(numbers);
  delete_tensor(tensor);
  return found;
}

/* Sums of other dims, as kernels and as a cluster, and steps of a variable that all threads have. */
static void *work(void *arg) {
  worker *w = arg;
  shared_state *s = w->shared;
  for (int round = 0; round < w->rounds; ++round) {
    const int64_t count = 1 + (round * 7 + w->number) % 40, step = round * THREADS + w->number;
    tf_tensor *inputs[2] = {filled(count, (float)w->number), filled(count, (float)round)};
    const float first = (float)(w->number + round);
    w->failures += wrong(call(&s->add, step, 2, inputs, &w->failures), first, 1);
    w->failures += wrong(call(&s->sum, step, 2, inputs, &w->failures), first, 2);
    tf_tensor *one = filled(1, 1), *operands[2] = {one, s->resource};
    tf_tensor *twice = call(&s->step, step, 2, operands, &w->failures);
    if (twice != NULL) {
      delete_tensor(twice);
    }
    (void)call(&s->add_to_variable, step, 2, (tf_tensor *[]){s->resource, one}, &w->failures);
    delete_tensor(one);
    delete_tensor(inputs[0]);
    delete_tensor(inputs[1]);
  }
  return NULL;
}

/* Reads counters and begins and ends profiles as long as others work. */
static void *watch(void *arg) {
  shared_state *s = arg;
  tf_status status = {0};
  while (!atomic_load(&s->is_done)) {
    hr_stats stats;
    tf_allocator_stats memory;
    size_t size = 0;
    profiler.start(NULL, &status);
    HR_ASSERT(headrace_tensorflow_stats(0, sizeof stats, &stats));
    (void)executor.allocator_stats(&device, &memory);
    profiler.stop(NULL, &status);
    profiler.collect(NULL, NULL, &size, &status);
  }
  return NULL;
}

HR_TEST(eight_threads_have_their_results) {
  start_plugin();
  variable counter = {.mutex = PTHREAD_MUTEX_INITIALIZER, .value = filled(1, 0)};
  tf_tensor resource = {.dtype = TF_RESOURCE, .variable = &counter, .references = 1 << 30};
  shared_state state = {.resource = &resource};
  state.add = create("AddV2", TF_FLOAT, (hr__span){0});
  state.sum = create_cluster(ROWS(sum_rows)), state.step = create_cluster(ROWS(step_rows));
  state.add_to_variable = create("AssignAddVariableOp", TF_FLOAT, (hr__span){0});
  worker workers[THREADS];
  pthread_t threads[THREADS], watcher;
  HR_ASSERT_EQ(pthread_create(&watcher, NULL, watch, &state), 0);
  for (int i = 0; i < THREADS; ++i) {
    workers[i] = (worker){.shared = &state, .number = i, .rounds = ROUNDS};
    HR_ASSERT_EQ(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  }
  int failures = 0;
  for (int i = 0; i < THREADS; ++i) {
    pthread_join(threads[i], NULL);
    failures += workers[i].failures;
  }
  atomic_store(&state.is_done, true);
  pthread_join(watcher, NULL);
  HR_ASSERT_EQ(failures, 0);
  HR_ASSERT_EQ(wrong(counter.value, (float)(2 * THREADS * ROUNDS), 1), 0);
  destroy(&state.add);
  destroy(&state.sum);
  destroy(&state.step);
  destroy(&state.add_to_variable);
}
