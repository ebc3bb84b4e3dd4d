/* folder.h: folders by descriptor, checked as ssh checks them.
 *
 * Files in /tmp or below a folder that others may write to can be exchanged between a check by path and its use. Here a
 * path is resolved once, walked from the root without following links, and each folder on the way is checked through
 * its descriptor: it belongs to root or to this user, and nobody else may write to it, unless it is sticky (/tmp). The
 * folder itself belongs to this user, and nobody else may write to it. Later accesses go through the descriptor.
 * Threads: any.
 */
#ifndef HEADRACE_BASE_FOLDER_H_
#define HEADRACE_BASE_FOLDER_H_

#include "base/text.h"
#include "headrace/status.h"

/* Opens the folder at an absolute path; what is missing is made, for this user alone (0700). Close the descriptor with
 * `close`. FAILED_PRECONDITION with the folder's name and the reason where it can't be trusted, made or opened. */
HR_MUST_USE hr_status hr_folder_open(const char *path, int *out_folder);

/* Makes a new private folder for temporary files and appends its path: in TMPDIR, or else /tmp, /var/tmp or /dev/shm,
 * the first where a folder can be made that others can't exchange and a few megabytes are free. End it with
 * `hr_folder_remove`. NOT_FOUND with the reason for the first of them. */
HR_MUST_USE hr_status hr_folder_make_temporary(hr_text *out_path);

/* Removes a folder with all that is in it, as far as that goes; links in it are removed, not followed. */
void hr_folder_remove(const char *path);

#endif /* HEADRACE_BASE_FOLDER_H_ */
