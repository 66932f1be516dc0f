/* codec.c -- fuzzes decompression: any block must yield the requested length or a clean error.
 *
 * The first byte selects the codec (8: LZ4_FRAME), the next two give the uncompressed length. */
// SPDX-License-Identifier: Apache-2.0
#include "formats/codec.h"

#include "base/text.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    enum codec codec = CODEC_LZ4_FRAME;
    if (len < 3 || (bytes[0] != 8 && codec_from_parquet(bytes[0], "input", &codec))) return 0;
    size_t out_len = bytes[1] | (size_t)bytes[2] << 8;
    unsigned char *out = heap(out_len + !out_len);
    const struct reader in = {bytes + 3, bytes + len, "input"};
    enum status st = codec_decompress(codec, in, out, out_len);
    BUG_IF(st && st != STATUS_DATA);
    BUG_IF(!st && codec_check_size(codec, in, out_len)); /* it was possible */
    free(out);
    return 0;
}
