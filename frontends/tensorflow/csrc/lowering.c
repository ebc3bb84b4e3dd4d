/* lowering.c: loops and conditions of functions that ask for XLA, which lowering.py of the Python package marks.
 *
 * A process without Python has the graphs that others have built. Without the package there is one warning.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "plugin.h"

/* Runs the module without its package: the program decides on importing that, since it changes more of TensorFlow. */
static const char run_module[] =
    "def _headrace():\n"
    "    import importlib.util, runpy\n"
    "    package = importlib.util.find_spec('headrace_tensorflow')\n"
    "    if package is None:\n"
    "        raise ImportError('the Python package headrace_tensorflow is missing')\n"
    "    runpy.run_path(package.submodule_search_locations[0] + '/lowering.py')['mark_loops']()\n"
    "try:\n"
    "    _headrace()\n"
    "except (AttributeError, ImportError, OSError, ValueError) as error:\n"
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
    (void)run(run_module);
    release(state);
  }
}

void htf_mark_loops(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  (void)pthread_once(&once, mark_loops);
}
