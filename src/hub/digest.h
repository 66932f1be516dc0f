/* digest.h -- SHA-1 and SHA-256 (FIPS 180-4), by which the Hub names what a file holds.
 *
 * They tell damage here, not malice: the names come from the same server. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

enum digest_kind { DIGEST_SHA1, DIGEST_SHA256 };
enum { DIGEST_HEX = 65 }; /* of the longer one, with a NUL */

struct digest {
    enum digest_kind kind;
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
};

void digest_init(struct digest *d, enum digest_kind kind);
void digest_add(struct digest *d, const void *bytes, size_t len);
/* Ends it; small letters. */
void digest_hex(struct digest *d, char hex[DIGEST_HEX]);
