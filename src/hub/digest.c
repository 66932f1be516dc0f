// SPDX-License-Identifier: Apache-2.0
#include "hub/digest.h"

#include <stdio.h>
#include <string.h>

static uint32_t rotate_left(uint32_t x, int n) { return x << n | x >> (32 - n); }
static uint32_t rotate_right(uint32_t x, int n) { return x >> n | x << (32 - n); }

static uint32_t load_be32(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void sha1(uint32_t h[5], const unsigned char *block)
{
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 16; i++) w[i] = load_be32(block + 4 * i);
    for (int i = 16; i < 80; i++)
        w[i] = rotate_left(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f, k;
        if (i < 20)
            f = (b & c) | (~b & d), k = 0x5a827999;
        else if (i < 40)
            f = b ^ c ^ d, k = 0x6ed9eba1;
        else if (i < 60)
            f = (b & c) | (b & d) | (c & d), k = 0x8f1bbcdc;
        else
            f = b ^ c ^ d, k = 0xca62c1d6;
        uint32_t next = rotate_left(a, 5) + f + e + k + w[i];
        e = d, d = c, c = rotate_left(b, 30), b = a, a = next;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
}

static void sha256(uint32_t h[8], const unsigned char *block)
{
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};
    uint32_t w[64], s[8];
    memcpy(s, h, sizeof s);
    for (int i = 0; i < 16; i++) w[i] = load_be32(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + (rotate_right(x, 7) ^ rotate_right(x, 18) ^ x >> 3) + w[i - 7] +
               (rotate_right(y, 17) ^ rotate_right(y, 19) ^ y >> 10);
    }
    for (int i = 0; i < 64; i++) {
        uint32_t a = s[0], e = s[4];
        uint32_t t = s[7] + (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25)) +
                     ((e & s[5]) ^ (~e & s[6])) + k[i] + w[i];
        uint32_t u = (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22)) +
                     ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t, s[0] = t + u;
    }
    for (int i = 0; i < 8; i++) h[i] += s[i];
}

void digest_init(struct digest *d, enum digest_kind kind)
{
    static const uint32_t start[2][8] = {
        [DIGEST_SHA1] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0},
        [DIGEST_SHA256] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                           0x1f83d9ab, 0x5be0cd19}};
    *d = (struct digest){.kind = kind};
    memcpy(d->state, start[kind], sizeof d->state);
}

static void hash_block(struct digest *d, const unsigned char *block)
{
    if (d->kind == DIGEST_SHA1)
        sha1(d->state, block);
    else
        sha256(d->state, block);
}

void digest_add(struct digest *d, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;
    size_t buffered = d->bytes % 64;
    d->bytes += len;
    while (len) {
        size_t n = 64 - buffered < len ? 64 - buffered : len;
        if (n == 64) {
            hash_block(d, at);
        } else {
            memcpy(d->block + buffered, at, n);
            buffered += n;
            if (buffered == 64) hash_block(d, d->block);
            buffered %= 64;
        }
        at += n, len -= n;
    }
}

void digest_hex(struct digest *d, char hex[DIGEST_HEX])
{
    static const unsigned char padding[64] = {0x80};
    uint64_t bits = d->bytes * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    digest_add(d, padding, 1 + (119 - d->bytes % 64) % 64);
    digest_add(d, length, sizeof length);
    for (int i = 0; i < (d->kind == DIGEST_SHA1 ? 5 : 8); i++)
        snprintf(hex + (size_t)i * 8, 9, "%08x", d->state[i]);
}

bool digest_is_hex(const char *text, size_t digits)
{
    return strspn(text, "0123456789abcdef") == digits && !text[digits];
}
