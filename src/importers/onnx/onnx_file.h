/* onnx_file.h: a model's file and those with its external data, mapped, and shared by the constants in them. */
#ifndef HEADRACE_IMPORTERS_ONNX_ONNX_FILE_H_
#define HEADRACE_IMPORTERS_ONNX_ONNX_FILE_H_

#include "base/refcount.h"
#include "importers/wire.h"

typedef struct hr__onnx_file {
  hr_refcount refcount;
  struct hr__onnx_file *next; /* of one model */
  char *location;             /* NULL: the model itself */
  bool is_mapped;
  hr__span bytes;
  uint64_t taken; /* bytes of all constants in it, those of overlapping ones counted again */
} hr__onnx_file;

/* Maps a file. */
HR_MUST_USE hr_status hr__onnx_file_open(const char *path, hr__onnx_file **out_file);
/* A copy of bytes. */
HR_MUST_USE hr_status hr__onnx_file_copy(const void *bytes, size_t size, hr__onnx_file **out_file);
/* The file `location` in the folder of a model, or below it, without following links; mapped once and kept in the list
 * that begins with `first`. model: the path; NULL: the model has none. */
HR_MUST_USE hr_status hr__onnx_file_beside(hr__onnx_file *first, const char *model, hr__span location,
                                           hr__onnx_file **out_file);
void hr__onnx_file_retain(void *file);
void hr__onnx_file_release(void *file);

#endif
