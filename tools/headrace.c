/* headrace: the command-line tool. Inspects this build and machine, and replays recorded programs. */
#include "commands.h"

#include <stdio.h>
#include <string.h>

#include "headrace/version.h"

typedef struct command {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *usage, *help;
} command;

static const command commands[] = {
    {"run", headrace_run, "run FILE [--device NAME] [--repeat N] [--mode fuse|eager|strict] [--print]",
     "Replays a program file of HEADRACE_DUMP. Live buffers get random contents (integers: zeros).\n"
     "  --device NAME   cpu (the default), null, ...\n"
     "  --repeat N      runs it N times and prints the shortest and the mean time\n"
     "  --mode MODE     how the stream works\n"
     "  --print         prints the first elements of each output\n"
     "Runs a package (.hrpkg), an ONNX model (.onnx) or a StableHLO artifact, if FILE is one. Inputs without a file\n"
     "get random contents (f32), or zeros.\n"
     "  --input NAME=FILE, --output NAME=FILE   npy, or another file of one array; outputs are npy. The only input or\n"
     "                                          output needs no name\n"
     "  --dim NAME=SIZE   the size of a symbol in inputs without a file; default 1\n"
     "  --trust           uses the package's kernels: native code that its author made\n"
     "  --device, --repeat, --print   as above"},
    {"convert", headrace_convert, "convert MODEL -o PACKAGE [--dim NAME=SIZE] [--target TARGET] [--minimum VERSION]",
     "Writes an ONNX model (.onnx) or a StableHLO artifact as a package (.hrpkg). docs/onnx.md and docs/jax.md list\n"
     "the operators.\n"
     "  --dim NAME=SIZE   a size in place of a symbol, such as a batch; more than once for several\n"
     "  --target TARGET   runs the model, and adds its kernels for v2, v3, v4 (levels of x86-64) or an NVIDIA GPU, "
     "which\n                    need not be there: sm_90, or sm_90:114 with multiprocessors. They are used with "
     "--trust alone\n"
     "  --size NAME=SIZE  the size of a symbol in these runs; default 1\n"
     "  --minimum VERSION fails if version 1, or 2, of the text can't describe the graph"},
    {"inspect", headrace_inspect, "inspect FILE [--graph | --svg PICTURE] [--verify]",
     "Lists notes, inputs, outputs, symbols, constants and operations of a package (.hrpkg), an ONNX model\n"
     "or a StableHLO artifact.\n"
     "  --graph         prints the graph's text instead\n"
     "  --svg PICTURE   draws the graph into a file instead, for a browser\n"
     "  --verify        compares all constants of a package with their hashes before"},
    {"bench", headrace_bench,
     "bench FILE [--batch 1,8,64] [--dim NAME=SIZE] [--device NAME] [--seconds S] [--precision bf16]\n"
     "      [--against ENGINES]",
     "Times the answers of a package or a model on random inputs: the first one, the median and the shortest of the\n"
     "others, and the process's peak of memory so far.\n"
     "  --batch SIZES   sizes of the symbol that is the first dim of the first input; default 1\n"
     "  --dim NAME=SIZE the size of another symbol; default 1\n"
     "  --device NAME   cpu (the default), cuda, ...\n"
     "  --seconds S     how long each size is repeated; default 1\n"
     "  --precision P   f32 (the default), or bf16 or f16 for the factors of f32 products and convolutions\n"
     "  --trust         uses the package's kernels: native code that its author made\n"
     "  --against NAMES onnxruntime, openvino or both with a comma: their times of an ONNX model, where they are\n"
     "                  installed, with HEADRACE_THREADS threads; OpenVINO also has the precision"},
    {"explain", headrace_explain, "explain FILE [--svg PICTURE] [--time N] [--device NAME] [--mode fuse|eager|strict]",
     "Lists the steps of a program file of HEADRACE_DUMP: the operations that share a kernel, the reads and writes of\n"
     "each kernel and library call, the temporaries that never get memory. Runs it once, on random contents.\n"
     "  --svg PICTURE   draws it into a file instead, for a browser\n"
     "  --time N        runs it N more times, and adds the median time of each step\n"
     "  --device NAME   cpu (the default), null, ...\n"
     "  --mode MODE     how the stream works"},
    {"devices", headrace_devices, "devices", "Lists drivers, their devices and their memory."},
    {"ops", headrace_ops, "ops [NAME]", "Lists the operations, or those whose name contains NAME."},
    {"env", headrace_env, "env", "Lists the environment variables that Headrace reads, with the values in force."},
    {"doctor", headrace_doctor, "doctor",
     "Lists what this machine offers: CPU, oneDNN, OpenBLAS, compiler (with a trial), cache folder, GPU and its "
     "libraries,\n"
     "versions of torch; and for each thing that is missing the command that mends it.\n"
     "  exit status     0: nothing essential is missing; 1: something is"},
};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static void print_usage(FILE *file) {
  fprintf(file, "usage: headrace COMMAND ...\n\n");
  for (int i = 0; i < COMMAND_COUNT; ++i) {
    fprintf(file, "  headrace %s\n", commands[i].usage);
  }
  fprintf(file, "\n`headrace COMMAND --help` prints its options, `headrace --version` the version.\n");
}

static bool asks_for_help(int argc, char **argv) {
  for (int i = 0; i < argc; ++i) {
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
      return true;
    }
  }
  return false;
}

int headrace_fail(hr_status status) {
  if (status == HR_OK) {
    return 0;
  }
  fprintf(stderr, "headrace: %s: %s\n", hr_status_code_name(hr_status_code_of(status)), hr_status_message(status));
  hr_status_free(status);
  return 1;
}

int headrace_bad_argument(const char *name, const char *argument) {
  fprintf(stderr, "headrace %s: argument \"%s\" is unknown, or has no right value; see `headrace %s --help`\n", name,
          argument, name);
  return 2;
}

int headrace_missing(const char *name, const char *expected) {
  fprintf(stderr, "headrace %s: %s expected; see `headrace %s --help`\n", name, expected, name);
  return 2;
}

int main(int argc, char **argv) {
  for (int i = 0; argc > 1 && i < COMMAND_COUNT; ++i) {
    if (strcmp(argv[1], commands[i].name) == 0) {
      if (asks_for_help(argc - 2, argv + 2)) {
        printf("usage: headrace %s\n\n%s\n", commands[i].usage, commands[i].help);
        return 0;
      }
      return commands[i].run(argc - 2, argv + 2);
    }
  }
  if (argc > 1 && strcmp(argv[1], "--version") == 0) {
    printf("headrace %s\n", hr_version());
    return 0;
  }
  bool helps = argc > 1 && (asks_for_help(1, argv + 1) || strcmp(argv[1], "help") == 0);
  if (argc > 1 && !helps) {
    fprintf(stderr, "headrace: no command \"%s\"\n", argv[1]);
  }
  print_usage(helps ? stdout : stderr);
  return helps ? 0 : 2;
}
