// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include "base/port.h"

static uint32_t one_byte(uint32_t crc, unsigned char byte)
{
    crc ^= byte;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82F63B78u & (0u - (crc & 1)));
    return crc;
}

uint32_t checksum_crc32c_portable(uint32_t crc, const void *bytes, size_t len)
{
    uint32_t table[256];
    const unsigned char *at = bytes;
    for (uint32_t i = 0; i < 256; i++) table[i] = one_byte(i, 0);
    crc = ~crc;
    for (; len; len--) crc = crc >> 8 ^ table[(crc ^ *at++) & 255];
    return ~crc;
}

uint32_t checksum_crc32c(uint32_t crc, const void *bytes, size_t len)
{
    uint32_t inverted = ~crc;
    if (port_crc32c(&inverted, bytes, len)) return ~inverted;
    return checksum_crc32c_portable(crc, bytes, len);
}
