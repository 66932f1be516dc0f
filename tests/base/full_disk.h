/* full_disk.h -- a disk without room, for tests of what writes to files. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

/* From now on this process can make no file longer than `bytes`: writing fails (EFBIG). */
void full_disk_begin(unsigned bytes);
void full_disk_end(void);
