/* file.h: files of arrays: npy and safetensors.
 *
 * hr_file_open maps a file and checks all of its fields against its size, before memory is allocated by them. The
 * arrays of a host device share the mapping if they stand at a multiple of 16 in it; else they are copies. The mapping
 * lives as long as its arrays, also after the file was removed or replaced. A program that shortens the file in place
 * ends the arrays' process with SIGBUS, as with every mapping.
 *
 * Files of unknown origin are safe to open: nothing of a file is executed. Damaged ones fail with DATA_LOSS, and a
 * message that names the file, the field and its value. UNIMPLEMENTED stands for a valid file that can't be read: NumPy
 * arrays of objects, dtypes that arrays don't have.
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
/* The number of pairs of metadata, and one of them, as UTF-8 that lives as long as the file. */
HR_API int hr_file_metadata_count(const hr_file *file);
HR_API void hr_file_metadata(const hr_file *file, int index, const char **out_key, const char **out_value);

/* Text beside the arrays of a file. */
typedef struct hr_file_text {
  const char *key, *value;
} hr_file_text;

/* Waits for the arrays and writes them as a file. It is written beside the target under another name and renamed at the
 * end, so that a failure leaves the target as it was. NPY wants one array, whose name is ignored, and no
 * metadata. A target that exists and is no regular file is an INVALID_ARGUMENT. */
HR_API HR_MUST_USE hr_status hr_file_write(hr_stream *stream, const char *path, hr_file_format format, int count,
                                           const char *const *names, const hr_tensor *const *arrays, int text_count,
                                           const hr_file_text *texts);

#ifdef __cplusplus
}
#endif

#endif
