/* wandb_log.c -- fuzzes the reader of .wandb files and of the protocol buffers inside: any bytes
 * must yield records, and what is written must be read back. */
// SPDX-License-Identifier: Apache-2.0
#include "formats/wandb_log.h"
#include "base/status.h"
#include "formats/protobuf.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void read_fields(struct protobuf_reader r, int depth)
{
    struct protobuf_field f;
    while (protobuf_next(&r, &f))
        if (f.bytes && depth < 4)
            read_fields((struct protobuf_reader){f.bytes, f.bytes + f.len}, depth + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct wandb_log_reader r;
    struct text t = {0};
    read_fields((struct protobuf_reader){(const char *)bytes, (const char *)bytes + len}, 0);
    if (wandb_log_open(&r, (const char *)bytes, len))
        while (wandb_log_next(&r)) {
        }
    wandb_log_close(&r);
    wandb_log_begin(&t);
    wandb_log_add(&t, t.len, bytes, len);
    wandb_log_add(&t, t.len, bytes, len);
    BUG_IF(!wandb_log_open(&r, t.data, t.len));
    for (int i = 0; i < 2; i++)
        BUG_IF(!wandb_log_next(&r) || r.record.len != len ||
               (len && memcmp(r.record.data, bytes, len)));
    BUG_IF(wandb_log_next(&r));
    wandb_log_close(&r);
    text_release(&t);
    return 0;
}
