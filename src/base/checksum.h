/* checksum.h -- CRC-32C (Castagnoli, reflected 0x82F63B78), as iSCSI, TensorBoard and our
 * manifests use it: checksum_crc32c(0, "123456789", 9) == 0xE3069283. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Continues from `crc`, 0 to begin, so that data can be fed in chunks. */
uint32_t checksum_crc32c(uint32_t crc, const void *bytes, size_t len);
/* The same in portable C, without the CRC instructions of the CPU. */
uint32_t checksum_crc32c_portable(uint32_t crc, const void *bytes, size_t len);
