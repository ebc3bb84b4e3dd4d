/* lowering.c: loops and conditions of functions that ask for XLA.
 *
 * Keras' default asks for it. TensorFlow's Python code then does not mark While and If for lowering, and the optimizer
 * gets their bodies as names. Since the device is without XLA, the mark is set there, too. XLA on the CPU device takes
 * no notice of it. A process without Python has the graphs that others have built.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "plugin.h"

static const char mark_all[] =
    "def _headrace():\n"
    "    from tensorflow.python.eager import context\n"
    "    from tensorflow.python.ops import control_flow_util_v2 as util\n"
    "    mark = util.maybe_set_lowering_attr\n"
    "    def mark_all(op, lower_using_switch_merge=None):\n"
    "        executor = context.context().function_call_options.executor_type\n"
    "        is_free = lower_using_switch_merge is None and not util._DISABLE_LOWER_USING_SWITCH_MERGE\n"
    "        mark(op, True if is_free and executor != 'SINGLE_THREADED_EXECUTOR' else lower_using_switch_merge)\n"
    "    util.maybe_set_lowering_attr = mark_all\n"
    "try:\n"
    "    _headrace()\n"
    "except (AttributeError, ImportError) as error:\n"
    "    import warnings\n"
    "    warnings.warn(f'headrace: loops of functions that ask for XLA run operation by operation: {error}')\n"
    "finally:\n"
    "    del _headrace\n";

static void mark_loops(void) {
  int (*is_initialized)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsInitialized");
  int (*ensure)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
  void (*release)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
  int (*run)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
  if (is_initialized != NULL && ensure != NULL && release != NULL && run != NULL && is_initialized()) {
    int state = ensure();
    (void)run(mark_all);
    release(state);
  }
}

void htf_mark_loops(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  (void)pthread_once(&once, mark_loops);
}
