/* folder.h: folders by descriptor, checked as ssh checks them.
 *
 * Files in /tmp, or below a folder that others may write to, can be replaced between a check by path and the use of the
 * path. So a path is resolved once and walked from the root without following links, and each folder is checked through
 * its descriptor. A parent must belong to root or to this user, and must be writable by no one else unless it is sticky
 * (/tmp). The folder itself must belong to this user and be writable by no one else. Later accesses go through the
 * descriptor. Threads: any.
 */
#ifndef HEADRACE_BASE_FOLDER_H_
#define HEADRACE_BASE_FOLDER_H_

#include "base/text.h"
#include "headrace/status.h"

/* Opens the folder at an absolute path. Missing folders are created for this user alone (0700). Close the descriptor
 * with `close`. FAILED_PRECONDITION, with the folder's name and the reason, if it can't be trusted, created or opened.
 */
HR_MUST_USE hr_status hr_folder_open(const char *path, int *out_folder);

/* Creates a private folder for temporary files and appends its path. It is in the first of TMPDIR, /tmp, /var/tmp and
 * /dev/shm that has a few megabytes free and where no other user can replace it. Remove it with `hr_folder_remove`.
 * NOT_FOUND, with the reason for the first of them. */
HR_MUST_USE hr_status hr_folder_make_temporary(hr_text *out_path);

/* Removes a folder and its contents, as far as possible. Links in it are removed, not followed. */
void hr_folder_remove(const char *path);

#endif /* HEADRACE_BASE_FOLDER_H_ */
