// SPDX-License-Identifier: Apache-2.0
#include "base/host.h"

#include <string.h>
#include <unistd.h>

void host_name(char *name, size_t size)
{
    char whole[256] = ""; /* gethostname may fail where a name does not fit */
    size_t len = 0;
    if (!gethostname(whole, sizeof whole - 1)) len = strlen(whole);
    memset(name, 0, size);
    memcpy(name, whole, len < size ? len : size - 1);
}
