/* file.h: files of arrays: npy, npz, safetensors and gguf.
 *
 * hr_file_open maps a file and checks all of its fields against its size, before memory is allocated by them. The
 * arrays of a host device share the mapping if they stand at a multiple of 16 in it; else they are copies. The mapping
 * lives as long as its arrays, also after the file was removed or replaced. A program that shortens the file in place
 * ends the arrays' process with SIGBUS, as with every mapping.
 *
 * Compressed arrays of an npz file are decompressed by hr_file_array, which checks the checksums of both kinds. Their
 * size is known at the opening and is at most 1,032 times that of the file's bytes (the limit of deflate, RFC 1951).
 *
 * Files of unknown origin are safe to open: nothing of a file is executed. Damaged ones fail with DATA_LOSS, and a
 * message that names the file, the field and its value. UNIMPLEMENTED stands for a valid file that can't be read: NumPy
 * arrays of objects, dtypes that arrays don't have, encrypted archives.
 *
 * Threads: as stream.h. A file belongs to one thread at a time; its arrays don't.
 */
#ifndef HEADRACE_FILE_H_
#define HEADRACE_FILE_H_

#include "headrace/array.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hr_file_format {
  HR_FILE_NPY = 0, /* one array, without a name */
  HR_FILE_SAFETENSORS,
  HR_FILE_NPZ,  /* a zip archive of npy files; without metadata */
  HR_FILE_GGUF, /* arrays and metadata; quantised tensors have three arrays: packed weight, scales, biases */
  HR_FILE_FORMAT_COUNT
} hr_file_format;

typedef struct hr_file hr_file;

/* Opens a file, whose contents tell the format. The caller owns it. NOT_FOUND, PERMISSION_DENIED or UNAVAILABLE if the
 * system can't open or map it. */
HR_API HR_MUST_USE hr_status hr_file_open(const char *path, hr_file **out_file);
/* The same for bytes in memory, which are copied; `name` stands for the path in messages. */
HR_API HR_MUST_USE hr_status hr_file_open_bytes(const char *name, const void *bytes, size_t size, hr_file **out_file);
/* Closes a file; NULL is fine. Its arrays stay valid. */
HR_API void hr_file_close(hr_file *file);

/* The format that the contents have. */
HR_API hr_file_format hr_file_format_of(const hr_file *file);
/* The number of arrays, and the name of one ("" in an npy file), as UTF-8; lives as long as the file. */
HR_API int hr_file_count(const hr_file *file);
HR_API const char *hr_file_name(const hr_file *file, int index);
/* Array `index` on the stream's device. */
HR_API HR_MUST_USE hr_status hr_file_array(hr_stream *stream, hr_file *file, int index, hr_tensor *out);

/* Characters of metadata: UTF-8 in safetensors files, in gguf files any bytes. */
typedef struct hr_file_string {
  const char *chars; /* terminated by a zero, which is not counted */
  size_t length;
} hr_file_string;

typedef enum hr_file_value_kind {
  HR_FILE_STRING = 0, /* one string */
  HR_FILE_STRINGS,    /* a list of them; gguf alone */
  HR_FILE_NUMBER,     /* one number; gguf alone */
  HR_FILE_NUMBERS     /* a list of numbers of one dtype; gguf alone */
} hr_file_value_kind;

/* Metadata: a value with a name, beside the arrays of a file. */
typedef struct hr_file_value {
  const char *key; /* UTF-8 */
  hr_file_value_kind kind;
  int64_t count;                 /* of strings or numbers */
  const hr_file_string *strings; /* of both kinds of strings */
  hr_dtype dtype;                /* of numbers: bool, integers, f32 and f64 */
  const void *numbers;
} hr_file_value;

/* The number of values, and one of them, which lives as long as the file. */
HR_API int hr_file_value_count(const hr_file *file);
HR_API const hr_file_value *hr_file_value_at(const hr_file *file, int index);

/* The contents of a file; all of it is the caller's. Names are UTF-8. NPY wants one array, whose name is ignored.
 * Metadata are for SAFETENSORS, as strings, and for GGUF. */
typedef struct hr_file_contents {
  hr_file_format format;
  int count, value_count;
  const char *const *names;
  const hr_tensor *const *arrays;
  const hr_file_value *values;
} hr_file_contents;

/* Waits for the arrays and writes them as a file. It is written beside the target under another name and renamed at the
 * end, so that a failure leaves the target as it was. A target that exists and is no regular file, names that are there
 * twice, and dtypes that the format doesn't have are an INVALID_ARGUMENT. */
HR_API HR_MUST_USE hr_status hr_file_write(hr_stream *stream, const char *path, const hr_file_contents *contents);
/* The same for bytes that `write` gets in their order. Its failure ends the call and is its result. */
HR_API HR_MUST_USE hr_status hr_file_write_to(hr_stream *stream,
                                              hr_status (*write)(void *arg, const void *bytes, size_t count), void *arg,
                                              const hr_file_contents *contents);

#ifdef __cplusplus
}
#endif

#endif
