// SPDX-License-Identifier: Apache-2.0
#include "app/piped_input.h"

#include "base/signals.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

/* Polls for a signal, which cannot interrupt a wait because this thread blocks it. */
enum status piped_input_read(struct text *t)
{
    enum { SIGNAL_MS = 200 };
    char bytes[1 << 16];
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    for (;;) {
        int ready = poll(&input, 1, SIGNAL_MS);
        if (signals_pending()) return STATUS_OK;
        if (!ready) continue;
        ssize_t n = ready > 0 ? read(STDIN_FILENO, bytes, sizeof bytes) : -1;
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0) FAIL(IO, "standard input: %s", strerror(errno));
        text_add(t, bytes, (size_t)n);
        return STATUS_OK;
    }
}
