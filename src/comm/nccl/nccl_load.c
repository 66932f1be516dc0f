// SPDX-License-Identifier: Apache-2.0
#include "base/library.h"
#include "comm/nccl/library.h"

LIBRARY_DEFINE(NCCL_TITLE, NCCL_FILE, NULL, NCCL_FUNCTIONS)

enum status library_open_nccl(void)
{
    TRY(library_open(&library));
    return STATUS_OK;
}
