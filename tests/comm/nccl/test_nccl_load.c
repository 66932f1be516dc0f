/* The tests run communicators over a stub; this looks for NCCL itself. */
// SPDX-License-Identifier: Apache-2.0
#include "base/library.h"
#include "comm/nccl/library.h"
#include "test.h"

TEST(an_installed_nccl_has_every_function_that_communicators_call)
{
    enum { NCCL_FUNCTIONS(LIBRARY_INDEX) COUNT };
    static const char *const names[] = {NCCL_FUNCTIONS(LIBRARY_NAME)};
    static const struct library nccl = {NCCL_TITLE, NCCL_FILE, NULL, names, COUNT};
    if (library_open(&nccl)) {
        CHECK_MESSAGE("NCCL is not installed"); /* and not: has no function */
        skip();
    }
    CHECK(library_find_function(&nccl, LIBRARY_INDEX_ncclCommInitRankConfig));
}
