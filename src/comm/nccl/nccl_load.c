// SPDX-License-Identifier: Apache-2.0
#include "base/library.h"
#include "comm/nccl/library.h"

#include <stdlib.h>

LIBRARY_DEFINE(NCCL_TITLE, NCCL_FILE, NULL, NCCL_FUNCTIONS)

/* Each group has communicators and streams of its own (nccl.h).  NCCL then requires that all ranks
 * launch their kernels in the same order, which the variable makes it ensure. */
enum status library_open_nccl(void)
{
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    TRY(library_open(&library));
    return STATUS_OK;
}
