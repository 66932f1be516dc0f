/* checksum.h -- CRC-32C (Castagnoli, reflected 0x82F63B78), as iSCSI, TensorBoard and our
 * manifests use it: checksum_crc32c(0, "123456789", 9) == 0xE3069283; and a 64-bit hash. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Continues from `crc`, 0 to begin, so that data can be fed in chunks. */
uint32_t checksum_crc32c(uint32_t crc, const void *bytes, size_t len);
/* The same in portable C, without the CRC instructions of the CPU. */
uint32_t checksum_crc32c_portable(uint32_t crc, const void *bytes, size_t len);
/* A CRC-32C over those of consecutive pieces of CHECKSUM_PIECE bytes, which threads compute; it
 * does not depend on their number.  Continues from `crc` if what came before was whole pieces. */
enum { CHECKSUM_PIECE = 1 << 18 };
uint32_t checksum_pieces(uint32_t crc, const void *bytes, size_t len, int num_threads);
/* Copies the bytes, which do not overlap, and returns checksum_pieces(0, ...) of the copy: the
 * threads sum each piece while it is in their caches. */
uint32_t checksum_copy_pieces(void *to, const void *from, size_t len, int num_threads);

/* A 64-bit hash, to find out whether bytes are the same; not cryptographic.  `seed`: 0, or the hash
 * of what comes before.  The hash of chunks depends on where they are cut. */
uint64_t checksum_hash64(uint64_t seed, const void *bytes, size_t len);
