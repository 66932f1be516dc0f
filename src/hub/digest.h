/* digest.h -- SHA-1 and SHA-256 (FIPS 180-4), by which the Hub addresses file contents.
 *
 * They detect damage, not tampering: the expected digests come from the same server. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum digest_kind { DIGEST_SHA1, DIGEST_SHA256 };
enum { DIGEST_HEX = 65 }; /* of the longer one, with its NUL */

struct digest {
    enum digest_kind kind;
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
};

void digest_init(struct digest *d, enum digest_kind kind);
void digest_add(struct digest *d, const void *bytes, size_t len);
/* Finishes the digest and writes it as lowercase hex digits. */
void digest_hex(struct digest *d, char hex[DIGEST_HEX]);

bool digest_is_hex(const char *text, size_t digits); /* exactly this many lowercase hex digits */
